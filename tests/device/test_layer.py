"""Embedding, router, experts and the layer tail."""

import numpy as np
import pytest

from mference._core import ops
from mference.errors import DeviceError
from tests.device.support import HIDDEN, ISAS, cpu, gpu_bar, matrix, norm_weight, rows
from tests.reference import affine, operations

ELEMENTWISE = 1e-6


@pytest.mark.parametrize(("bits", "group"), [(4, 64), (8, 64), (2, 32)])
def test_embedding_rows(check, bits, group):
    rng = np.random.default_rng(1)
    table = affine.random_matrix(rng, 30, 704 if group == 64 else 96, bits, group)
    tokens = np.array([3, 29, 0, 3], np.int32)
    scale = 53.0659966
    check(
        lambda d: ops.embed_rows(d, matrix(table), tokens, scale, misalign=2),
        operations.embed_rows(table, tokens, scale),
        int16=ELEMENTWISE,
    )


@pytest.mark.parametrize("token", [-1, 30])
def test_a_token_outside_the_table_is_refused(devices, token):
    table = affine.random_matrix(np.random.default_rng(2), 30, 64)
    with pytest.raises(DeviceError, match=f"token {token} is outside"):
        ops.embed_rows(devices[0], matrix(table), np.array([0, token], np.int32))


def router_case(seed, count, hidden, experts):
    rng = np.random.default_rng(seed)
    x, attention = rows(rng, count, hidden), rows(rng, count, hidden)
    norms = [norm_weight(rng, hidden) for _ in range(4)]
    return (
        x,
        attention,
        norms,
        norm_weight(rng, experts),
        affine.random_matrix(rng, experts, hidden, 8),
    )


@pytest.mark.parametrize(
    ("count", "hidden", "experts", "k"),
    [(1, HIDDEN, 128, 8), (5, HIDDEN, 128, 8), (3, 64, 16, 16), (130, 128, 32, 4)],
)
def test_router(check, count, hidden, experts, k):
    x, attention, norms, scale, router = router_case(11, count, hidden, experts)
    expected = operations.post_attention_router(x, attention, *norms, scale, router, k)
    check(
        lambda d: ops.post_attention_router(
            d, x, attention, *norms, scale, matrix(router), k, misalign=2
        ),
        expected,
    )


def test_equal_logits_take_the_lower_id(devices):
    x, attention, norms, scale, router = router_case(12, 2, 128, 32)
    same = affine.Quantized(
        np.repeat(router.weight[:1], 32, 0), np.repeat(router.scales[:1], 32, 0),
        np.repeat(router.biases[:1], 32, 0), 8, 64,
    )  # fmt: skip
    for device in devices:
        *_, ids, weights = ops.post_attention_router(
            device, x, attention, *norms, scale, matrix(same), 8
        )
        assert np.array_equal(ids, [list(range(8))] * 2)
        assert np.allclose(weights * 8, affine.bf16_float(scale)[:8])


def test_logits_that_are_not_finite_are_an_error(devices):
    x, attention, norms, scale, router = router_case(13, 3, 128, 32)
    attention[1, 5] = np.nan
    for device in devices:
        with pytest.raises(
            DeviceError, match="router logits are not finite in PostAttentionRouter"
        ):
            ops.post_attention_router(device, x, attention, *norms, scale, matrix(router), 4)


def test_more_chosen_experts_than_there_are_is_an_error(devices):
    x, attention, norms, scale, router = router_case(14, 1, 64, 4)
    with pytest.raises(DeviceError, match=r"PostAttentionRouter\.k"):
        ops.post_attention_router(devices[0], x, attention, *norms, scale, matrix(router), 5)


def residual_router_case(seed, count, hidden, experts):
    rng = np.random.default_rng(seed)
    x, update = rows(rng, count, hidden), rows(rng, count, hidden)
    return x, update, norm_weight(rng, hidden), affine.random_matrix(rng, experts, hidden, 8)


@pytest.mark.parametrize(
    ("count", "hidden", "experts", "k"),
    [(1, 2048, 256, 8), (5, 2048, 256, 8), (3, 64, 16, 16), (130, 128, 32, 4)],
)
def test_residual_router(check, count, hidden, experts, k):
    x, update, norm, router = residual_router_case(15, count, hidden, experts)
    check(
        lambda d: ops.residual_router(d, x, update, norm, matrix(router), k, misalign=2),
        operations.residual_router(x, update, norm, router, k),
    )


def test_logits_of_a_residual_router_that_are_not_finite_are_an_error(devices):
    x, update, norm, router = residual_router_case(16, 3, 128, 32)
    update[1, 5] = np.nan
    for device in devices:
        with pytest.raises(DeviceError, match="router logits are not finite in ResidualRouter"):
            ops.residual_router(device, x, update, norm, matrix(router), 4)


def test_residual_routers_that_do_not_fit_are_refused(devices):
    x, update, norm, router = residual_router_case(17, 1, 64, 4)
    with pytest.raises(DeviceError, match=r"ResidualRouter\.k"):
        ops.residual_router(devices[0], x, update, norm, matrix(router), 5)
    wide = affine.random_matrix(np.random.default_rng(1), 4, 128, 8)
    with pytest.raises(DeviceError, match="columns differ from hidden"):
        ops.residual_router(devices[0], x, update, norm, matrix(wide), 2)


def expert_of(rng, hidden, width, bits=(4, 4, 4)):
    gate = affine.random_matrix(rng, width, hidden, bits[0])
    up = affine.random_matrix(rng, width, hidden, bits[1])
    return gate, up, affine.random_matrix(rng, hidden, width, bits[2])


@pytest.mark.parametrize("activation", ["gelu_tanh", "silu"])
@pytest.mark.parametrize(
    ("count", "hidden", "width", "bits"),
    [(1, HIDDEN, 704, (4, 4, 4)), (70, 128, 192, (4, 4, 4)), (3, 128, 64, (4, 8, 2)),
     (9, 128, 64, (4, 8, 2))],
)  # fmt: skip
def test_shared_expert(check, activation, count, hidden, width, bits):
    rng = np.random.default_rng(width)
    x, parts = rows(rng, count, hidden), expert_of(rng, hidden, width, bits)
    check(
        lambda d: ops.shared_expert(d, x, *map(matrix, parts), activation, misalign=2),
        operations.expert(x, *parts, activation),
        gpu=gpu_bar(count),
    )


@pytest.mark.parametrize(
    ("count", "hidden", "width", "bits", "scalar"),
    [(1, 2048, 512, (4, 4, 4), (8, 64)), (70, 128, 192, (4, 4, 4), (8, 64)),
     (3, 128, 96, (4, 8, 2), (4, 32)), (9, 128, 64, (4, 8, 2), (2, 128)),
     (33, 128, 160, (8, 8, 8), (8, 32))],
)  # fmt: skip
def test_a_shared_expert_behind_a_scalar_gate(check, count, hidden, width, bits, scalar):
    rng = np.random.default_rng(width)
    x = rows(rng, count, hidden)
    gate, up = (affine.random_matrix(rng, width, hidden, b) for b in bits[:2])
    down = affine.random_matrix(rng, hidden, width, bits[2], 64 if width % 64 == 0 else 32)
    one = affine.random_matrix(rng, 1, hidden, *scalar)
    check(
        lambda d: ops.shared_expert(
            d, x, matrix(gate), matrix(up), matrix(down), "silu", matrix(one), misalign=2
        ),
        operations.gated_expert(x, gate, up, down, one),
        gpu=gpu_bar(count),
    )


def test_scalar_gates_that_do_not_fit_are_refused(devices):
    rng = np.random.default_rng(4)
    x, parts = rows(rng, 1, 128), expert_of(rng, 128, 64)
    for shape in ((2, 128), (1, 64)):
        with pytest.raises(DeviceError, match="one row of the columns of gate"):
            ops.shared_expert(
                devices[0], x, *map(matrix, parts),
                scalar_gate=matrix(affine.random_matrix(rng, *shape)),
            )  # fmt: skip


def test_gelu_keeps_its_tail(devices):
    """Far negative gates give tiny values, right to the relative error of exp, not zeros."""
    unit, none = (affine.bf16_bits(np.full((64, 1), v)) for v in (1.0, 0.0))
    one = affine.Quantized(affine.pack(np.eye(64), 4), unit, none, 4, 64)
    x = np.linspace(-9, 9, 64, dtype=np.float32)[None]
    for device in [cpu(isa, float32=True) for isa in ISAS] if len(devices) > 1 else devices:
        y = ops.shared_expert(device, x, matrix(one), matrix(one), matrix(one))
        u = x[0].astype(np.float64)
        expected = operations.gelu_tanh(u) * u
        inside = expected > 1e-30
        assert np.allclose(y[0][inside], expected[inside], rtol=5e-6, atol=0)


def test_experts_of_other_shapes_are_refused(devices):
    rng = np.random.default_rng(3)
    gate, up, down = expert_of(rng, 128, 64)
    with pytest.raises(DeviceError, match="gate and up differ"):
        ops.shared_expert(devices[0], rows(rng, 1, 128), matrix(gate), matrix(down), matrix(down))
    with pytest.raises(DeviceError, match="transpose"):
        ops.shared_expert(devices[0], rows(rng, 1, 128), matrix(gate), matrix(up), matrix(up))


def routed_case(count, hidden, width, experts, k, seed=21):
    """Experts, routing, and each row's outputs [rows, k, hidden] by the reference."""
    rng = np.random.default_rng(seed)
    x = rows(rng, count, hidden)
    parts = [expert_of(rng, hidden, width) for _ in range(experts)]
    ids = np.array([rng.choice(experts, k, replace=False) for _ in range(count)])
    weights = rng.uniform(0.1, 1, (count, k)).astype(np.float32)
    pairs = np.argsort(ids.ravel(), kind="stable").astype(np.int32)
    ends = np.cumsum(np.bincount(ids.ravel(), minlength=experts))
    listed = [
        ops.Expert(*map(matrix, p), int(end - n), int(end))
        for p, n, end in zip(parts, np.bincount(ids.ravel(), minlength=experts), ends, strict=True)
    ]
    outputs = np.empty((count, k, hidden))
    for e, p in enumerate(parts):
        for r, j in np.argwhere(ids == e):
            outputs[r, j] = operations.expert(x[r : r + 1], *p)[0]
    return x, pairs, weights, listed, ids, outputs


@pytest.mark.parametrize(
    ("count", "hidden", "width", "experts", "k"),
    [(1, HIDDEN, 704, 8, 8), (1, 128, 64, 6, 2), (70, 128, 192, 5, 2), (3, 64, 64, 8, 4),
     (16, 64, 64, 8, 4), (300, 64, 64, 8, 4), (1500, 64, 64, 2, 2)],
)  # fmt: skip
@pytest.mark.parametrize("accumulate", [False, True])
def test_routed_experts(check, count, hidden, width, experts, k, accumulate):
    x, pairs, weights, listed, _, outputs = routed_case(count, hidden, width, experts, k)
    if accumulate:
        start = np.random.default_rng(1).standard_normal((count, hidden)).astype(np.float32)
        expected = start + (outputs * weights[..., None]).sum(1)
    else:
        start, expected = np.zeros((count, k, hidden), np.float32), outputs
    check(
        lambda d: ops.routed_experts(d, x, pairs, weights, listed, start, accumulate, misalign=2),
        expected,
        gpu=gpu_bar(count),
    )


def test_decode_and_prefill_sum_experts_to_the_same_bytes():
    hidden, k = 192, 4
    x, pairs, weights, listed, ids, _ = routed_case(9, hidden, 64, 8, k)
    rng = np.random.default_rng(5)
    shared = rows(rng, 9, hidden)
    norms = [norm_weight(rng, hidden) for _ in range(3)]
    scalar = affine.bf16_bits(np.array([0.5]))
    for isa in ISAS:
        device = cpu(isa)
        total = np.zeros((9, hidden), np.float32)
        for tile in (listed[:3], listed[3:]):
            total = ops.routed_experts(device, x, pairs, weights, tile, total, accumulate=True)
        prefill = ops.layer_tail(device, x, shared, total, *norms, scalar)
        for r in range(9):
            alone = [ops.Expert(*p) for p in _experts_of_row(listed, ids[r], 21, hidden)]
            order = np.argsort(ids[r], kind="stable").astype(np.int32)
            parts = ops.routed_experts(
                device, x[r : r + 1], order, weights[r : r + 1], alone,
                np.zeros((1, k, hidden), np.float32),
            )  # fmt: skip
            decode = ops.layer_tail(
                device, x[r : r + 1], shared[r : r + 1], parts, *norms, scalar,
                ids[r : r + 1].astype(np.int32), weights[r : r + 1],
            )  # fmt: skip
            assert np.array_equal(decode[0], prefill[r])


def _experts_of_row(listed, ids, seed, hidden):
    """The row's experts in ascending id, each with its one pair."""
    rng = np.random.default_rng(seed)
    rows(rng, 9, hidden)
    parts = [expert_of(rng, hidden, 64) for _ in listed]
    return [(*map(matrix, parts[e]), i, i + 1) for i, e in enumerate(sorted(ids))]


def test_pairs_and_blobs_that_do_not_fit_are_refused(devices):
    device = devices[0]
    x, pairs, weights, listed, _, _ = routed_case(3, 64, 64, 3, 2)
    out = np.zeros((3, 2, 64), np.float32)
    with pytest.raises(DeviceError, match="outside the rows"):
        ops.routed_experts(device, x, pairs + 1, weights, listed, out)
    with pytest.raises(DeviceError, match="leave the list"):
        ops.routed_experts(device, x, pairs[:2], weights, listed, out)
    with pytest.raises(DeviceError, match=r"RoutedExperts\.out"):
        ops.routed_experts(device, x, pairs, weights, listed, out[:1])
    with pytest.raises(DeviceError, match="at most eight"):
        ops.routed_experts(device, x, pairs, weights, listed * 3, out)


def test_slots_are_looked_up(devices):
    table = np.arange(100, dtype=np.int16)[::-1].copy()
    table[7] = -1
    absent = 2**31 - 1
    for device in devices:
        for ids in ([0, 99, 50], list(range(8, 100)), [3]):
            slots, hit = ops.look_up_slots(device, np.array(ids, np.int32), table)
            assert np.array_equal(slots, table[ids]) and hit == 1
        for missing in (7, -1, 100, absent, -absent):
            slots, hit = ops.look_up_slots(device, np.array([4, missing, 5], np.int32), table)
            assert slots.tolist() == [95, -1, 94] and hit == 0


def guarded_case(hidden, width, k, bits=(4, 4, 4)):
    """One row, and k experts that it chose, each with its one pair."""
    rng = np.random.default_rng(width)
    parts = [expert_of(rng, hidden, width, bits) for _ in range(k)]
    listed = [ops.Expert(*map(matrix, p), e, e + 1) for e, p in enumerate(parts)]
    return rows(rng, 1, hidden), listed, rng.standard_normal((1, k, hidden)).astype(np.float32)


@pytest.mark.parametrize(
    ("hidden", "width", "k", "bits", "slot_count"),
    [(2048, 512, 8, (4, 4, 4), 9), (128, 64, 3, (4, 8, 8), 30)],
)
def test_guarded_experts_give_the_bytes_of_the_routed_ones(
    devices, hidden, width, k, bits, slot_count
):
    x, listed, out = guarded_case(hidden, width, k, bits)
    slots = np.random.default_rng(k).permutation(slot_count)[:k].astype(np.int32)
    weights, pairs = np.ones((1, k), np.float32), np.arange(k, dtype=np.int32)
    for device in devices:
        for misalign in (0, 2):
            given = (x, listed, slots, slot_count)
            got = ops.guarded_experts(device, *given, 1, out, "silu", misalign)
            expected = ops.routed_experts(device, x, pairs, weights, listed, out, False, "silu")
            assert np.array_equal(got, expected)
            for miss in (0, 2, -1):
                left = ops.guarded_experts(device, *given, miss, out, "silu", misalign)
                assert np.array_equal(left, out)


@pytest.mark.parametrize("slot", [-1, 4, 2**31 - 1, -(2**31)])
def test_a_slot_outside_the_slab_is_an_error(devices, slot):
    x, listed, out = guarded_case(64, 64, 3)
    for device in devices:
        slots = np.array([1, slot, 3], np.int32)
        with pytest.raises(DeviceError, match="a slot is outside the slab"):
            ops.guarded_experts(device, x, listed, slots, 4, 1, out)
        assert np.array_equal(ops.guarded_experts(device, x, listed, slots, 4, 0, out), out)


def test_guards_that_do_not_fit_are_refused(devices):
    x, listed, out = guarded_case(64, 64, 3)
    slots = np.arange(3, dtype=np.int32)
    with pytest.raises(DeviceError, match="a guard serves one row"):
        many = np.repeat(out, 2, 0)
        ops.guarded_experts(devices[0], np.repeat(x, 2, 0), listed, slots, 4, 1, many)
    two = ops.Expert(*map(matrix, expert_of(np.random.default_rng(1), 64, 64)), 0, 2)
    with pytest.raises(DeviceError, match="a guarded expert has one pair"):
        ops.guarded_experts(devices[0], x, [two], slots, 4, 1, out)


@pytest.mark.parametrize("parts", [0, 1, 8, 128])
@pytest.mark.parametrize(("count", "hidden"), [(1, 2048), (6, 130)])
def test_residual_tail(check, parts, count, hidden):
    rng = np.random.default_rng(parts)
    x, shared = rows(rng, count, hidden), rows(rng, count, hidden)
    shape = (count, parts, hidden) if parts else (count, hidden)
    routed = rng.standard_normal(shape).astype(np.float32)
    choice = ()
    if parts:
        ids = np.array([rng.permutation(256)[:parts] for _ in range(count)], np.int32)
        choice = (ids, rng.uniform(0.1, 1, (count, parts)).astype(np.float32))
    check(
        lambda d: ops.residual_tail(d, x, shared, routed, *choice),
        operations.residual_tail(x, shared, routed, *choice[1:]),
        int16=ELEMENTWISE,
    )


def test_a_residual_tail_sums_experts_in_ascending_id(devices):
    """As a prefill accumulates them, to the byte."""
    hidden, k = 192, 4
    x, pairs, weights, listed, ids, _ = routed_case(1, hidden, 64, 8, k)
    shared = rows(np.random.default_rng(6), 1, hidden)
    for device in devices:
        total = np.zeros((1, hidden), np.float32)
        for tile in (listed[:3], listed[3:]):
            total = ops.routed_experts(device, x, pairs, weights, tile, total, accumulate=True)
        parts = np.zeros((1, k, hidden), np.float32)
        for tile in (listed[:3], listed[3:]):
            parts = ops.routed_experts(device, x, pairs, weights, tile, parts)
        summed = ops.residual_tail(device, x, shared, total)
        choice = (ids.astype(np.int32), weights)
        assert np.array_equal(ops.residual_tail(device, x, shared, parts, *choice), summed)


@pytest.mark.parametrize("parts", [0, 1, 8])
@pytest.mark.parametrize(("count", "hidden"), [(1, HIDDEN), (6, 128)])
def test_layer_tail(check, parts, count, hidden):
    rng = np.random.default_rng(parts)
    x, shared = rows(rng, count, hidden), rows(rng, count, hidden)
    shape = (count, parts, hidden) if parts else (count, hidden)
    routed = rng.standard_normal(shape).astype(np.float32)
    choice = ()
    if parts:
        ids = np.array([rng.permutation(128)[:parts] for _ in range(count)], np.int32)
        choice = (ids, rng.uniform(0.1, 1, (count, parts)).astype(np.float32))
    norms = [norm_weight(rng, hidden) for _ in range(3)]
    scalar = affine.bf16_bits(np.array([0.7]))
    check(
        lambda d: ops.layer_tail(d, x, shared, routed, *norms, scalar, *choice, misalign=2),
        operations.layer_tail(x, shared, routed, *norms, scalar, *choice[1:]),
        int16=ELEMENTWISE,
    )


def test_zero(devices):
    for count in (0, 1, 1000):
        assert not ops.zero(devices[0], count).any()
