"""Tiny random Qwen 3.6 checkpoints with the real tensor names, dtypes and quantization.

The weights are drawn so that everything matters: embeddings of the size of what layers add to them,
moderate query-key products, router scores spread widely, decays from a token to the whole prompt,
gates and write strengths on both sides of a half. Each linear layer has one key head so quiet that
the epsilon of its norm matters.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.oracles.checkpoint import Family, Tensors
from tests.reference.qwen36 import HEAD, TRUNK, Qwen36Reference

KINDS = {"l": "linear_attention", "f": "full_attention"}


@dataclass(frozen=True)
class Shape:
    """Sizes of a tiny checkpoint; `layers` spells linear (l) and full (f) layers."""

    layers: str = "lllfl"
    hidden: int = 128
    width: int = 64
    shared_width: int = 64
    experts: int = 8
    top_k: int = 2
    vocabulary: int = 512
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    key_heads: int = 2
    value_heads: int = 4
    key_dim: int = 64
    value_dim: int = 64
    decay: str = "BF16"  # dtype of A_log
    shards: int = 1

    def config(self) -> dict[str, Any]:
        quantization: dict[str, Any] = {"group_size": 64, "bits": 4, "mode": "affine"}
        for i in range(len(self.layers)):
            for name in ("gate", "shared_expert_gate"):
                eight = {"group_size": 64, "bits": 8}
                quantization[f"{TRUNK}layers.{i}.mlp.{name}"] = eight
        return {
            "architectures": ["Qwen3_5MoeForConditionalGeneration"],
            "model_type": "qwen3_5_moe",
            "tie_word_embeddings": False,
            "eos_token_id": [3, 1],
            "quantization": quantization,
            "text_config": {
                "model_type": "qwen3_5_moe_text",
                "hidden_size": self.hidden,
                "num_hidden_layers": len(self.layers),
                "layer_types": [KINDS[c] for c in self.layers],
                # mlx-lm reads no layer_types: every so many layers, the last is full.
                "full_attention_interval": f"{self.layers}f".index("f") + 1,
                "num_attention_heads": self.heads,
                "num_key_value_heads": self.kv_heads,
                "head_dim": self.head_dim,
                "attn_output_gate": True,
                "attention_bias": False,
                "linear_num_key_heads": self.key_heads,
                "linear_num_value_heads": self.value_heads,
                "linear_key_head_dim": self.key_dim,
                "linear_value_head_dim": self.value_dim,
                "linear_conv_kernel_dim": 4,
                "num_experts": self.experts,
                "num_experts_per_tok": self.top_k,
                "moe_intermediate_size": self.width,
                "shared_expert_intermediate_size": self.shared_width,
                "vocab_size": self.vocabulary,
                "rms_norm_eps": 1e-6,
                "tie_word_embeddings": False,
                "hidden_act": "silu",
                "max_position_embeddings": 262144,
                "eos_token_id": 1,
                "rope_parameters": {
                    "rope_type": "default",
                    "rope_theta": 1e7,
                    "partial_rotary_factor": 0.25,
                },
            },
        }

    def draw(self, t: Tensors) -> None:
        """Every tensor of the checkpoint."""
        h = self.hidden
        t.matrix(TRUNK + "embed_tokens", self.vocabulary, h, gain=np.sqrt(h))
        for i, kind in enumerate(self.layers):
            p = f"{TRUNK}layers.{i}."
            (self._full if kind == "f" else self._linear)(t, p)
            t.matrix(p + "mlp.gate", self.experts, h, bits=8, gain=2.0)
            t.matrix(p + "mlp.shared_expert_gate", 1, h, bits=8, gain=1.5)
            for name in ("gate_proj", "up_proj"):
                t.matrix(f"{p}mlp.shared_expert.{name}", self.shared_width, h)
                t.matrix(f"{p}mlp.switch_mlp.{name}", self.experts, self.width, h)
            t.matrix(p + "mlp.shared_expert.down_proj", h, self.shared_width)
            t.matrix(p + "mlp.switch_mlp.down_proj", self.experts, h, self.width)
            for name in ("input_layernorm", "post_attention_layernorm"):
                t.vector(f"{p}{name}.weight", h, 1.0, 0.15)
        t.vector(TRUNK + "norm.weight", h, 1.0, 0.15)
        t.matrix(HEAD.removesuffix("."), self.vocabulary, h)

    def _full(self, t: Tensors, p: str) -> None:
        h, heads, kv = self.hidden, self.heads * self.head_dim, self.kv_heads * self.head_dim
        t.matrix(p + "self_attn.q_proj", 2 * heads, h)
        t.matrix(p + "self_attn.k_proj", kv, h)
        t.matrix(p + "self_attn.v_proj", kv, h)
        t.matrix(p + "self_attn.o_proj", h, heads)
        for name in ("q_norm", "k_norm"):
            t.vector(f"{p}self_attn.{name}.weight", self.head_dim, 1.3, 0.2)

    def _linear(self, t: Tensors, p: str) -> None:
        h, heads, values = self.hidden, self.value_heads, self.value_heads * self.value_dim
        channels = 2 * self.key_heads * self.key_dim + values
        t.matrix(p + "linear_attn.in_proj_qkv", channels, h)
        t.matrix(p + "linear_attn.in_proj_z", values, h)
        t.matrix(p + "linear_attn.in_proj_a", heads, h, gain=1.5)
        t.matrix(p + "linear_attn.in_proj_b", heads, h, gain=1.5)
        taps = 0.5 * t.rng.standard_normal((channels, 4, 1))
        for quiet in (0, self.key_heads * self.key_dim):
            taps[quiet : quiet + self.key_dim] *= 0.01
        t.values(p + "linear_attn.conv1d.weight", taps)
        rates = t.rng.uniform(np.log(0.02), np.log(4.0), heads)
        t.values(p + "linear_attn.A_log", rates, self.decay)
        t.vector(p + "linear_attn.dt_bias", heads, -1.0, 1.0)
        t.vector(p + "linear_attn.norm.weight", self.value_dim, 1.0, 0.15)
        t.matrix(p + "linear_attn.out_proj", h, values)


# Shapes: the default, more experts over several shards, only linear layers, only full ones, as many
# key heads as value heads in wider matrices, four value heads a key head and one expert a token,
# more experts a token than a tile, and heads of other dimensions.
RANDOM = {
    "seed1": (1, Shape(), 56),
    "seed2": (2, Shape(layers="lllflllf", experts=16, top_k=4, shards=3), 72),
    "seed3": (3, Shape(layers="lll", decay="F32"), 140),
    "seed4": (4, Shape(layers="ff", heads=8, kv_heads=1), 140),
    "seed5": (
        5,
        Shape(layers="lf", hidden=192, width=128, shared_width=192, key_heads=4),
        140,
    ),
    "seed6": (6, Shape(layers="llf", value_heads=8, experts=24, top_k=1, decay="F32"), 56),
    "seed7": (7, Shape(layers="lf", experts=24, top_k=12), 56),
    "seed8": (8, Shape(layers="lfl", value_dim=128, head_dim=128), 96),
}

MLX_FLOAT16 = {
    "seed1": 0.00415,
    "seed2": 0.00715,
    "seed3": 0.00404,
    "seed4": 0.00133,
    "seed5": 0.00252,
    "seed6": 0.00318,
    "seed7": 0.00131,
    "seed8": 0.0029,
}

FAMILY = Family("qwen36", "qwen36", Qwen36Reference, RANDOM, MLX_FLOAT16)
