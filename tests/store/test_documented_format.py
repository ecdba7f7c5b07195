"""A second reader, written from docs/gturbo.md alone: it uses nothing of the package.

Where this file needs to know more than the page says, the page is to be completed.
"""

import json
import struct
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from tests.chat.demo import CHECKPOINT
from tests.reference.affine import Quantized, dequantize

TRUNK = "language_model.model."
DTYPES = {0: "U32", 1: "BF16", 2: "F16", 3: "F32", 4: "I64", 5: "I32"}


def bf16(data: bytes) -> np.ndarray:
    return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)


@dataclass(frozen=True)
class Stored:
    """A tensor as an install holds it; scales and biases are empty if it is not quantized."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes
    scales: bytes
    biases: bytes

    def values(self) -> np.ndarray:
        """Section 8: w = q * scale + bias, codes packed low bits first into 32-bit words."""
        rows, columns = self.shape
        bits = 8 * len(self.data) // (rows * columns)
        group = columns // (len(self.scales) // (2 * rows))
        shifts = np.arange(0, 32, bits, dtype=np.uint32)
        words = np.frombuffer(self.data, "<u4")[:, None]
        codes = ((words >> shifts) & (2**bits - 1)).reshape(-1, group).astype(np.float64)
        values = codes * bf16(self.scales)[:, None] + bf16(self.biases)[:, None]
        return values.reshape(rows, columns)


def resident_tensors(path: Path) -> dict[str, Stored]:
    """Section 3."""
    file = path.read_bytes()
    index_size, data_size, count = struct.unpack_from("<3Q", file)
    assert index_size + data_size == len(file)
    tensors = {}
    for at in range(24, 24 + 72 * count, 72):
        name_at, name_size, dtype, _, *rest = struct.unpack_from("<IHBBQQ4I4Q", file, at)
        shape, spans = rest[2:6], (rest[0:2], rest[6:8], rest[8:10])
        data, scales, biases = (file[offset : offset + size] for offset, size in spans)
        name = file[name_at : name_at + name_size].decode()
        tensors[name] = Stored(DTYPES[dtype], tuple(n for n in shape if n), data, scales, biases)
    return tensors


def expert(install: Path, layer: int, number: int) -> dict[str, Stored]:
    """Sections 4 and 5: an expert's gate, up and down."""
    described = json.loads((install / "packed_experts/layout.json").read_bytes())["layers"][layer]
    place = next(e for e in described["experts"] if e["expert"] == number)
    file = (install / "packed_experts" / described["file"]).read_bytes()
    blob = file[place["offset"] : place["offset"] + place["size"]]
    pieces = {
        name: blob[piece["offset"] : piece["offset"] + piece["size"]]
        for name, piece in place["tensors"].items()
    }
    return {
        name: Stored(
            place["tensors"][name]["dtype"], tuple(place["tensors"][name]["shape"]),
            pieces[name], pieces[f"{name}_scales"], pieces[f"{name}_biases"],
        )
        for name in ("gate", "up", "down")
    }  # fmt: skip


def source(name: str) -> tuple[tuple[int, ...], bytes]:
    """A tensor of the checkpoint the demo is made from: shape and bytes."""
    shards = json.loads((CHECKPOINT / "model.safetensors.index.json").read_bytes())["weight_map"]
    file = (CHECKPOINT / shards[name]).read_bytes()
    size = int.from_bytes(file[:8], "little")
    header = json.loads(file[8 : 8 + size])[name]
    begin, end = header["data_offsets"]
    return tuple(header["shape"]), file[8 + size + begin : 8 + size + end]


def expected(stem: str, bits: int, *, part: int = 0, parts: int = 1) -> np.ndarray:
    """What the checkpoint's tensor is worth, by the tests' own arithmetic."""
    loaded = []
    for suffix, dtype in (("weight", np.uint8), ("scales", np.uint16), ("biases", np.uint16)):
        shape, data = source(f"{stem}.{suffix}")
        values = np.frombuffer(data, dtype).reshape(parts, shape[-2], -1)
        loaded.append(values[part])
    return dequantize(Quantized(*loaded, bits=bits, group=64))


def test_every_file_has_the_size_and_hash_of_the_manifest(demo_install):
    manifest = (demo_install / "manifest.json").read_bytes()
    files = json.loads(manifest)["files"]
    for name, record in files.items():
        data = (demo_install / name).read_bytes()
        assert (len(data), sha256(data).hexdigest()) == (record["size"], record["sha256"])
    receipt = json.loads((demo_install / "verified-install.json").read_bytes())
    assert receipt["manifestSha256"] == sha256(manifest).hexdigest()
    own = {"size": len(manifest), "sha256": sha256(manifest).hexdigest()}
    assert receipt["files"] == files | {"manifest.json": own}


def test_the_resident_tensors_are_those_of_the_checkpoint(demo_install):
    tensors = resident_tensors(demo_install / "model_weights.bin")
    assert len(tensors) == 121
    for name, tensor in tensors.items():
        assert tensor.data == source(name)[1]
        if tensor.scales:
            assert tensor.scales == source(name.removesuffix("weight") + "scales")[1]
            assert tensor.biases == source(name.removesuffix("weight") + "biases")[1]


@pytest.mark.parametrize(("stem", "bits"), [("self_attn.o_proj", 4), ("router.proj", 8)])
def test_a_quantized_tensor_is_worth_what_the_checkpoint_says(demo_install, stem, bits):
    stem = f"{TRUNK}layers.5.{stem}"
    stored = resident_tensors(demo_install / "model_weights.bin")[f"{stem}.weight"]
    np.testing.assert_array_equal(stored.values(), expected(stem, bits))


def test_an_expert_is_worth_what_the_checkpoint_says(demo_install):
    for name, stored in expert(demo_install, 2, 37).items():
        stem = f"{TRUNK}layers.2.experts.switch_glu.{name}_proj"
        np.testing.assert_array_equal(stored.values(), expected(stem, 4, part=37, parts=64))
