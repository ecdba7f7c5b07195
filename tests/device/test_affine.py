"""Affine products: every format and shape, on every instruction set."""

import numpy as np
import pytest

from mference._core import ops
from mference.errors import DeviceError
from tests.device.support import GPU_TILES, ISAS, cpu, error, gpu_bar, matrix, rows
from tests.reference import affine, operations

SHAPES = [  # rows, cols: the real layers', cut in rows, then small ones and tails
    (130, 2816), (65, 4096), (33, 8192), (97, 2112), (100, 704), (7, 64), (16, 128), (1, 192),
]  # fmt: skip
FORMATS = [(2, 32), (2, 64), (2, 128), (4, 32), (4, 64), (4, 128), (8, 32), (8, 64), (8, 128)]


@pytest.mark.parametrize(("out", "cols"), SHAPES)
@pytest.mark.parametrize("count", [1, 5, 9])
def test_real_and_small_shapes_match_the_reference(check, out, cols, count):
    rng = np.random.default_rng(out + cols)
    q, x = affine.random_matrix(rng, out, cols), rows(rng, count, cols)
    check(
        lambda d: ops.project(d, x, matrix(q), misalign=2),
        operations.product(x, q),
        gpu=gpu_bar(count),
    )


@pytest.mark.parametrize("count", [2, 7, 8, 32, 33, 129])
@pytest.mark.parametrize("misalign", [0, 2])
def test_any_number_of_rows_matches_the_reference(check, count, misalign):
    rng = np.random.default_rng(count)
    q, x = affine.random_matrix(rng, 67, 192), rows(rng, count, 192)
    check(
        lambda d: ops.project(d, x, matrix(q), misalign=misalign),
        operations.product(x, q),
        gpu=gpu_bar(count),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("out", "cols"), [(8192, 2816), (2048, 2816), (2816, 8192), (2112, 2816), (2816, 2112)]
)
@pytest.mark.parametrize("count", [1, 32])
def test_whole_matrices_of_real_layers_match_the_reference(check, out, cols, count):
    rng = np.random.default_rng(out)
    q, x = affine.random_matrix(rng, out, cols), rows(rng, count, cols)
    check(
        lambda d: ops.project(d, x, matrix(q), misalign=2),
        operations.product(x, q),
        gpu=gpu_bar(count),
    )


@pytest.mark.parametrize(("bits", "group"), FORMATS)
@pytest.mark.parametrize("count", [1, 6, 10])
def test_every_format_matches_the_reference(check, bits, group, count):
    rng = np.random.default_rng(bits * group)
    q, x = affine.random_matrix(rng, 19, 3 * group, bits, group), rows(rng, count, 3 * group)
    check(
        lambda d: ops.project(d, x, matrix(q), misalign=6),
        operations.product(x, q),
        gpu=gpu_bar(count),
    )


@pytest.mark.parametrize("misalign", [0, 2, 10, 62])
@pytest.mark.parametrize("count", [1, 9])
def test_any_even_offset_gives_the_same_bytes(devices, count, misalign):
    rng = np.random.default_rng(3)
    q, x = affine.random_matrix(rng, 40, 2112), rows(rng, count, 2112)
    for device in devices:
        expected = ops.project(device, x, matrix(q))
        assert np.array_equal(ops.project(device, x, matrix(q), misalign=misalign), expected)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("float32", [False, True])
def test_a_row_has_the_same_bytes_alone_and_among_others(bits, float32):
    rng = np.random.default_rng(4)
    q, x = affine.random_matrix(rng, 75, 704, bits), rows(rng, 67, 704)
    for isa in ISAS:
        device = cpu(isa, float32=float32)
        together = ops.project(device, x, matrix(q), misalign=2)
        for count in range(1, 12):
            part = ops.project(device, x[-count:], matrix(q), misalign=2)
            assert np.array_equal(part, together[-count:])


@pytest.mark.parametrize("count", [4, 8])
def test_extreme_codes_do_not_saturate(check, count):
    cols = 256
    for bits in (2, 4, 8):
        weight = np.full((5, cols * bits // 8), 255, np.uint8)
        scales = affine.bf16_bits(np.full((5, cols // 64), 0.5))
        biases = affine.bf16_bits(np.full((5, cols // 64), -3.0))
        q = affine.Quantized(weight, scales, biases, bits, 64)
        x = np.full((count, cols), 7.0, np.float32)
        check(lambda d, q=q, x=x: ops.project(d, x, matrix(q)), operations.product(x, q))


@pytest.mark.parametrize("count", [4, 8])
def test_tiny_zero_and_huge_activations_keep_their_scale(devices, count):
    rng = np.random.default_rng(5)
    q = affine.random_matrix(rng, 20, 256)
    x = np.zeros((count, 256), np.float32)
    x[1] = rng.standard_normal(256) * 1e-25
    x[2] = rng.standard_normal(256) * 1e25
    x[3, :64] = rng.standard_normal(64)
    for device in devices:
        y = ops.project(device, x, matrix(q))
        assert not y[0].any()
        for r in (1, 2, 3):
            assert error(y[r], operations.product(x[r : r + 1], q)[0]) < GPU_TILES


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("count", [6, 9])
def test_numbers_that_are_not_finite_reach_the_output(devices, count, bad):
    rng = np.random.default_rng(6)
    q, x = affine.random_matrix(rng, 33, 192), rows(rng, count, 192)
    x[4, 70] = bad
    for device in devices:
        y = ops.project(device, x, matrix(q))
        assert not np.isfinite(y[4]).any()
        assert np.isfinite(np.delete(y, 4, 0)).all()


@pytest.mark.parametrize("part", ["weight", "scales", "biases"])
def test_a_matrix_that_is_too_short_is_refused(devices, part):
    rng = np.random.default_rng(7)
    q = affine.random_matrix(rng, 8, 128)
    parts = {"weight": q.weight, "scales": q.scales, "biases": q.biases}
    if part == "weight":
        wide = ops.Affine(np.zeros((8, 128), np.uint8), q.scales, q.biases)  # twice the columns
        with pytest.raises(DeviceError, match=r"Project\.weight"):
            ops.project(devices[0], rows(rng, 1, 256), wide)
        return
    parts[part] = parts[part][:-1]
    with pytest.raises(DeviceError, match=r"Project\.weight: the view holds"):
        ops.project(devices[0], rows(rng, 1, 128), ops.Affine(**parts))


def test_a_short_input_and_unknown_formats_are_refused(devices):
    device = devices[0]
    rng = np.random.default_rng(8)
    q = affine.random_matrix(rng, 8, 128)
    with pytest.raises(DeviceError, match=r"Project\.x: the view holds 256 bytes"):
        ops.project(device, rows(rng, 1, 64), matrix(q))
    for bits, group, message in ((3, 64, "bits"), (4, 16, "group")):
        with pytest.raises(DeviceError, match=message):
            ops.project(
                device, rows(rng, 1, 128), ops.Affine(q.weight, q.scales, q.biases, bits, group)
            )
    odd = ops.Affine(np.zeros((8, 48), np.uint8), q.scales, q.biases)
    with pytest.raises(DeviceError, match="multiple of the group"):
        ops.project(device, rows(rng, 1, 96), odd)


def test_an_unknown_instruction_set_and_odd_thread_counts_are_refused():
    with pytest.raises(DeviceError, match="portable"):
        cpu("mmx")
    for threads in (-1, 100_000):
        with pytest.raises(DeviceError, match="takes 1 to 1024 threads"):
            cpu(threads=threads)
