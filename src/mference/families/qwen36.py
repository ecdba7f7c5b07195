"""Qwen 3.6 35B-A3B: architecture values (its source is not readable yet)."""

from mference.families.arch import COMMON_KEYS, FAMILY_KEY, Arch
from mference.families.family import Family, Footprint, affine_bytes

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


def footprint(arch: Arch) -> Footprint:
    """The sizes of the pinned checkpoint; its embedding is no head."""
    hidden, common = arch.integer("hiddenSize"), 1_389_394_176
    expert = 3 * affine_bytes(arch.integer("moeIntermediateSize"), hidden)
    return Footprint(
        expert_bytes=expert,
        expert_layers=arch.integer("numLayers"),
        common_bytes=common,
        token_bytes=common - affine_bytes(arch.integer("vocabSize"), hidden),
        shared_bytes=expert,
    )


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
)
