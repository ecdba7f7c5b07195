"""Maple: architecture and quantization rules (its source is not readable yet)."""

from mference.families.arch import COMMON_KEYS, FAMILY_KEY, Arch
from mference.families.family import ABSENT_SLOT, Family, SlotRule

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

FAMILY = Family(
    name="maple",
    baseline=BASELINE,
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
)  # fmt: skip
