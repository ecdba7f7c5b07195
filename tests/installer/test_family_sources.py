"""The sources of every family: repacked byte for byte at a small size, planned at the full one."""

import json
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mference.errors import CheckpointError, InstallError, UnsupportedModel
from mference.families import ENTRIES, FAMILIES, PinnedEntry
from mference.families.family import Family, FlashHead
from mference.installer import FolderSource, Limits, install
from mference.installer.installer import carry_out, look_ahead
from mference.installer.paths import prepared_paths
from mference.installer.plan import check_destinations
from mference.installer.repack import Repack, plan_repack
from mference.installer.run import Run
from mference.installer.snapshot import read_quantization
from mference.jsontext import pretty
from mference.store import open_install, verify_install
from mference.store.layout import CHUNK, PIECE_NAMES, decode_layout, layout_chunks, measure_layout
from mference.store.manifest import Manifest, decode_manifest
from mference.store.resident import read_index
from tests.installer.checkpoints import (
    FAMILY_NAMES,
    checkpoint_shapes,
    full_config,
    payload,
    small_config,
    small_maple,
    text_config,
)
from tests.installer.toys import Shapes, source_tensors, write_checkpoint


@pytest.fixture
def maple_of_any_size(monkeypatch):
    monkeypatch.setitem(FAMILIES, "maple", small_maple())


def entry_of(family: str) -> PinnedEntry:
    entry = next(entry for entry in ENTRIES.values() if entry.family == family)
    return replace(entry, reserve_bytes=0)


def run_of(family: str, source: Path, output: Path, **options: Any) -> Run:
    paths = prepared_paths(output)
    return Run(FolderSource(source), entry_of(family), paths, allow_unpinned=True, **options)


def repacked(family: str, folder: Path, **options: Any) -> Path:
    """A small checkpoint of the family as an install."""
    config = small_config(family)
    source = write_checkpoint(
        folder / "source", config, checkpoint_shapes(config), shards=3, content=payload
    )
    return carry_out(run_of(family, source, folder / "small.gturbo", **options)).path


class Source:
    """What the source says of a tensor, by this file's own arithmetic."""

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = shapes
        self.tensors = source_tensors(shapes)

    def stored(self, name: str) -> bytes:
        return payload(name, self.tensors[name].size)

    def companions(self, stem: str, columns: int) -> tuple[bytes, bytes]:
        """Scales and biases: those of the source, or the row's factor and its negative."""
        if f"{stem}.scales" in self.shapes:
            return self.stored(f"{stem}.scales"), self.stored(f"{stem}.biases")
        alpha = np.frombuffer(self.stored(f"{stem}.row_alpha"), "<u2")
        rows = np.tile(alpha[:, None], columns // 64)
        return rows.tobytes(), (rows ^ 0x8000).tobytes()

    def widened(self, name: str) -> bytes:
        """2-bit codes as 4-bit ones: two to a byte, the first in the low half."""
        data = np.frombuffer(self.stored(name), np.uint8)
        codes = np.stack([data >> shift & 3 for shift in (0, 2, 4, 6)], axis=1).reshape(-1)
        return (codes[0::2] | codes[1::2] << 4).tobytes()


@pytest.mark.usefixtures("maple_of_any_size")
@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_every_byte_of_a_small_source_is_where_the_store_says(family: str, tmp_path: Path):
    install_path = repacked(family, tmp_path, limits=Limits(chunk=20_000, scratch=8_000))
    verify_install(install_path)
    source = Source(checkpoint_shapes(small_config(family)))
    kept = check_resident(install_path, source) | check_experts(install_path, source)
    dropped = {name.rsplit(".", 1)[0] for name in source.shapes.keys() - kept}
    assert (
        dropped
        == {
            "qwen36": {"vision_tower.patch_embed.proj"},
            "deepseekV4Flash": set(),
            "inklingSmall": {"model.visual.proj", "model.audio.proj"},
            "maple": {"lm_head_flash", "lm_head_flash.head"},
        }[family]
    )


def check_resident(install_path: Path, source: Source) -> set[str]:
    """Compare every resident tensor, and return the source tensors that it was made of."""
    weights = (install_path / "model_weights.bin").read_bytes()
    kept = set()
    for tensor in read_index(install_path / "model_weights.bin").tensors.values():
        dtype, shape = source.shapes[tensor.name]
        stem = tensor.name.removesuffix(".weight")
        ternary = f"{stem}.row_alpha" in source.shapes
        found = [weights[start:end] for start, end in tensor.spans]
        assert tensor.dtype == dtype
        kept |= {n for n in source.shapes if n == tensor.name}
        if dtype != "U32":
            assert tensor.shape == shape
            assert found == [source.stored(tensor.name)], tensor.name
            continue
        wanted = source.widened(tensor.name) if ternary else source.stored(tensor.name)
        companions = source.companions(stem, tensor.shape[-1])
        assert found == [wanted, *companions], tensor.name
        assert tensor.bits == (8 if stem.endswith(("mlp.gate", "shared_expert_gate")) else 4)
        assert tensor.shape == (*shape[:-1], shape[-1] * 32 // (2 if ternary else tensor.bits))
        kept |= {f"{stem}.{x}" for x in ("scales", "biases", "row_alpha")} & source.shapes.keys()
    return kept


def check_experts(install_path: Path, source: Source) -> set[str]:
    """Compare every piece of every expert, and return the source tensors that it was made of."""
    layout = decode_layout((install_path / "packed_experts/layout.json").read_bytes())
    container = ("switch_mlp", "mlp.experts")
    kept = set()
    for layer in layout.layers:
        stems = {
            role: stem.removesuffix(".weight")
            for stem in source.shapes
            for role in ("gate", "up", "down")
            if f"layers.{layer.layer}." in stem
            and any(name in stem for name in container)
            and stem.endswith(f"{role}_proj.weight")
        }
        assert (
            bool(stems)
            == bool(layer.experts)
            == (install_path / "packed_experts" / layer.file).exists()
        )
        data = (install_path / "packed_experts" / layer.file).read_bytes() if stems else b""
        for i, expert in enumerate(layer.experts):
            assert set(expert.tensors) == set(PIECE_NAMES)
            blob = data[expert.offset : expert.offset + expert.size]
            end = 0
            for role, stem in stems.items():
                columns = expert.tensors[role].shape[-1]
                wanted = (source.stored(f"{stem}.weight"), *source.companions(stem, columns))
                for name, whole in zip(
                    (role, f"{role}_scales", f"{role}_biases"), wanted, strict=True
                ):
                    piece, size = expert.tensors[name], len(whole) // len(layer.experts)
                    assert (
                        blob[piece.offset : piece.offset + piece.size] == whole[i * size :][:size]
                    )
                    end = max(end, piece.offset + piece.size)
                kept |= {n for n in source.shapes if n.startswith(f"{stem}.")}
            assert not any(blob[end:])
    return kept


def manifest_of(install_path: Path) -> Manifest:
    return decode_manifest((install_path / "manifest.json").read_bytes())


@pytest.mark.usefixtures("maple_of_any_size")
@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_the_manifest_of_a_small_source_records_its_family(family: str, tmp_path: Path):
    path, config = repacked(family, tmp_path), small_config(family)
    manifest = manifest_of(path)
    assert manifest.arch == FAMILIES[family].rules.read_arch(config)
    assert manifest.arch.family == family
    overrides = {"qwen36": 10, "deepseekV4Flash": 18, "inklingSmall": 0, "maple": 2}
    written = json.loads((path / "manifest.json").read_bytes())
    assert written["bitWidthOverridesHonored"] == overrides[family]
    assert {name: slot.weight_bits for name, slot in manifest.quant.items()} == {
        "embedding": 4,
        "attention": 4,
        "router": 16 if family == "maple" else 8,
        "sharedExpert": 0 if family == "maple" else 4,
        "routedExpert": 2 if family in ("maple", "deepseekV4Flash") else 4,
    }
    assert (manifest.flash_head is not None) == (family == "maple")
    if manifest.flash_head:
        assert manifest.flash_head == FlashHead(48, 4, 6, 64, 4, 64, 4, True, (1, 3, 0))


@pytest.mark.usefixtures("maple_of_any_size")
@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_a_dry_run_says_how_large_the_install_will_be(family: str, tmp_path: Path):
    config = small_config(family)
    source = write_checkpoint(tmp_path / "source", config, checkpoint_shapes(config))
    run = run_of(family, source, tmp_path / "small.gturbo")
    plan = look_ahead(run)
    report = carry_out(run)
    assert plan.installed == report.bytes
    assert plan.installed == sum(
        p.stat().st_size
        for p in report.path.rglob("*")
        if p.is_file() and p.name not in ("manifest.json", "verified-install.json")
    )


@pytest.mark.usefixtures("maple_of_any_size")
@pytest.mark.parametrize("family", [name for name in FAMILY_NAMES if not FAMILIES[name].runnable])
def test_a_family_that_cannot_be_run_is_neither_installed_nor_opened(family: str, tmp_path: Path):
    path = repacked(family, tmp_path)
    refused = f"needs the model family '{family}', which this version of mference cannot run yet"
    with pytest.raises(UnsupportedModel, match=refused):
        open_install(path, allow_unpinned=True, warn=lambda _: None)
    with pytest.raises(UnsupportedModel, match=f"the model '.*' {refused}"):
        install(tmp_path / "source", tmp_path / "new.gturbo", entry=entry_of(family).name)
    with pytest.raises(UnsupportedModel, match=f"the source .* {refused}"):
        install(tmp_path / "source", tmp_path / "new.gturbo", allow_unpinned=True)


def planned(family: str, config: dict[str, Any], shapes: Shapes) -> Repack:
    known: Family = FAMILIES[family]
    rules = known.rules
    head = rules.flash_head.read(config) if rules.flash_head else None
    quantization = read_quantization(config, rules.quantization)
    arch = rules.read_arch(config)
    return plan_repack(known, rules, arch, quantization, source_tensors(shapes), head)


# Published or computed from the published shapes: tensors of the source and their bytes, resident
# tensors and the bytes of their file, the stride, layer files and their bytes.
FULL_SIZES = {
    "qwen36": (1757, 19_508_787_456, 613, 1_389_476_096, 1_769_472, 40, 452_984_832),
    "deepseekV4Flash": (2610, 96_520_315_996, 1199, 4_312_867_932, 8_388_608, 43, 2_147_483_648),
    "inklingSmall": (1876, 148_370_420_900, 840, 3_415_372_964, 14_155_776, 40, 3_623_878_656),
    "maple": (467, 5_314_264_064, 221, 523_107_328, 983_040, 24, 251_658_240),
}


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_the_real_model_has_the_published_sizes(family: str):
    config = full_config(family)
    shapes = checkpoint_shapes(config)
    repack = planned(family, config, shapes)
    dropped = (
        "vision_tower.",
        "model.visual.",
        "model.audio.",
        "lm_head_flash.h",
        "lm_head_flash.cl",
    )
    kept = [t for t in source_tensors(shapes).values() if not t.name.startswith(dropped)]
    layers = [size for name, size in repack.outputs.items() if "layer_" in name]
    assert (
        len(kept),
        sum(t.size for t in kept),
        len(repack.index.tensors),
        repack.index.file_size,
        repack.layout.expert_stride,
        len(layers),
        layers[0],
    ) == FULL_SIZES[family]
    assert len(set(layers)) == 1
    check_destinations(repack.copies)
    widened = sum(c.output_size - c.size for c in repack.copies)
    assert (widened > 0) == (family == "maple")


@pytest.mark.parametrize(
    ("family", "tokenizer"),
    [("deepseekV4Flash", (8, 14)), ("inklingSmall", (20, 45)), ("qwen36", (10, 25))],
)
def test_the_rest_of_the_published_installed_size_is_a_tokenizer(family, tokenizer):
    config = full_config(family)
    repack = planned(family, config, checkpoint_shapes(config))
    known = sum(repack.outputs.values()) + measure_layout(repack.layout)
    rest = entry_of(family).installed_bytes - known
    assert tokenizer[0] * 1_000_000 < rest < tokenizer[1] * 1_000_000


def test_deepseeks_layers_of_finer_and_of_coarser_groups_have_the_published_pieces():
    config = full_config("deepseekV4Flash")
    layers = planned("deepseekV4Flash", config, checkpoint_shapes(config)).layout.layers
    fine = [
        (0, 2_097_152), (2_097_152, 524_288), (2_621_440, 524_288),
        (3_145_728, 2_097_152), (5_242_880, 262_144), (5_505_024, 262_144),
        (5_767_168, 2_097_152), (7_864_320, 262_144), (8_126_464, 262_144),
    ]  # fmt: skip
    coarse = [
        (0, 2_097_152), (2_097_152, 262_144), (2_359_296, 262_144),
        (2_621_440, 2_097_152), (4_718_592, 262_144), (4_980_736, 262_144),
        (5_242_880, 2_097_152), (7_340_032, 262_144), (7_602_176, 262_144),
    ]  # fmt: skip
    for layer, pieces, group in ((0, fine, 32), (41, fine, 32), (42, coarse, 64)):
        found = layers[layer].experts[255].tensors
        assert [(found[n].offset, found[n].size) for n in PIECE_NAMES] == pieces
        assert layers[layer].group_size() == group


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_a_full_size_config_that_differs_from_the_known_model_is_refused(family: str):
    rules = FAMILIES[family].rules
    config = full_config(family)
    assert rules.read_arch(config) == FAMILIES[family].baseline
    text_config(config)["num_experts_per_tok"] += 1
    with pytest.raises(CheckpointError, match="topKExperts") as caught:
        rules.read_arch(config)
    assert caught.value.reason == "config_invalid"


def edited(config: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    *parents, key = path.split("/")
    target = reduce(lambda node, part: node[part], parents, config)
    if value is None:
        del target[key]
    else:
        target[key] = value
    return config


@pytest.mark.parametrize(
    ("family", "path", "value"),
    [
        ("qwen36", "text_config/rope_parameters", None),
        ("qwen36", "text_config/layer_types", ["sliding_attention"] * 5),
        ("qwen36", "text_config/layer_types", ["full_attention"]),
        ("qwen36", "text_config/head_dim", 0),
        ("deepseekV4Flash", "rope_scaling", None),
        ("deepseekV4Flash", "rope_scaling/factor", None),
        ("deepseekV4Flash", "compress_ratios", [0, 0, 4]),
        ("deepseekV4Flash", "layer_types", ["linear_attention"] * 6),
        ("deepseekV4Flash", "mlp_layer_types", ["moe", "hash_moe", *["moe"] * 4]),
        ("deepseekV4Flash", "mlp_layer_types", ["dense"] * 6),
        ("deepseekV4Flash", "partial_rotary_factor", 1e300),
        ("deepseekV4Flash", "num_hash_layers", 7),
        ("inklingSmall", "text_config/local_layer_ids", [6]),
        ("inklingSmall", "text_config/swa_head_dim", 128),
        ("inklingSmall", "text_config/num_hidden_layers", 10**9),
        ("maple", "num_hidden_layers", 24.0),
        ("maple", "use_rmsnorm", 1),
        ("maple", "router_dtype", None),
    ],
)
def test_a_config_that_cannot_be_read_is_refused(family: str, path: str, value: object):
    config = full_config(family) if family == "maple" else small_config(family)
    with pytest.raises(CheckpointError) as caught:
        FAMILIES[family].rules.read_arch(edited(config, path, value))
    assert caught.value.reason == "config_invalid"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("n_clusters", 4747),
        ("n_probes", 4749),
        ("bits", 8),
        ("scaled_centroids", False),
        ("force_tokens", [1, 1]),
        ("force_tokens", [151936]),
        ("head_bits", None),
    ],
)
def test_a_sparse_head_that_cannot_be_maples_is_refused(path: str, value: object):
    config = edited(full_config("maple"), f"flash_head/{path}", value)
    with pytest.raises(CheckpointError) as caught:
        FAMILIES["maple"].rules.flash_head.read(config)
    assert caught.value.reason == "config_invalid"


@pytest.mark.parametrize(
    "change",
    [
        {"bits": 4},
        {"group_size": 64},
        {"bits": None},
        {"lm_head": {"bits": 4, "group_size": 32}},
        {"lm_head": None},
        {"model.layers.0.self_attn.q_proj": {"bits": 4, "group_size": 64}},
    ],
)
def test_maple_accepts_one_quantization_only(change: dict[str, Any]):
    config = full_config("maple")
    rules = FAMILIES["maple"].rules
    assert read_quantization(config, rules.quantization) == rules.quantization
    config["quantization"].update(change)
    with pytest.raises(CheckpointError) as caught:
        read_quantization(config, rules.quantization)
    assert caught.value.reason == "config_invalid"


@pytest.mark.usefixtures("maple_of_any_size")
def test_a_maple_without_a_sparse_head_drops_what_is_left_of_it(tmp_path: Path):
    config = small_config("maple")
    shapes = checkpoint_shapes(config)
    del config["flash_head"]
    source = write_checkpoint(tmp_path / "source", config, shapes)
    path = carry_out(run_of("maple", source, tmp_path / "small.gturbo")).path
    assert manifest_of(path).flash_head is None
    names = read_index(path / "model_weights.bin").tensors
    assert not any(name.startswith("lm_head_flash") for name in names)


@pytest.mark.usefixtures("maple_of_any_size")
@pytest.mark.parametrize(
    ("name", "replacement", "reason"),
    [
        ("lm_head_flash.token_map", None, "configuration_error"),
        ("lm_head_flash.centroids.scales", None, "configuration_error"),
        ("lm_head_flash.token_map", ("I64", (48, 4)), "dtype_mismatch"),
        ("lm_head_flash.token_map", ("I32", (4, 48)), "shape_mismatch"),
        ("model.layers.1.mlp.switch_mlp.up_proj.row_alpha", None, "configuration_error"),
        ("model.layers.1.self_attn.o_proj.row_alpha", ("F16", (128,)), "dtype_mismatch"),
        ("model.layers.1.self_attn.o_proj.row_alpha", ("BF16", (128, 1)), "shape_mismatch"),
        ("model.layers.1.self_attn.o_proj.weight", ("U32", (128, 2)), "shape_mismatch"),
        ("lm_head_flash.other", ("F32", (1,)), "unknown_tensor_prefix"),
    ],
)
def test_a_maple_whose_tensors_do_not_fit_is_refused(name, replacement, reason):
    config = small_config("maple")
    shapes = checkpoint_shapes(config)
    planned("maple", config, shapes)
    if replacement:
        shapes[name] = replacement
    else:
        del shapes[name]
    with pytest.raises(CheckpointError) as caught:
        planned("maple", config, shapes)
    assert caught.value.reason == reason


def test_a_layer_without_experts_is_refused_where_it_is_not_dense(tmp_path: Path):
    config = small_config("inklingSmall")
    shapes = checkpoint_shapes(config)
    shapes = {name: s for name, s in shapes.items() if "layers.2.mlp.experts" not in name}
    source = write_checkpoint(tmp_path / "source", config, shapes)
    with pytest.raises(InstallError, match="no experts for layer 2"):
        carry_out(run_of("inklingSmall", source, tmp_path / "small.gturbo"))


def test_a_large_layout_is_written_in_chunks_of_the_same_bytes():
    config = full_config("deepseekV4Flash")
    layout = planned("deepseekV4Flash", config, checkpoint_shapes(config)).layout
    # Three layers stand for all: the plain form of the whole takes seconds.
    layout = replace(layout, num_layers=3, layers=layout.layers[:2] + layout.layers[42:])
    chunks = list(layout_chunks(layout))
    assert max(map(len, chunks)) <= CHUNK
    assert len(chunks) > 3
    document = json.loads(b"".join(chunks))
    assert pretty(document) == b"".join(chunks)
    assert decode_layout(b"".join(chunks)) == layout
    plain = {
        "expertStride": layout.expert_stride,
        "numLayers": 3,
        "expertsPerLayer": 256,
        "layers": [
            {
                "layer": layer.layer,
                "file": layer.file,
                "experts": [
                    {
                        "expert": e,
                        "offset": expert.offset,
                        "size": expert.size,
                        "tensors": {
                            name: {
                                "offset": piece.offset,
                                "size": piece.size,
                                "dtype": piece.dtype,
                                "shape": list(piece.shape),
                            }
                            | ({"bits": piece.bits} if piece.bits else {})
                            for name, piece in expert.tensors.items()
                        },
                    }
                    for e, expert in enumerate(layer.experts)
                ],
            }
            for layer in layout.layers
        ],
    }
    assert document == plain
