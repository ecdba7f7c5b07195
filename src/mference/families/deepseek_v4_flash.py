"""DeepSeek-V4-Flash: architecture values (its source is not readable yet)."""

from mference.families.arch import COMMON_KEYS, FAMILY_KEY, Arch
from mference.families.family import Family, Footprint, affine_bytes

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
    extension_keys=(
        FAMILY_KEY, *COMMON_KEYS, "caQLoraRank", "caOLoraRank", "caOGroups", "caRopeHeadDim",
        "caIndexNHeads", "caIndexHeadDim", "caIndexTopK", "caCSACompressRate",
        "caHCACompressRate", "caCompressRopeTheta", "caRopeScalingFactor",
        "caRopeScalingOriginalMax", "caRopeScalingBetaFast", "caRopeScalingBetaSlow", "hcMult",
        "hcSinkhornIters", "hcEps", "numHashRoutedLayers", "routerScoringFunc",
        "routedScalingFactor", "swigluLimit",
    ),
)  # fmt: skip
