"""Affine quantization in numpy: packing, the encoder's rule, BF16, and float64 dequantization."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


def bf16_bits(values: ArrayLike) -> NDArray[np.uint16]:
    """Float32 values rounded to BF16, nearest even, as their 16 bits."""
    values = np.asarray(values, np.float32)
    bits = values.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def bf16_float(bits: ArrayLike) -> NDArray[np.float32]:
    """The float32 values of BF16 bits."""
    return (np.asarray(bits, np.uint16).astype(np.uint32) << 16).view(np.float32)


def pack(codes: ArrayLike, bits: int) -> NDArray[np.uint8]:
    """Codes [..., cols] into bytes [..., cols * bits / 8], low bits first."""
    codes = np.asarray(codes, np.uint8)
    per_byte = 8 // bits
    split = codes.reshape(*codes.shape[:-1], -1, per_byte)
    shifts = np.arange(per_byte, dtype=np.uint8) * bits
    packed: NDArray[np.uint8] = np.bitwise_or.reduce(split << shifts, axis=-1)
    return packed


def unpack(packed: ArrayLike, bits: int) -> NDArray[np.uint8]:
    """The inverse of `pack`."""
    packed = np.asarray(packed, np.uint8)
    shifts = np.arange(8 // bits, dtype=np.uint8) * bits
    codes = (packed[..., None] >> shifts) & np.uint8(2**bits - 1)
    return codes.reshape(*packed.shape[:-1], -1).astype(np.uint8)


@dataclass(frozen=True)
class Quantized:
    """An affine matrix: packed uint8 [..., cols * bits / 8], BF16 bits [..., cols / group]."""

    weight: NDArray[np.uint8]
    scales: NDArray[np.uint16]
    biases: NDArray[np.uint16]
    bits: int
    group: int


def quantize(values: ArrayLike, bits: int = 4, group: int = 64) -> Quantized:
    """Encode float32 [..., cols].

    Per group scale = (max - min) / (2^bits - 1) and bias = min, a flat group has scale 1; both are
    rounded to BF16 first, then q = clamp(round half away((w - bias) * (1 / scale))) in float32.
    """
    values = np.asarray(values, np.float32)
    top = np.float32(2**bits - 1)
    groups = values.reshape(*values.shape[:-1], -1, group)
    low, high = groups.min(-1), groups.max(-1)
    scale = np.where(high > low, (high - low) / top, np.float32(1)).astype(np.float32)
    scales, biases = bf16_bits(scale), bf16_bits(low)
    with np.errstate(divide="ignore"):
        inverse = np.float32(1) / bf16_float(scales)
    x = (groups - bf16_float(biases)[..., None]) * inverse[..., None]
    rounded = np.copysign(np.floor(np.abs(x) + np.float32(0.5)), x)
    codes = np.clip(rounded, 0, top).astype(np.uint8)
    return Quantized(pack(codes.reshape(values.shape), bits), scales, biases, bits, group)


def dequantize(q: Quantized) -> NDArray[np.float64]:
    """scale * code + bias in float64, [..., cols]."""
    codes = unpack(q.weight, q.bits).astype(np.float64)
    groups = codes.reshape(*codes.shape[:-1], -1, q.group)
    scales = bf16_float(q.scales).astype(np.float64)[..., None]
    biases = bf16_float(q.biases).astype(np.float64)[..., None]
    return (groups * scales + biases).reshape(codes.shape)


def random_matrix(
    rng: np.random.Generator, rows: int, cols: int, bits: int = 4, group: int = 64
) -> Quantized:
    """A matrix of random codes whose dequantized values have about unit row norm."""
    step = 2 / (2**bits - 1) / np.sqrt(cols)
    shape = (rows, cols // group)
    scales = bf16_bits(step * rng.uniform(0.5, 1.5, shape).astype(np.float32))
    centre = -bf16_float(scales) * (2**bits - 1) / 2
    biases = bf16_bits(centre * rng.uniform(0.8, 1.2, shape).astype(np.float32))
    weight = rng.integers(0, 256, (rows, cols * bits // 8), dtype=np.uint8)
    return Quantized(weight, scales, biases, bits, group)
