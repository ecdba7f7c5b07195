"""Maple: architecture and quantization rules (its source is not readable yet)."""

from mference.families.arch import COMMON_KEYS, FAMILY_KEY, Arch
from mference.families.family import (
    ABSENT_SLOT,
    Family,
    Footprint,
    SlotRule,
    affine_bytes,
)

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
)  # fmt: skip
