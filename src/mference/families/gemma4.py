"""Gemma 4 26B-A4B and models of its shape: configuration, tensor names, architecture."""

from collections.abc import Mapping
from typing import Any

from mference.families.arch import Arch
from mference.families.family import Family, Footprint, SourceRules, affine_bytes
from mference.families.source_config import config_fields, flag, text
from mference.jsontext import Fields

BASELINE = Arch(
    hiddenSize=2816,
    ffnIntermediate=2112,
    moeIntermediateSize=704,
    numHeads=16,
    numKVHeads=8,
    numFullKVHeads=2,
    headDim=256,
    fullHeadDim=512,
    vocabSize=262144,
    slidingWindow=1024,
    finalLogitSoftcap=30.0,
    ropeTheta=1e4,
    fullRopeTheta=1e6,
    partialRotaryFactor=0.25,
    numLayers=30,
    numExperts=128,
    topKExperts=8,
    tieWordEmbeddings=True,
    attentionKEqV=True,
    hiddenActivation="gelu_pytorch_tanh",
    fullAttentionLayerMask=tuple(int(layer % 6 == 5) for layer in range(30)),
)

# The embedded demo checkpoint: the same family at 1/1000 of the size.
DEMO = Arch(
    hiddenSize=256,
    ffnIntermediate=256,
    moeIntermediateSize=64,
    numHeads=4,
    numKVHeads=2,
    numFullKVHeads=1,
    headDim=64,
    fullHeadDim=128,
    vocabSize=8192,
    slidingWindow=128,
    finalLogitSoftcap=30.0,
    ropeTheta=1e4,
    fullRopeTheta=1e6,
    partialRotaryFactor=0.25,
    numLayers=6,
    numExperts=64,
    topKExperts=8,
    tieWordEmbeddings=True,
    attentionKEqV=True,
    hiddenActivation="gelu_pytorch_tanh",
    fullAttentionLayerMask=(0, 0, 0, 0, 0, 1),
)


def read_arch(config: Mapping[str, Any]) -> Arch:
    """The architecture that a source `config.json` describes.

    Raises `CheckpointError` (`config_invalid`) for a key that is missing, mistyped or unusable.
    """
    fields = config_fields(config).object("text_config")
    rope = fields.object("rope_parameters") if "rope_parameters" in fields else None
    num_layers = fields.integer("num_hidden_layers", minimum=1)
    return Arch(
        hiddenSize=fields.integer("hidden_size"),
        ffnIntermediate=fields.integer("intermediate_size"),
        moeIntermediateSize=fields.integer("moe_intermediate_size"),
        numHeads=fields.integer("num_attention_heads"),
        numKVHeads=fields.integer("num_key_value_heads"),
        numFullKVHeads=fields.integer("num_global_key_value_heads"),
        headDim=fields.integer("head_dim"),
        fullHeadDim=fields.integer("global_head_dim"),
        vocabSize=fields.integer("vocab_size"),
        slidingWindow=fields.integer("sliding_window"),
        finalLogitSoftcap=fields.number("final_logit_softcapping"),
        ropeTheta=_rope(rope, "sliding_attention", "rope_theta", 1e4),
        fullRopeTheta=_rope(rope, "full_attention", "rope_theta", 1e6),
        partialRotaryFactor=_rope(rope, "full_attention", "partial_rotary_factor", 0.25),
        numLayers=num_layers,
        numExperts=fields.integer("num_experts"),
        topKExperts=fields.integer("top_k_experts"),
        tieWordEmbeddings=flag(fields, "tie_word_embeddings"),
        attentionKEqV=flag(fields, "attention_k_eq_v"),
        hiddenActivation=text(fields, "hidden_activation", str(BASELINE["hiddenActivation"])),
        fullAttentionLayerMask=_mask(fields, num_layers),
    )


def _mask(fields: Fields, num_layers: int) -> tuple[int, ...]:
    kinds = fields.texts("layer_types")
    if len(kinds) != num_layers:
        fields.fail(f"'layer_types' has {len(kinds)} entries for {num_layers} layers")
    return tuple(int(kind == "full_attention") for kind in kinds)


def _rope(rope: Fields | None, kind: str, key: str, default: float) -> float:
    if rope is None or kind not in rope or key not in rope.object(kind):
        return default
    return rope.object(kind).number(key)


def footprint(arch: Arch) -> Footprint:
    """The sizes of a model of this family, quantized as the pinned checkpoint is."""
    hidden, experts = arch.integer("hiddenSize"), arch.integer("numExperts")
    expert = 3 * affine_bytes(arch.integer("moeIntermediateSize"), hidden)
    shared = 3 * affine_bytes(arch.integer("ffnIntermediate"), hidden)
    router = affine_bytes(experts, hidden, bits=8) + 2 * (hidden + experts)
    norms = 2 * (7 * hidden + 1)  # with the layer's scalar
    layers = sum(_attention_bytes(arch, kind == 1) for kind in arch.layer_mask)
    layers += arch.integer("numLayers") * (router + shared + norms)
    head = affine_bytes(arch.integer("vocabSize"), hidden) + 2 * hidden
    return Footprint(
        expert_bytes=expert,
        expert_layers=arch.integer("numLayers"),
        common_bytes=layers + head,
        token_bytes=layers + head,
        shared_bytes=shared,
    )


def _attention_bytes(arch: Arch, full: bool) -> int:
    hidden, (kv_heads, dim) = arch.integer("hiddenSize"), _kv_shape(arch, full)
    query, kv = arch.integer("numHeads") * dim, kv_heads * dim
    projections = affine_bytes(query + kv * (1 if full else 2), hidden)
    return projections + affine_bytes(hidden, query) + 2 * 2 * dim


def _kv_shape(arch: Arch, full: bool) -> tuple[int, int]:
    """Heads of keys and values, and their dimension."""
    if full:
        return arch.integer("numFullKVHeads"), arch.integer("fullHeadDim")
    return arch.integer("numKVHeads"), arch.integer("headDim")


def state_bytes(arch: Arch, context: int, chunk: int) -> int:
    """Bytes of float16 keys and values: a ring for each sliding layer, a line for each full one."""
    total = 0
    for kind in arch.layer_mask:
        rows = context if kind == 1 else min(context, arch.integer("slidingWindow") + chunk)
        heads, dim = _kv_shape(arch, kind == 1)
        total += 2 * rows * heads * dim * 2
    return total


FAMILY = Family(
    name="gemma4",
    baseline=BASELINE,
    footprint=footprint,
    state_bytes=state_bytes,
    fixed_arch={
        "hiddenActivation": "gelu_pytorch_tanh",
        "attentionKEqV": True,
        "tieWordEmbeddings": True,
    },
    model_types=("gemma4", "gemma4_text"),
    runnable=True,
    rules=SourceRules(
        read_arch=read_arch,
        resident_prefixes=("language_model.",),
        trunk="language_model.model.",
        embedding=("language_model.model.embed_tokens.weight",),
        final_norm="language_model.model.norm.weight",
        head=None,
        routed_container=".experts.switch_glu.",
        layer_slots=(
            *(f"self_attn.{x}" for x in ("q_proj", "k_proj", "v_proj", "o_proj")),
            *(f"self_attn.{x}" for x in ("q_norm", "k_norm")),
            *(f"router.{x}" for x in ("proj", "scale", "per_expert_scale")),
            *(f"mlp.{x}" for x in ("gate_proj", "up_proj", "down_proj")),
            "input_layernorm",
            "post_attention_layernorm",
            "pre_feedforward_layernorm",
            "pre_feedforward_layernorm_2",
            "post_feedforward_layernorm",
            "post_feedforward_layernorm_1",
            "post_feedforward_layernorm_2",
            "layer_scalar",
        ),
        quant_witnesses={
            "attention": ("self_attn.q_proj.weight",),
            "router": ("router.proj.weight",),
            "sharedExpert": ("mlp.gate_proj.weight",),
        },
    ),
)
