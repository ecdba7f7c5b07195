"""Gemma 4 26B-A4B, imagined.

What all tokens have in common is the mean of the weights: minus half a step, since the codes 0 to
15 stand for (code - 8) steps, as in Q4_0. Attention, too, averages all tokens into one direction.
Both would grow until every token chose the same experts: so the gains of the norms after attention
and after the layer are set low.
"""

from typing import Any

import numpy as np

from imagined.model import ImaginedModel, Tensors
from mference.families import Arch

TRUNK = "language_model.model."
ATTENTION_GAIN = 0.02
LAYER_GAIN = 0.06


def tensors(arch: Arch, layers: int) -> Tensors:
    """Every tensor of the checkpoint."""
    hidden, width = arch.integer("hiddenSize"), arch.integer("moeIntermediateSize")
    dense, experts = arch.integer("ffnIntermediate"), arch.integer("numExperts")
    heads = arch.integer("numHeads")
    t = Tensors(lowest=-8)
    t.affine(TRUNK + "embed_tokens", arch.integer("vocabSize"), hidden)
    t.constant(TRUNK + "norm.weight", hidden)
    for i in range(layers):
        p = f"{TRUNK}layers.{i}."
        full = arch.layer_mask[i] == 1
        dim = arch.integer("fullHeadDim" if full else "headDim")
        kv = arch.integer("numFullKVHeads" if full else "numKVHeads") * dim
        t.affine(p + "self_attn.q_proj", heads * dim, hidden)
        t.affine(p + "self_attn.k_proj", kv, hidden)
        if not full:
            t.affine(p + "self_attn.v_proj", kv, hidden)
        t.affine(p + "self_attn.o_proj", hidden, heads * dim)
        t.affine(p + "router.proj", experts, hidden, bits=8, gain=2.0 * np.sqrt(hidden))
        for name in ("gate_proj", "up_proj"):
            t.affine(f"{p}mlp.{name}", dense, hidden)
            t.affine(f"{p}experts.switch_glu.{name}", experts, width, hidden)
        t.affine(p + "mlp.down_proj", hidden, dense)
        t.affine(p + "experts.switch_glu.down_proj", experts, hidden, width)
        for name in ("q_norm", "k_norm"):
            t.constant(f"{p}self_attn.{name}.weight", dim)
        t.constant(p + "router.scale", hidden)
        t.constant(p + "router.per_expert_scale", experts)
        for name, gain in {
            "input_layernorm": 1.0,
            "post_attention_layernorm": ATTENTION_GAIN,
            "pre_feedforward_layernorm": 1.0,
            "pre_feedforward_layernorm_2": 1.0,
            "post_feedforward_layernorm": LAYER_GAIN,
            "post_feedforward_layernorm_1": 1.0,
            "post_feedforward_layernorm_2": 1.0,
        }.items():
            t.constant(f"{p}{name}.weight", hidden, value=gain)
        t.constant(p + "layer_scalar", 1)
    return t


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


MODEL = ImaginedModel("gemma4", tensors, config, 128 * 3_358_720, 1_353_771_068)
