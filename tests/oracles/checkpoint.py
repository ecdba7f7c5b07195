"""Tiny random Gemma 4 checkpoints with the real tensor names, dtypes and quantization.

The weights are drawn so that attention, routing and softcap all matter: embeddings and projections
of unit gain, moderate query-key products, router scores spread widely, final logits of about 10.
"""

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.reference.affine import Quantized, bf16_bits, bf16_float, dequantize, quantize
from tests.reference.gemma4 import TRUNK, Array, Gemma4Reference

KINDS = {"s": "sliding_attention", "f": "full_attention"}
DTYPES = {"U32": "<u4", "BF16": "<u2", "F32": "<f4"}


@dataclass(frozen=True)
class Shape:
    """Sizes of a tiny checkpoint; `layers` spells sliding (s) and full (f) layers."""

    layers: str = "ssfssf"
    hidden: int = 128
    width: int = 64
    experts: int = 8
    top_k: int = 2
    vocabulary: int = 512
    window: int = 16
    shards: int = 1

    def config(self) -> dict[str, Any]:
        quantization: dict[str, Any] = {"group_size": 64, "bits": 4, "mode": "affine"}
        for i in range(len(self.layers)):
            quantization[f"{TRUNK}layers.{i}.router.proj"] = {"group_size": 64, "bits": 8}
        return {
            "architectures": ["Gemma4ForConditionalGeneration"],
            "model_type": "gemma4",
            "vocab_size": self.vocabulary,
            "tie_word_embeddings": True,
            "eos_token_id": [1, 106, 50],
            "quantization": quantization,
            "text_config": {
                "model_type": "gemma4_text",
                "hidden_size": self.hidden,
                "num_hidden_layers": len(self.layers),
                "intermediate_size": 3 * self.width,
                "moe_intermediate_size": self.width,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "num_global_key_value_heads": 1,
                "head_dim": 64,
                "global_head_dim": 128,
                "vocab_size": self.vocabulary,
                "rms_norm_eps": 1e-6,
                "sliding_window": self.window,
                "layer_types": [KINDS[c] for c in self.layers],
                "attention_k_eq_v": True,
                "enable_moe_block": True,
                "num_experts": self.experts,
                "top_k_experts": self.top_k,
                "num_kv_shared_layers": 0,
                "hidden_size_per_layer_input": 0,
                "vocab_size_per_layer_input": self.vocabulary,
                "use_double_wide_mlp": False,
                "final_logit_softcapping": 30.0,
                "tie_word_embeddings": True,
                "hidden_activation": "gelu_pytorch_tanh",
                "max_position_embeddings": 262144,
                "attention_bias": False,
                "pad_token_id": 0,
                "bos_token_id": 2,
                "eos_token_id": 1,
                "rope_parameters": {
                    "full_attention": {
                        "partial_rotary_factor": 0.25,
                        "rope_theta": 1e6,
                        "rope_type": "proportional",
                    },
                    "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"},
                },
            },
        }


def _draw(shape: Shape, rng: np.random.Generator) -> dict[str, tuple[str, np.ndarray]]:
    """Every tensor of the checkpoint as (safetensors dtype, raw array)."""
    tensors: dict[str, tuple[str, np.ndarray]] = {}

    def matrix(name: str, *dims: int, bits: int = 4, gain: float = 1.0) -> None:
        w = rng.standard_normal(dims) * gain / np.sqrt(dims[-1])
        q = quantize(w, bits, 64)
        tensors[name + ".weight"] = ("U32", q.weight.view("<u4"))
        tensors[name + ".scales"] = ("BF16", q.scales)
        tensors[name + ".biases"] = ("BF16", q.biases)

    def vector(name: str, size: int, mean: float, spread: float) -> None:
        values = mean + spread * rng.standard_normal(size)
        tensors[name] = ("BF16", bf16_bits(values))

    h, w, e = shape.hidden, shape.width, shape.experts
    matrix(TRUNK + "embed_tokens", shape.vocabulary, h)
    vector(TRUNK + "norm.weight", h, 4.0, 0.6)
    for i, kind in enumerate(shape.layers):
        p = f"{TRUNK}layers.{i}."
        dim, kv = (128, 1) if kind == "f" else (64, 2)
        matrix(p + "self_attn.q_proj", 4 * dim, h)
        matrix(p + "self_attn.k_proj", kv * dim, h)
        if kind == "s":
            matrix(p + "self_attn.v_proj", kv * dim, h)
        matrix(p + "self_attn.o_proj", h, 4 * dim)
        vector(p + "self_attn.q_norm.weight", dim, 0.4, 0.05)
        vector(p + "self_attn.k_norm.weight", dim, 0.4, 0.05)
        matrix(p + "router.proj", e, h, bits=8, gain=2.0 * np.sqrt(h))
        vector(p + "router.scale", h, 1.0, 0.2)
        vector(p + "router.per_expert_scale", e, 1.0, 0.2)
        for name in ("gate_proj", "up_proj"):
            matrix(f"{p}mlp.{name}", 3 * w, h)
            matrix(f"{p}experts.switch_glu.{name}", e, w, h)
        matrix(p + "mlp.down_proj", h, 3 * w)
        matrix(p + "experts.switch_glu.down_proj", e, h, w)
        for norm in (
            "input_layernorm",
            "post_attention_layernorm",
            "pre_feedforward_layernorm",
            "pre_feedforward_layernorm_2",
            "post_feedforward_layernorm",
            "post_feedforward_layernorm_1",
            "post_feedforward_layernorm_2",
        ):
            vector(f"{p}{norm}.weight", h, 1.0, 0.15)
        tensors[p + "layer_scalar"] = ("BF16", bf16_bits(0.6 + 0.3 * rng.random(1)))
    return tensors


def write(directory: Path, shape: Shape, seed: int) -> None:
    """Writes config.json, the index and `shape.shards` safetensors files."""
    tensors = _draw(shape, np.random.default_rng(seed))
    directory.mkdir(parents=True)
    names = sorted(tensors)
    weight_map: dict[str, str] = {}
    for shard in range(shape.shards):
        file = f"model-{shard + 1:05d}-of-{shape.shards:05d}.safetensors"
        header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
        payload = b""
        for name in names[shard :: shape.shards]:
            dtype, data = tensors[name]
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


def pick_tokens(reference: Gemma4Reference, count: int, seed: int) -> tuple[list[int], Array]:
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
