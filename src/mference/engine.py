"""Builds the C++ model of an install and gives it the shape the generation loop drives."""

import os
from collections.abc import Sequence
from math import prod
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from mference import _core
from mference.devices import Device, DeviceName, open_device
from mference.errors import ArchMismatch, ConfigError, DeviceError, LayoutError
from mference.families import FAMILIES
from mference.families.arch import CORE_FIELDS, EXTENSION_FIELDS, Arch
from mference.memory import (
    RUNGS,
    Slots,
    available_memory,
    choose_slots,
    installed_footprint,
    parse_bytes,
)
from mference.report import Counters
from mference.store import Install
from mference.store.directory import LAYOUT, MANIFEST
from mference.store.layout import WEIGHT_NAMES, LayerLayout

MAX_CONTEXT = 2**31 - 1
MAX_THREADS = 1024

CHUNKS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
"""Rows of a prefill chunk."""


Advice = Literal["off", "default", "bounded", "adaptive"]
"""When the system is told what will be read from a layer file, just before it is."""

DEMO_SLOTS = 16
"""The embedded model would fit in any memory: a quarter of its experts shows the streaming."""


def eager_routed() -> bool:
    """Whether experts are committed to the device before their reads have landed.

    `MFERENCE_EAGER_ROUTED=0` lets the host wait for the reads instead, for diagnosis: the output
    is the same.
    """
    return os.environ.get("MFERENCE_EAGER_ROUTED") != "0"


def slot_map(family: str) -> bool:
    """Whether the device looks up by itself which experts are in their slots.

    `MFERENCE_SLOT_MAP=0` leaves that to the host and `=1` to the device; else it is the family's
    own setting. The output is the same.
    """
    wanted = os.environ.get("MFERENCE_SLOT_MAP")
    return FAMILIES[family].slot_map if wanted not in ("0", "1") else wanted == "1"


def auto_chunk(tokens: int) -> int:
    """The smallest chunk that takes a prompt of `tokens` tokens at once; the largest beyond."""
    return next((size for size in CHUNKS if size >= tokens), CHUNKS[-1])


def resolve_slots(
    slots: Slots,
    install: Install,
    *,
    context: int,
    chunk: int,
    memory: int | str | None = None,
    device: DeviceName = "cpu",
) -> int:
    """Slots for each layer as the core counts them: 0 stands for `resident`.

    Raises:
        ConfigError: the number is not a rung, or the budget does not hold the model.
        DeviceError: the system has not enough memory for it.
    """
    arch = install.manifest.arch
    if slots not in ("auto", "resident"):
        if not _is_whole(slots) or slots not in RUNGS:
            raise ConfigError(
                f"{slots!r} expert slots: choose one of {', '.join(map(str, RUNGS))}, resident or "
                "auto"
            )
        if slots < arch.integer("topKExperts"):
            raise ConfigError(
                f"{slots} expert slots: a token of this model selects {arch['topKExperts']} "
                "experts, and each needs a slot of its own; choose more"
            )
    embedded = install.entry is not None and install.entry.embedded
    chosen = choose_slots(
        slots,
        arch,
        installed_footprint(install),
        context=context,
        chunk=chunk,
        available=available_memory(),
        budget=None if memory is None else parse_bytes(memory),
        default=DEMO_SLOTS if embedded else None,
        device=device,
    )
    return 0 if chosen == "resident" else chosen


def build_core(
    install: Install,
    *,
    device: Device = "cpu",
    slots: Slots = "auto",
    context: int = 4096,
    chunk: int = 128,
    memory: int | str | None = None,
    threads: int = 0,
    isa: str = "auto",
    readers: int = 8,
    float32_products: bool = False,
    float32_kv: bool = False,
    advice: Advice = "off",
) -> _core.Model:
    """The C++ model over an open install.

    Args:
        install: an open `.gturbo` directory.
        device: what computes.
        slots: expert slots for each layer.
        context: tokens the KV state can hold.
        chunk: rows of a prefill chunk, one of `CHUNKS`; cut to the context.
        memory: most bytes of own memory, as a number or a text such as `6GiB`; None for no limit.
        threads: compute threads; 0 for one a processor.
        isa: instruction set of the CPU kernels, or `auto`.
        readers: threads that read experts.
        float32_products: plain float32 products instead of int16 activations.
        float32_kv: float32 keys and values instead of float16.
        advice: which reads of experts are announced to the system.

    Raises:
        ConfigError: a value is outside its range.
        ArchMismatch: a dimension of the model is zero, or more than the core can count, or the
            model differs in kind from what its family's forward pass computes.
        LayoutError: an expert lies differently in its blob than the others.
        DeviceError: the device refused, or the memory does not suffice.
        TensorNotFound: the install lacks a tensor of its family.
    """
    check_sizes(context, threads)
    if not _is_whole(chunk) or chunk not in CHUNKS:
        raise ConfigError(f"prefill chunk {chunk!r}: choose one of {', '.join(map(str, CHUNKS))}")
    if advice not in get_args(Advice):
        raise ConfigError(f"read advice {advice!r}: choose one of {', '.join(get_args(Advice))}")
    _check_arch(install.manifest.arch)
    chosen, opened = open_device(
        device, threads=threads, isa=isa, float32_products=float32_products
    )
    layers = install.layout.layers
    try:
        return _core.Model(
            device=opened,
            arch=dict(install.manifest.arch),
            weights=str(install.weights_path),
            tensors={
                name: (t.offset, t.size, t.scale_offset, t.scale_size, t.bias_offset, t.bias_size)
                for name, t in install.index.tensors.items()
            },
            expert_files=[str(install.layer_path(i)) for i in range(len(layers))],
            expert_offsets=[[expert.offset for expert in layer.experts] for layer in layers],
            expert_stride=install.layout.expert_stride,
            expert_parts=_parts(layers),
            verify_layer=install.verify_layer,
            slots=resolve_slots(
                slots, install, context=context, chunk=chunk, memory=memory, device=chosen
            ),
            context=context,
            chunk=chunk,
            readers=readers,
            float32_kv=float32_kv,
            eager=eager_routed(),
            advice=advice,
            slot_map=slot_map(install.manifest.arch.family),
        )
    except MemoryError:
        raise DeviceError(
            f"not enough memory for a context of {context:,} tokens in chunks of {chunk} with "
            f"expert slots {slots}; choose less"
        ) from None


def check_sizes(context: int, threads: int) -> None:
    """Check what can be checked before an install is opened.

    Raises:
        ConfigError: the context or the number of threads is outside its range.
    """
    if not _is_whole(context) or not 1 <= context <= MAX_CONTEXT:
        raise ConfigError(f"context {context!r}: it must be 1 to {MAX_CONTEXT} tokens")
    if not _is_whole(threads) or not 0 <= threads <= MAX_THREADS:
        raise ConfigError(
            f"threads {threads!r}: choose 1 to {MAX_THREADS}, or 0 for one a processor"
        )


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _check_arch(arch: Arch) -> None:
    for field in (*CORE_FIELDS, *EXTENSION_FIELDS):
        if field.kind != "int":
            continue
        value = arch.integer(field.key)
        optional = field in EXTENSION_FIELDS or field.key == "slidingWindow"
        if value >= 2**31 or (value < 1 and not optional):
            raise ArchMismatch(f"{MANIFEST}: no model has arch.{field.key} {value}", field.key)
    for key, expected in FAMILIES[arch.family].fixed_arch.items():
        if arch[key] != expected:
            raise ArchMismatch(
                f"{MANIFEST}: arch.{key} is {arch[key]}, and this version runs the family "
                f"'{arch.family}' only with {expected}",
                key,
            )


def _parts(layers: Sequence[LayerLayout]) -> list[tuple[int, int, int, int, int]]:
    """Where gate, up and down lie in a blob; the core takes one answer for all experts."""
    for layer in layers:
        if not layer.experts:
            raise _unusable(f"layer {layer.layer} has no experts")
        if any(expert.tensors != layers[0].experts[0].tensors for expert in layer.experts):
            raise _unusable(f"an expert of layer {layer.layer} lies differently than the others")
    return [_part(layers[0], name) for name in WEIGHT_NAMES]


def _part(layer: LayerLayout, name: str) -> tuple[int, int, int, int, int]:
    """Offsets of weight, scales and biases inside a blob, then bits and group size."""
    tensors = layer.experts[0].tensors
    weight = tensors[name]
    if weight.bits is None:
        raise _unusable(f"'{name}' has no bits")
    if weight.dtype != "U32" or weight.size * 8 != prod(weight.shape) * weight.bits:
        raise _unusable(
            f"{weight.size} bytes of {weight.dtype} are no '{name}' of shape {weight.shape} at "
            f"{weight.bits} bits"
        )
    scales, biases = tensors[f"{name}_scales"].offset, tensors[f"{name}_biases"].offset
    return weight.offset, scales, biases, weight.bits, layer.group_size(name)


def _unusable(message: str) -> LayoutError:
    return LayoutError(f"{LAYOUT}: {message}. Install the model again.")


class CoreEngine:
    """One sequence of an open model, as the generation loop drives it."""

    def __init__(self, core: _core.Model, *, arch: Arch, context: int, chunk: int) -> None:
        self._core = core
        self.vocabulary = arch.integer("vocabSize")
        self.softcap = arch.real("finalLogitSoftcap")
        self.context = context
        self.prefill_chunk = min(chunk, context)

    @property
    def position(self) -> int:
        """Tokens in the KV state."""
        return self._core.position

    def prefill(self, tokens: Sequence[int]) -> None:
        """Append tokens, and leave out the head."""
        self._core.forward(np.asarray(tokens, np.int32))

    def greedy(self, tokens: Sequence[int]) -> int:
        """Append tokens; the id of the last one's highest logit."""
        return self._core.greedy(np.asarray(tokens, np.int32))

    def logits(self, tokens: Sequence[int]) -> npt.NDArray[np.float32]:
        """Append tokens; the last one's logits, float32 [vocabulary], softcap applied."""
        return self._core.logits(np.asarray(tokens, np.int32))

    def counters(self) -> Counters:
        """What the core counted since the model was loaded."""
        return self._core.counters()

    def memory_peak(self) -> tuple[int, int]:
        """The most bytes of own memory, and of mapped files, resident after any pass."""
        return self._core.memory_peak()

    def record_routing(self, *, on: bool) -> None:
        """Start an empty trace of the router's choices, or stop."""
        self._core.record_routing(on)

    def routing(self) -> npt.NDArray[np.int16]:
        """Expert ids [tokens, layers, top_k] of the last trace."""
        return self._core.routing()

    def rewind(self, position: int) -> None:
        """Forget everything behind the first `position` tokens.

        Raises:
            DeviceError: what would be needed again has been overwritten, or the model has recurrent
                states, which go back to 0 alone; a snapshot leads back to its position.
        """
        self._core.rewind(position)

    def snapshot(self) -> _core.Snapshot:
        """The state as it is: keys, values and recurrent states, copied."""
        return self._core.snapshot()

    def restore(self, snapshot: _core.Snapshot) -> None:
        """Make the state that of a snapshot of this model; what follows has the same bytes.

        Raises:
            DeviceError: the snapshot is of another model.
        """
        self._core.restore(snapshot)
