"""Architecture values: the `arch` object of a manifest, under its own key names."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from mference.errors import ArchMismatch
from mference.jsontext import Fields

ArchValue = int | float | bool | str | tuple[int, ...]
Kind = Literal["int", "float", "bool", "str", "mask"]

FAMILY_KEY = "family"
MASK_KEY = "fullAttentionLayerMask"


@dataclass(frozen=True)
class Field:
    """One arch key, its type, and the value an absent key stands for (None: required)."""

    key: str
    kind: Kind
    default: ArchValue | None = None


def _fields(kind: Kind, default: ArchValue | None, *keys: str) -> tuple[Field, ...]:
    return tuple(Field(key, kind, default) for key in keys)


# In the order in which a reader compares them: the first difference is the one reported.
CORE_FIELDS: tuple[Field, ...] = (
    *_fields("int", None, "hiddenSize", "ffnIntermediate", "moeIntermediateSize", "numHeads"),
    *_fields("int", None, "numKVHeads", "numFullKVHeads", "headDim", "fullHeadDim", "vocabSize"),
    *_fields("int", None, "slidingWindow"),
    *_fields("float", None, "finalLogitSoftcap", "ropeTheta", "fullRopeTheta"),
    *_fields("float", None, "partialRotaryFactor"),
    *_fields("int", None, "numLayers", "numExperts", "topKExperts"),
    *_fields("bool", None, "tieWordEmbeddings", "attentionKEqV"),
    *_fields("str", None, "hiddenActivation"),
    *_fields("mask", None, MASK_KEY),
)

COMMON_KEYS: tuple[str, ...] = (
    "attnOutputGate", "attentionScale", "embeddingScaledBySqrtHidden", "routerScaled",
    "ffnSandwichNorms", "sharedExpertGated", "ropeNeoxSubdim", "linearNumKHeads",
    "linearNumVHeads", "linearKeyHeadDim", "linearValueHeadDim", "linearConvKernelSize",
)  # fmt: skip

EXTENSION_FIELDS: tuple[Field, ...] = (
    *_fields("str", "gemma4", FAMILY_KEY),
    *_fields("bool", False, "attnOutputGate"),
    *_fields("float", 1.0, "attentionScale"),
    *_fields("bool", True, "embeddingScaledBySqrtHidden", "routerScaled", "ffnSandwichNorms"),
    *_fields("bool", False, "sharedExpertGated", "ropeNeoxSubdim"),
    *_fields("int", 0, "linearNumKHeads", "linearNumVHeads", "linearKeyHeadDim"),
    *_fields("int", 0, "linearValueHeadDim", "linearConvKernelSize"),
    *_fields("int", 0, "caQLoraRank", "caOLoraRank", "caOGroups", "caRopeHeadDim"),
    *_fields("int", 0, "caIndexNHeads", "caIndexHeadDim", "caIndexTopK", "caCSACompressRate"),
    *_fields("int", 0, "caHCACompressRate"),
    *_fields("float", 0.0, "caCompressRopeTheta", "caRopeScalingFactor"),
    *_fields("int", 0, "caRopeScalingOriginalMax"),
    *_fields("float", 0.0, "caRopeScalingBetaFast", "caRopeScalingBetaSlow"),
    *_fields("int", 0, "hcMult", "hcSinkhornIters"),
    *_fields("float", 0.0, "hcEps"),
    *_fields("int", 0, "numHashRoutedLayers"),
    *_fields("str", "softmax", "routerScoringFunc"),
    *_fields("float", 1.0, "routedScalingFactor"),
    *_fields("float", 0.0, "swigluLimit"),
    *_fields("int", 0, "relDRel", "relExtent", "relProjDim", "relLogScalingFloor"),
    *_fields("float", 0.0, "relLogScalingAlpha"),
    *_fields("int", 0, "sconvKernelSize"),
    *_fields("int", 1, "numSharedExperts"),
    *_fields("int", 0, "numDenseLayers", "denseIntermediateSize"),
    *_fields("bool", False, "sharedExpertSink", "embedNormEnabled"),
    *_fields("float", 1.0, "logitsWidthMultiplier"),
    *_fields("bool", False, "routerGateBias", "routerNormAfterTopK", "routerGlobalScale"),
    *_fields("int", 0, "unpaddedVocabSize"),
)

_ALL = {field.key: field for field in (*CORE_FIELDS, *EXTENSION_FIELDS)}


class Arch(Mapping[str, ArchValue]):
    """All architecture values of one model, by manifest key; extension keys carry defaults.

    Values are plain `int`, `float`, `bool`, `str`, and a tuple of ints for the layer mask
    (0 sliding, 1 full, 2 gated DeltaNet, 3 CSA, 4 HCA). Immutable; `dict(arch)` is a plain copy.
    """

    def __init__(self, **values: ArchValue) -> None:
        unknown = values.keys() - _ALL.keys()
        missing = [f.key for f in CORE_FIELDS if f.key not in values]
        if unknown or missing:
            raise TypeError(f"arch keys unknown: {sorted(unknown)}, missing: {missing}")
        full: dict[str, ArchValue] = {}
        for key, field in _ALL.items():
            value = values.get(key, field.default)
            assert value is not None
            full[key] = float(value) if field.kind == "float" else value  # type: ignore[arg-type]
        self._values = MappingProxyType(full)

    def __getitem__(self, key: str) -> ArchValue:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(tuple(self._values.items()))

    def __repr__(self) -> str:
        return f"Arch({dict(self._values)})"

    def integer(self, key: str) -> int:
        """The value of an integer key."""
        value = self._values[key]
        assert type(value) is int, key
        return value

    def real(self, key: str) -> float:
        """The value of a floating-point key."""
        value = self._values[key]
        assert isinstance(value, float), key
        return value

    @property
    def family(self) -> str:
        """The family name, `gemma4` where the manifest has none."""
        return str(self._values[FAMILY_KEY])

    @property
    def layer_mask(self) -> tuple[int, ...]:
        """The attention kind of each layer."""
        value = self._values[MASK_KEY]
        assert isinstance(value, tuple)
        return value

    def written(self, extension_keys: tuple[str, ...]) -> dict[str, ArchValue]:
        """The manifest's `arch` object: the core keys and the named extension keys."""
        keys = (*(f.key for f in CORE_FIELDS), *extension_keys)
        return {key: self._values[key] for key in keys}


def read_arch(fields: Fields) -> Arch:
    """Read a manifest's `arch` object; absent extension keys take their defaults.

    Raises what `fields` raises for a core key that is missing and any key that is mistyped.
    """
    values: dict[str, ArchValue] = {}
    for field in _ALL.values():
        if field.default is None or field.key in fields:
            values[field.key] = _read(fields, field)
    return Arch(**values)


def _read(fields: Fields, field: Field) -> ArchValue:
    match field.kind:
        case "int":
            return fields.integer(field.key, minimum=-(2**63))
        case "float":
            return fields.number(field.key)
        case "bool":
            return fields.boolean(field.key)
        case "str":
            return fields.text(field.key)
        case "mask":
            return fields.integers(field.key)


def first_difference(found: Arch, expected: Arch, fields: tuple[Field, ...]) -> str | None:
    """The key of the first of `fields` whose values differ; doubles compare exactly."""
    return next((f.key for f in fields if found[f.key] != expected[f.key]), None)


def compare_arch(
    found: Arch, present: frozenset[str], expected: Arch, required_keys: tuple[str, ...]
) -> None:
    """Raise `ArchMismatch` with the first key in which a manifest differs from a baseline.

    `present` are the keys the manifest wrote out; `required_keys` those the family insists on.
    """
    field = first_difference(found, expected, CORE_FIELDS)
    if field is None and not all(0 <= kind <= 255 for kind in found.layer_mask):
        field = MASK_KEY
    if field is None:
        field = next((key for key in required_keys if key not in present), None)
        if field is not None:
            raise ArchMismatch(f"manifest.json: arch does not write out '{field}'", field)
    if field is None:
        field = first_difference(found, expected, EXTENSION_FIELDS)
    if field is not None:
        raise ArchMismatch(
            f"manifest.json: arch.{field} is {found[field]!r}, the pinned model has "
            f"{expected[field]!r}. Install the model again from its pinned source.",
            field,
        )
