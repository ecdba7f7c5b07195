"""Tiny random Gemma 4 checkpoints with the real tensor names, dtypes and quantization.

The weights are drawn so that attention, routing and softcap all matter: embeddings and projections
of unit gain, moderate query-key products, router scores spread widely, final logits of about 10.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.oracles.checkpoint import Family, Tensors
from tests.reference.gemma4 import TRUNK, Gemma4Reference

KINDS = {"s": "sliding_attention", "f": "full_attention"}


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

    def draw(self, t: Tensors) -> None:
        """Every tensor of the checkpoint."""
        h, w, e = self.hidden, self.width, self.experts
        t.matrix(TRUNK + "embed_tokens", self.vocabulary, h)
        t.vector(TRUNK + "norm.weight", h, 4.0, 0.6)
        for i, kind in enumerate(self.layers):
            p = f"{TRUNK}layers.{i}."
            dim, kv = (128, 1) if kind == "f" else (64, 2)
            t.matrix(p + "self_attn.q_proj", 4 * dim, h)
            t.matrix(p + "self_attn.k_proj", kv * dim, h)
            if kind == "s":
                t.matrix(p + "self_attn.v_proj", kv * dim, h)
            t.matrix(p + "self_attn.o_proj", h, 4 * dim)
            t.vector(p + "self_attn.q_norm.weight", dim, 0.4, 0.05)
            t.vector(p + "self_attn.k_norm.weight", dim, 0.4, 0.05)
            t.matrix(p + "router.proj", e, h, bits=8, gain=2.0 * np.sqrt(h))
            t.vector(p + "router.scale", h, 1.0, 0.2)
            t.vector(p + "router.per_expert_scale", e, 1.0, 0.2)
            for name in ("gate_proj", "up_proj"):
                t.matrix(f"{p}mlp.{name}", 3 * w, h)
                t.matrix(f"{p}experts.switch_glu.{name}", e, w, h)
            t.matrix(p + "mlp.down_proj", h, 3 * w)
            t.matrix(p + "experts.switch_glu.down_proj", e, h, w)
            for norm in (
                "input_layernorm",
                "post_attention_layernorm",
                "pre_feedforward_layernorm",
                "pre_feedforward_layernorm_2",
                "post_feedforward_layernorm",
                "post_feedforward_layernorm_1",
                "post_feedforward_layernorm_2",
            ):
                t.vector(f"{p}{norm}.weight", h, 1.0, 0.15)
            t.values(p + "layer_scalar", 0.6 + 0.3 * t.rng.random(1))


# Shapes: the default, many experts over several shards, only sliding layers and every expert
# chosen, layers in an unusual order, wider matrices, one expert a token, and more than a tile.
RANDOM = {
    "seed1": (1, Shape(), 56),
    "seed2": (2, Shape(layers="sssssfsssssf", experts=16, top_k=4, shards=3), 64),
    "seed3": (3, Shape(layers="ss", experts=8, top_k=8, window=32), 140),
    "seed4": (4, Shape(layers="fsf", window=24), 140),
    "seed5": (5, Shape(layers="sf", hidden=192, width=128, window=64), 140),
    "seed6": (6, Shape(layers="sfs", experts=24, top_k=1), 48),
    "seed7": (7, Shape(layers="sf", experts=24, top_k=12), 48),
}

MLX_FLOAT16 = {
    "seed1": 0.0138,
    "seed2": 0.0191,
    "seed3": 0.00227,
    "seed4": 0.00436,
    "seed5": 0.00222,
    "seed6": 0.00381,
    "seed7": 0.00261,
}

FAMILY = Family("gemma4", "gemma4", Gemma4Reference, RANDOM, MLX_FLOAT16)
