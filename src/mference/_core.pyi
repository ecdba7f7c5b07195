"""The C++ core of mference: devices, operations, experts and models."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Buffer

from mference.report import Counters

class Device:
    """Where a model runs: buffers, events and streams."""

    @property
    def name(self) -> str: ...

def cpu_device(threads: int = 0, isa: str = "auto", float32_products: bool = False) -> Device:
    """The CPU as a device.

    `threads` counts all threads that compute; 0 takes every processor this process may run on.
    `isa` is one of `cpu_isas()` or "auto", the best. `float32_products` multiplies dequantized
    weights in float32 instead of int16 activations: slower, the tests' second opinion. Raises
    DeviceError for an instruction set this processor lacks.
    """

def metal_device(kernels: str = ...) -> Device:
    """The system's GPU as a device; only in builds that have one.

    Raises DeviceError if there is none, or if the system or the GPU is too old.
    """

def cpu_isas() -> list[str]:
    """Instruction sets this processor can run, best last."""

def time_reads(fd: int, offsets: Sequence[int], size: int, readers: int = 8) -> float:
    """Seconds of reading `size` bytes at each offset of a file, `readers` of them at a time.

    The reads are those of a model's experts: the next ones start when all before have ended.
    Raises ExpertFillError if one fails, DeviceError if the memory does not suffice.
    """

class hashing:  # noqa: N801
    """SHA-256 by the processor's own instructions (a submodule).

    Where `accelerated()` is false there is no other implementation here: use hashlib.
    """

    @staticmethod
    def accelerated() -> bool:
        """Whether this processor has the instructions: x86-64's SHA extensions, AArch64's SHA2."""

    class Sha256:
        """The SHA-256 of a message that comes in parts, as one of hashlib's.

        Raises DeviceError where `accelerated()` is false. Takes contiguous objects with a buffer
        (BufferError for others) and lets other threads run while it hashes more than 4 KiB.
        """

        def __init__(self) -> None: ...
        def update(self, data: Buffer) -> None:
            """Appends to the message."""

        def hexdigest(self) -> str:
            """The digest of what came so far; more may follow."""

    @staticmethod
    def update_pair(a: hashing.Sha256, data_a: Buffer, b: hashing.Sha256, data_b: Buffer) -> None:
        """`a.update(data_a)` and `b.update(data_b)`, as far as both last at the same time.

        One core hashes two messages at once almost twice as fast as one after the other, so parts
        of equal sizes gain most. Raises ValueError if a and b are one object.
        """

_Floats = NDArray[np.float32]
_Bits = NDArray[np.uint16]
_Kv = NDArray[np.float16] | NDArray[np.float32]

class ops:  # noqa: N801
    """Single operations of `cpp/device/ops.h` on numpy arrays (a submodule).

    Each copies its inputs into buffers of the device, runs one operation and returns new arrays.
    Vectors of weights are BF16 bits. What a checkpoint stores (packed weights and BF16) starts
    `misalign` bytes after an aligned address. Raises DeviceError if shapes do not fit.
    """

    class Affine:
        """An affine-quantized matrix [rows, cols].

        weight uint8 [rows, cols * bits / 8], scales and biases BF16 bits [rows, cols / group].
        """

        def __init__(
            self,
            weight: NDArray[np.uint8],
            scales: _Bits,
            biases: _Bits,
            bits: int = 4,
            group: int = 64,
        ) -> None: ...
        @property
        def rows(self) -> int: ...
        @property
        def cols(self) -> int: ...

    class Expert:
        """One routed expert and its range [first, last) of the list of pairs."""

        def __init__(
            self, gate: ops.Affine, up: ops.Affine, down: ops.Affine, first: int, last: int
        ) -> None: ...

    @staticmethod
    def embed_rows(
        device: Device,
        table: ops.Affine,
        tokens: NDArray[np.int32],
        scale: float = 1.0,
        misalign: int = 0,
    ) -> _Floats:
        """Rows [tokens, cols] of the table, times scale."""
    @staticmethod
    def norm_project(
        device: Device,
        x: _Floats,
        norm: _Bits,
        matrices: list[ops.Affine],
        eps: float = 1e-6,
        misalign: int = 0,
    ) -> list[_Floats]:
        """One to four projections of rms(x, norm)."""
    @staticmethod
    def qkv_epilogue(
        device: Device,
        q: _Floats,
        k: _Floats,
        v: _Floats | None,
        q_norm: _Bits,
        k_norm: _Bits,
        rope: _Floats,
        keys: _Kv,
        values: _Kv,
        position: int,
        distance: int | None = None,
        norm_values: bool = True,
        eps: float = 1e-6,
        misalign: int = 0,
    ) -> tuple[_Floats, _Kv, _Kv]:
        """Queries, and the rings [capacity, heads, dim] after the rows were written.

        q is [rows, heads, width] with the query first. Without v the raw keys serve as values. rope
        is [rows, rotated, 2]: cos and sin of the pairs (i, i + distance), dim / 2 without one.
        """
    @staticmethod
    def gate_heads(device: Device, x: _Floats, gate: _Floats) -> _Floats:
        """x [rows, heads, dim] times sigmoid of the last dim values of each head of gate."""
    @staticmethod
    def convolution_tail(
        device: Device, x: _Floats, weight: _Bits, tail: _Kv, misalign: int = 0
    ) -> tuple[_Floats, _Kv]:
        """silu of the causal convolution of x [rows, channels], and the tail after it.

        weight is [channels, taps], the tail [taps - 1, channels].
        """
    @staticmethod
    def gated_delta(
        device: Device,
        mixed: _Floats,
        alpha: _Floats,
        beta: _Floats,
        rate: _Floats,
        dt_bias: _Floats,
        z: _Floats,
        norm: _Bits,
        state: _Floats,
        key_heads: int,
        eps: float = 1e-6,
        misalign: int = 0,
    ) -> tuple[_Floats, _Floats]:
        """[rows, value heads * value dim], and the state [value heads, value dim, key dim]."""
    @staticmethod
    def attention(
        device: Device,
        q: _Floats,
        keys: _Kv,
        values: _Kv,
        position: int,
        window: int = 0,
        scale: float = 1.0,
    ) -> _Floats:
        """Attention of q [rows, heads, dim] at `position` and after over rings."""
    @staticmethod
    def project(device: Device, x: _Floats, weight: ops.Affine, misalign: int = 0) -> _Floats:
        """W x for every row of x."""
    @staticmethod
    def post_attention_router(
        device: Device,
        x: _Floats,
        attention: _Floats,
        post_attention: _Bits,
        pre_dense: _Bits,
        pre_routed: _Bits,
        router_scale: _Bits,
        expert_scale: _Bits,
        router: ops.Affine,
        k: int,
        eps: float = 1e-6,
        misalign: int = 0,
    ) -> tuple[_Floats, _Floats, _Floats, NDArray[np.int32], _Floats]:
        """The new x, dense_in, routed_in, ids [rows, k] and weights [rows, k]."""
    @staticmethod
    def residual_router(
        device: Device,
        x: _Floats,
        update: _Floats,
        norm: _Bits,
        router: ops.Affine,
        k: int,
        eps: float = 1e-6,
        misalign: int = 0,
    ) -> tuple[_Floats, _Floats, NDArray[np.int32], _Floats]:
        """The new x, rms(x, norm), and the chosen ids and weights [rows, k]."""
    @staticmethod
    def shared_expert(
        device: Device,
        x: _Floats,
        gate: ops.Affine,
        up: ops.Affine,
        down: ops.Affine,
        activation: str = "gelu_tanh",
        scalar_gate: ops.Affine | None = None,
        misalign: int = 0,
    ) -> _Floats:
        """down(act(gate x) * (up x)); activation is gelu_tanh or silu.

        With scalar_gate [1, hidden] times sigmoid(scalar_gate x).
        """
    @staticmethod
    def look_up_slots(
        device: Device, ids: NDArray[np.int32], table: NDArray[np.int16]
    ) -> tuple[NDArray[np.int32], int]:
        """table[ids], -1 for an id outside of it, and 1 if none of them is -1, else 0."""
    @staticmethod
    def routed_experts(
        device: Device,
        x: _Floats,
        pairs: NDArray[np.int32],
        weights: _Floats,
        experts: list[ops.Expert],
        out: _Floats,
        accumulate: bool = False,
        activation: str = "gelu_tanh",
        misalign: int = 0,
    ) -> _Floats:
        """`out` after one tile: [rows, k, hidden], or [rows, hidden] if accumulating."""
    @staticmethod
    def guarded_experts(
        device: Device,
        x: _Floats,
        experts: list[ops.Expert],
        slots: NDArray[np.int32],
        slot_count: int,
        hit: int,
        out: _Floats,
        activation: str = "gelu_tanh",
        misalign: int = 0,
    ) -> _Floats:
        """`out` [1, k, hidden] after one guarded tile: unchanged unless hit is 1.

        Expert e is put into slot slots[e] of a slab of slot_count slots, and has the pair e.
        """
    @staticmethod
    def zero(device: Device, count: int) -> _Floats:
        """A buffer of `count` numbers after Zero."""
    @staticmethod
    def layer_tail(
        device: Device,
        x: _Floats,
        shared: _Floats,
        routed: _Floats,
        post_shared: _Bits,
        post_routed: _Bits,
        post_layer: _Bits,
        layer_scalar: _Bits,
        ids: NDArray[np.int32] | None = None,
        weights: _Floats | None = None,
        eps: float = 1e-6,
        misalign: int = 0,
    ) -> _Floats:
        """The new x; routed is the sum [rows, hidden] or, with ids, [rows, parts, hidden]."""
    @staticmethod
    def residual_tail(
        device: Device,
        x: _Floats,
        shared: _Floats,
        routed: _Floats,
        ids: NDArray[np.int32] | None = None,
        weights: _Floats | None = None,
    ) -> _Floats:
        """x + (routed + shared); routed is [rows, hidden], or [rows, parts, hidden] to weight."""
    @staticmethod
    def head_argmax(
        device: Device,
        x: _Floats,
        norm: _Bits,
        table: ops.Affine,
        eps: float = 1e-6,
        misalign: int = 0,
    ) -> int:
        """The token with the largest logit, the lowest among equals."""
    @staticmethod
    def head_logits(
        device: Device,
        x: _Floats,
        norm: _Bits,
        table: ops.Affine,
        softcap: float = 0.0,
        eps: float = 1e-6,
        misalign: int = 0,
    ) -> _Floats:
        """Logits [vocabulary], softcapped if softcap > 0."""
    @staticmethod
    def top_candidates(
        device: Device, logits: _Floats, count: int
    ) -> tuple[NDArray[np.int32], _Floats, float]:
        """Ids and values of the `count` largest, and log(sum(exp(logits)))."""
    @staticmethod
    def time_project(
        device: Device,
        x: _Floats,
        weight: ops.Affine,
        copies: int = 1,
        repeats: int = 5,
        misalign: int = 0,
    ) -> list[float]:
        """Seconds of each of `repeats` passes of `project` over `copies` matrices of their own."""
    @staticmethod
    def time_gated_delta(
        device: Device,
        mixed: _Floats,
        alpha: _Floats,
        beta: _Floats,
        rate: _Floats,
        dt_bias: _Floats,
        z: _Floats,
        norm: _Bits,
        state: _Floats,
        key_heads: int,
        repeats: int = 5,
    ) -> list[float]:
        """Seconds of each of `repeats` runs of `gated_delta`, whose state goes on."""
    @staticmethod
    def time_attention(
        device: Device,
        q: _Floats,
        keys: _Kv,
        values: _Kv,
        position: int,
        window: int = 0,
        repeats: int = 5,
    ) -> list[float]:
        """Seconds of each of `repeats` passes of `attention`."""

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
        eager: bool = True,
        advice: str = "off",
        slot_map: bool = False,
    ) -> None: ...
    def forward(self, tokens: ArrayLike) -> None:
        """Append int32 tokens without a head."""
    def greedy(self, tokens: ArrayLike) -> int:
        """Append tokens; the id of the last one's highest logit, the lowest among equals."""
    def logits(self, tokens: ArrayLike) -> NDArray[np.float32]:
        """Append tokens; the last one's logits, float32 [vocabulary], softcap applied."""
    @property
    def position(self) -> int:
        """Tokens in the state."""
    def rewind(self, position: int) -> None:
        """Forget everything behind the first `position` tokens.

        Raises DeviceError where the state cannot go back: a model with recurrent states goes to 0,
        or to a snapshot.
        """
    def snapshot(self) -> Snapshot:
        """The sequence as it is now, copied."""
    def restore(self, snapshot: Snapshot) -> None:
        """Go back, or forth, to a snapshot of this model."""
    def record_routing(self, on: bool) -> None:
        """Start an empty trace of the router's choices, or stop."""
    def routing(self) -> NDArray[np.int16]:
        """Expert ids [tokens, layers, top_k] of the last trace; -1 in layers without a router."""
    def memory_peak(self) -> tuple[int, int]:
        """The most bytes of own memory, and of mapped files, resident after any pass."""
    def counters(self) -> Counters: ...

class Snapshot:
    """A sequence's keys, values and recurrent states at one position."""

    @property
    def position(self) -> int: ...
    @property
    def bytes(self) -> int:
        """Memory that it takes."""

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
    def mirror(self, copy: NDArray[np.int16]) -> None:
        """From now on `copy` is what `table` gives."""
    def next_uncached(self) -> int: ...

class ExpertStreamer:
    """One layer's experts, read from the file `path` into slots (for tests).

    offsets: where each expert lies in the file. stride: bytes of an expert.
    """

    def __init__(
        self,
        *,
        device: Device,
        path: str,
        offsets: Sequence[int],
        stride: int,
        slots: int,
        readers: int,
    ) -> None: ...
    def load(self, experts: Sequence[int]) -> Plan | None:
        """Places the experts and waits for their reads; None if they cannot be placed.

        Raises ExpertFillError if a read failed; the others are resident all the same.
        """
    def owners(self) -> list[int]:
        """Expert by slot, -1 empty."""
    def content(self, expert: int) -> bytes:
        """The bytes in an expert's slot. Raises KeyError if it has none."""

class FillGate:
    """An event that counts fills in the order in which they were added (for tests)."""

    def __init__(self, device: Device) -> None: ...
    def add(self) -> int:
        """A fill that has not ended; its number, from 1."""
    def end(self, number: int, error: str = ...) -> None:
        """The fill has ended, badly if there is an error."""
    @property
    def value(self) -> int:
        """The event's: all fills up to this one have ended."""
    @property
    def failures(self) -> int:
        """Fills that ended badly."""

class _KvLayer(TypedDict):
    """Rows of a layer, and the byte ranges (offset, size) of its keys and values."""

    capacity: int
    keys: tuple[int, int]
    values: tuple[int, int]

class planning:  # noqa: N801
    """How the model plans buffers, reads, chunks and state (a submodule, for tests).

    Everything raises DeviceError for what it refuses.
    """

    @staticmethod
    def buffer_cuts(
        size: int, limit: int, spans: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """Ranges of at most `limit` bytes that cover [0, size), cut only between spans."""
    @staticmethod
    def merge(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """The union of (offset, size) ranges, ascending; what overlaps or touches is one."""

    class AdvicePolicy:
        """Whether a request's missing experts are advised; `mode` as in `Model`.

        The limits are inclusive: a request of `misses` experts or `size` bytes is advised, and
        a call of `slow_call_ns` is slow.
        """

        def __init__(self, mode: str, misses: int, size: int, slow_call_ns: int) -> None: ...
        def begin(self) -> None:
            """A pass starts: a token, or a chunk of a prompt."""
        def wanted(self, misses: int, size: int, overlapped: bool) -> bool:
            """Whether to advise; `overlapped` if the device has work meanwhile."""
        def completed(self, nanoseconds: int) -> None:
            """Notes how long one advice call of this pass took."""

    @staticmethod
    def chunk_spans(tokens: int, chunk: int) -> list[tuple[int, int]]:
        """First token and count of each chunk."""
    @staticmethod
    def tile_chunk(
        ids: ArrayLike, rows: int, k: int, experts: int, tile: int
    ) -> tuple[list[int], list[tuple[int, int, int]], list[tuple[int, int, int, int]]]:
        """A chunk's routed work, from its int32 ids [rows * k].

        The pairs row * k + rank sorted by expert; for each expert that has any, its id, first
        pair and count; for each tile, its first group, groups, first pair and pairs.
        """
    @staticmethod
    def fits_slots(max_depth: int, tile: int, slots: int) -> bool:
        """Whether the tile being read and those being computed fit the slots."""
    @staticmethod
    def next_tile(
        depth: int, slots: Sequence[int], max_depth: int, place: Callable[[list[int]], bool]
    ) -> str:
        """Places a tile beside `depth` others that read `slots`, or says why it must wait.

        "issue", "prefetch", or "drain: " and why. `place` is told the slots to avoid.
        """
    @staticmethod
    def kv_oldest(written: int, capacity: int) -> int:
        """The oldest of `written` positions whose row has not been overwritten."""

    class KvState:
        """Keys and values of one sequence; layers are (heads, dim, window), window 0 for all."""

        def __init__(
            self,
            device: Device,
            layers: Sequence[tuple[int, int, int]],
            context: int,
            chunk: int,
            float32: bool = False,
        ) -> None: ...
        @property
        def position(self) -> int: ...
        def append(self, rows: int) -> None: ...
        def rewind(self, position: int) -> None: ...
        def layer(self, index: int) -> _KvLayer: ...
