"""Headers that lie are refused, each lie by its own name."""

import json
from pathlib import Path

import pytest

from mference.errors import CheckpointError
from mference.installer import FolderSource
from mference.installer.safetensors import read_header


def tensor(*offsets: int, dtype: str = "BF16", shape: tuple[int, ...] = (4,)) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def read(folder: Path, header: bytes, data: int = 0, length: int | None = None):
    announced = len(header) if length is None else length
    (folder / "s").write_bytes(announced.to_bytes(8, "little") + header + bytes(data))
    return read_header(FolderSource(folder), "s")


def test_offsets_become_absolute(tmp_path: Path):
    header = json.dumps({"__metadata__": {"format": "mlx"}, "a": tensor(8, 16), "b": tensor(0, 8)})
    found = read(tmp_path, header.encode(), 16)
    start = 8 + len(header)
    assert {n: (t.offset, t.size) for n, t in found.items()} == {
        "a": (start + 8, 8),
        "b": (start, 8),
    }


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ({"a": tensor(0, 8), "b": tensor(4, 12)}, "tensor_overlap"),
        ({"a": tensor(0, 8), "b": tensor(16, 24)}, "tensor_gap"),
        ({"a": tensor(0, 8)}, "tensor_gap"),
        ({"a": tensor(0, 8), "b": tensor(8, 16), "c": tensor(16, 24)}, "tensor_out_of_range"),
        ({"a": tensor(0, 6), "b": tensor(6, 16)}, "tensor_size"),
        ({"a": tensor(0, 16, shape=(2**62, 2**62))}, "tensor_size"),
        ({"a": tensor(16, 0, shape=(-8,))}, "header_invalid"),
        ({"a": tensor(0, 2**70, shape=(2**69,))}, "header_invalid"),
        ({"a": tensor(0, 16, dtype="F4")}, "unknown_dtype"),
        ({"a": tensor(0)}, "header_invalid"),
        ({"a": []}, "header_invalid"),
    ],
)
def test_a_lying_tensor_is_refused(tmp_path: Path, tensors, reason):
    with pytest.raises(CheckpointError) as caught:
        read(tmp_path, json.dumps(tensors).encode(), 16)
    assert caught.value.reason == reason


def test_a_huge_length_is_refused_without_reading_it(tmp_path: Path):
    for length in (2**63, 2**64 - 1, (16 << 20) + 1):
        with pytest.raises(CheckpointError) as caught:
            read(tmp_path, b"{}", length=length)
        assert caught.value.reason == "header_too_large"


def test_a_header_past_the_end_is_refused(tmp_path: Path):
    with pytest.raises(CheckpointError) as caught:
        read(tmp_path, b"{}", length=3)
    assert caught.value.reason == "header_truncated"


def test_a_name_written_twice_is_refused(tmp_path: Path):
    text = json.dumps({"a": tensor(0, 8)})[:-1] + ", " + json.dumps({"a": tensor(8, 16)})[1:]
    with pytest.raises(CheckpointError, match="twice") as caught:
        read(tmp_path, text.encode(), 16)
    assert caught.value.reason == "header_invalid"


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff", b"[" * 100_000])
def test_a_header_that_is_no_object_is_refused(tmp_path: Path, text):
    with pytest.raises(CheckpointError) as caught:
        read(tmp_path, text)
    assert caught.value.reason == "header_invalid"


def test_a_missing_or_tiny_shard_is_refused(tmp_path: Path):
    with pytest.raises(CheckpointError) as caught:
        read_header(FolderSource(tmp_path), "s")
    assert caught.value.reason == "missing_file"
    (tmp_path / "s").write_bytes(b"1234567")
    with pytest.raises(CheckpointError) as caught:
        read_header(FolderSource(tmp_path), "s")
    assert caught.value.reason == "header_truncated"
