"""Inkling-Small: architecture values (its source is not readable yet)."""

from mference.families.arch import COMMON_KEYS, FAMILY_KEY, Arch
from mference.families.family import Family, Footprint, affine_bytes

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
    extension_keys=(
        FAMILY_KEY, *COMMON_KEYS, "routerScoringFunc", "routedScalingFactor", "relDRel",
        "relExtent", "relProjDim", "relLogScalingFloor", "sconvKernelSize", "numDenseLayers",
        "denseIntermediateSize", "unpaddedVocabSize", "relLogScalingAlpha", "numSharedExperts",
        "logitsWidthMultiplier", "sharedExpertSink", "embedNormEnabled", "routerGateBias",
        "routerNormAfterTopK", "routerGlobalScale",
    ),
)  # fmt: skip
