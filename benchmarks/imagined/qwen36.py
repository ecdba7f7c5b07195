"""Qwen 3.6 35B-A3B, imagined.

No norm stands between what attention or experts give and the residual: a mean of their matrices
would grow without bounds. So only the embedding's elements have a mean, four steps, and all tokens
share that direction; the last matrices of attention and of experts are scaled down besides. In 32
slots, an eighth of its experts, a least-frequently-used cache finds 55 % of them, as it does with
an eighth of Gemma 4's; how the real model routes is not known here. The recurrence halves a state
in about seven tokens.
"""

from typing import Any

import numpy as np

from imagined.model import ImaginedModel, Tensors
from mference.families import Arch

TRUNK = "language_model.model."
ATTENTION_GAIN = 0.1
EXPERT_GAIN = 0.2
A_LOG = -2.0
DT_BIAS = 0.0
TAP = 0.5


def tensors(arch: Arch, layers: int) -> Tensors:
    """Every tensor of the checkpoint."""
    hidden, width = arch.integer("hiddenSize"), arch.integer("moeIntermediateSize")
    shared, experts = arch.integer("ffnIntermediate"), arch.integer("numExperts")
    t = Tensors(lowest=-7.5)
    t.affine(
        TRUNK + "embed_tokens",
        arch.integer("vocabSize"),
        hidden,
        gain=np.sqrt(hidden),
        lowest=-3.5,
    )
    for i in range(layers):
        p = f"{TRUNK}layers.{i}."
        (_full if arch.layer_mask[i] == 1 else _linear)(t, p, arch)
        t.affine(p + "mlp.gate", experts, hidden, bits=8, gain=2.0)
        t.affine(p + "mlp.shared_expert_gate", 1, hidden, bits=8)
        for name in ("gate_proj", "up_proj"):
            t.affine(f"{p}mlp.shared_expert.{name}", shared, hidden)
            t.affine(f"{p}mlp.switch_mlp.{name}", experts, width, hidden)
        t.affine(p + "mlp.shared_expert.down_proj", hidden, shared, gain=EXPERT_GAIN)
        t.affine(p + "mlp.switch_mlp.down_proj", experts, hidden, width, gain=EXPERT_GAIN)
        for name in ("input_layernorm", "post_attention_layernorm"):
            t.constant(f"{p}{name}.weight", hidden)
    t.constant(TRUNK + "norm.weight", hidden)
    t.affine("language_model.lm_head", arch.integer("vocabSize"), hidden)
    return t


def _full(t: Tensors, p: str, arch: Arch) -> None:
    hidden, dim = arch.integer("hiddenSize"), arch.integer("fullHeadDim")
    heads, kv = arch.integer("numHeads") * dim, arch.integer("numFullKVHeads") * dim
    t.affine(p + "self_attn.q_proj", 2 * heads, hidden)  # queries, and as many gates
    t.affine(p + "self_attn.k_proj", kv, hidden)
    t.affine(p + "self_attn.v_proj", kv, hidden)
    t.affine(p + "self_attn.o_proj", hidden, heads, gain=ATTENTION_GAIN)
    for name in ("q_norm", "k_norm"):
        t.constant(f"{p}self_attn.{name}.weight", dim)


def _linear(t: Tensors, p: str, arch: Arch) -> None:
    hidden, heads = arch.integer("hiddenSize"), arch.integer("linearNumVHeads")
    dim = arch.integer("linearValueHeadDim")
    channels = heads * dim
    channels += 2 * arch.integer("linearNumKHeads") * arch.integer("linearKeyHeadDim")
    t.affine(p + "linear_attn.in_proj_qkv", channels, hidden)
    t.affine(p + "linear_attn.in_proj_z", heads * dim, hidden)
    t.affine(p + "linear_attn.in_proj_a", heads, hidden)
    t.affine(p + "linear_attn.in_proj_b", heads, hidden)
    taps = arch.integer("linearConvKernelSize")
    t.constant(p + "linear_attn.conv1d.weight", channels, taps, 1, value=TAP)
    t.constant(p + "linear_attn.A_log", heads, value=A_LOG)
    t.constant(p + "linear_attn.dt_bias", heads, value=DT_BIAS)
    t.constant(p + "linear_attn.norm.weight", dim)
    t.affine(p + "linear_attn.out_proj", hidden, heads * dim, gain=ATTENTION_GAIN)


def config(arch: Arch, layers: int) -> dict[str, Any]:
    """A config.json that describes the architecture."""
    quantization: dict[str, Any] = {"group_size": 64, "bits": 4, "mode": "affine"}
    for i in range(layers):
        for name in ("gate", "shared_expert_gate"):
            quantization[f"{TRUNK}layers.{i}.mlp.{name}"] = {"group_size": 64, "bits": 8}
    kinds = {1: "full_attention", 2: "linear_attention"}
    return {
        "model_type": "qwen3_5_moe",
        "quantization": quantization,
        "text_config": {
            "hidden_size": arch["hiddenSize"],
            "shared_expert_intermediate_size": arch["ffnIntermediate"],
            "moe_intermediate_size": arch["moeIntermediateSize"],
            "num_attention_heads": arch["numHeads"],
            "num_key_value_heads": arch["numFullKVHeads"],
            "head_dim": arch["fullHeadDim"],
            "attn_output_gate": arch["attnOutputGate"],
            "linear_num_key_heads": arch["linearNumKHeads"],
            "linear_num_value_heads": arch["linearNumVHeads"],
            "linear_key_head_dim": arch["linearKeyHeadDim"],
            "linear_value_head_dim": arch["linearValueHeadDim"],
            "linear_conv_kernel_dim": arch["linearConvKernelSize"],
            "vocab_size": arch["vocabSize"],
            "num_hidden_layers": layers,
            "num_experts": arch["numExperts"],
            "num_experts_per_tok": arch["topKExperts"],
            "tie_word_embeddings": arch["tieWordEmbeddings"],
            "hidden_act": arch["hiddenActivation"],
            "layer_types": [kinds[arch.layer_mask[i]] for i in range(layers)],
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": arch["fullRopeTheta"],
                "partial_rotary_factor": arch["partialRotaryFactor"],
            },
        },
    }


MODEL = ImaginedModel("qwen36", tensors, config, 256 * 1_769_472, 1_389_476_096)
