"""The C++ core of mference: devices, operations, experts and models."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from mference.report import Counters

class Model:
    """A model over an install's files, with one sequence's state."""

    def __init__(
        self,
        *,
        device: Device,
        arch: Mapping[str, object],
        weights: str,
        tensors: Mapping[str, tuple[int, int, int, int, int, int]],
        expert_files: Sequence[str],
        expert_offsets: Sequence[Sequence[int]],
        expert_stride: int,
        expert_parts: Sequence[tuple[int, int, int, int, int]],
        verify_layer: Callable[[int], None],
        slots: int,
        context: int,
        chunk: int,
        readers: int,
        float32_kv: bool,
    ) -> None: ...
    def forward(self, tokens: npt.ArrayLike) -> None:
        """Append int32 tokens without a head."""
    def greedy(self, tokens: npt.ArrayLike) -> int:
        """Append tokens; the id of the last one's highest logit, the lowest among equals."""
    def logits(self, tokens: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Append tokens; the last one's logits, float32 [vocabulary], softcap applied."""
    @property
    def position(self) -> int:
        """Tokens in the state."""
    def rewind(self, position: int) -> None:
        """Forget everything behind the first `position` tokens."""
    def counters(self) -> Counters: ...

class Plan:
    """Slots for the experts of one request, in its order; `misses` are indices into it."""

    @property
    def experts(self) -> list[int]: ...
    @property
    def slots(self) -> list[int]: ...
    @property
    def misses(self) -> list[int]: ...
    @property
    def hits(self) -> int: ...
    @property
    def evictions(self) -> int: ...

class Reservation:
    """Slots set aside for predicted experts."""

    @property
    def experts(self) -> list[int]: ...
    @property
    def slots(self) -> list[int]: ...

class ExpertCache:
    """Which expert lies in which slot of a layer; `policy` is `lfu` or `lru`. No I/O."""

    def __init__(self, slots: int, experts: int, policy: str = "lfu") -> None: ...
    def plan(self, experts: Sequence[int], avoid: Sequence[int] = ()) -> Plan | None:
        """Places a request, never in the slots of `avoid`; None if it cannot be placed."""
    def publish(self, plan: Plan) -> None:
        """Marks the plan's misses as loaded."""
    def reserve(self, experts: Sequence[int], keep: int) -> Reservation:
        """Takes victims for predicted experts, leaving `keep` slots evictable."""
    def land(self, reservation: Reservation, failed: Sequence[int] = ()) -> int:
        """Ends a reservation; how many experts became resident."""
    def note_hits(self, experts: Sequence[int]) -> None: ...
    def probe(self, experts: Sequence[int]) -> list[int]:
        """The experts that are not resident, without repeats."""
    def owners(self) -> list[int]:
        """Expert by slot, -1 empty."""
    def table(self) -> list[int]:
        """Slot by expert, -1 absent."""
    def next_uncached(self) -> int: ...
