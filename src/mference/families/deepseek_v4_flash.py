"""DeepSeek-V4-Flash and models of its shape: architecture, configuration, tensor names."""

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
    number,
    text,
)
from mference.jsontext import Fields

BASELINE = Arch(
    family="deepseekV4Flash",
    hiddenSize=4096,
    ffnIntermediate=2048,
    moeIntermediateSize=2048,
    numHeads=64,
    numKVHeads=1,
    numFullKVHeads=1,
    headDim=512,
    fullHeadDim=512,
    vocabSize=129280,
    slidingWindow=128,
    finalLogitSoftcap=0.0,
    ropeTheta=1e4,
    fullRopeTheta=1e4,
    partialRotaryFactor=0.125,
    numLayers=43,
    numExperts=256,
    topKExperts=6,
    tieWordEmbeddings=False,
    attentionKEqV=True,
    hiddenActivation="silu",
    fullAttentionLayerMask=(0, 0, *(3 if layer % 2 == 0 else 4 for layer in range(2, 43))),
    attnOutputGate=False,
    attentionScale=0.044194173824159216,
    embeddingScaledBySqrtHidden=False,
    routerScaled=False,
    ffnSandwichNorms=False,
    caQLoraRank=1024,
    caOLoraRank=1024,
    caOGroups=8,
    caRopeHeadDim=64,
    caIndexNHeads=64,
    caIndexHeadDim=128,
    caIndexTopK=512,
    caCSACompressRate=4,
    caHCACompressRate=128,
    caCompressRopeTheta=160000.0,
    caRopeScalingFactor=16.0,
    caRopeScalingOriginalMax=65536,
    caRopeScalingBetaFast=32.0,
    caRopeScalingBetaSlow=1.0,
    hcMult=4,
    hcSinkhornIters=20,
    hcEps=1e-6,
    numHashRoutedLayers=3,
    routerScoringFunc="sqrtsoftplus",
    routedScalingFactor=1.5,
    swigluLimit=10.0,
)


_SLIDING, _CSA, _HCA = 0, 3, 4
_KINDS = {
    "sliding_attention": _SLIDING,
    "compressed_sparse_attention": _CSA,
    "heavily_compressed_attention": _HCA,
}


def read_arch(config: Mapping[str, Any]) -> Arch:
    """The architecture that a source `config.json` describes.

    Raises `CheckpointError` (`config_invalid`) for a key that is missing, mistyped or unusable,
    and for a model of the full size that is not the known one.
    """
    fields = config_fields(config)
    num_layers = fields.integer("num_hidden_layers", minimum=1)
    kv_heads = fields.integer("num_key_value_heads")
    head_dim = fields.integer("head_dim", minimum=1, maximum=2**31)
    width = fields.integer("moe_intermediate_size")
    share = _rotary_share(fields, head_dim)
    csa, hca = _compress_rates(fields)
    yarn = fields.object("rope_scaling")
    kind = yarn.text("type") if "type" in yarn else yarn.text("rope_type")
    if kind != "yarn":
        yarn.fail(f"the scaling '{kind}' is not supported, only yarn")
    theta = fields.number("rope_theta")
    arch = Arch(
        family="deepseekV4Flash",
        hiddenSize=fields.integer("hidden_size"),
        ffnIntermediate=(
            fields.integer("intermediate_size") if "intermediate_size" in fields else width
        ),
        moeIntermediateSize=width,
        numHeads=fields.integer("num_attention_heads"),
        numKVHeads=kv_heads,
        numFullKVHeads=kv_heads,
        headDim=head_dim,
        fullHeadDim=head_dim,
        vocabSize=fields.integer("vocab_size"),
        slidingWindow=fields.integer("sliding_window"),
        finalLogitSoftcap=0.0,
        ropeTheta=theta,
        fullRopeTheta=theta,
        partialRotaryFactor=share,
        numLayers=num_layers,
        numExperts=fields.integer("n_routed_experts"),
        topKExperts=fields.integer("num_experts_per_tok"),
        tieWordEmbeddings=flag(fields, "tie_word_embeddings"),
        attentionKEqV=True,
        hiddenActivation=text(fields, "hidden_act", "silu"),
        fullAttentionLayerMask=_mask(fields, num_layers, csa, hca),
        attnOutputGate=False,
        attentionScale=1 / math.sqrt(head_dim),
        embeddingScaledBySqrtHidden=False,
        routerScaled=False,
        ffnSandwichNorms=False,
        caQLoraRank=fields.integer("q_lora_rank"),
        caOLoraRank=fields.integer("o_lora_rank"),
        caOGroups=fields.integer("o_groups"),
        caRopeHeadDim=round(share * head_dim),
        caIndexNHeads=fields.integer("index_n_heads"),
        caIndexHeadDim=fields.integer("index_head_dim"),
        caIndexTopK=fields.integer("index_topk"),
        caCSACompressRate=csa,
        caHCACompressRate=hca,
        caCompressRopeTheta=fields.number("compress_rope_theta"),
        caRopeScalingFactor=yarn.number("factor"),
        caRopeScalingOriginalMax=yarn.integer("original_max_position_embeddings"),
        caRopeScalingBetaFast=number(yarn, "beta_fast", 32.0),
        caRopeScalingBetaSlow=number(yarn, "beta_slow", 1.0),
        hcMult=fields.integer("hc_mult"),
        hcSinkhornIters=fields.integer("hc_sinkhorn_iters"),
        hcEps=fields.number("hc_eps"),
        numHashRoutedLayers=_hash_layers(fields, num_layers),
        routerScoringFunc=text(fields, "scoring_func", "sqrtsoftplus"),
        routedScalingFactor=fields.number("routed_scaling_factor"),
        swigluLimit=fields.number("swiglu_limit"),
    )
    return check_full_size(fields, arch, BASELINE)


def _rotary_share(fields: Fields, head_dim: int) -> float:
    """The share of a head's dimensions that is rotated."""
    share = 0.125
    if "partial_rotary_factor" in fields:
        share = fields.number("partial_rotary_factor")
    elif "qk_rope_head_dim" in fields:
        share = fields.integer("qk_rope_head_dim") / head_dim
    if not 0 <= share <= 1:
        fields.fail(f"{share} of each head's dimensions cannot be rotated")
    return share


def _compress_rates(fields: Fields) -> tuple[int, int]:
    """Tokens that one compressed row of a CSA and of an HCA layer stands for."""
    rates, csa, hca = fields, "compress_rate_csa", "compress_rate_hca"
    if "compress_rates" in fields:
        rates = fields.object("compress_rates")
        csa, hca = "compressed_sparse_attention", "heavily_compressed_attention"
    return (
        rates.integer(csa, minimum=1) if csa in rates else 4,
        rates.integer(hca, minimum=1) if hca in rates else 128,
    )


def _mask(fields: Fields, num_layers: int, csa: int, hca: int) -> tuple[int, ...]:
    if "layer_types" in fields:
        return layer_kinds(fields, "layer_types", _KINDS, num_layers)
    # A last entry for the layer that predicts a second token may follow those of the model.
    ratios = fields.integers("compress_ratios")[:num_layers]
    if len(ratios) != num_layers:
        fields.fail(f"'compress_ratios' has {len(ratios)} entries for {num_layers} layers")
    codes = {0: _SLIDING, csa: _CSA, hca: _HCA}
    for ratio in ratios:
        if ratio not in codes:
            fields.fail(f"'compress_ratios' has {ratio}, which is none of {sorted(codes)}")
    return tuple(codes[ratio] for ratio in ratios)


def _hash_layers(fields: Fields, num_layers: int) -> int:
    """Layers at the beginning that route by token instead of by score."""
    if "mlp_layer_types" not in fields:
        if "num_hash_layers" in fields:
            return fields.integer("num_hash_layers", maximum=num_layers)
        return min(3, num_layers)
    kinds = fields.texts("mlp_layer_types")[:num_layers]
    count = next((i for i, kind in enumerate(kinds) if kind != "hash_moe"), len(kinds))
    if len(kinds) != num_layers or any(kind != "moe" for kind in kinds[count:]):
        fields.fail(
            f"'mlp_layer_types' must name {num_layers} layers, first 'hash_moe', then 'moe' ones"
        )
    return count


def footprint(arch: Arch) -> Footprint:
    """The sizes of the pinned checkpoint: 2-bit experts, padded to the layers with finer groups."""
    hidden, width = arch.integer("hiddenSize"), arch.integer("moeIntermediateSize")
    fine, coarse = (affine_bytes(width, hidden, bits=2, group=group) for group in (32, 64))
    common = 4_312_736_860
    return Footprint(
        expert_bytes=fine + coarse + affine_bytes(hidden, width, bits=2),
        expert_layers=arch.integer("numLayers"),
        common_bytes=common,
        token_bytes=common - affine_bytes(arch.integer("vocabSize"), hidden),
        shared_bytes=3 * affine_bytes(width, hidden),
    )


def state_bytes(arch: Arch, context: int, _chunk: int) -> int:
    """Bytes of float16 state: a window of rows a layer, compressed rows, and rows to compress.

    The compressor of a CSA layer overlaps its windows, and an indexer beside it has a key a row.
    """
    dim, index = arch.integer("headDim"), arch.integer("caIndexHeadDim")
    csa, hca = arch.integer("caCSACompressRate"), arch.integer("caHCACompressRate")
    ring = arch.integer("slidingWindow") * dim
    overlapping = -(-context // csa) * (dim + index) + 2 * csa * (2 * dim + dim + 2 * index + index)
    plain = -(-context // hca) * dim + 2 * hca * dim
    return sum(2 * (ring + {0: 0, 3: overlapping, 4: plain}[kind]) for kind in arch.layer_mask)


FAMILY = Family(
    name="deepseekV4Flash",
    baseline=BASELINE,
    footprint=footprint,
    state_bytes=state_bytes,
    model_types=("deepseek_v4",),
    rules=SourceRules(
        read_arch=read_arch,
        resident_prefixes=("model.", "lm_head."),
        trunk="model.",
        embedding=("model.embed_tokens.weight",),
        final_norm="model.norm.weight",
        head="lm_head.weight",
        routed_container=".ffn.switch_mlp.",
        layer_slots=(
            *(f"attn.{x}" for x in ("wq_a", "q_norm", "wq_b", "wkv", "kv_norm", "attn_sink")),
            *(f"attn.{x}" for x in ("wo_a", "wo_b")),
            *(f"attn.compressor.{x}" for x in ("wkv", "wgate", "norm", "ape")),
            *(f"attn.indexer.compressor.{x}" for x in ("wkv", "wgate", "norm", "ape")),
            *(f"attn.indexer.{x}" for x in ("wq_b", "weights_proj")),
            *(f"ffn.gate.{x}" for x in ("weight", "e_score_correction_bias", "tid2eid")),
            *(f"ffn.shared_experts.{x}" for x in ("gate_proj", "up_proj", "down_proj")),
            "attn_norm",
            "ffn_norm",
            *(f"attn_hc.{x}" for x in ("fn", "base", "scale")),
            *(f"ffn_hc.{x}" for x in ("fn", "base", "scale")),
        ),
        quant_witnesses={
            "attention": ("attn.wq_a.weight",),
            "router": ("ffn.gate.weight",),
            "sharedExpert": ("ffn.shared_experts.gate_proj.weight",),
        },
    ),
    extension_keys=(
        FAMILY_KEY, *COMMON_KEYS, "caQLoraRank", "caOLoraRank", "caOGroups", "caRopeHeadDim",
        "caIndexNHeads", "caIndexHeadDim", "caIndexTopK", "caCSACompressRate",
        "caHCACompressRate", "caCompressRopeTheta", "caRopeScalingFactor",
        "caRopeScalingOriginalMax", "caRopeScalingBetaFast", "caRopeScalingBetaSlow", "hcMult",
        "hcSinkhornIters", "hcEps", "numHashRoutedLayers", "routerScoringFunc",
        "routedScalingFactor", "swigluLimit",
    ),
)  # fmt: skip
