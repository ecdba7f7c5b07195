"""The expert cache's planning rules, case by case."""

import numpy as np
import pytest

from mference._core import ExpertCache, ExpertStreamer, cpu_device, planning
from mference.errors import ExpertFillError
from mference.memory import auto_slots
from tests.conformance.loader import Case, cases


def run(cache: ExpertCache, op: dict, saved: dict):
    """One operation of a sequence; the value that the case lists for it."""
    match op["op"]:
        case "plan" | "load":
            plan = cache.plan(op["experts"], op.get("avoid", []))
            if plan is None:
                return None
            if op["op"] == "load":
                cache.publish(plan)
            saved[op.get("as")] = plan
            return {"slots": plan.slots, "misses": plan.misses, "hits": plan.hits}
        case "publish":
            return cache.publish(saved[op["plan"]])
        case "probe":
            return cache.probe(op["experts"])
        case "reserve":
            saved[op.get("as")] = reservation = cache.reserve(op["experts"], op["keep"])
            return [list(p) for p in zip(reservation.experts, reservation.slots, strict=True)]
        case "land":
            return cache.land(saved[op["of"]], op.get("failed", []))
        case "note_hits":
            return cache.note_hits(op["experts"])
        case "owners":
            return cache.owners()
        case "table":
            return cache.table()
        case "next":
            return cache.next_uncached()
    raise ValueError(op)


@pytest.mark.parametrize("case", cases("expert_cache", "sequence"))
def test_sequence(case: Case):
    cache = ExpertCache(case.given["slots"], case.given["experts"], case.given["policy"])
    saved: dict = {}
    mirror = np.zeros(len(cache.table()), np.int16)
    cache.mirror(mirror)
    for op, expected in zip(case.given["ops"], case.expect["results"], strict=True):
        assert run(cache, op, saved) == expected
        assert mirror.tolist() == cache.table()


@pytest.mark.parametrize("case", cases("expert_cache", "auto_slots"))
def test_auto_slots(case: Case):
    slots = auto_slots("metal", case.given["family"], case.given["memory_bytes"])
    assert {"mode": "slots", "slots": slots} == case.expect


@pytest.mark.parametrize("case", cases("expert_cache", "advice_ranges"))
def test_advice_ranges(case: Case):
    assert [list(r) for r in planning.merge(case.given["ranges"])] == case.expect["merged"]


@pytest.mark.parametrize("case", cases("expert_cache", "advice_adaptive"))
def test_advice_adaptive(case: Case):
    config, query = case.given["config"], case.given["query"]
    policy = planning.AdvicePolicy(
        "adaptive", config["miss_cap"], config["byte_cap"], config["slow_call_ns"]
    )
    position = None
    for call in [*case.given["completed_calls"], query]:
        if call["position"] != position:
            policy.begin()
        position = call["position"]
        if call is not query:
            policy.completed(call["max_call_ns"])
    wanted = policy.wanted(query["misses"], query["bytes"], query["can_overlap"])
    assert wanted == (not case.expect["skip"])


@pytest.mark.parametrize("case", cases("expert_cache", "fill_outcome"))
def test_fill_outcome(case: Case, tmp_path):
    """Reads of a real file that ends before the experts whose reads must fail."""
    misses, failed = case.given["misses"], case.given["failed"]
    stride = 4096
    blobs = {e: bytes([e % 251]) * stride for e in misses if e not in failed}
    path = tmp_path / "layer_00.bin"
    path.write_bytes(b"".join(blobs.values()))
    ends = len(blobs) * stride
    places = {e: i * stride for i, e in enumerate(blobs)}
    offsets = [places.get(e, ends) for e in range(max(misses, default=0) + 1)]
    layer = ExpertStreamer(
        device=cpu_device(1), path=str(path), offsets=offsets, stride=stride,
        slots=max(8, len(misses)), readers=3,
    )  # fmt: skip
    try:
        layer.load(misses)
        success = True
    except ExpertFillError:
        success = False
    assert success == case.expect["success"]
    assert sorted(e for e in layer.owners() if e >= 0) == sorted(case.expect["published"])
    assert all(layer.content(e) == blobs[e] for e in case.expect["published"])
