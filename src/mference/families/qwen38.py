"""Qwen 3.8 27B, dense: architecture and quantization rules (its source is not readable yet)."""

from mference.families.arch import COMMON_KEYS, FAMILY_KEY, Arch
from mference.families.family import ABSENT_SLOT, Family, SlotRule

BASELINE = Arch(
    family="qwen38",
    hiddenSize=5120,
    ffnIntermediate=17408,
    moeIntermediateSize=0,
    numHeads=24,
    numKVHeads=4,
    numFullKVHeads=4,
    headDim=256,
    fullHeadDim=256,
    vocabSize=248320,
    slidingWindow=0,
    finalLogitSoftcap=0.0,
    ropeTheta=1e7,
    fullRopeTheta=1e7,
    partialRotaryFactor=0.25,
    numLayers=64,
    numExperts=0,
    topKExperts=0,
    tieWordEmbeddings=False,
    attentionKEqV=False,
    hiddenActivation="silu",
    fullAttentionLayerMask=tuple(1 if layer % 4 == 3 else 2 for layer in range(64)),
    attnOutputGate=True,
    attentionScale=0.0625,
    embeddingScaledBySqrtHidden=False,
    routerScaled=False,
    ffnSandwichNorms=False,
    sharedExpertGated=False,
    ropeNeoxSubdim=True,
    linearNumKHeads=16,
    linearNumVHeads=48,
    linearKeyHeadDim=128,
    linearValueHeadDim=128,
    linearConvKernelSize=4,
    numSharedExperts=0,
    numDenseLayers=64,
    denseIntermediateSize=17408,
)

FAMILY = Family(
    name="qwen38",
    baseline=BASELINE,
    model_types=("qwen3_5",),
    extension_keys=(
        FAMILY_KEY, *COMMON_KEYS, "numSharedExperts", "numDenseLayers", "denseIntermediateSize",
    ),
    quant={
        "embedding": SlotRule((4,)),
        "attention": SlotRule((4,)),
        "router": ABSENT_SLOT,
        "sharedExpert": ABSENT_SLOT,
        "routedExpert": ABSENT_SLOT,
    },
    fixed_quant=True,
)  # fmt: skip
