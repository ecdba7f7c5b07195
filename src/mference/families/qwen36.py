"""Qwen 3.6 35B-A3B: architecture values (its source is not readable yet)."""

from mference.families.arch import COMMON_KEYS, FAMILY_KEY, Arch
from mference.families.family import Family

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

FAMILY = Family(name="qwen36", baseline=BASELINE, extension_keys=(FAMILY_KEY, *COMMON_KEYS))
