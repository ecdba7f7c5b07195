"""Short measurements of the machine: memory, products through the real kernels, disk."""

import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryFile
from typing import IO

import numpy as np

from mference import _core
from mference._core import ops
from mference.families.family import affine_bytes
from mference.memory import available_memory
from mference.store import Install

MIB = 1 << 20

READERS = 8
"""Threads that read experts, as many as a model has."""

PASS_BYTES = 128 * MIB
"""What one pass reads of memory: more than a processor's cache holds."""

DISK_BYTES = 512 * MIB
"""The most that is read of a disk, and the size of the file that is written for it."""

DISK_SECONDS = 5.0

EXPERT_BYTES = 3_358_720
"""The read that is measured where no install says how large its experts are."""

_SHAPES = ((64, 64), (256, 256), (1024, 1024), (4096, 2816))
"""Matrices whose products are timed: from no work at all to a projection of Gemma 4 26B-A4B."""

_LARGE = MIB // 2  # a model of matrices as large as this does not fit a cache


@dataclass(frozen=True)
class ComputeSpeed:
    """Speeds of memory and processor.

    memory: bytes a second of reading memory with every core.
    products: bytes of a 4-bit matrix, and the seconds of multiplying it by one row; ascending.
        Large ones come out of memory.
    round_trip: seconds from the host to the device and back, with a tiny product between.
    """

    memory: float
    products: tuple[tuple[int, float], ...]
    round_trip: float

    @property
    def product(self) -> float:
        """Bytes a second of the largest product."""
        size, seconds = self.products[-1]
        return size / seconds

    def product_seconds(self, size: float) -> float:
        """Seconds of one product with a matrix of that many bytes, between those measured."""
        if size >= self.products[-1][0]:
            return size / self.product
        sizes, seconds = zip(*self.products, strict=True)
        return float(np.exp(np.interp(np.log(size), np.log(sizes), np.log(seconds))))


@dataclass(frozen=True)
class DiskSpeed:
    """Bytes a second of reading experts: `cold` from the disk, `cached` out of the page cache.

    `read_bytes` is the size of one read, `source` the file they came from.
    """

    cold: float
    cached: float
    read_bytes: int
    source: str


ASSUMED_DISK = DiskSpeed(1e9, 5e9, EXPERT_BYTES, "assumed")
"""A slow solid-state disk, where none is measured."""


def measure_compute(
    *,
    threads: int = 0,
    isa: str = "auto",
    pass_bytes: int = PASS_BYTES,
    passes: int = 7,
) -> ComputeSpeed:
    """Measure memory and the CPU device; about a second.

    Args:
        threads: compute threads; 0 for one a processor.
        isa: instruction set of the kernels.
        pass_bytes: bytes of memory that a pass reads, cut to an eighth of what is available.
        passes: how often each measurement runs; the median counts.
    """
    device = _core.cpu_device(threads, isa)
    pass_bytes = max(MIB, min(pass_bytes, available_memory() // 8))
    products = []
    for rows, cols in _SHAPES:
        size = affine_bytes(rows, cols)
        copies = max(1, pass_bytes // size) if size >= _LARGE else 100
        taken = _time_products(device, rows, cols, copies, passes)
        products.append((size, median(taken) / copies))
    return ComputeSpeed(
        memory=_memory_speed(pass_bytes, passes),
        products=tuple(products),
        round_trip=median(_time_products(device, *_SHAPES[0], 1, 20 * passes)),
    )


def _time_products(
    device: _core.Device, rows: int, cols: int, copies: int, passes: int
) -> list[float]:
    codes = np.random.default_rng(1).integers(0, 256, (rows, cols // 2), dtype=np.uint8)
    groups = np.full((rows, cols // 64), 0x3C00, np.uint16)
    x = np.ones((1, cols), np.float32)
    return ops.time_project(device, x, ops.Affine(codes, groups, groups), copies, passes)


def _memory_speed(size: int, passes: int) -> float:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parts = np.array_split(np.ones(size // 8, np.int64), cores or 1)
    return size / median(_seconds(lambda: _together(parts)) for _ in range(passes))


def _together(parts: Sequence[np.ndarray]) -> None:
    workers = [threading.Thread(target=part.sum) for part in parts]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def measure_disk(
    place: Path,
    install: Install | None = None,
    *,
    limit: int = DISK_BYTES,
    seconds: float = DISK_SECONDS,
) -> DiskSpeed:
    """Measure reads of experts, buffered, through the reader that a model has.

    Args:
        place: the directory that holds a temporary file for it, always removed again.
        install: read its layer files instead, and write nothing; the pages read leave the page
            cache first.
        limit: most bytes that are written and read; of free space at most half is taken.
        seconds: about the most time that writing takes, and that reading does.

    Raises:
        OSError: the place cannot be written.
        ExpertFillError: a file cannot be read.
    """
    with ExitStack() as stack:
        if install is None:
            file: IO[bytes] = stack.enter_context(
                TemporaryFile(dir=place, prefix=".mference-doctor-")
            )
            size = _fill(file.fileno(), min(limit, _free(place) // 2), seconds)
            stride = min(EXPERT_BYTES, max(4096, size // READERS))
            offsets = list(range(0, size - stride + 1, stride))
            random.Random(1).shuffle(offsets)
            batches = [(file.fileno(), part) for part in _parts(offsets, 4 * READERS)]
            source = f"a temporary file in {place}"
        else:
            stride = install.layout.expert_stride
            batches = []
            for i, layer in enumerate(install.layout.layers):
                if layer.experts:
                    file = stack.enter_context(install.layer_path(i).open("rb"))
                    offsets = [expert.offset for expert in layer.experts]
                    random.Random(1).shuffle(offsets)
                    batches += [(file.fileno(), part) for part in _parts(offsets, 4 * READERS)]
            random.Random(1).shuffle(batches)
            source = str(install.path)
        return _time(batches, stride, limit, seconds, source)


def _parts(offsets: Sequence[int], count: int) -> list[Sequence[int]]:
    return [offsets[i : i + count] for i in range(0, len(offsets), count)]


def _time(
    batches: Sequence[tuple[int, Sequence[int]]],
    stride: int,
    limit: int,
    seconds: float,
    source: str,
) -> DiskSpeed:
    """Read each batch twice, first after its pages have left the cache."""
    size, cold, cached = 0, 0.0, 0.0
    for fd, offsets in batches:
        for at in offsets:
            _drop(fd, at, stride)
        cold += _core.time_reads(fd, offsets, stride, READERS)
        cached += _core.time_reads(fd, offsets, stride, READERS)
        size += len(offsets) * stride
        if size >= limit or cold + cached >= seconds:
            break
    return DiskSpeed(size / cold, size / cached, stride, source)


def _free(place: Path) -> int:
    status = os.statvfs(place)
    return status.f_bavail * status.f_frsize


def _fill(fd: int, size: int, seconds: float) -> int:
    """Write up to `size` bytes while there is time; how many. What is dirty cannot be dropped."""
    # Random bytes: a file system that compresses or stores zeros as holes would flatter itself.
    block = np.random.default_rng(1).bytes(32 * MIB)
    start, done = time.perf_counter(), 0
    while done < size and time.perf_counter() - start < seconds:
        done += os.write(fd, block[: size - done])
        os.fsync(fd)
    return done


def _drop(fd: int, at: int, size: int) -> None:
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, at, size, os.POSIX_FADV_DONTNEED)


def _seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
