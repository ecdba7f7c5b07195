"""What the tests of a device share: the devices to test, and how results are compared."""

import itertools

import numpy as np

from mference import _core
from mference._core import ops
from tests.reference import affine

ISAS = _core.cpu_isas()
THREADS = (1, 2, 3)
HIDDEN = 2816

# Relative to the largest reference value. The int16 bar is the rounding of activations to 1 / 32767
# of their group's largest; the float32 bar is a few roundings of sums.
INT16 = 2e-4
FLOAT32 = 2e-6


def cpu(isa: str = "auto", threads: int = 2, *, float32: bool = False) -> _core.Device:
    return _core.cpu_device(threads, isa, float32)


def devices() -> list[_core.Device]:
    """Every instruction set with every number of threads, on the int16 path."""
    return [cpu(isa, threads) for isa, threads in itertools.product(ISAS, THREADS)]


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


def check(operation, expected, *, int16: float = INT16, float32: float = FLOAT32) -> None:
    """Run `operation(device)` on every device.

    All devices of the int16 path give the same bytes, within `int16` of the reference; the float32
    path is within `float32`. Integer results must be equal to the reference.
    """
    first = as_tuple(operation(devices()[0]))
    for device in devices()[1:]:
        for a, b in zip(first, as_tuple(operation(device)), strict=True):
            assert np.array_equal(a, b), f"{device.name} gives other bytes"
    precise = as_tuple(operation(cpu(float32=True)))
    for results, bar in ((first, int16), (precise, float32)):
        for got, want in zip(results, as_tuple(expected), strict=True):
            if want is None:
                assert got is None
            elif np.issubdtype(np.asarray(got).dtype, np.integer):
                assert np.array_equal(got, want)
            else:
                assert error(got, want) <= bar
