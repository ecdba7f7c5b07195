"""Queries, keys and values: projection, epilogue and attention."""

import numpy as np
import pytest

from mference._core import ops
from mference.errors import DeviceError
from tests.device.support import HIDDEN, ISAS, cpu, gpu_bar, matrix, norm_weight, rows
from tests.reference import affine, operations

HALF = 1e-3  # float16 keys and values
FLOAT_SUMS = 2e-6  # attention never quantizes its inputs
GPU_SUMS = 5e-6  # over thousands of positions


@pytest.mark.parametrize("sizes", [(70,), (70, 40), (70, 40, 33), (70, 40, 33, 1)])
@pytest.mark.parametrize("count", [1, 4, 9])
def test_norm_project(check, sizes, count):
    rng = np.random.default_rng(1)
    x, norm = rows(rng, count, HIDDEN), norm_weight(rng, HIDDEN)
    parts = [affine.random_matrix(rng, out, HIDDEN) for out in sizes]
    check(
        lambda d: tuple(ops.norm_project(d, x, norm, list(map(matrix, parts)), misalign=2)),
        operations.norm_project(x, norm, *parts),
        gpu=gpu_bar(count),
    )


@pytest.mark.parametrize(
    "formats",
    [((4, 64), (8, 64), (8, 64), (2, 32)), ((8, 64), (4, 64), (8, 64), (4, 64)),
     ((4, 32), (4, 64), (4, 32))],
    ids=["neighbours", "apart", "groups"],
)  # fmt: skip
@pytest.mark.parametrize("count", [3, 35])
def test_norm_project_with_matrices_of_different_formats(check, count, formats):
    rng = np.random.default_rng(2)
    x, norm = rows(rng, count, 256), norm_weight(rng, 256)
    parts = [affine.random_matrix(rng, 20, 256, *f) for f in formats]
    check(
        lambda d: tuple(ops.norm_project(d, x, norm, list(map(matrix, parts)))),
        operations.norm_project(x, norm, *parts),
        gpu=gpu_bar(count),
    )


def test_projections_that_do_not_fit_are_refused(devices):
    rng = np.random.default_rng(3)
    x, norm = rows(rng, 1, 128), norm_weight(rng, 128)
    wide, narrow = affine.random_matrix(rng, 8, 128), affine.random_matrix(rng, 8, 64)
    with pytest.raises(DeviceError, match="differ in columns"):
        ops.norm_project(devices[0], x, norm, [matrix(wide), matrix(narrow)])
    for count in (0, 5):
        with pytest.raises(DeviceError, match="one to four matrices"):
            ops.norm_project(devices[0], x, norm, [matrix(wide)] * count)


def epilogue_case(rng, count, heads, kv, dim, rotated):
    q = rng.standard_normal((count, heads, dim)).astype(np.float32)
    k, v = rng.standard_normal((2, count, kv, dim)).astype(np.float32) * 3
    angle = rng.uniform(0, 6, (count, rotated))
    rope = np.stack([np.cos(angle), np.sin(angle)], -1).astype(np.float32)
    return q, k, v, norm_weight(rng, dim), norm_weight(rng, dim), rope


@pytest.mark.parametrize(
    ("heads", "kv", "dim", "rotated"), [(16, 8, 256, 128), (16, 2, 512, 64), (4, 1, 32, 0)]
)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("own_v", [True, False])
def test_the_epilogue_writes_the_ring(check, heads, kv, dim, rotated, dtype, own_v):
    rng = np.random.default_rng(dim)
    q, k, v, q_norm, k_norm, rope = epilogue_case(rng, 5, heads, kv, dim, rotated)
    v = v if own_v else None
    capacity, position = 9, 7
    keys, values = np.full((2, capacity, kv, dim), 0.25, dtype)
    new_q, new_k, new_v = operations.qkv_epilogue(q, k, k if v is None else v, q_norm, k_norm, rope)
    expected_k, expected_v = keys.astype(np.float64), values.astype(np.float64)
    slots = (position + np.arange(5)) % capacity
    expected_k[slots], expected_v[slots] = new_k, new_v
    bar = HALF if dtype == np.float16 else 1e-6
    check(
        lambda d: ops.qkv_epilogue(
            d, q, k, v, q_norm, k_norm, rope, keys, values, position, misalign=2
        ),
        (new_q, expected_k, expected_v),
        int16=bar,
        float32=bar,
        gpu=bar,
    )


@pytest.mark.parametrize(
    ("count", "heads", "kv", "dim", "width", "rotated", "distance"),
    [(5, 16, 2, 256, 512, 32, 32), (1, 16, 2, 256, 512, 32, 32), (3, 4, 2, 64, 70, 8, 40),
     (3, 2, 1, 48, 48, 24, 24), (3, 2, 1, 48, 50, 0, 0)],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("norm_values", [True, False])
def test_the_epilogue_takes_queries_with_gates_and_near_pairs(
    check, count, heads, kv, dim, width, rotated, distance, dtype, norm_values
):
    rng = np.random.default_rng(dim)
    _, k, v, q_norm, k_norm, rope = epilogue_case(rng, count, heads, kv, dim, rotated)
    q = rng.standard_normal((count, heads, width)).astype(np.float32)
    keys, values = np.full((2, 9, kv, dim), 0.25, dtype)
    new_q, new_k, new_v = operations.qkv_epilogue(
        q[..., :dim], k, v, q_norm, k_norm, rope, distance=distance, norm_values=norm_values
    )
    expected_k, expected_v = keys.astype(np.float64), values.astype(np.float64)
    slots = (7 + np.arange(count)) % 9
    expected_k[slots], expected_v[slots] = new_k, new_v
    bar = HALF if dtype == np.float16 else 1e-6
    check(
        lambda d: ops.qkv_epilogue(
            d, q, k, v, q_norm, k_norm, rope, keys, values, 7, distance, norm_values, misalign=2
        ),
        (new_q, expected_k, expected_v),
        int16=bar,
        float32=bar,
        gpu=bar,
    )


def test_values_that_are_not_normed_enter_the_cache_as_they_are(devices):
    rng = np.random.default_rng(4)
    q, k, v, q_norm, k_norm, rope = epilogue_case(rng, 2, 2, 1, 32, 8)
    cache = np.zeros((4, 1, 32), np.float32)
    for device in devices:
        *_, values = ops.qkv_epilogue(
            device, q, k, v, q_norm, k_norm, rope, cache, cache, 1, norm_values=False
        )
        assert np.array_equal(values[1:3], v)


def test_pairs_and_queries_that_do_not_fit_a_head_are_refused(devices):
    rng = np.random.default_rng(5)
    q, k, v, q_norm, k_norm, rope = epilogue_case(rng, 2, 2, 1, 32, 8)
    cache = np.zeros((4, 1, 32), np.float16)
    rest = (k, v, q_norm, k_norm, rope, cache, cache, 0)
    for distance in (7, 25, -1):
        with pytest.raises(DeviceError, match="pairs do not fit the head"):
            ops.qkv_epilogue(devices[0], q, *rest, distance)
    with pytest.raises(DeviceError, match="query does not fit"):
        ops.qkv_epilogue(devices[0], q[..., :31], *rest)


CASES = {  # rows, heads, kv heads, dim, position, window, capacity
    "decode, sliding, wrapped ring": (1, 16, 8, 256, 1500, 1024, 1152),
    "decode, full": (1, 16, 2, 512, 700, 0, 1024),
    "prefill, sliding, wrapped ring": (40, 16, 8, 256, 500, 200, 300),
    "prefill, full": (37, 16, 2, 512, 230, 0, 512),
    "a few rows, block edge": (3, 8, 2, 64, 255, 0, 512),
    "more rows than the window": (70, 4, 2, 32, 0, 16, 128),
    "first position": (1, 2, 1, 16, 0, 0, 4),
    "one query head a KV head": (5, 3, 3, 48, 30, 7, 40),
    "a row less than a tile": (7, 8, 4, 64, 90, 0, 104),
    "a tile of one row": (8, 8, 1, 64, 3, 0, 16),
    "more rows than the window, in tiles": (129, 4, 2, 32, 0, 16, 152),
    "tiles over a wrapped ring": (33, 8, 4, 64, 250, 100, 160),
    "a ring no tile fits": (33, 6, 2, 64, 250, 100, 150),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_attention(check, case, dtype):
    count, heads, kv, dim, position, window, capacity = case
    rng = np.random.default_rng(dim + position)
    q = (rng.standard_normal((count, heads, dim)) * 4 / np.sqrt(dim)).astype(np.float32)
    keys, values = rng.standard_normal((2, capacity, kv, dim)).astype(dtype)
    check(
        lambda d: ops.attention(d, q, keys, values, position, window, 0.7),
        operations.attention(q, keys, values, position, window, 0.7),
        int16=FLOAT_SUMS,
        float32=FLOAT_SUMS,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "heads", "kv", "dim", "position", "window", "capacity"),
    [(1, 16, 2, 512, 9000, 0, 9216), (128, 16, 8, 256, 2000, 1024, 1152),
     (128, 16, 2, 512, 900, 0, 1152)],
)  # fmt: skip
def test_attention_of_real_layers(check, count, heads, kv, dim, position, window, capacity):
    rng = np.random.default_rng(position)
    q = (rng.standard_normal((count, heads, dim)) * 4 / np.sqrt(dim)).astype(np.float32)
    keys, values = rng.standard_normal((2, capacity, kv, dim)).astype(np.float16)
    check(
        lambda d: ops.attention(d, q, keys, values, position, window),
        operations.attention(q, keys, values, position, window),
        int16=GPU_SUMS,
        float32=GPU_SUMS,
        gpu=GPU_SUMS,
    )


def test_attention_rows_have_the_same_bytes_in_any_company_and_any_ring():
    rng = np.random.default_rng(9)
    count, heads, kv, dim, position, window = 33, 8, 2, 64, 300, 100
    q = rng.standard_normal((count, heads, dim)).astype(np.float32)
    history = rng.standard_normal((2, position + count, kv, dim)).astype(np.float16)

    def ring(capacity):
        keys, values = np.zeros((2, capacity, kv, dim), np.float16)
        for p in range(max(0, position + count - capacity), position + count):
            keys[p % capacity], values[p % capacity] = history[0, p], history[1, p]
        return keys, values

    for isa in ISAS:
        device = cpu(isa)
        together = ops.attention(device, q, *ring(400), position, window)
        assert np.array_equal(ops.attention(device, q, *ring(133), position, window), together)
        for r in (0, 1, 17, 32):
            alone = ops.attention(device, q[r : r + 1], *ring(140), position + r, window)
            assert np.array_equal(alone[0], together[r])


@pytest.mark.parametrize("count", [1, 16])
def test_attention_survives_scores_far_apart(check, count):
    rng = np.random.default_rng(10)
    q = np.full((count, 2, 32), 8.0, np.float32)
    keys, values = rng.standard_normal((2, 600, 1, 32)).astype(np.float32)
    keys[100] = 4.0  # a score of 1024 beside scores around zero
    check(
        lambda d: ops.attention(d, q, keys, values, 600 - count),
        operations.attention(q, keys, values, 600 - count),
        int16=FLOAT_SUMS,
    )


def test_keys_that_are_not_finite_reach_the_output(devices):
    """Even where every position of a block is lost, in decode and in prefill alike."""
    rng = np.random.default_rng(12)
    q = rng.standard_normal((40, 2, 32)).astype(np.float32)
    keys, values = rng.standard_normal((2, 300, 1, 32)).astype(np.float32)
    keys[250:256] = np.nan
    for device in devices:
        many = ops.attention(device, q, keys, values, 245, 10)
        one = ops.attention(device, q[15:16], keys, values, 260, 10)
        assert np.isnan(many[5:20]).all()  # positions 250 to 264 see 250 to 255
        assert np.isfinite(many[20:]).all()
        assert np.isnan(one).all()


def test_positions_near_the_end_of_the_integers_are_refused(devices):
    device = devices[0]
    q = np.zeros((2, 4, 32), np.float32)
    kv = np.zeros((16, 2, 32), np.float16)
    norm, rope = np.zeros(32, np.uint16), np.zeros((2, 16, 2), np.float32)
    for position in (2**31 - 1, -1):
        with pytest.raises(DeviceError, match="positions"):
            ops.attention(device, q, kv, kv, position, 8)
        with pytest.raises(DeviceError, match="positions"):
            ops.qkv_epilogue(device, q, q[:, :2], None, norm, norm, rope, kv, kv, position)


def test_attention_refuses_rings_and_shapes_that_do_not_fit(devices):
    device = devices[0]
    q = np.zeros((2, 4, 32), np.float32)
    kv = np.zeros((16, 2, 32), np.float16)
    with pytest.raises(DeviceError, match="ring is shorter"):
        ops.attention(device, q, kv, kv, 15)
    with pytest.raises(DeviceError, match="ring is shorter"):
        ops.attention(device, q, kv, kv, 40, 16)
    with pytest.raises(DeviceError, match="multiple of the cache's heads"):
        ops.attention(device, q[:, :3], kv, kv, 0)
    narrow = np.zeros((16, 2, 24), np.float16)
    with pytest.raises(DeviceError, match="multiple of 16"):
        ops.attention(device, q[..., :24], narrow, narrow, 0)
    with pytest.raises(DeviceError, match=r"Attention\.cache: the view holds"):
        ops.attention(device, q, kv, kv[:8], 0)
