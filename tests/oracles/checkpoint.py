"""What the tiny random checkpoints of all families share: writing, reading, installing, tokens.

A family's own file has its shape: sizes, config.json, and how its weights are drawn.
"""

import json
import shutil
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import mference
from tests.reference.affine import Quantized, bf16_bits, bf16_float, dequantize, quantize
from tests.reference.formulas import Array

DTYPES = {"U32": "<u4", "BF16": "<u2", "F32": "<f4"}


class Tensors:
    """Tensors of a checkpoint as they are drawn; by name: safetensors dtype and raw array."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.drawn: dict[str, tuple[str, np.ndarray]] = {}

    def matrix(self, name: str, *dims: int, bits: int = 4, gain: float = 1.0) -> None:
        """A quantized matrix of normal values whose rows have about norm `gain`."""
        q = quantize(self.rng.standard_normal(dims) * gain / np.sqrt(dims[-1]), bits, 64)
        self.drawn[name + ".weight"] = ("U32", q.weight.view("<u4"))
        self.drawn[name + ".scales"] = ("BF16", q.scales)
        self.drawn[name + ".biases"] = ("BF16", q.biases)

    def vector(self, name: str, size: int, mean: float, spread: float) -> None:
        """BF16 normal values."""
        self.values(name, mean + spread * self.rng.standard_normal(size))

    def values(self, name: str, values: Array, dtype: str = "BF16") -> None:
        """These values in BF16 or F32."""
        self.drawn[name] = (dtype, bf16_bits(values) if dtype == "BF16" else np.float32(values))


class Shape(Protocol):
    """Sizes of a tiny checkpoint, its config.json, and its weights."""

    @property
    def shards(self) -> int:
        """Safetensors files."""
        ...

    def config(self) -> dict[str, Any]:
        """config.json."""
        ...

    def draw(self, t: Tensors) -> None:
        """Adds every tensor."""
        ...


class Step(Protocol):
    """What a reference says of tokens that it tried."""

    logits: Array  # [batch, vocabulary]
    gap: Array  # [batch]: how far the closest router was from a tie


class Reference(Protocol):
    """A float64 model with the state of one sequence; `tests/reference` has them."""

    config: dict[str, Any]

    def logits(self, tokens: list[int]) -> Array: ...
    def candidates(self, tokens: np.ndarray) -> Step: ...
    def append(self, step: Step, row: int) -> None: ...


@dataclass(frozen=True)
class Family:
    """A family's random checkpoints and its reference.

    name: as `mference.families.FAMILIES` has it.
    entry: the entry to install as.
    random: by name: seed, shape, and tokens of the sequence. Tests of any family take three
        of them: `seed1` has 8 experts, `seed2` 16, and `seed7` 24, of which a token takes 12.
    mlx_float16: mlx-lm's error on each in float16, with the sums of its products in float32 as on
        Apple's GPUs: max |difference| from float64 / max |logit|, over a prompt and eight tokens
        after it. A GPU may differ by half as much again. `make test-all` measures them anew.
    """

    name: str
    entry: str
    reference: Callable[[dict[str, Any], dict[str, Array]], Reference]
    random: Mapping[str, tuple[int, Shape, int]]
    mlx_float16: Mapping[str, float]


def write(directory: Path, shape: Shape, seed: int) -> None:
    """Writes config.json, the index and `shape.shards` safetensors files."""
    tensors = Tensors(np.random.default_rng(seed))
    shape.draw(tensors)
    directory.mkdir(parents=True)
    names = sorted(tensors.drawn)
    weight_map: dict[str, str] = {}
    for shard in range(shape.shards):
        file = f"model-{shard + 1:05d}-of-{shape.shards:05d}.safetensors"
        header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
        payload = b""
        for name in names[shard :: shape.shards]:
            dtype, data = tensors.drawn[name]
            raw = np.ascontiguousarray(data).astype(DTYPES[dtype]).tobytes()
            header[name] = {
                "dtype": dtype,
                "shape": list(data.shape),
                "data_offsets": [len(payload), len(payload) + len(raw)],
            }
            payload += raw
            weight_map[name] = file
        head = json.dumps(header).encode()
        (directory / file).write_bytes(struct.pack("<Q", len(head)) + head + payload)
    (directory / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": weight_map}, sort_keys=True)
    )
    (directory / "config.json").write_text(json.dumps(shape.config()))


def read(directory: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """The config and every tensor in float64, quantized ones dequantized."""
    config = json.loads((directory / "config.json").read_text())
    index = json.loads((directory / "model.safetensors.index.json").read_text())
    raw: dict[str, np.ndarray] = {}
    for file in sorted(set(index["weight_map"].values())):
        blob = (directory / file).read_bytes()
        start = 8 + struct.unpack("<Q", blob[:8])[0]
        for name, entry in json.loads(blob[8:start]).items():
            if name != "__metadata__":
                first, last = entry["data_offsets"]
                data = np.frombuffer(blob[start + first : start + last], DTYPES[entry["dtype"]])
                data = data.reshape(entry["shape"])
                raw[name] = data
    weights: dict[str, Array] = {}
    spec = config["quantization"]
    for name, data in raw.items():
        base = name.removesuffix(".weight")
        if name.endswith((".scales", ".biases")):
            continue
        if data.dtype == np.uint32:
            own = spec.get(base, spec)
            scales, biases = raw[base + ".scales"], raw[base + ".biases"]
            packed = np.ascontiguousarray(data).view(np.uint8)
            weights[name] = dequantize(
                Quantized(packed, scales, biases, own["bits"], own["group_size"])
            )
        elif data.dtype == np.uint16:
            weights[name] = bf16_float(data).astype(np.float64)
        else:
            weights[name] = data.astype(np.float64)
    return config, weights


def install(source: Path, target: Path, entry: str = "gemma4") -> Path:
    """Installs a checkpoint that has no tokenizer of its own."""
    staged = target.parent / "staged"
    shutil.copytree(source, staged)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if not (staged / name).exists():
            (staged / name).write_text("{}")
    mference.install(staged, target, entry=entry, allow_unpinned=True)
    return target


def write_and_install(root: Path, shape: Shape, seed: int, entry: str = "gemma4") -> Path:
    """An install, below `root`, of a checkpoint that is written for it."""
    write(root / "ckpt", shape, seed)
    return install(root / "ckpt", root / "tiny.gturbo", entry)


def pick_tokens(reference: Reference, count: int, seed: int) -> tuple[list[int], Array]:
    """Tokens on which no router is near a tie, and their logits [count, vocabulary].

    Near a tie 16-bit rounding may pick another expert, and a comparison would measure luck.
    """
    rng = np.random.default_rng(seed)
    vocabulary = reference.config["vocab_size"]
    tokens: list[int] = []
    logits: list[Array] = []
    for _ in range(count):
        offered = rng.choice(np.arange(3, vocabulary), 24, replace=False)
        step = reference.candidates(offered)
        best = int(step.gap.argmax())
        reference.append(step, best)
        tokens.append(int(offered[best]))
        logits.append(step.logits[best])
    return tokens, np.array(logits)
