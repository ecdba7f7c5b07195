"""Sources that lie: each lie ends with its named error, and nothing is left or written outside."""

import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mference.errors import CheckpointError, SourceMismatch
from mference.store import verify_install
from tests.installer.contents import contents
from tests.installer.place import INDEX, Place, make_place
from tests.store.toys import TRUNK

NORM = f"{TRUNK}layers.0.input_layernorm.weight"
EMBEDDING = f"{TRUNK}embed_tokens.weight"
EXPERTS = f"{TRUNK}layers.0.experts.switch_glu."
DEEP = 100_000


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return make_place(tmp_path)


def first(header: dict[str, Any]) -> dict[str, Any]:
    """The tensor whose data come first."""
    tensors = (value for name, value in header.items() if name != "__metadata__")
    return min(tensors, key=lambda tensor: tensor["data_offsets"])


def last(header: dict[str, Any]) -> dict[str, Any]:
    return max(header.values(), key=lambda tensor: tensor["data_offsets"])


def without_last(header: dict[str, Any]) -> dict[str, Any]:
    return {name: tensor for name, tensor in header.items() if tensor is not last(header)}


def longer(tensor: dict[str, Any]) -> None:
    tensor.update(dtype="F64", shape=[10**6])
    tensor["data_offsets"][1] = tensor["data_offsets"][0] + 8 * 10**6


def of_first(**values: object) -> Callable[[dict[str, Any]], None]:
    return lambda header: first(header).update(values)


def moved(by: int) -> Callable[[dict[str, Any]], None]:
    def change(header: dict[str, Any]) -> None:
        tensor = last(header)
        tensor["data_offsets"] = [offset + by for offset in tensor["data_offsets"]]

    return change


def renamed(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda header: {**header, name: {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}


HEADERS = {
    "an overlap": (moved(-1), "tensor_overlap"),
    "a gap": (moved(1), "tensor_gap"),
    "bytes that nobody owns at the end": (without_last, "tensor_gap"),
    "an end past the file": (lambda header: longer(last(header)), "tensor_out_of_range"),
    "offsets in reverse": (of_first(data_offsets=[12, 0]), "tensor_size"),
    "offsets of one tensor's size more": (of_first(data_offsets=[0, 24]), "tensor_size"),
    "a product beyond 64 bits": (of_first(shape=[2**62, 2**62]), "tensor_size"),
    "a product that wraps to the right size": (of_first(shape=[3, 2**62 + 1]), "tensor_size"),
    "a size beyond 64 bits": (of_first(shape=[2**64 + 3]), "header_invalid"),
    "an offset beyond 64 bits": (of_first(data_offsets=[2**64, 2**64 + 12]), "header_invalid"),
    "a negative size": (of_first(shape=[-3]), "header_invalid"),
    "two negative sizes": (of_first(shape=[-3, -1]), "header_invalid"),
    "a negative offset": (of_first(data_offsets=[-12, 0]), "header_invalid"),
    "a broken size": (of_first(shape=[1.5, 2]), "header_invalid"),
    "a size beyond a double's integers": (of_first(shape=[1e300]), "header_invalid"),
    "a size in words": (of_first(shape=["3"]), "header_invalid"),
    "a size that is true": (of_first(shape=[True, 3]), "header_invalid"),
    "no shape": (of_first(shape=None), "header_invalid"),
    "a shape that is an object": (of_first(shape={"0": 3}), "header_invalid"),
    "three offsets": (of_first(data_offsets=[0, 6, 12]), "header_invalid"),
    "an unknown dtype": (of_first(dtype="F4"), "unknown_dtype"),
    "a dtype in small letters": (of_first(dtype="f32"), "unknown_dtype"),
    "a dtype that is a number": (of_first(dtype=32), "header_invalid"),
    "a tensor that is a list": (lambda h: h.update(x=[]), "header_invalid"),
    "a name with a NUL": (renamed(f"{TRUNK}x\0.weight"), "header_invalid"),
    "a name with half a surrogate pair": (renamed(f"{TRUNK}\ud800.weight"), "header_invalid"),
    "a name longer than the store's": (renamed("x" * 65_536), "header_invalid"),
}  # fmt: skip


@pytest.mark.parametrize("lie", HEADERS)
def test_a_header_that_lies_about_its_tensors_is_refused(place: Place, lie):
    change, reason = HEADERS[lie]
    place.edit_header(change)
    place.refused(CheckpointError, reason)


TEXTS = {
    "nothing": b"",
    "a list": b"[]",
    "no JSON": b"{",
    "no UTF-8": b'{"\xff": 1}',
    "a byte order mark": b"\xef\xbb\xbf{}",
    "nested lists": b"[" * DEEP + b"]" * DEEP,
    "nested objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "a number of a million digits": b'{"a": ' + b"9" * 10**6 + b"}",
    "NaN": b'{"a": NaN}',
    "a name twice": b'{"a": {}, "a": {}}',
    "a key twice": b'{"a": {"dtype": "U8", "dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}',
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_header_that_is_no_plain_object_is_refused(place: Place, text):
    place.write_header(TEXTS[text])
    place.refused(CheckpointError, "header_invalid")


@pytest.mark.parametrize(
    ("length", "reason"),
    [
        ((16 << 20) + 1, "header_too_large"),
        (2**63, "header_too_large"),
        (2**64 - 1, "header_too_large"),
        (2**64 - 8, "header_too_large"),
        (16 << 20, "header_truncated"),
    ],
)
def test_a_header_that_lies_about_its_length_is_refused(place: Place, length, reason):
    place.write_header(b"{}", length)
    place.refused(CheckpointError, reason)


def test_a_shard_too_short_for_a_length_is_refused(place: Place):
    place.shard.write_bytes(b"1234567")
    place.refused(CheckpointError, "header_truncated")


def add_tensor(place: Place, name: str, dtype: str, shape: list[int], size: int) -> None:
    """A third shard with one tensor, whose data are a hole in the file."""
    text = json.dumps({name: {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}}).encode()
    with (place.source / "more.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + size)
    place.map_tensor(name, "more.safetensors")


@pytest.mark.parametrize(
    ("dtype", "shape", "size", "reason"),
    [
        ("F16", [0], 0, "shape_mismatch"),
        ("F16", [2**40, 0], 0, "shape_mismatch"),
        ("F16", [1, 1, 1, 1, 8], 16, "shape_mismatch"),
        ("F16", [2**32], 2**33, "shape_mismatch"),
        ("F64", [2], 16, "dtype_mismatch"),
        ("BOOL", [2], 2, "dtype_mismatch"),
        ("U32", [2], 8, "missing_scales"),
        ("F16", [2**20, 2**21], 2**42, "too_large"),
    ],
)
def test_a_tensor_that_the_store_has_no_room_for_is_refused(
    place: Place, dtype, shape, size, reason
):
    add_tensor(place, f"{TRUNK}odd.weight", dtype, shape, size)
    place.refused(CheckpointError, reason)


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "C:\\x", "lm_head.weight", ""])
def test_a_tensor_of_no_known_family_is_refused(place: Place, name):
    add_tensor(place, name, "F16", [4], 8)
    place.refused(CheckpointError, "unknown_tensor_prefix")


@pytest.mark.parametrize(
    "name",
    [
        "language_model.model/../../../../secret",
        f"{TRUNK}layers.{'9' * 5000}.x.weight",
        f"{EXPERTS.replace('0', '9' * 5000)}gate_proj.biases",
        f"{TRUNK}layers.\u0660.input_layernorm.weight",
    ],
    ids=["a path", "a layer of many digits", "its experts", "a digit beyond ASCII"],
)
def test_a_tensor_with_an_odd_name_is_copied_and_its_name_means_nothing(place: Place, name):
    add_tensor(place, name, "F16", [4], 8)
    before = place.everything("outside")
    verify_install(place.install().path)
    assert place.everything("outside") == before


@pytest.mark.parametrize(("count", "reason"), [(2, "shape_mismatch"), (2**40, "too_large")])
def test_experts_of_no_width_are_refused_however_many(place: Place, count, reason):
    def shrink(config: dict[str, Any]) -> None:
        config["text_config"] |= {"num_experts": count, "moe_intermediate_size": 0}

    place.edit("config.json", shrink)
    sizes = {"gate": ((0, 16), (0, 2)), "up": ((0, 16), (0, 2)), "down": ((128, 0), (128, 0))}
    for role, (weight, companion) in sizes.items():
        for part in ("weight", "scales", "biases"):
            shape = [count, *(weight if part == "weight" else companion)]
            dtype = "U32" if part == "weight" else "BF16"
            name = f"{EXPERTS}{role}_proj.{part}"
            text = json.dumps({name: {"dtype": dtype, "shape": shape, "data_offsets": [0, 0]}})
            shard = f"{role}-{part}.safetensors"
            data = len(text).to_bytes(8, "little") + text.encode()
            (place.source / shard).write_bytes(data)
            place.map_tensor(name, shard)
    place.refused(CheckpointError, reason)


def test_headers_full_of_tensors_that_the_index_does_not_name_are_not_kept(place: Place):
    nothing = {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}
    text = json.dumps({f"vision_tower.{i}": nothing for i in range(4_000)}).encode()
    (place.source / "0").write_bytes(len(text).to_bytes(8, "little") + text)
    peaks = []
    for count in (1, 6):
        for i in range(count):
            (place.source / f"shard-{i}").unlink(missing_ok=True)
            (place.source / f"shard-{i}").symlink_to("0")
            place.map_tensor(f"vision_tower.{i}", f"shard-{i}")
        tracemalloc.start()
        try:
            place.install(overwrite=True)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


UNSAFE = [
    "../outside/secret",
    "/etc/passwd",
    "a/../../outside/secret",
    "..",
    ".",
    "",
    "./model-00001-of-00002.safetensors",
    "a//b",
    "a/",
    "..\\outside\\secret",
    "C:\\secret",
    "x\0.safetensors",
    "x?download=1",
    "x#fragment",
    "x" * 256,
    "/".join("x" * 200 for _ in range(6)),
]


@pytest.mark.parametrize("name", UNSAFE, ids=lambda n: repr(n)[:30])
def test_a_shard_whose_name_leads_elsewhere_is_refused(place: Place, name):
    place.map_tensor(NORM, name)
    for options in ({}, {"dry_run": True}):
        place.refused(CheckpointError, "unsafe_name", **options)


@pytest.mark.parametrize(
    ("shard", "reason"),
    [
        ("missing.safetensors", "missing_file"),
        ("%2e%2e/outside/secret", "missing_file"),
        ("config.json/x", "missing_file"),
        ("folder", "missing_file"),
        ("pipe", "missing_file"),
        ("loop", "missing_file"),
        ("dangling", "missing_file"),
        ("zero", "missing_file"),
        (INDEX, "header_too_large"),
        ("config.json", "header_too_large"),
        ("model-00001-of-00002.safetensors", "missing_tensor"),
        ("\ud800", "index_invalid"),
        (7, "index_invalid"),
        (None, "index_invalid"),
        (["model-00001-of-00002.safetensors"], "index_invalid"),
    ],
)
def test_a_shard_that_is_none_is_refused(place: Place, shard, reason):
    (place.source / "folder").mkdir()
    os.mkfifo(place.source / "pipe")
    (place.source / "loop").symlink_to("loop")
    (place.source / "dangling").symlink_to("nowhere")
    (place.source / "zero").symlink_to("/dev/zero")
    place.map_tensor(EMBEDDING, shard)
    place.refused(CheckpointError, reason)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "index_invalid"),
        (b"[]", "index_invalid"),
        (b"{}", "index_invalid"),
        (b'{"weight_map": []}', "index_invalid"),
        (b'{"weight_map": {"a": "x", "a": "y"}}', "index_invalid"),
        (b'{"a":' * DEEP + b"1" + b"}" * DEEP, "index_invalid"),
        (b'{"weight_map": {"' + b"x" * (5 << 20) + b'": "x"}}', "too_large"),
        (b'{"weight_map": {}}', "configuration_error"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_an_index_that_maps_nothing_is_refused(place: Place, text, reason):
    (place.source / INDEX).write_bytes(text)
    place.refused(CheckpointError, reason)


@pytest.mark.parametrize("name", [INDEX, "config.json"])
def test_a_source_whose_metadata_is_a_folder_is_no_checkpoint(place: Place, name):
    (place.source / name).unlink()
    (place.source / name).mkdir()
    place.refused(SourceMismatch)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "config_invalid"),
        (b'{"a":' * DEEP + b"1" + b"}" * DEEP, "config_invalid"),
        (b"[" * DEEP, "config_invalid"),
        (b'{"text_config": 1e999}', "config_invalid"),
        (b" " * (1 << 20) + b"{}", "too_large"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_config_that_cannot_be_read_is_refused(place: Place, text, reason):
    (place.source / "config.json").write_bytes(text)
    place.refused(CheckpointError, reason)


@pytest.mark.parametrize(
    "values",
    [
        {"num_hidden_layers": 10**12},
        {"num_hidden_layers": 0, "layer_types": []},
        {"num_experts": 2**63},
        {"num_experts": -1},
        {"num_experts": 2.5},
        {"hidden_size": "128"},
        {"layer_types": "full_attention"},
        {"final_logit_softcapping": 10**400},
    ],
    ids=str,
)
def test_a_config_of_impossible_values_is_refused(place: Place, values):
    place.edit("config.json", lambda config: config["text_config"].update(values))
    place.refused(CheckpointError, "config_invalid")


@pytest.mark.parametrize(
    ("name", "cap"),
    [
        ("tokenizer.json", 64 << 20),
        ("tokenizer_config.json", 4 << 20),
        ("special_tokens_map.json", 1 << 20),
        ("chat_template.jinja", 4 << 20),
        ("chat_template.json", 4 << 20),
    ],
)
def test_a_tokenizer_file_that_is_too_large_is_refused(place: Place, name, cap):
    with (place.source / name).open("wb") as file:
        file.truncate(cap + 1)
    place.refused(CheckpointError, "too_large")


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("kind", ["folder", "pipe", "device"])
def test_a_tokenizer_file_that_is_no_file_is_missing(place: Place, name, kind):
    path = place.source / name
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    place.refused(CheckpointError, "missing_file")


def test_a_source_of_symlinks_is_read_and_nothing_is_written_through_them(place: Place):
    plain = contents(place.install().path)
    blobs = place.outside / "blobs"
    blobs.mkdir()
    for i, path in enumerate(sorted(place.source.iterdir())):
        path.rename(blobs / str(i))
        path.symlink_to(Path("..") / "outside" / "blobs" / str(i))
    before = {**place.everything("outside"), **place.everything("source")}
    assert contents(place.install(overwrite=True).path) == plain
    assert {**place.everything("outside"), **place.everything("source")} == before
