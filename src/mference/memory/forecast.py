"""What a model will hold in memory, from its architecture and sizes alone."""

from dataclasses import dataclass, replace

from mference.errors import UnsupportedModel
from mference.families import FAMILIES, Arch, Footprint
from mference.memory.slots import Slots
from mference.store import Install
from mference.store.directory import page_rounded

BASE = 43_000_000
"""Python, the core and the libraries that every command imports."""

TOKENIZER = 1000
"""Bytes a vocabulary entry: the tokenizer's tables, with their share of merges."""

_TILE = 8  # experts computed together in prefill
_BLOCK = 256  # positions whose attention is one task


@dataclass(frozen=True)
class MemoryForecast:
    """Bytes of memory once every slot and every row of the context has been used.

    `slots`, `state`, `activations` and `base` are anonymous memory, which only ends with the
    model; `common` and `experts` are pages of mapped files, which the system may drop and read
    again. `experts` is 0 unless the layer files are mapped (`resident`).
    """

    slots: int
    state: int
    activations: int
    base: int
    common: int
    experts: int

    @property
    def own(self) -> int:
        """Anonymous memory of the whole process."""
        return self.model + self.base

    @property
    def model(self) -> int:
        """Anonymous memory that loading and using the model adds to a process."""
        return self.slots + self.state + self.activations

    @property
    def mapped(self) -> int:
        """Pages of mapped files."""
        return self.common + self.experts


def footprint_of(arch: Arch) -> Footprint:
    """The sizes of a model that need not be installed.

    Raises:
        UnsupportedModel: they are not known for this family.
    """
    family = FAMILIES[arch.family]
    if family.footprint is None:
        raise UnsupportedModel(f"the sizes of the model family '{family.name}' are not known")
    return family.footprint(arch)


def installed_footprint(install: Install) -> Footprint:
    """The sizes of an install, as its own files have them."""
    expected = footprint_of(install.manifest.arch)
    common = install.index.resident_size
    return replace(
        expected,
        expert_bytes=install.layout.expert_stride,
        expert_layers=sum(1 for layer in install.layout.layers if layer.experts),
        common_bytes=common,
        token_bytes=common - (expected.common_bytes - expected.token_bytes),
    )


def forecast_memory(
    arch: Arch, footprint: Footprint, slots: int | Slots, *, context: int, chunk: int
) -> MemoryForecast:
    """The memory of a model in use.

    Args:
        arch: its architecture.
        footprint: its sizes, of the pinned checkpoint or of an install.
        slots: expert slots for each layer, or `resident`.
        context: tokens the state can hold.
        chunk: rows of a prefill chunk.
    """
    family, experts = FAMILIES[arch.family], arch.integer("numExperts")
    chunk = min(chunk, context)
    stride = page_rounded(footprint.expert_bytes)
    pool = files = 0
    if isinstance(slots, int):
        pool = footprint.expert_layers * min(slots, experts) * stride
    else:
        files = footprint.expert_layers * experts * stride
    return MemoryForecast(
        slots=pool,
        state=family.state_bytes(arch, context, chunk) if family.state_bytes else 0,
        activations=_activation_bytes(arch, context, chunk),
        base=BASE + TOKENIZER * arch.integer("vocabSize"),
        common=footprint.common_bytes,
        experts=files,
    )


def _activation_bytes(arch: Arch, context: int, rows: int) -> int:
    """Activations of a chunk, what operations need beside them, and the logits."""
    hidden, k = arch.integer("hiddenSize"), arch.integer("topKExperts")
    dense, width = arch.integer("ffnIntermediate"), arch.integer("moeIntermediateSize")
    shapes = (
        (arch.integer("numKVHeads"), arch.integer("headDim")),
        (arch.integer("numFullKVHeads"), arch.integer("fullHeadDim")),
    )
    heads = arch.integer("numHeads")
    query = heads * max(dim for _, dim in shapes)
    kv = max(count * dim for count, dim in shapes)
    row = 4 * (5 * hidden + 2 * query + 2 * kv + dense + 3 * k + k * width)
    if values := arch.integer("linearNumVHeads") * arch.integer("linearValueHeadDim"):
        # A linear layer's channels before and after the convolution, and its values.
        keys = arch.integer("linearNumKHeads") * arch.integer("linearKeyHeadDim")
        row += 4 * (2 * max(2 * query, 2 * keys + values) + 2 * max(0, values - query))
    routed = 4 * max(rows, k) * hidden
    # Quantized inputs: int16 codes, and a scale and a sum for each group. A tile's share of the
    # pairs is taken to be twice the average.
    experts = max(1, arch.integer("numExperts"))
    pairs = min(rows * k, max(rows * k * 2 * _TILE // experts, rows))
    inputs = max(rows * max(query, dense, hidden), pairs * max(hidden, width)) * 17 // 8
    # Attention keeps a partial sum for each query and head, and in decode for each block too.
    partial = max(2 * rows, -(-context // _BLOCK)) * query * 4
    return rows * row + routed + inputs + partial + 4 * arch.integer("vocabSize")
