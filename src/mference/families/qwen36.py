"""Qwen 3.6 35B-A3B and models of its shape: architecture, configuration, tensor names."""

import math
from collections.abc import Mapping
from typing import Any

from mference.families.arch import COMMON_KEYS, FAMILY_KEY, Arch
from mference.families.family import Family, Footprint, SourceRules, affine_bytes
from mference.families.source_config import (
    check_full_size,
    config_fields,
    flag,
    layer_kinds,
    text,
)

BASELINE = Arch(
    family="qwen36",
    hiddenSize=2048,
    ffnIntermediate=512,
    moeIntermediateSize=512,
    numHeads=16,
    numKVHeads=2,
    numFullKVHeads=2,
    headDim=256,
    fullHeadDim=256,
    vocabSize=248320,
    slidingWindow=0,
    finalLogitSoftcap=0.0,
    ropeTheta=1e7,
    fullRopeTheta=1e7,
    partialRotaryFactor=0.25,
    numLayers=40,
    numExperts=256,
    topKExperts=8,
    tieWordEmbeddings=False,
    attentionKEqV=False,
    hiddenActivation="silu",
    fullAttentionLayerMask=tuple(1 if layer % 4 == 3 else 2 for layer in range(40)),
    attnOutputGate=True,
    attentionScale=0.0625,
    embeddingScaledBySqrtHidden=False,
    routerScaled=False,
    ffnSandwichNorms=False,
    sharedExpertGated=True,
    ropeNeoxSubdim=True,
    linearNumKHeads=16,
    linearNumVHeads=32,
    linearKeyHeadDim=128,
    linearValueHeadDim=128,
    linearConvKernelSize=4,
)


def read_arch(config: Mapping[str, Any]) -> Arch:
    """The architecture that a source `config.json` describes.

    Raises `CheckpointError` (`config_invalid`) for a key that is missing, mistyped or unusable,
    and for a model of the full size that is not the known one.
    """
    fields = config_fields(config).object("text_config")
    rope = fields.object("rope_parameters")
    num_layers = fields.integer("num_hidden_layers", minimum=1)
    kv_heads, head_dim = fields.integer("num_key_value_heads"), fields.integer("head_dim", 1)
    arch = Arch(
        family="qwen36",
        hiddenSize=fields.integer("hidden_size"),
        ffnIntermediate=fields.integer("shared_expert_intermediate_size"),
        moeIntermediateSize=fields.integer("moe_intermediate_size"),
        numHeads=fields.integer("num_attention_heads"),
        numKVHeads=kv_heads,
        numFullKVHeads=kv_heads,
        headDim=head_dim,
        fullHeadDim=head_dim,
        vocabSize=fields.integer("vocab_size"),
        slidingWindow=0,
        finalLogitSoftcap=0.0,
        ropeTheta=rope.number("rope_theta"),
        fullRopeTheta=rope.number("rope_theta"),
        partialRotaryFactor=rope.number("partial_rotary_factor"),
        numLayers=num_layers,
        numExperts=fields.integer("num_experts"),
        topKExperts=fields.integer("num_experts_per_tok"),
        tieWordEmbeddings=flag(fields, "tie_word_embeddings"),
        attentionKEqV=False,
        hiddenActivation=text(fields, "hidden_act", "silu"),
        fullAttentionLayerMask=layer_kinds(
            fields, "layer_types", {"full_attention": 1, "linear_attention": 2}, num_layers
        ),
        attnOutputGate=flag(fields, "attn_output_gate"),
        attentionScale=1 / math.sqrt(head_dim),
        embeddingScaledBySqrtHidden=False,
        routerScaled=False,
        ffnSandwichNorms=False,
        sharedExpertGated=True,
        ropeNeoxSubdim=True,
        linearNumKHeads=fields.integer("linear_num_key_heads"),
        linearNumVHeads=fields.integer("linear_num_value_heads"),
        linearKeyHeadDim=fields.integer("linear_key_head_dim"),
        linearValueHeadDim=fields.integer("linear_value_head_dim"),
        linearConvKernelSize=fields.integer("linear_conv_kernel_dim"),
    )
    return check_full_size(fields, arch, BASELINE)


def footprint(arch: Arch) -> Footprint:
    """The sizes of a model of this family, quantized as the pinned checkpoint is.

    The embedding is no head, and a token reads one row of it.
    """
    hidden, experts = arch.integer("hiddenSize"), arch.integer("numExperts")
    shared = 3 * affine_bytes(arch.integer("ffnIntermediate"), hidden)
    gates = affine_bytes(experts, hidden, bits=8) + affine_bytes(1, hidden, bits=8)
    layers = sum(_attention_bytes(arch, kind == 1) for kind in arch.layer_mask)
    layers += arch.integer("numLayers") * (gates + shared + 2 * 2 * hidden)
    head = affine_bytes(arch.integer("vocabSize"), hidden)
    token = layers + 2 * hidden + head
    return Footprint(
        expert_bytes=3 * affine_bytes(arch.integer("moeIntermediateSize"), hidden),
        expert_layers=arch.integer("numLayers"),
        common_bytes=token + head,  # the embedding is as large
        token_bytes=token,
        shared_bytes=shared,
    )


def _attention_bytes(arch: Arch, full: bool) -> int:
    hidden = arch.integer("hiddenSize")
    if full:
        dim = arch.integer("fullHeadDim")
        query, kv = arch.integer("numHeads") * dim, arch.integer("numFullKVHeads") * dim
        # The queries' matrix has their gates, too.
        return affine_bytes(2 * query + 2 * kv, hidden) + affine_bytes(hidden, query) + 2 * 2 * dim
    heads, dim = arch.integer("linearNumVHeads"), arch.integer("linearValueHeadDim")
    keys, values = arch.integer("linearNumKHeads") * arch.integer("linearKeyHeadDim"), heads * dim
    channels = 2 * keys + values
    projections = affine_bytes(channels + values + 2 * heads, hidden) + affine_bytes(hidden, values)
    taps = channels * arch.integer("linearConvKernelSize")
    return projections + 2 * (taps + 2 * heads + dim)


def state_bytes(arch: Arch, context: int, _chunk: int) -> int:
    """Bytes of float16 keys and values of full layers, and of the linear layers' states.

    A linear layer keeps a float32 matrix a value head and three float16 rows of its convolution.
    """
    keys = arch.integer("linearNumKHeads") * arch.integer("linearKeyHeadDim")
    values = arch.integer("linearNumVHeads") * arch.integer("linearValueHeadDim")
    delta = values * arch.integer("linearKeyHeadDim") * 4
    tail = (arch.integer("linearConvKernelSize") - 1) * (2 * keys + values) * 2
    line = context * arch.integer("numFullKVHeads") * arch.integer("fullHeadDim") * 2 * 2
    return sum(line if kind == 1 else delta + tail for kind in arch.layer_mask)


FAMILY = Family(
    name="qwen36",
    baseline=BASELINE,
    extension_keys=(FAMILY_KEY, *COMMON_KEYS),
    footprint=footprint,
    state_bytes=state_bytes,
    fixed_arch={
        "slidingWindow": 0,
        "finalLogitSoftcap": 0.0,
        "tieWordEmbeddings": False,
        "attentionKEqV": False,
        "hiddenActivation": "silu",
        "attnOutputGate": True,
        "embeddingScaledBySqrtHidden": False,
        "routerScaled": False,
        "ffnSandwichNorms": False,
        "sharedExpertGated": True,
        "ropeNeoxSubdim": True,
    },
    model_types=("qwen3_5_moe",),
    runnable=True,
    slot_map=True,
    metal_slots=((24 << 30, 96), (16 << 30, 32), (0, 16)),
    rules=SourceRules(
        read_arch=read_arch,
        resident_prefixes=("language_model.",),
        trunk="language_model.model.",
        embedding=("language_model.model.embed_tokens.weight",),
        final_norm="language_model.model.norm.weight",
        head="language_model.lm_head.weight",
        routed_container=".mlp.switch_mlp.",
        layer_slots=(
            *(f"self_attn.{x}" for x in ("q_proj", "k_proj", "v_proj", "o_proj")),
            *(f"self_attn.{x}" for x in ("q_norm", "k_norm")),
            *(f"linear_attn.in_proj_{x}" for x in ("qkv", "z", "a", "b")),
            *(f"linear_attn.{x}" for x in ("conv1d", "A_log", "dt_bias", "norm", "out_proj")),
            "mlp.gate",
            "mlp.shared_expert_gate",
            *(f"mlp.shared_expert.{x}" for x in ("gate_proj", "up_proj", "down_proj")),
            "input_layernorm",
            "post_attention_layernorm",
        ),
        quant_witnesses={
            "attention": ("self_attn.q_proj.weight", "linear_attn.in_proj_qkv.weight"),
            "router": ("mlp.gate.weight",),
            "sharedExpert": ("mlp.shared_expert.gate_proj.weight",),
        },
    ),
)
