"""What a family is: its architecture rules, its quantization rules, how its source is read."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mference.families.arch import Arch, ArchValue

Role = Literal["gate", "up", "down"]

MULTIMODAL_PREFIXES = (
    "vision_tower.",
    "embed_vision.",
    "audio_tower.",
    "model.visual.",
    "model.audio.",
)

_LAYER = r"(\d{1,9})"  # more digits are no layer's number, and Python may refuse to read them

QUANT_SLOTS = ("embedding", "attention", "router", "sharedExpert", "routedExpert")


@dataclass(frozen=True)
class SlotRule:
    """The values a reader accepts in one quant slot of a manifest; strings compare without case."""

    bits: tuple[int, ...]
    scheme: str = "affine"
    scale_type: str = "BF16"
    bias_type: str = "BF16"
    group_size: int = 64


ABSENT_SLOT = SlotRule((0,), "none", "none", "none", 0)

COMMON_QUANT: Mapping[str, SlotRule] = {
    "embedding": SlotRule((4,)),
    "attention": SlotRule((4,)),
    "router": SlotRule((8,)),
    "sharedExpert": SlotRule((4, 8)),
    "routedExpert": SlotRule((2, 4)),
}


@dataclass(frozen=True)
class Quantization:
    """The `quantization` object of a source config: a base, and exceptions by tensor stem."""

    bits: int
    group_size: int
    mode: str
    overrides: Mapping[str, tuple[int, int]]

    def of(self, stem: str) -> tuple[int, int]:
        """(bits, group size) of the tensor whose name without `.weight` is `stem`."""
        return self.overrides.get(stem, (self.bits, self.group_size))


@dataclass(frozen=True)
class RowScale:
    """Packed weights of `bits` bits with one factor a row in place of scales and biases.

    A value is `factor * (code - 1)`; the factors of `STEM.weight` are `STEM<suffix>`, BF16. The
    store gets the scale +factor and the bias -factor for every `group` columns of a row, and
    resident weights of 2 bits are widened to 4.
    """

    suffix: str
    bits: int
    group: int


@dataclass(frozen=True)
class FlashHead:
    """A sparse head: tokens in clusters, of which the best few are scored."""

    n_clusters: int
    cluster_size: int
    n_probes: int
    group_size: int
    bits: int
    head_group_size: int
    head_bits: int
    scaled_centroids: bool
    force_tokens: tuple[int, ...]

    def fits(self, vocab: int) -> bool:
        """Whether these values can describe the head of a model with so many tokens."""
        return (
            self.n_clusters * self.cluster_size == vocab
            and 1 <= self.n_probes <= self.n_clusters
            and (self.group_size, self.head_group_size, self.bits, self.head_bits) == (64, 64, 4, 4)
            and self.scaled_centroids
            and len(set(self.force_tokens)) == len(self.force_tokens)
            and all(0 <= token < vocab for token in self.force_tokens)
        )


@dataclass(frozen=True)
class FlashHeadRules:
    """The tensors of a sparse head, kept if `read` finds one described in the source's config.

    `centroids` is the stem of a packed matrix, `token_map` the name of a table; what starts with
    one of `unused` is dropped in any case.
    """

    read: Callable[[Mapping[str, Any]], FlashHead | None]
    centroids: str
    token_map: str
    unused: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The tensors that are kept."""
        packed = (f"{self.centroids}.{part}" for part in ("weight", "scales", "biases"))
        return *packed, self.token_map


@dataclass(frozen=True)
class SourceRules:
    """How a family's source checkpoint is read: its config and the roles of its tensor names.

    `layer_slots` are name stems below `<trunk>layers.N.`, in the order in which their tensors are
    stored. `quant_witnesses` name, for each quant slot, the stems whose bits the manifest records.
    `quantization` is the only one accepted of a source, if there is such a rule. `row_scale` and
    `flash_head` are rules about tensors that few families have.
    """

    read_arch: Callable[[Mapping[str, Any]], Arch]
    resident_prefixes: tuple[str, ...]
    trunk: str
    embedding: tuple[str, ...]
    final_norm: str
    head: str | None
    routed_container: str
    layer_slots: tuple[str, ...]
    quant_witnesses: Mapping[str, tuple[str, ...]]
    quantization: Quantization | None = None
    row_scale: RowScale | None = None
    flash_head: FlashHeadRules | None = None

    @property
    def layer_prefix(self) -> str:
        """What the name of every per-layer tensor starts with, before the layer number."""
        return f"{self.trunk}layers."


@dataclass(frozen=True)
class Footprint:
    """Bytes of an installed model, as they follow from its architecture.

    expert_bytes: one routed expert, which its layer file rounds up to a page.
    expert_layers: layers that have routed experts.
    common_bytes: the tensors of `model_weights.bin`, each layer's shared expert among them.
    token_bytes: of those, what one token reads; an embedding that is no head counts as nothing.
    shared_bytes: one layer's shared expert.
    """

    expert_bytes: int
    expert_layers: int
    common_bytes: int
    token_bytes: int
    shared_bytes: int = 0


def affine_bytes(rows: int, cols: int, bits: int = 4, group: int = 64) -> int:
    """Bytes of a quantized matrix: packed values, and a BF16 scale and bias a row and group."""
    return rows * cols * bits // 8 + rows * (cols // group) * 4


@dataclass(frozen=True)
class Family:
    """One code path. `runnable` says whether this version has its forward pass.

    `rules` say how its sources are repacked, and are None while that is not known.
    `model_types` are the values of a source config's `model_type` that name the family.
    `fixed_arch` are the arch values that the forward pass is written for, whatever the size.
    `extension_keys` are the arch keys its manifests write beyond the core ones; `required_keys`
    those a reader insists on. `fixed_quant` means that the manifest records `quant` as it stands
    instead of what the tensors show. `footprint` gives the sizes of a model of this family, and
    `state_bytes(arch, context, chunk)` the bytes of a sequence's state at its largest; both are
    None where they are not known. `slot_map` says whether the device looks up experts by itself
    unless the user says otherwise. `metal_slots` are pairs of physical memory in bytes and the
    expert slots that a layer then gets on Metal unless the user says otherwise; the first pair
    whose memory the system has is taken, and the last is of 0 bytes.
    """

    name: str
    baseline: Arch
    extension_keys: tuple[str, ...] = ()
    required_keys: tuple[str, ...] = ()
    quant: Mapping[str, SlotRule] = field(default_factory=lambda: COMMON_QUANT)
    fixed_quant: bool = False
    flash_head: bool = False
    fixed_arch: Mapping[str, ArchValue] = field(default_factory=dict)
    model_types: tuple[str, ...] = ()
    rules: SourceRules | None = None
    runnable: bool = False
    slot_map: bool = False
    metal_slots: tuple[tuple[int, int], ...] = ((0, 16),)
    footprint: Callable[[Arch], Footprint] | None = None
    state_bytes: Callable[[Arch, int, int], int] | None = None


@dataclass(frozen=True)
class TensorRole:
    """Where a source tensor goes: kept resident, packed as part of an expert, or dropped."""

    bucket: Literal["resident", "routed", "dropped", "unknown"]
    layer: int = -1
    role: Role | None = None


def classify(
    rules: SourceRules, name: str, num_layers: int, *, flash_head: bool = False
) -> TensorRole:
    """The role of a source tensor by its name; `unknown` if no prefix of the family fits.

    `flash_head` says whether the source's config describes a sparse head.
    """
    if name.startswith(MULTIMODAL_PREFIXES):
        return TensorRole("dropped")
    if head := rules.flash_head:
        if name.startswith(head.unused):
            return TensorRole("dropped")
        if name in head.names:
            return TensorRole("resident" if flash_head else "dropped")
    if not name.startswith(rules.resident_prefixes):
        return TensorRole("unknown")
    suffixes = [".weight", ".scales", ".biases"]
    if rules.row_scale:
        suffixes.append(rules.row_scale.suffix)
    pattern = (
        re.escape(rules.layer_prefix)
        + _LAYER
        + re.escape(rules.routed_container)
        + f"(gate|up|down)_proj(?:{'|'.join(map(re.escape, suffixes))})"
    )
    match = re.fullmatch(pattern, name, re.ASCII)
    if match and int(match[1]) < num_layers:
        roles: dict[str, Role] = {"gate": "gate", "up": "up", "down": "down"}
        return TensorRole("routed", int(match[1]), roles[match[2]])
    return TensorRole("resident")


def resident_order(rules: SourceRules, name: str) -> tuple[int, int, int, str]:
    """Sort key of a resident tensor: (group, layer, slot rank, name)."""
    if name in rules.embedding:
        return 0, 0, rules.embedding.index(name), name
    if name == rules.final_norm:
        return 3, 0, 0, name
    if name == rules.head:
        return 4, 0, 0, name
    match = re.match(re.escape(rules.layer_prefix) + _LAYER + r"\.", name, re.ASCII)
    if not match:
        return 2, 0, 0, name
    return 1, int(match[1]), _slot_rank(rules, name[match.end() :]), name


def layer_stem(rules: SourceRules, name: str) -> str | None:
    """The part of a per-layer tensor name after the layer number, else None."""
    match = re.match(re.escape(rules.layer_prefix) + r"\d+\.(.*)", name, re.ASCII)
    return match[1] if match else None


def _slot_rank(rules: SourceRules, stem: str) -> int:
    for rank, slot in enumerate(rules.layer_slots):
        if stem == slot or stem.startswith(slot + "."):
            return rank
    return len(rules.layer_slots)
