"""Kernels give what the Metal specification says, against numpy: in order, and in other orders."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tests.softmetal.driver import Metal, bfloat, from_bfloat, uint


@pytest.fixture(params=[0, 1, 2], ids=["in_order", "seed_1", "seed_2"])
def seeded(metal: Metal, request: pytest.FixtureRequest) -> Metal:
    metal.probe.set("seed", request.param)
    return metal


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def test_templates_with_host_names_run_in_each_type(seeded: Metal, rng) -> None:
    x = rng.standard_normal(1000).astype(np.float32)
    for name, encode, decode, dtype in [
        ("scale_float", lambda a: a, lambda a: a, np.float32),
        ("scale_half", lambda a: a.astype(np.float16), lambda a: a.astype(np.float32), np.float16),
        ("scale_bfloat", bfloat, from_bfloat, np.uint16),
    ]:
        encoded = encode(x)
        y = seeded.empty(dtype, 1000)
        pipeline = seeded.pipeline("vector", name)
        arguments = [seeded.put(encoded), y, struct.pack("f", 1.7), uint(1000)]
        seeded.run(pipeline, arguments, [8], [64])
        expected = encode(decode(encoded) * np.float32(1.7))
        np.testing.assert_array_equal(seeded.get(y, dtype, 1000), expected)


def test_vectors_are_made_converted_packed_and_chosen(seeded: Metal, rng) -> None:
    x = (rng.standard_normal((40, 3)) * 80).astype(np.float32)
    h = rng.standard_normal((40, 2)).astype(np.float16)
    y = seeded.empty(np.float32, 40, 4)
    seeded.run(seeded.pipeline("vector", "vectors"), [seeded.put(x), y, seeded.put(h)], [5], [8])
    table = np.array([0.25, 0.5, 1.0, 2.0], np.float32)
    w = np.concatenate([x[:, ::-1], table[np.arange(40) % 4][:, None]], axis=1)
    w[:, :2] += h.astype(np.float32)
    w[w > 100] = -1
    expected = np.clip(w, -50, 50) + np.array([1, 2, 3, 4], np.float32)
    np.testing.assert_array_equal(seeded.get(y, np.float32, 40, 4), expected)


def test_structs_are_copied(metal: Metal) -> None:
    x = np.arange(32, dtype=np.uint32).reshape(16, 2)
    y = metal.empty(np.uint32, 16, 2)
    metal.run(metal.pipeline("vector", "copy"), [metal.put(x), y], [2], [8])
    expected = np.stack([x[:, 1], x[:, 0] ** 2], axis=1)
    np.testing.assert_array_equal(metal.get(y, np.uint32, 16, 2), expected)


@pytest.mark.parametrize("ragged", [False, True])
def test_threads_know_where_they_are(seeded: Metal, ragged: bool) -> None:
    group = np.array([5, 3, 4])
    grid = np.array([13, 7, 9]) if ragged else group * [3, 2, 2]
    y = seeded.empty(np.uint32, *grid[::-1], 24)
    pipeline = seeded.pipeline("vector", "places")
    seeded.run(pipeline, [y], grid if ragged else [3, 2, 2], group, ragged=ragged)
    got = seeded.get(y, np.uint32, *grid[::-1], 24)
    groups = -(-grid // group)
    for z, yy, x in np.ndindex(*grid[::-1]):
        at = np.array([x, yy, z])
        of_group = at // group
        in_group = at % group
        extent = np.minimum(group, grid - of_group * group)
        index = in_group[0] + extent[0] * (in_group[1] + extent[1] * in_group[2])
        simdgroups = -(-int(extent.prod()) // 32)
        expected = [*at, *in_group, *of_group, *extent, *groups, *grid,
                    index, index % 32, index // 32, simdgroups, 32, 7]  # fmt: skip
        assert got[z, yy, x].tolist() == expected


def test_simd_functions_of_floats(seeded: Metal) -> None:
    n = 128
    x = (np.random.default_rng(0).integers(-8, 9, n) / 8).astype(np.float32)
    y = seeded.empty(np.float32, 20, n)
    seeded.run(seeded.pipeline("simd", "simd_floats"), [seeded.put(x), y], [2], [64])
    got = seeded.get(y, np.float32, 20, n).reshape(20, 4, 32)
    v = x.reshape(4, 32)
    lane = np.arange(32)
    every = np.ones(32, np.float32)
    quads = v.reshape(4, 8, 4)
    filled = np.concatenate([v[:, -2:] + 100, v[:, :-2]], axis=1)
    # A shift by two takes the filling's last two lanes.
    expected = [
        v.sum(1)[:, None] * every, v.prod(1)[:, None] * every, v.min(1)[:, None] * every,
        v.max(1)[:, None] * every, v[:, ::-1], v[:, lane ^ 5],
        np.where(lane >= 3, np.roll(v, 3, 1), 0), np.where(lane < 28, np.roll(v, -4, 1), 0),
        v[:, 9:10] * every, v[:, :1] * every, np.cumsum(v, 1) - v, np.cumsum(v, 1),
        np.roll(v, -6, 1), filled, np.repeat(quads.sum(2), 4, 1), np.repeat(quads.max(2), 4, 1),
        v[:, lane ^ 1], np.repeat(quads[:, :, 2], 4, 1), 2 * v.sum(1)[:, None] * every,
        v.sum(1)[:, None] * every,
    ]  # fmt: skip
    for row, want in enumerate(expected):
        if row == 1:
            np.testing.assert_allclose(got[row], want, rtol=1e-5, atol=1e-30)
        else:
            np.testing.assert_array_equal(got[row], want, err_msg=f"row {row}")


def test_simd_functions_of_integers(seeded: Metal, rng) -> None:
    x = rng.integers(0, 1000, 64, dtype=np.uint32)
    x[40] = 7
    y = seeded.empty(np.uint32, 8, 64)
    seeded.run(seeded.pipeline("simd", "simd_integers"), [seeded.put(x), y], [1], [64])
    got = seeded.get(y, np.uint32, 8, 64)
    for half in (slice(0, 32), slice(32, 64)):
        v = x[half]
        ballot = sum(int(b & 1) << k for k, b in enumerate(v))
        expected = [v.sum(), np.bitwise_and.reduce(v), np.bitwise_or.reduce(v),
                    np.bitwise_xor.reduce(v), ballot, 1, int((v == 7).any()),
                    (int(v.max()) - 500) & 0xFFFFFFFF]  # fmt: skip
        for row, want in enumerate(expected):
            assert (got[row, half] == want).all(), row


@pytest.mark.parametrize("count", [1, 5, 31, 33, 64])
def test_lanes_that_returned_take_no_part(seeded: Metal, count: int) -> None:
    y = seeded.empty(np.float32, 64)
    seeded.run(seeded.pipeline("simd", "simd_active"), [y, uint(count)], [1], [64])
    expected = [min(32, count - i // 32 * 32) if i < count else -1 for i in range(64)]
    assert seeded.get(y, np.float32, 64).tolist() == expected


@pytest.mark.parametrize("threads", [32, 96, 1024])
def test_rows_are_summed_through_threadgroup_memory(seeded: Metal, threads: int, rng) -> None:
    x = rng.integers(-9, 9, (7, 3000)).astype(np.float32)
    y = seeded.empty(np.float32, 7)
    pipeline = seeded.pipeline("simd", "row_sums")
    seeded.run(pipeline, [seeded.put(x), y, struct.pack("II", 7, 3000)], [7], [threads])
    np.testing.assert_array_equal(seeded.get(y, np.float32, 7), x.sum(1))


@pytest.mark.parametrize("kind", ["half", "bfloat", "float"])
def test_simdgroup_matrices_multiply(seeded: Metal, kind: str, rng) -> None:
    n = 64
    a, b = (rng.integers(-8, 9, (n, n)).astype(np.float32) / 4 for _ in range(2))
    encode = {"half": lambda x: x.astype(np.float16), "bfloat": bfloat, "float": lambda x: x}[kind]
    c = seeded.empty(np.float32, n, n)
    size = 4 if kind == "float" else 2
    arguments = [seeded.put(encode(a)), seeded.put(encode(b)), c, uint(n)]
    pipeline = seeded.pipeline("matrix", f"multiply_{kind}")
    seeded.run(pipeline, arguments, [n // 16, n // 16], [32], [128 * size])
    np.testing.assert_array_equal(seeded.get(c, np.float32, n, n), a @ b)


def test_simdgroup_matrices_transpose_and_have_diagonals(seeded: Metal, rng) -> None:
    x = rng.standard_normal((8, 8)).astype(np.float16)
    y, z = seeded.empty(np.float16, 8, 8), seeded.empty(np.float16, 8, 8)
    pipeline = seeded.pipeline("matrix", "transpose_and_diagonal")
    seeded.run(pipeline, [seeded.put(x), y, z], [1], [32])
    np.testing.assert_array_equal(seeded.get(y, np.float16, 8, 8), x.T)
    np.testing.assert_array_equal(seeded.get(z, np.float16, 8, 8), 2 * x)


def test_atomics_count_in_device_and_threadgroup_memory(seeded: Metal, rng) -> None:
    x = rng.integers(0, 500, 2048, dtype=np.uint32)
    counts = seeded.put(np.zeros(3, np.uint32))
    extremes, total = seeded.put(np.zeros(2, np.int32)), seeded.put(np.zeros(1, np.float32))
    histogram = seeded.put(np.zeros(8, np.uint32))
    arguments = [counts, extremes, total, histogram, seeded.put(x)]
    seeded.run(seeded.pipeline("atomics", "count"), arguments, [16], [128])
    bits = np.bitwise_or.reduce(np.uint32(1) << (x & 31))
    assert seeded.get(counts, np.uint32, 3).tolist() == [2048, bits, 4096]
    assert seeded.get(extremes, np.int32, 2).tolist() == [x.max(), -int(x.max())]
    assert seeded.get(total, np.float32, 1)[0] == 1024
    expected = np.bincount(x & 7, minlength=8)
    np.testing.assert_array_equal(seeded.get(histogram, np.uint32, 8), expected)


def test_functions_of_floats(metal: Metal) -> None:
    x = np.concatenate([np.linspace(-4, 4, 60), [0.5, -0.5, 2.5, 0.0]]).astype(np.float32)
    y = metal.empty(np.float32, 32, 64)
    metal.run(metal.pipeline("math", "unary"), [metal.put(x), y], [1], [64])
    got = metal.get(y, np.float32, 32, 64)
    v = x.astype(np.float64)
    p = np.abs(v) + 0.125
    away = np.copysign(np.floor(np.abs(v) + 0.5), v)
    expected = [
        np.exp(v), np.exp2(v), np.exp(v), np.exp(v), np.log(p), np.log2(p), np.sqrt(p),
        p**-0.5, p**-0.5, np.sin(v), np.cos(v), np.tanh(v), np.tanh(v), p**v, np.floor(v),
        np.ceil(v), np.trunc(v), np.rint(v), away, v - np.floor(v), np.sign(v), np.clip(v, 0, 1),
        np.abs(v), np.clip(v, -0.5, 0.5), 1.25 * v, v * v - 1,
        np.minimum(v, 0.25) + np.maximum(v, -0.25), 4 * v + 6, np.sqrt(v * v + 4), v >= 0, 0 * v,
        1 / p,
    ]  # fmt: skip
    for row, want in enumerate(expected):
        np.testing.assert_allclose(got[row], want, rtol=3e-6, atol=3e-6, err_msg=f"row {row}")


def test_half_and_bfloat_round_after_each_operation(metal: Metal, rng) -> None:
    x = rng.standard_normal(64).astype(np.float32)
    h, u = x.astype(np.float16), bfloat(x)
    y, w = metal.empty(np.float16, 64), metal.empty(np.uint16, 64)
    metal.run(metal.pipeline("math", "halves"), [metal.put(h), y, metal.put(u), w], [1], [64])
    np.testing.assert_array_equal(metal.get(y, np.float16, 64), h * h + np.float16(0.1))
    product = from_bfloat(bfloat(from_bfloat(u) ** 2))
    expected = bfloat(product + from_bfloat(bfloat(np.float32(0.1))))
    np.testing.assert_array_equal(metal.get(w, np.uint16, 64), expected)


def test_functions_of_integers(metal: Metal) -> None:
    values = [0, 1, 2, 3, 0xFF, 0x8000_0000, 0xFFFF_FFFF, 0xDEAD_BEEF, 1000, 77, 99, 98]
    y = metal.empty(np.uint32, 13, len(values))
    pipeline = metal.pipeline("math", "integers")
    arguments = [metal.put(np.array(values, np.uint32)), y]
    metal.run(pipeline, arguments, [len(values)], [len(values)], ragged=True)
    got = metal.get(y, np.uint32, 13, len(values))
    mask = 0xFFFF_FFFF
    for k, v in enumerate(values):
        signed = v - (1 << 32) if v >> 31 else v
        expected = [
            v.bit_count(), 32 - v.bit_length(), (v & -v).bit_length() - 1 if v else 32,
            v >> 5 & 0x7F, (v & ~0xFF0) | 0x30, int(f"{v:032b}"[::-1], 2),
            (v << 9 | v >> 23) & mask, v * 0x9E3779B9 >> 32, min(v + 0xF000_0000, mask),
            max(v - 0x10000, 0), abs(v - 1000), min(v, 77) + max(v, 99) & mask,
            (signed >> 3) & mask,
        ]  # fmt: skip
        assert got[:, k].tolist() == expected, hex(v)


@pytest.mark.parametrize("kind", ["half", "float"])
def test_ways_of_writing_that_only_metal_has(metal: Metal, kind: str) -> None:
    dtype = np.float16 if kind == "half" else np.float32
    x = metal.put(np.array([1, 2, 3, 4, 5], dtype))
    pair = np.array([1, 2, 3, 4], np.float16).tobytes()
    y = metal.empty(np.float32, 21)
    pipeline = metal.pipeline("dialect", f"dialect_{kind}")
    metal.run(pipeline, [y, x, pair], [1], [40], [16])
    expected = [
        10, -20, 1 + 4 + 9 + 16, 10, 4 + 6 + 512, 30, -2, 27 + 21, 2 + 3 + 4, 3, 5 + 3, 9, 6, 6,
        9 + 30 + 900 + 1000, 0x3C00 + np.float32(np.pi), 1000 + 0.5 + 16 + 0.15,
        2 if kind == "half" else 4, 1 + 1.5, 65536 - 3 + 44, 3 + 3 + 5,
    ]  # fmt: skip
    np.testing.assert_allclose(metal.get(y, np.float32, 21), np.float32(expected), rtol=1e-7)
