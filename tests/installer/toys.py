"""Small source checkpoints for tests: safetensors shards, index, config, tokenizer files."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from mference.families.pins import ENTRIES, PinnedEntry
from mference.installer.safetensors import DTYPE_SIZES, SourceTensor
from tests.store.toys import EXPERT_COUNT, HIDDEN, TRUNK, WIDTH, pattern, toy_arch

EXPERTS = ".experts.switch_glu."

Shapes = dict[str, tuple[str, tuple[int, ...]]]
Content = Callable[[str, int], bytes]


def toy_config(layers: int = 1) -> dict[str, Any]:
    """A Gemma config.json whose architecture is that of `toy_arch`."""
    return {
        "model_type": "gemma4",
        "text_config": {
            "hidden_size": HIDDEN,
            "intermediate_size": 64,
            "moe_intermediate_size": WIDTH,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "num_global_key_value_heads": 1,
            "head_dim": 64,
            "global_head_dim": 64,
            "vocab_size": 128,
            "sliding_window": 32,
            "final_logit_softcapping": 30.0,
            "num_hidden_layers": layers,
            "num_experts": EXPERT_COUNT,
            "top_k_experts": 1,
            "tie_word_embeddings": True,
            "attention_k_eq_v": True,
            "layer_types": ["full_attention"] * layers,
        },
        "quantization": {
            "bits": 4,
            "group_size": 64,
            "mode": "affine",
            **{
                f"{TRUNK}layers.{i}.router.proj": {"bits": 8, "group_size": 64}
                for i in range(layers)
            },
        },
    }


def toy_shapes(layers: int = 1) -> Shapes:
    """Every tensor of the toy source: dtype and stored shape."""
    shapes: Shapes = {"vision_tower.x": ("F32", (3,))}

    def packed(stem: str, shape: tuple[int, ...], bits: int) -> None:
        groups = (*shape[:-1], shape[-1] // 64)
        shapes[f"{stem}.weight"] = ("U32", (*shape[:-1], shape[-1] * bits // 32))
        shapes[f"{stem}.scales"] = shapes[f"{stem}.biases"] = ("BF16", groups)

    packed(f"{TRUNK}embed_tokens", (128, HIDDEN), 4)
    for layer in range(layers):
        stem = f"{TRUNK}layers.{layer}"
        packed(f"{stem}.router.proj", (EXPERT_COUNT, HIDDEN), 8)
        shapes[f"{stem}.input_layernorm.weight"] = ("BF16", (HIDDEN,))
        for role in ("gate", "up"):
            packed(f"{stem}{EXPERTS}{role}_proj", (EXPERT_COUNT, WIDTH, HIDDEN), 4)
        packed(f"{stem}{EXPERTS}down_proj", (EXPERT_COUNT, HIDDEN, WIDTH), 4)
    shapes[f"{TRUNK}norm.weight"] = ("BF16", (HIDDEN,))
    return shapes


def source_tensors(shapes: Shapes) -> dict[str, SourceTensor]:
    """Tensors of those shapes, one after another in one imaginary shard."""
    tensors, at = {}, 0
    for name, (dtype, shape) in shapes.items():
        size = DTYPE_SIZES[dtype]
        for n in shape:
            size *= n
        tensors[name] = SourceTensor(name, "toy.safetensors", dtype, shape, at, size)
        at += size
    return tensors


def shard_bytes(tensors: list[SourceTensor], content: Content = pattern) -> bytes:
    """A safetensors file of those tensors, filled with what `content` gives for name and size."""
    header, at = {}, 0
    for t in tensors:
        header[t.name] = {"dtype": t.dtype, "shape": t.shape, "data_offsets": [at, at + t.size]}
        at += t.size
    text = json.dumps(header).encode()
    return (
        len(text).to_bytes(8, "little") + text + b"".join(content(t.name, t.size) for t in tensors)
    )


def write_source(folder: Path, layers: int = 1, shards: int = 2) -> Path:
    """Write a complete toy source checkpoint and return its folder."""
    return write_checkpoint(folder, toy_config(layers), toy_shapes(layers), shards)


def write_checkpoint(
    folder: Path,
    config: dict[str, Any],
    shapes: Shapes,
    shards: int = 2,
    content: Content = pattern,
) -> Path:
    """Write a source checkpoint of those tensors and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = list(source_tensors(shapes).values())
    weight_map = {}
    for i in range(shards):
        name = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        mine = tensors[i::shards]
        (folder / name).write_bytes(shard_bytes(mine, content))
        weight_map |= {t.name: name for t in mine}
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text('{"a": 1}')
    (folder / "tokenizer_config.json").write_text("{}")
    return folder


def toy_entry(index_sha256: str, layers: int = 1) -> PinnedEntry:
    """A pinned entry whose source is a toy."""
    return replace(
        ENTRIES["gemma4"],
        name="toy",
        arch=toy_arch(layers),
        index_sha256=index_sha256,
        reserve_bytes=0,
    )
