"""How fast a model will answer: a sum over what a token reads and computes."""

from bisect import bisect
from dataclasses import dataclass
from itertools import pairwise

from mference.doctor.measure import ComputeSpeed, DiskSpeed
from mference.families import FAMILIES, Arch, Footprint
from mference.families.family import affine_bytes
from mference.memory import MemoryForecast, Slots
from mference.store.directory import page_rounded

HITS = ((0.0, 0.0), (8 / 128, 0.31), (16 / 128, 0.56), (24 / 128, 0.68), (32 / 128, 0.74),
        (64 / 128, 0.85), (1.0, 1.0))  # fmt: skip
"""Share of a layer's experts that have a slot, and share of requests found there.

Measured with a least-frequently-used cache over routing with the overlap between neighbouring
tokens that Gemma 4 26B-A4B shows on text: 128 experts, 8 chosen. Other models are assumed to behave
alike at the same share.
"""

LAYER_PRODUCTS = 8
"""Products of a layer beside its routed experts: attention, router, shared expert."""


@dataclass(frozen=True)
class SpeedForecast:
    """The seconds of one answer token, by what they are spent on.

    weights: products with the common weights; weight_bytes of them.
    experts: products with the chosen experts; expert_bytes of them.
    state: keys, values and recurrent states read; state_bytes of them.
    layers: waiting between host and device.
    reads: experts missing from their slots, as far as nothing else is computed meanwhile;
        read_bytes of them, of which `cached` is the share that the page cache holds.
    hit_rate: share of the chosen experts found in a slot.
    position: tokens in the state.
    """

    weights: float
    weight_bytes: int
    experts: float
    expert_bytes: int
    state: float
    state_bytes: int
    layers: float
    reads: float
    read_bytes: int
    cached: float
    hit_rate: float
    position: int

    @property
    def seconds(self) -> float:
        """Seconds of one token."""
        return self.weights + self.experts + self.state + self.layers + self.reads

    @property
    def tokens_per_second(self) -> float:
        """Answer tokens a second."""
        return 1 / self.seconds


def expected_hits(slots: int | Slots, experts: int) -> float:
    """The share of expert requests that find a slot, as `HITS` has it."""
    if not isinstance(slots, int) or slots >= experts:
        return 1.0
    share = slots / experts
    i = bisect(HITS, (share,)) - 1
    (x0, y0), (x1, y1) = list(pairwise(HITS))[max(0, i)]
    return y0 + (y1 - y0) * (share - x0) / (x1 - x0)


def cached_share(memory: MemoryForecast, expert_files: int, available: int) -> float:
    """The share of the layer files that the page cache can hold beside a model in use."""
    room = available - memory.own - memory.common
    return min(1.0, max(0.0, room / max(1, expert_files)))


def forecast_speed(
    arch: Arch,
    footprint: Footprint,
    slots: int | Slots,
    compute: ComputeSpeed,
    disk: DiskSpeed,
    *,
    position: int,
    cached: float,
    hit_rate: float | None = None,
) -> SpeedForecast:
    """The time of one answer token.

    Args:
        arch: the model's architecture.
        footprint: its sizes.
        slots: expert slots of a layer, or `resident`.
        compute: speeds of the processor and its memory.
        disk: speeds of reading experts.
        position: tokens in the state.
        cached: share of the layer files that the page cache holds.
        hit_rate: share of expert requests found in a slot; None for the expected one.
    """
    layers, k = arch.integer("numLayers"), arch.integer("topKExperts")
    chosen = footprint.expert_layers * k
    hits = expected_hits(slots, arch.integer("numExperts")) if hit_rate is None else hit_rate
    head = affine_bytes(arch.integer("vocabSize"), arch.integer("hiddenSize"))
    per_layer = (footprint.token_bytes - head) / layers
    weights = compute.product_seconds(head)
    weights += layers * LAYER_PRODUCTS * compute.product_seconds(per_layer / LAYER_PRODUCTS)
    expert = 3 * compute.product_seconds(footprint.expert_bytes / 3)
    state_of = FAMILIES[arch.family].state_bytes
    state = state_of(arch, max(1, position), 1) if state_of else 0

    missing = round(chosen * (1 - hits) * page_rounded(footprint.expert_bytes))
    # The disk works while the device computes the shared expert and the hits. What the page cache
    # holds is copied by the processor, which then computes nothing.
    meanwhile = footprint.expert_layers * footprint.shared_bytes / compute.product
    meanwhile += chosen * hits * expert
    from_disk = missing * (1 - cached) / disk.cold
    return SpeedForecast(
        weights=weights,
        weight_bytes=footprint.token_bytes,
        experts=chosen * expert,
        expert_bytes=chosen * footprint.expert_bytes,
        state=state / compute.product,
        state_bytes=state,
        layers=layers * compute.round_trip,
        reads=max(0.0, from_disk - meanwhile) + missing * cached / disk.cached,
        read_bytes=missing,
        cached=cached,
        hit_rate=hits,
        position=position,
    )
