"""Routers, prefill planning and KV rings against the reference system's recorded results."""

from functools import partial

import numpy as np
import pytest

from mference._core import ops, planning
from mference.errors import DeviceError
from tests.conformance.loader import cases
from tests.device.support import cpu, matrix
from tests.reference import affine, operations

GROUP = 64
PARTS = 4  # BF16 numbers, of which three would do to sum to any float32 number
LATER = ("router_hash", "router_sigmoid_sinks", "router_sqrtsoftplus", "window_state")


def router_with_logits(logits) -> affine.Quantized:
    """A router that gives these logits for an input whose every group sums to one.

    Row e has codes of zero; its biases, one a group, are BF16 numbers that add up to logit e.
    """
    rest = np.asarray(logits, np.float32)
    biases = np.zeros((len(rest), PARTS), np.uint16)
    for i in range(PARTS):
        biases[:, i] = affine.bf16_bits(rest)
        rest = rest - affine.bf16_float(biases[:, i])
    weight = np.zeros((len(rest), PARTS * GROUP), np.uint8)
    return affine.Quantized(weight, np.zeros_like(biases), biases, 8, GROUP)


def after_attention(device, logits, k: int):
    hidden = PARTS * GROUP
    x = np.zeros((1, hidden), np.float32)
    x[0, ::GROUP] = 1.0  # where rms(x) * hidden^-1/2 is x / |x| = 1/2
    ones, twos, none = (affine.bf16_bits(np.full(hidden, v)) for v in (1.0, 2.0, 0.0))
    unit = affine.bf16_bits(np.ones(len(logits)))
    *_, ids, weights = ops.post_attention_router(
        device, x, np.ones_like(x), none, ones, ones, twos, unit,
        matrix(router_with_logits(logits)), k, eps=0.0,
    )  # fmt: skip
    return ids[0], weights[0]


def after_residual(device, logits, k: int):
    hidden = PARTS * GROUP
    x, update = np.zeros((2, 1, hidden), np.float32)
    x[0, ::GROUP], update[0, ::GROUP] = 0.75, 0.25  # of their sum the mean square is 1 / GROUP
    norm = affine.bf16_bits(np.full(hidden, GROUP**-0.5))
    *_, ids, weights = ops.residual_router(
        device, x, update, norm, matrix(router_with_logits(logits)), k, eps=0.0
    )
    return ids[0], weights[0]


# A softmax over all experts whose largest are renormalised is a softmax over the largest.
ROUTERS = {
    "router_softmax_topk": (after_attention, after_residual),
    "router_full_softmax": (after_residual,),
}


@pytest.mark.parametrize("case", cases("routing_kv", *ROUTERS))
def test_softmax_routers(case):
    """Where the reference system chooses an expert that is none, the core raises."""
    logits, k = np.array(case.given["logits"], np.float32), case.given["k"]
    runs = [
        partial(route, device, logits, k)
        for route in ROUTERS[case.kind]
        for device in (cpu(), cpu("portable"), cpu(float32=True))
    ]
    if case.expect.get("meaning") == "no routing":
        for run in runs:
            with pytest.raises(DeviceError, match="router logits are not finite"):
                run()
        return
    for ids, weights in (*(run() for run in runs), operations.top_k(logits, k)):
        assert list(ids) == case.expect["experts"]
        assert np.abs(weights - case.expect["weights"]).max() <= case.expect["tolerance"]


@pytest.mark.skip(reason="family not built yet")
@pytest.mark.parametrize("case", cases("routing_kv", *LATER))
def test_routers_and_state_of_other_families(case):
    raise AssertionError(case.id)


@pytest.mark.parametrize("case", cases("routing_kv", "chunk_spans"))
def test_chunk_spans(case):
    tokens, start, chunk = (case.given[key] for key in ("tokens", "start", "chunk"))
    spans = planning.chunk_spans(tokens, chunk)
    assert [[n, c, start + n, n + c] for n, c in spans] == case.expect["spans"]


REFUSALS = {
    "invalid_k": "a row cannot choose",
    "pair_count": "choices of experts are not",
    "expert_out_of_range": "the router chose expert",
    "invalid_tile": "a tile of",
}


@pytest.mark.parametrize("case", cases("routing_kv", "expert_tiles"))
def test_expert_tiles(case):
    """The core's routed work is a dense list: a pair's place says its token and rank.

    So pairs given twice, or of tokens and ranks that do not exist, cannot be handed over at all.
    Experts always pass in ascending id, since sums over experts have a fixed order; a case with
    keys of its own is run with the experts numbered in the order of their keys.
    """
    given, expect = case.given, case.expect
    experts, k = given["experts"], given["k"]
    keys = given.get("sort_keys", list(range(experts)))
    if len(keys) != experts:
        pytest.skip("by design there are no sort keys to refuse")
    order = sorted(range(experts), key=lambda e: (keys[e], e))
    number = {expert: order.index(expert) for expert in range(experts)}
    pairs = sorted(given["pairs"], key=lambda pair: (pair[0], pair[2]))
    ids = [number.get(expert, expert) for _, expert, _ in pairs]
    shape = given["tokens"], k, experts, given["tile"]

    if expect.get("error") in REFUSALS:
        with pytest.raises(DeviceError, match=REFUSALS[expect["error"]]):
            planning.tile_chunk(ids, *shape)
        return
    dense = [[token, rank] for token in range(given["tokens"]) for rank in range(k)]
    assert ([[token, rank] for token, _, rank in pairs] == dense) == (expect.get("error") is None)
    if expect.get("error") is not None:
        return
    places, groups, tiles = planning.tile_chunk(ids, *shape)
    assert [pairs[p] for p in places] == expect["sorted"]
    groups = [[order[n], first, count] for n, first, count in groups]
    assert groups == expect["groups"]
    found = {expert: (first, count) for expert, first, count in groups}
    assert [found.get(e, (None, 0))[0] for e in range(experts)] == expect["offsets"]
    assert [found.get(e, (None, 0))[1] for e in range(experts)] == expect["counts"]
    assert [list(tile) for tile in tiles] == expect["tiles"]


REASONS = {"depth": "depth", "no_assigned_slots": "no slots", "no_avoiding_plan": "no plan"}


@pytest.mark.parametrize("case", cases("routing_kv", "tile_schedule"))
def test_tile_schedule(case):
    given, expect = case.given, case.expect
    depth = given.get("pending_depth", 1) if given["pending"] else 0
    avoided = []

    def place(avoid):
        avoided.append(avoid)
        return given["plan_available"]

    step = planning.next_tile(depth, given["slots"], given["max_depth"], place)
    reason = f": {REASONS[expect['reason']]}" if "reason" in expect else ""
    assert step == expect["action"] + reason
    if "avoid" in expect:
        assert avoided == [expect["avoid"]]


@pytest.mark.parametrize("case", cases("routing_kv", "slot_budget"))
def test_slot_budget(case):
    given = case.given
    free = given["slots"] - given["reserved_hits"]
    fits = planning.fits_slots(given["max_depth"], given["tile_experts"], free)
    assert fits == case.expect["fits"]


def rows_written(position: int, count: int, capacity: int) -> list[int]:
    """The rows of a ring that keys and values of these positions go to, on every device."""
    dim = 16
    found = []
    for device in (cpu(), cpu("portable")):
        empty = np.zeros((capacity, 1, dim), np.float16)
        ones = affine.bf16_bits(np.ones(dim))
        x = np.ones((count, 1, dim), np.float32)
        rope = np.zeros((count, 0, 2), np.float32)
        _, keys, values = ops.qkv_epilogue(
            device, x, x, None, ones, ones, rope, empty, empty, position
        )
        assert np.array_equal(keys != 0, values != 0)
        found.append(np.flatnonzero(keys.any(axis=(1, 2))).tolist())
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize("case", cases("routing_kv", "kv_slot"))
def test_kv_slot(case):
    given = case.given
    position = given["position"]
    for kind, capacity in (("sliding", given["ring"]), ("full", position + 1)):
        (row,) = rows_written(position, 1, capacity)
        assert row * given[f"{kind}_stride"] == case.expect[f"{kind}_offset"]


@pytest.mark.parametrize("case", cases("routing_kv", "kv_view"))
def test_kv_view(case):
    valid, ring = case.given["valid"], case.given["ring"]
    oldest = planning.kv_oldest(valid, ring)
    assert rows_written(oldest, 1, ring) == [case.expect["start_slot"]]


@pytest.mark.parametrize("case", cases("routing_kv", "kv_range"))
def test_kv_range(case):
    """Rows are written one by one, so by design a range may wrap; a contiguous one does not."""
    start, count, ring = (case.given[key] for key in ("start", "count", "ring"))
    (slot,) = rows_written(start, 1, ring)
    if count > ring:
        with pytest.raises(DeviceError, match="ring is shorter"):
            rows_written(start, count, ring)
        contiguous = False
    else:
        contiguous = rows_written(start, count, ring) == list(range(slot, slot + count))
    assert contiguous == case.expect["allowed"]
    assert slot == case.expect.get("slot", slot)


def kv_positions(steps: list[str], context: int) -> list:
    """Positions after each step; "error" for one that is refused."""
    kv = planning.KvState(cpu(), [(1, 16, 0)], context, 128)
    positions: list = []
    for step in steps:
        name, *count = step.split()
        try:
            {"advance": kv.append, "rewind": kv.rewind, "reset": kv.rewind}[name](
                *map(int, count or [0])
            )
            positions.append(kv.position)
        except DeviceError:
            positions.append("error")
    return positions


def apart(layer: dict) -> bool:
    (a, a_size), (b, b_size) = layer["keys"], layer["values"]
    return a_size > 0 and (a + a_size <= b or b + b_size <= a)


@pytest.mark.parametrize("case", cases("routing_kv", "kv_ring"))
def test_kv_ring(case):
    given, expect = case.given, case.expect
    if "steps" in given:
        assert kv_positions(given["steps"], given.get("max_context", 4096)) == expect["positions"]
    elif "window" in given:
        window = given["window"] if given["ring"] else 0
        strides = given["sliding_stride"], given["full_stride"]
        shapes = [(1, stride // 2, w) for stride, w in zip(strides, (window, 0), strict=True)]
        kv = planning.KvState(cpu(), shapes, given["max_context"], given["chunk"])
        for i, kind in enumerate(("sliding", "full")):
            layer = kv.layer(i)
            assert layer["capacity"] == expect[f"{kind}_capacity"]
            assert layer["keys"][1] == layer["capacity"] * strides[i]
            assert (layer["capacity"] if shapes[i][2] else 0) == expect[f"{kind}_ring"]
    elif "kv_heads" in given:
        shapes = [
            (given["kv_heads"], given["head_dim"], 32),
            (given["full_kv_heads"], given["full_head_dim"], 0),
        ]
        kv = planning.KvState(cpu(), shapes, 64, 32, float32=given["element_bytes"] == 4)
        for i, kind in enumerate(("sliding", "full")):
            layer = kv.layer(i)
            assert layer["keys"][1] // layer["capacity"] == expect[kind]
    elif given.get("layer_kind") == "linear":
        kv = planning.KvState(cpu(), [(0, 16, 0)], 64, 32)
        assert kv.layer(0)["capacity"] == expect["capacity"]
        assert expect["slot_request"] == "error"
        with pytest.raises(DeviceError, match="the cache is empty"):
            rows_written(0, 1, kv.layer(0)["capacity"])
    elif "key_equals_value" in given:
        # rows_written() has one projection feed both.
        assert apart(planning.KvState(cpu(), [(1, 16, 0)], 64, 32).layer(0)) == expect["separate"]
        assert rows_written(5, 1, 64) == [5]
    else:
        raise AssertionError(case.given)
