"""Inkling-Small and models of its shape: architecture, configuration, tensor names."""

from collections.abc import Mapping
from typing import Any

from mference.families.arch import COMMON_KEYS, FAMILY_KEY, Arch
from mference.families.family import Family, Footprint, SourceRules, affine_bytes
from mference.families.source_config import check_full_size, config_fields, flag, text
from mference.jsontext import Fields

BASELINE = Arch(
    family="inklingSmall",
    hiddenSize=4096,
    ffnIntermediate=2048,
    moeIntermediateSize=2048,
    numHeads=32,
    numKVHeads=8,
    numFullKVHeads=8,
    headDim=128,
    fullHeadDim=128,
    vocabSize=201024,
    slidingWindow=512,
    finalLogitSoftcap=0.0,
    ropeTheta=0.0,
    fullRopeTheta=0.0,
    partialRotaryFactor=0.0,
    numLayers=42,
    numExperts=256,
    topKExperts=6,
    tieWordEmbeddings=False,
    attentionKEqV=False,
    hiddenActivation="silu",
    fullAttentionLayerMask=tuple(int(layer % 6 == 5) for layer in range(42)),
    attnOutputGate=False,
    attentionScale=0.0078125,
    embeddingScaledBySqrtHidden=False,
    routerScaled=False,
    ffnSandwichNorms=False,
    routerScoringFunc="sigmoid",
    routedScalingFactor=8.0,
    relDRel=16,
    relExtent=1024,
    relProjDim=512,
    relLogScalingFloor=128000,
    relLogScalingAlpha=0.1,
    sconvKernelSize=4,
    numSharedExperts=2,
    numDenseLayers=2,
    denseIntermediateSize=16384,
    sharedExpertSink=True,
    embedNormEnabled=True,
    logitsWidthMultiplier=16.0,
    routerGateBias=True,
    routerNormAfterTopK=True,
    routerGlobalScale=True,
    unpaddedVocabSize=200058,
)


_MAX_LAYERS = 1000  # of a config, which lists only some of them


def read_arch(config: Mapping[str, Any]) -> Arch:
    """The architecture that a source `config.json` describes.

    Raises `CheckpointError` (`config_invalid`) for a key that is missing, mistyped or unusable,
    and for a model of the full size that is not the known one.
    """
    fields = config_fields(config).object("text_config")
    num_layers = fields.integer("num_hidden_layers", minimum=1, maximum=_MAX_LAYERS)
    heads, kv_heads = fields.integer("num_attention_heads"), fields.integer("num_key_value_heads")
    head_dim, width = fields.integer("head_dim", minimum=1), fields.integer("intermediate_size")
    if not fields.boolean("use_sconv"):
        fields.fail("'use_sconv' is false: a model without short convolutions is not supported")
    if fields.text("gate_activation") != "sigmoid":
        fields.fail(f"'gate_activation' is '{fields.text('gate_activation')}', not 'sigmoid'")
    if fields.integer("swa_head_dim") != head_dim:
        fields.fail(f"'swa_head_dim' is not the 'head_dim' {head_dim}")
    rel_width = fields.integer("d_rel")
    arch = Arch(
        family="inklingSmall",
        hiddenSize=fields.integer("hidden_size"),
        ffnIntermediate=width,
        moeIntermediateSize=width,
        numHeads=heads,
        numKVHeads=kv_heads,
        numFullKVHeads=kv_heads,
        headDim=head_dim,
        fullHeadDim=head_dim,
        vocabSize=fields.integer("vocab_size"),
        slidingWindow=fields.integer("sliding_window_size"),
        finalLogitSoftcap=0.0,
        ropeTheta=0.0,
        fullRopeTheta=0.0,
        partialRotaryFactor=0.0,
        numLayers=num_layers,
        numExperts=fields.integer("n_routed_experts"),
        topKExperts=fields.integer("num_experts_per_tok"),
        tieWordEmbeddings=flag(fields, "tie_word_embeddings"),
        attentionKEqV=False,
        hiddenActivation=text(fields, "hidden_act", "silu"),
        fullAttentionLayerMask=_mask(fields, num_layers),
        attnOutputGate=False,
        attentionScale=1 / head_dim,
        embeddingScaledBySqrtHidden=False,
        routerScaled=False,
        ffnSandwichNorms=False,
        routerScoringFunc="sigmoid",
        routedScalingFactor=fields.number("route_scale"),
        relDRel=rel_width,
        relExtent=fields.integer("rel_extent"),
        relProjDim=heads * rel_width,
        relLogScalingFloor=fields.integer("log_scaling_n_floor"),
        relLogScalingAlpha=fields.number("log_scaling_alpha"),
        sconvKernelSize=fields.integer("sconv_kernel_size"),
        numSharedExperts=fields.integer("n_shared_experts"),
        numDenseLayers=fields.integer("dense_mlp_idx", maximum=num_layers),
        denseIntermediateSize=fields.integer("dense_intermediate_size"),
        sharedExpertSink=flag(fields, "shared_expert_sink"),
        embedNormEnabled=flag(fields, "use_embed_norm"),
        logitsWidthMultiplier=fields.number("logits_mup_width_multiplier"),
        routerGateBias=flag(fields, "use_gate_bias"),
        routerNormAfterTopK=flag(fields, "norm_after_topk"),
        routerGlobalScale=flag(fields, "use_global_scale"),
        unpaddedVocabSize=fields.integer("unpadded_vocab_size"),
    )
    return check_full_size(fields, arch, BASELINE)


def _mask(fields: Fields, num_layers: int) -> tuple[int, ...]:
    local = set(fields.integers("local_layer_ids"))
    if not all(0 <= layer < num_layers for layer in local):
        fields.fail(f"'local_layer_ids' names layers outside [0, {num_layers})")
    return tuple(int(layer not in local) for layer in range(num_layers))


def footprint(arch: Arch) -> Footprint:
    """The sizes of the pinned checkpoint; the first layers are dense, the embedding is no head."""
    hidden, common = arch.integer("hiddenSize"), 3_415_274_660
    expert = 3 * affine_bytes(arch.integer("moeIntermediateSize"), hidden)
    return Footprint(
        expert_bytes=expert,
        expert_layers=arch.integer("numLayers") - arch.integer("numDenseLayers"),
        common_bytes=common,
        token_bytes=common - affine_bytes(arch.integer("vocabSize"), hidden),
        shared_bytes=arch.integer("numSharedExperts") * expert,
    )


def state_bytes(arch: Arch, context: int, chunk: int) -> int:
    """Bytes of float16 keys and values, and of the float32 rows of four convolutions a layer."""
    kv = arch.integer("numKVHeads") * arch.integer("headDim")
    ring = min(context, arch.integer("slidingWindow") + chunk)
    rows = sum(context if kind == 1 else ring for kind in arch.layer_mask)
    taps = arch.integer("sconvKernelSize") - 1
    tails = arch.integer("numLayers") * taps * 2 * (kv + arch.integer("hiddenSize"))
    return rows * kv * 2 * 2 + tails * 4


FAMILY = Family(
    name="inklingSmall",
    baseline=BASELINE,
    footprint=footprint,
    state_bytes=state_bytes,
    model_types=("inkling_mm_model",),
    rules=SourceRules(
        read_arch=read_arch,
        resident_prefixes=("model.llm.",),
        trunk="model.llm.",
        embedding=("model.llm.embed.weight", "model.llm.embed_norm.weight"),
        final_norm="model.llm.norm.weight",
        head="model.llm.unembed.weight",
        routed_container=".mlp.experts.",
        layer_slots=(
            *(f"attn.{x}" for x in ("wq_du", "wk_dv", "wv_dv", "wo_ud", "wr_du")),
            "attn.rel_logits_proj.proj",
            *(f"attn.{x}" for x in ("q_norm", "k_norm", "k_sconv", "v_sconv")),
            *(f"mlp.gate.{x}" for x in ("weight", "bias", "global_scale")),
            *(f"mlp.shared_experts.{x}" for x in ("gate_proj", "up_proj", "down_proj")),
            *(f"mlp.{x}" for x in ("gate_proj", "up_proj", "down_proj", "global_scale")),
            *("attn_sconv", "mlp_sconv", "attn_norm", "mlp_norm"),
        ),
        quant_witnesses={
            "attention": ("attn.wq_du.weight",),
            "router": ("mlp.gate.weight",),
            "sharedExpert": ("mlp.shared_experts.gate_proj.weight",),
        },
    ),
    extension_keys=(
        FAMILY_KEY, *COMMON_KEYS, "routerScoringFunc", "routedScalingFactor", "relDRel",
        "relExtent", "relProjDim", "relLogScalingFloor", "sconvKernelSize", "numDenseLayers",
        "denseIntermediateSize", "unpaddedVocabSize", "relLogScalingAlpha", "numSharedExperts",
        "logitsWidthMultiplier", "sharedExpertSink", "embedNormEnabled", "routerGateBias",
        "routerNormAfterTopK", "routerGlobalScale",
    ),
)  # fmt: skip
