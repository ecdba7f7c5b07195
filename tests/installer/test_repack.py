"""The store that the real Gemma 4 checkpoint becomes, computed from its published shapes."""

import pytest

from mference.errors import CheckpointError
from mference.families import ENTRIES, FAMILIES
from mference.families.family import Quantization
from mference.families.gemma4 import BASELINE
from mference.installer.plan import MAX_CHUNK, check_destinations, plan_ranges
from mference.installer.repack import plan_repack
from mference.installer.snapshot import read_quantization
from mference.store.layout import encode_layout
from tests.installer.toys import EXPERTS, source_tensors
from tests.store.toys import TRUNK

NORMS = (
    "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
    "pre_feedforward_layernorm_2", "post_feedforward_layernorm", "post_feedforward_layernorm_1",
    "post_feedforward_layernorm_2",
)  # fmt: skip


def gemma4_shapes() -> dict[str, tuple[str, tuple[int, ...]]]:
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {}

    def packed(stem: str, *shape: int, bits: int = 4) -> None:
        shapes[f"{stem}.weight"] = ("U32", (*shape[:-1], shape[-1] * bits // 32))
        groups = (*shape[:-1], shape[-1] // 64)
        shapes[f"{stem}.scales"] = shapes[f"{stem}.biases"] = ("BF16", groups)

    packed(f"{TRUNK}embed_tokens", 262144, 2816)
    for layer, full in enumerate(BASELINE.layer_mask):
        stem = f"{TRUNK}layers.{layer}"
        queries, keys, head = (8192, 1024, 512) if full else (4096, 2048, 256)
        packed(f"{stem}.self_attn.q_proj", queries, 2816)
        packed(f"{stem}.self_attn.k_proj", keys, 2816)
        if not full:
            packed(f"{stem}.self_attn.v_proj", keys, 2816)
        packed(f"{stem}.self_attn.o_proj", 2816, queries)
        for name in ("q_norm", "k_norm"):
            shapes[f"{stem}.self_attn.{name}.weight"] = ("BF16", (head,))
        packed(f"{stem}.router.proj", 128, 2816, bits=8)
        shapes[f"{stem}.router.scale"] = ("BF16", (2816,))
        shapes[f"{stem}.router.per_expert_scale"] = ("BF16", (128,))
        for role in ("gate", "up"):
            packed(f"{stem}.mlp.{role}_proj", 2112, 2816)
            packed(f"{stem}{EXPERTS}{role}_proj", 128, 704, 2816)
        packed(f"{stem}.mlp.down_proj", 2816, 2112)
        packed(f"{stem}{EXPERTS}down_proj", 128, 2816, 704)
        for name in NORMS:
            shapes[f"{stem}.{name}.weight"] = ("BF16", (2816,))
        shapes[f"{stem}.layer_scalar"] = ("BF16", (1,))
    shapes[f"{TRUNK}norm.weight"] = ("BF16", (2816,))
    return shapes


def test_the_real_model_has_the_published_sizes():
    overrides = {f"{TRUNK}layers.{i}.router.proj": (8, 64) for i in range(30)}
    family = FAMILIES["gemma4"]
    tensors = source_tensors(gemma4_shapes())
    quantization = Quantization(4, 64, "affine", overrides)
    repack = plan_repack(family, family.rules, BASELINE, quantization, tensors)
    assert len(tensors) == 1339
    assert len(repack.index.tensors) == 597
    assert (repack.index.index_size, repack.index.file_size) == (81920, 1353771068)
    assert repack.layout.expert_stride == 3358720
    layers = [size for name, size in repack.outputs.items() if "layer_" in name]
    assert layers == [429916160] * 30
    pieces = repack.layout.layers[0].experts[0].tensors
    assert sum(piece.size for piece in pieces.values()) == 3345408
    assert {name: slot.weight_bits for name, slot in repack.quant.items()} == {
        "embedding": 4,
        "attention": 4,
        "router": 8,
        "sharedExpert": 4,
        "routedExpert": 4,
    }
    check_destinations(repack.copies)
    ranges = plan_ranges(repack.copies)
    assert sum(r.size for r in ranges) == 14200055868
    assert all(r.size <= MAX_CHUNK for r in ranges)
    # The rest of both sizes is the tokenizer's files, 32 MB.
    layout = len(encode_layout(repack.layout))
    entry = ENTRIES["gemma4"]
    tokenizer = entry.installed_bytes - sum(repack.outputs.values()) - layout
    assert 32_000_000 < tokenizer < 33_000_000
    assert abs(14200055868 + tokenizer - entry.download_bytes) < 1_000_000


@pytest.mark.parametrize(
    "quantization",
    [
        {"mode": "mxfp4"},
        {"bits": "4"},
        {"group_size": 0},
        {"a": {"bits": 4, "group_size": 32}},
        [],
    ],
)
def test_a_quantization_that_cannot_be_read_is_refused(quantization):
    with pytest.raises(CheckpointError) as caught:
        read_quantization({"quantization": quantization})
    assert caught.value.reason == "config_invalid"


def test_a_tensor_of_no_known_prefix_is_refused():
    tensors = source_tensors({"mtp.fc.weight": ("BF16", (2, 2))})
    family = FAMILIES["gemma4"]
    with pytest.raises(CheckpointError, match=r"mtp\.fc\.weight") as caught:
        plan_repack(family, family.rules, BASELINE, Quantization(4, 64, "affine", {}), tensors)
    assert caught.value.reason == "unknown_tensor_prefix"
