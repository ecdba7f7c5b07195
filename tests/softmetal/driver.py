"""Arrays into kernels and out of them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

KERNELS = Path(__file__).resolve().parent / "kernels"
PRELUDE = "#include <metal_stdlib>\nusing namespace metal;\n"


def source_of(name: str) -> str:
    """A file of kernels/ with its header, as one text: what newLibraryWithSource takes."""
    header = (KERNELS / "common.h").read_text().replace("#pragma once\n", "")
    return (KERNELS / f"{name}.metal").read_text().replace('#include "common.h"', header)


class Metal:
    """One device, one queue."""

    def __init__(self, probe: ModuleType) -> None:
        self.probe = probe
        self.device = probe.Device()
        self.queue = self.device.queue()

    def put(self, array: np.ndarray) -> Any:
        """A buffer with the bytes of an array."""
        flat = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        buffer = self.device.buffer(max(1, flat.size))
        buffer.view(np.uint8, [flat.size])[:] = flat
        return buffer

    def empty(self, dtype: Any, *shape: int) -> Any:
        """A buffer for an array."""
        return self.device.buffer(int(np.prod(shape)) * np.dtype(dtype).itemsize)

    @staticmethod
    def get(buffer: Any, dtype: Any, *shape: int) -> np.ndarray:
        """A copy of an array in a buffer."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return buffer.view(np.uint8, [size]).copy().view(dtype).reshape(shape)

    def library(self, source: str) -> Any:
        """The kernels of a file of kernels/, or of a text that has line breaks."""
        return self.device.library(PRELUDE + source if "\n" in source else source_of(source))

    def pipeline(
        self, source: str, name: str, constants: Mapping[int, object] | None = None
    ) -> Any:
        """One kernel."""
        return self.library(source).pipeline(name, constants or {})

    def run(
        self,
        pipeline: Any,
        arguments: Sequence[Any],
        groups: Sequence[int],
        threads: Sequence[int],
        threadgroup_bytes: Sequence[int] = (),
        *,
        ragged: bool = False,
    ) -> Any:
        """Runs a kernel to its end. Raises RuntimeError with the command buffer's error."""
        commands = self.queue.commands()
        commands.dispatch(
            pipeline,
            list(arguments),
            [*groups, 1, 1][:3],
            [*threads, 1, 1][:3],
            list(threadgroup_bytes),
            ragged,
        )
        commands.commit()
        commands.wait()
        return commands


def uint(value: int) -> bytes:
    """A constant uint."""
    return struct.pack("I", value)


def bfloat(array: np.ndarray) -> np.ndarray:
    """The bits of numbers rounded to bfloat, to nearest even."""
    bits = np.asarray(array, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bfloat(bits: np.ndarray) -> np.ndarray:
    """The numbers that bits of bfloat stand for."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
