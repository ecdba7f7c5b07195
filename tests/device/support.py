"""What the tests of a device share: the devices to test, and how results are compared."""

import ctypes
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from mference import _core
from mference._core import ops
from mference.errors import DeviceError
from tests.reference import affine

ISAS = _core.cpu_isas()
THREADS = (1, 2, 3)
HIDDEN = 2816
# What tests/ptx/prepare.sh compiled, for the build that runs it.
PTX = Path(os.environ.get("MFERENCE_PTX", Path(__file__).parents[2] / ".ptx"))

# Sets a setting of the software Metal device, where the core is built over it.
SET_SOFTMETAL = getattr(ctypes.CDLL(_core.__file__), "softmetal_set", None)

# Relative to the largest reference value. The int16 bar is the rounding of activations to 1 / 32767
# of their group's largest; the float32 bar is a few roundings of sums.
INT16 = 2e-4
FLOAT32 = 2e-6
# A GPU keeps few rows in float32, but its activation function and its sums are its own; from 8 rows
# on it rounds weights to float16, half a unit in 2^11 of the largest.
GPU_FLOAT32 = 5e-6
GPU_TILES = 5e-4


def cpu(isa: str = "auto", threads: int = 2, *, float32: bool = False) -> _core.Device:
    return _core.cpu_device(threads, isa, float32)


def cpus() -> list[_core.Device]:
    """Every instruction set with every number of threads, on the int16 path."""
    return [cpu(isa, threads) for isa, threads in itertools.product(ISAS, THREADS)]


def opener(kind: str):
    """What opens the metal device or the ptx device; in a build without, the test is skipped."""
    make = getattr(_core, f"{kind}_device", None)
    if make is None:
        pytest.skip(f"this build has no {kind} device; CONTRIBUTING.md says what it needs")
    return make


def gpu(kind: str) -> _core.Device:
    """The metal device or the ptx device (tests/ptx); without one the test is skipped."""
    make = opener(kind)
    if kind == "metal":
        return make()
    if not PTX.is_dir():
        pytest.skip("there is no PTX: tests/ptx/prepare.sh compiles it")
    try:
        return make(str(PTX))
    except DeviceError as error:
        if "no CUDA driver" not in str(error):
            raise
        pytest.skip("there is no CUDA driver")


def gpu_bar(count: int) -> float:
    """What a product of `count` rows may differ on a GPU."""
    return GPU_FLOAT32 if count < 8 else GPU_TILES


def matrix(q: affine.Quantized) -> ops.Affine:
    return ops.Affine(q.weight, q.scales, q.biases, q.bits, q.group)


def norm_weight(rng, size: int):
    return affine.bf16_bits(1 + 0.2 * rng.standard_normal(size))


def rows(rng, count: int, size: int, outlier: float = 8.0):
    """Normal activations with one large column, as hidden states have."""
    x = rng.standard_normal((count, size)).astype(np.float32)
    x[:, size // 3] *= outlier
    return x


def error(got, expected) -> float:
    expected = np.asarray(expected, np.float64)
    return float(np.abs(np.asarray(got, np.float64) - expected).max() / np.abs(expected).max())


def as_tuple(result) -> tuple:
    return result if isinstance(result, tuple) else (result,)


def compare(results: tuple, expected, bar: float) -> None:
    """Integers must equal the reference, everything else lies within `bar` of it."""
    for got, want in zip(results, as_tuple(expected), strict=True):
        if want is None:
            assert got is None
        elif np.issubdtype(np.asarray(got).dtype, np.integer):
            assert np.array_equal(got, want)
        else:
            assert error(got, want) <= bar


def same_bytes(a: tuple, b: tuple) -> bool:
    return all(
        x is y or np.array_equal(x, y, equal_nan=np.issubdtype(np.asarray(x).dtype, np.floating))
        for x, y in zip(a, b, strict=True)
    )


def check_cpu(operation, expected, int16: float, float32: float) -> None:
    """All CPU devices of the int16 path give the same bytes, within `int16` of the reference; the
    float32 path is within `float32`."""
    first = as_tuple(operation(cpus()[0]))
    for device in cpus()[1:]:
        assert same_bytes(first, as_tuple(operation(device))), f"{device.name} gives other bytes"
    compare(first, expected, int16)
    compare(as_tuple(operation(cpu(float32=True))), expected, float32)


def check_gpu(device: _core.Device, operation, expected, bar: float) -> None:
    """A GPU is within `bar` of the reference, and gives the same bytes again; the software Metal
    device in three orders of its threads, any other in whatever order it has."""
    first = as_tuple(operation(device))
    compare(first, expected, bar)
    for seed in (1, 2):
        with schedule(seed):
            again = as_tuple(operation(device))
        assert same_bytes(first, again), f"other bytes in schedule {seed}"


@contextmanager
def schedule(seed: int) -> Iterator[None]:
    """Threads of the software Metal device run in another order."""
    if SET_SOFTMETAL is None:
        yield
        return
    SET_SOFTMETAL(b"seed", ctypes.c_int64(seed))
    try:
        yield
    finally:
        SET_SOFTMETAL(b"seed", ctypes.c_int64(0))
