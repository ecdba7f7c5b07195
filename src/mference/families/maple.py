"""Maple: architecture and quantization rules, configuration, tensor names."""

import math
from collections.abc import Mapping
from typing import Any

from mference.families.arch import COMMON_KEYS, FAMILY_KEY, Arch
from mference.families.family import (
    ABSENT_SLOT,
    Family,
    FlashHead,
    FlashHeadRules,
    Footprint,
    Quantization,
    RowScale,
    SlotRule,
    SourceRules,
    affine_bytes,
)
from mference.families.source_config import check_pinned, config_fields, layer_kinds
from mference.jsontext import Fields

BASELINE = Arch(
    family="maple",
    hiddenSize=2048,
    ffnIntermediate=512,
    moeIntermediateSize=512,
    numHeads=16,
    numKVHeads=4,
    numFullKVHeads=4,
    headDim=128,
    fullHeadDim=128,
    vocabSize=151936,
    slidingWindow=512,
    finalLogitSoftcap=0.0,
    ropeTheta=1e4,
    fullRopeTheta=0.0,
    partialRotaryFactor=0.5,
    numLayers=24,
    numExperts=256,
    topKExperts=8,
    tieWordEmbeddings=False,
    attentionKEqV=False,
    hiddenActivation="silu",
    fullAttentionLayerMask=tuple(int(layer % 4 == 3) for layer in range(24)),
    attnOutputGate=False,
    attentionScale=0.08838834764831843,
    embeddingScaledBySqrtHidden=False,
    routerScaled=False,
    ffnSandwichNorms=False,
    ropeNeoxSubdim=True,
    routerScoringFunc="softmax",
    routedScalingFactor=1.0,
    swigluLimit=7.0,
    numSharedExperts=0,
    numDenseLayers=0,
    routerNormAfterTopK=True,
)


# What no arch key stands for, and the forward pass relies on.
_PINNED_EXTRAS: Mapping[str, bool | int | float | str] = {
    "use_qk_norm": True,
    "norm_topk_prob": True,
    "use_rmsnorm": True,
    "use_bias": False,
    "tie_word_embeddings": False,
    "router_dtype": "fp32",
    "hidden_act": "silu",
    "max_position_embeddings": 128000,
    "rms_norm_eps": 1e-6,
}


def read_arch(config: Mapping[str, Any], pinned: Arch = BASELINE) -> Arch:
    """The architecture that a source `config.json` describes, which must be the pinned one.

    Raises `CheckpointError` (`config_invalid`) for a key that is missing, mistyped or another.
    """
    fields = config_fields(config)
    for key, value in _PINNED_EXTRAS.items():
        found = fields.raw(key)
        if type(found) is not type(value) or found != value:
            fields.fail(f"'{key}' is {found!r}, the only value accepted is {value!r}")
    num_layers, head_dim = _exact(fields, "num_hidden_layers"), _exact(fields, "head_dim")
    kv_heads = _exact(fields, "num_key_value_heads")
    if head_dim < 1:
        fields.fail(f"'head_dim' is {head_dim}")
    arch = Arch(
        family="maple",
        hiddenSize=_exact(fields, "hidden_size"),
        ffnIntermediate=_exact(fields, "moe_shared_expert_intermediate_size"),
        moeIntermediateSize=_exact(fields, "moe_intermediate_size"),
        numHeads=_exact(fields, "num_attention_heads"),
        numKVHeads=kv_heads,
        numFullKVHeads=kv_heads,
        headDim=head_dim,
        fullHeadDim=head_dim,
        vocabSize=_exact(fields, "vocab_size"),
        slidingWindow=_exact(fields, "sliding_window"),
        finalLogitSoftcap=0.0,
        ropeTheta=fields.number("rope_theta"),
        fullRopeTheta=0.0,
        partialRotaryFactor=fields.number("partial_rotary_factor"),
        numLayers=num_layers,
        numExperts=_exact(fields, "num_experts"),
        topKExperts=_exact(fields, "num_experts_per_tok"),
        tieWordEmbeddings=False,
        attentionKEqV=False,
        hiddenActivation="silu",
        fullAttentionLayerMask=layer_kinds(
            fields, "layer_types", {"sliding_attention": 0, "full_attention": 1}, num_layers
        ),
        attnOutputGate=False,
        attentionScale=1 / math.sqrt(head_dim),
        embeddingScaledBySqrtHidden=False,
        routerScaled=False,
        ffnSandwichNorms=False,
        ropeNeoxSubdim=True,
        routerScoringFunc="softmax",
        routedScalingFactor=1.0,
        swigluLimit=7.0,
        numSharedExperts=_exact(fields, "num_shared_experts"),
        numDenseLayers=_exact(fields, "first_k_dense_replace"),
        routerNormAfterTopK=True,
    )
    check_pinned(fields, arch, pinned)
    return arch


def read_flash_head(config: Mapping[str, Any]) -> FlashHead | None:
    """The sparse head that a source config describes, if any.

    Raises `CheckpointError` (`config_invalid`) for one that cannot belong to the model.
    """
    root = config_fields(config)
    if "flash_head" not in root:
        return None
    fields = root.object("flash_head")
    head = FlashHead(
        n_clusters=fields.integer("n_clusters"),
        cluster_size=fields.integer("cluster_size"),
        n_probes=fields.integer("n_probes"),
        group_size=fields.integer("group_size"),
        bits=fields.integer("bits"),
        head_group_size=fields.integer("head_group_size"),
        head_bits=fields.integer("head_bits"),
        scaled_centroids=fields.boolean("scaled_centroids"),
        force_tokens=fields.integers("force_tokens"),
    )
    if not head.fits(root.integer("vocab_size")):
        fields.fail(f"{head} does not describe a head of this model")
    return head


def _exact(fields: Fields, key: str) -> int:
    """An integer that is written as one."""
    value = fields.integer(key)
    if type(fields.raw(key)) is not int:
        fields.fail(f"'{key}' must be written as an integer")
    return value


def footprint(arch: Arch) -> Footprint:
    """The sizes of the pinned checkpoint as it is installed: 2-bit experts, 4-bit attention."""
    hidden, common = arch.integer("hiddenSize"), 516_997_120
    return Footprint(
        expert_bytes=3 * affine_bytes(arch.integer("moeIntermediateSize"), hidden, bits=2),
        expert_layers=arch.integer("numLayers"),
        common_bytes=common,
        token_bytes=common - affine_bytes(arch.integer("vocabSize"), hidden),
    )


def state_bytes(arch: Arch, context: int, _chunk: int) -> int:
    """Bytes of bfloat16 keys and values; rings have the window's rows, whatever the chunk."""
    ring = min(context, arch.integer("slidingWindow"))
    rows = sum(context if kind == 1 else ring for kind in arch.layer_mask)
    return rows * arch.integer("numKVHeads") * arch.integer("headDim") * 2 * 2


FAMILY = Family(
    name="maple",
    baseline=BASELINE,
    footprint=footprint,
    state_bytes=state_bytes,
    extension_keys=(
        FAMILY_KEY, *COMMON_KEYS, "routerScoringFunc", "routedScalingFactor", "swigluLimit",
        "numSharedExperts", "numDenseLayers", "routerNormAfterTopK",
    ),
    required_keys=(
        FAMILY_KEY, "attnOutputGate", "attentionScale", "embeddingScaledBySqrtHidden",
        "routerScaled", "ffnSandwichNorms", "ropeNeoxSubdim", "routerScoringFunc",
        "routedScalingFactor", "swigluLimit", "numSharedExperts", "routerNormAfterTopK",
    ),
    quant={
        "embedding": SlotRule((4,)),
        "attention": SlotRule((4,)),
        "router": SlotRule((16,), "unquantized", "none", "none", 0),
        "sharedExpert": ABSENT_SLOT,
        "routedExpert": SlotRule((2,)),
    },
    fixed_quant=True,
    flash_head=True,
    model_types=("maple",),
    rules=SourceRules(
        read_arch=read_arch,
        resident_prefixes=("model.", "lm_head."),
        trunk="model.",
        embedding=("model.word_embeddings.weight",),
        final_norm="model.norm.weight",
        head="lm_head.weight",
        routed_container=".mlp.switch_mlp.",
        layer_slots=(
            *(f"self_attn.{x}" for x in ("q_proj", "k_proj", "v_proj", "o_proj")),
            *(f"self_attn.{x}" for x in ("q_norm", "k_norm")),
            *("mlp.gate", "input_layernorm", "post_attention_layernorm"),
        ),
        quant_witnesses={},
        quantization=Quantization(
            2, 128, "affine", {"model.word_embeddings": (4, 64), "lm_head": (4, 64)}
        ),
        row_scale=RowScale(".row_alpha", bits=2, group=64),
        flash_head=FlashHeadRules(
            read=read_flash_head,
            centroids="lm_head_flash.centroids",
            token_map="lm_head_flash.token_map",
            unused=("lm_head_flash.cluster_scale", "lm_head_flash.head."),
        ),
    ),
)  # fmt: skip
