"""Installs a full-size Gemma 4 26B-A4B with random weights, without a download.

    python benchmarks/synthesize.py OUTPUT.gturbo [--layers 30]

The checkpoint exists only as a rule: the installer's plan asks for byte ranges, and each range is
made when it is asked for. So the real installer and writer run, in the memory and the disk space of
a real install. The weights are uniform codes of unit row norm.

Random weights route wrongly unless they are treated. Attention averages all tokens into one
direction, and every token would choose the same experts: so the gains of the norms after attention
and after the layer are set low. Weights without a mean have the opposite fault, that no two tokens
share more than chance: so the 4-bit codes 0 to 15 stand for (code - 8) steps, as in Q4_0, and the
mean of minus half a step carries a direction that all tokens share. `benchmarks/routing.py` shows
what comes of it. The tokenizer is the demo model's: its ids are valid, the text is noise.
"""

import argparse
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import mference
from mference.families import Arch, pinned_entry
from mference.installer.installer import carry_out
from mference.installer.paths import prepared_paths
from mference.installer.run import Run
from mference.installer.source import BLOCK, DEMO_CHECKPOINT, Sink

TRUNK = "language_model.model."
SHARD = "model.safetensors"
PAGE = 1 << 20
ATTENTION_GAIN = 0.02
LAYER_GAIN = 0.06
COMMON_BYTES = 1_353_771_068
LAYER_BYTES = 128 * 3_358_720


@dataclass(frozen=True)
class Tensor:
    """A tensor of the imagined checkpoint: random bytes, or one 16-bit value repeated."""

    dtype: str
    shape: tuple[int, ...]
    value: int | None = None

    @property
    def size(self) -> int:
        """Bytes."""
        return int(np.prod(self.shape)) * (4 if self.dtype == "U32" else 2)

    def page(self, key: int, index: int) -> bytes:
        """The bytes of one page; the same for the same tensor and page, whoever asks."""
        length = min(PAGE, self.size - index * PAGE)
        if self.value is not None:
            return np.full(length // 2, self.value, "<u2").tobytes()
        return np.random.Generator(np.random.SFC64([key, index])).bytes(length)


def bf16(value: float) -> int:
    """The bits of the BF16 value below or at `value`, exact for the values used here."""
    return int(np.float32(value).view(np.uint32) >> 16)


def affine(
    tensors: dict[str, Tensor], name: str, *shape: int, bits: int = 4, gain: float = 1.0
) -> None:
    """Adds a quantized matrix whose rows have norm `gain`.

    The step is a BF16 value, and so is the bias: at 4 bits -8 steps, at 8 bits -127.5 steps of a
    power of two, so that a router's weights have mean zero.
    """
    wanted = gain / np.sqrt(shape[-1]) / np.sqrt(4**bits / 12)
    if bits == 4:
        exponent = np.floor(np.log2(wanted)) - 7
        step = np.round(wanted / 2.0**exponent) * 2.0**exponent
        bias = -8 * step
    else:
        step = 2.0 ** np.round(np.log2(wanted))
        bias = -127.5 * step
    tensors[name + ".weight"] = Tensor("U32", (*shape[:-1], shape[-1] * bits // 32))
    groups = (*shape[:-1], shape[-1] // 64)
    tensors[name + ".scales"] = Tensor("BF16", groups, bf16(float(step)))
    tensors[name + ".biases"] = Tensor("BF16", groups, bf16(float(bias)))


def imagine(arch: Arch, layers: int) -> dict[str, Tensor]:
    """Every tensor of the checkpoint."""
    hidden, width = arch.integer("hiddenSize"), arch.integer("moeIntermediateSize")
    dense, experts = arch.integer("ffnIntermediate"), arch.integer("numExperts")
    heads = arch.integer("numHeads")
    tensors: dict[str, Tensor] = {}

    def vector(name: str, size: int, value: float = 1.0) -> None:
        tensors[name] = Tensor("BF16", (size,), bf16(value))

    affine(tensors, TRUNK + "embed_tokens", arch.integer("vocabSize"), hidden)
    vector(TRUNK + "norm.weight", hidden)
    for i in range(layers):
        p = f"{TRUNK}layers.{i}."
        full = arch.layer_mask[i] == 1
        dim = arch.integer("fullHeadDim" if full else "headDim")
        kv = arch.integer("numFullKVHeads" if full else "numKVHeads") * dim
        affine(tensors, p + "self_attn.q_proj", heads * dim, hidden)
        affine(tensors, p + "self_attn.k_proj", kv, hidden)
        if not full:
            affine(tensors, p + "self_attn.v_proj", kv, hidden)
        affine(tensors, p + "self_attn.o_proj", hidden, heads * dim)
        affine(tensors, p + "router.proj", experts, hidden, bits=8, gain=2.0 * np.sqrt(hidden))
        for name in ("gate_proj", "up_proj"):
            affine(tensors, f"{p}mlp.{name}", dense, hidden)
            affine(tensors, f"{p}experts.switch_glu.{name}", experts, width, hidden)
        affine(tensors, p + "mlp.down_proj", hidden, dense)
        affine(tensors, p + "experts.switch_glu.down_proj", experts, hidden, width)
        for name in ("q_norm", "k_norm"):
            vector(f"{p}self_attn.{name}.weight", dim)
        vector(p + "router.scale", hidden)
        vector(p + "router.per_expert_scale", experts)
        for name, gain in {
            "input_layernorm": 1.0,
            "post_attention_layernorm": ATTENTION_GAIN,
            "pre_feedforward_layernorm": 1.0,
            "pre_feedforward_layernorm_2": 1.0,
            "post_feedforward_layernorm": LAYER_GAIN,
            "post_feedforward_layernorm_1": 1.0,
            "post_feedforward_layernorm_2": 1.0,
        }.items():
            vector(f"{p}{name}.weight", hidden, gain)
        vector(p + "layer_scalar", 1)
    return tensors


def config(arch: Arch, layers: int) -> dict[str, Any]:
    """A config.json that describes the architecture."""
    quantization: dict[str, Any] = {"group_size": 64, "bits": 4, "mode": "affine"}
    for i in range(layers):
        quantization[f"{TRUNK}layers.{i}.router.proj"] = {"group_size": 64, "bits": 8}
    kinds = ("sliding_attention", "full_attention")
    return {
        "model_type": "gemma4",
        "quantization": quantization,
        "text_config": {
            "hidden_size": arch["hiddenSize"],
            "intermediate_size": arch["ffnIntermediate"],
            "moe_intermediate_size": arch["moeIntermediateSize"],
            "num_attention_heads": arch["numHeads"],
            "num_key_value_heads": arch["numKVHeads"],
            "num_global_key_value_heads": arch["numFullKVHeads"],
            "head_dim": arch["headDim"],
            "global_head_dim": arch["fullHeadDim"],
            "vocab_size": arch["vocabSize"],
            "sliding_window": arch["slidingWindow"],
            "final_logit_softcapping": arch["finalLogitSoftcap"],
            "num_hidden_layers": layers,
            "num_experts": arch["numExperts"],
            "top_k_experts": arch["topKExperts"],
            "tie_word_embeddings": True,
            "attention_k_eq_v": True,
            "enable_moe_block": True,
            "num_kv_shared_layers": 0,
            "hidden_size_per_layer_input": 0,
            "hidden_activation": arch["hiddenActivation"],
            "layer_types": [kinds[arch.layer_mask[i]] for i in range(layers)],
            "rope_parameters": {
                "full_attention": {
                    "rope_type": "proportional",
                    "rope_theta": arch["fullRopeTheta"],
                    "partial_rotary_factor": arch["partialRotaryFactor"],
                },
                "sliding_attention": {"rope_type": "default", "rope_theta": arch["ropeTheta"]},
            },
        },
    }


class ImaginedSource:
    """A checkpoint that is made up as it is read."""

    description = identity = "random weights"
    identity = description

    def __init__(self, arch: Arch, layers: int) -> None:
        self._tensors = imagine(arch, layers)
        self._starts: list[tuple[int, int, Tensor]] = []
        header: dict[str, Any] = {}
        position = 0
        for key, (name, tensor) in enumerate(self._tensors.items()):
            end = position + tensor.size
            header[name] = {
                "dtype": tensor.dtype,
                "shape": list(tensor.shape),
                "data_offsets": [position, end],
            }
            self._starts.append((position, key, tensor))
            position = end
        text = json.dumps(header).encode()
        self._head = struct.pack("<Q", len(text)) + text
        self._size = len(self._head) + position
        weight_map = dict.fromkeys(self._tensors, SHARD)
        self._files = {
            "config.json": json.dumps(config(arch, layers)).encode(),
            "model.safetensors.index.json": json.dumps(
                {"metadata": {"total_size": position}, "weight_map": weight_map}
            ).encode(),
        }
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            self._files[name] = (DEMO_CHECKPOINT / name).read_bytes()

    def size(self, name: str, *, ranged: bool = False) -> int | None:  # noqa: ARG002
        """Bytes of a file, None if there is none."""
        if name == SHARD:
            return self._size
        return len(self._files[name]) if name in self._files else None

    def read(
        self,
        name: str,
        offset: int,
        length: int,
        size: int,  # noqa: ARG002
        sink: Sink,
    ) -> None:
        """The range, made as it is asked for."""
        if name != SHARD:
            sink(self._files[name][offset : offset + length])
            return
        for piece in self._shard(offset, offset + length):
            for start in range(0, len(piece), BLOCK):
                sink(piece[start : start + BLOCK])

    def interrupt(self) -> None:
        """Nothing here waits."""

    def _shard(self, first: int, last: int) -> Iterator[bytes]:
        if first < len(self._head):
            yield self._head[first:last]
        first, last = first - len(self._head), last - len(self._head)
        for start, key, tensor in self._starts:
            low, high = max(first, start), min(last, start + tensor.size)
            while low < high:
                index = (low - start) // PAGE
                page = start + index * PAGE
                piece = tensor.page(key, index)[low - page : high - page]
                yield piece
                low += len(piece)

    def close(self) -> None:
        """Nothing to release."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("output", type=Path)
    parser.add_argument("--layers", type=int, default=30, help="fewer make a smaller model")
    options = parser.parse_args()
    entry = pinned_entry("gemma4")
    layers = options.layers
    done = -1

    def report(progress: mference.Progress) -> None:
        nonlocal done
        percent = 100 * progress.done // max(1, progress.total)
        if percent != done:
            done = percent
            print(f"\r{progress.phase} {percent:3d} %", end="", flush=True)

    source = ImaginedSource(entry.arch, layers)
    run = Run(source, entry, prepared_paths(options.output), allow_unpinned=True, report=report)
    result = carry_out(run)
    print(f"\r{result.path}: {result.bytes:,} bytes in {result.seconds:.0f} s")
    experts = sorted((result.path / "packed_experts").glob("layer_*.bin"))
    assert [file.stat().st_size for file in experts] == [LAYER_BYTES] * layers
    if layers == 30:
        assert (result.path / "model_weights.bin").stat().st_size == COMMON_BYTES


if __name__ == "__main__":
    main()
