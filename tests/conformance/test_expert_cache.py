"""The expert cache's planning rules, case by case."""

import pytest

from mference._core import ExpertCache
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
    assert [run(cache, op, saved) for op in case.given["ops"]] == case.expect["results"]


@pytest.mark.parametrize("case", cases("expert_cache", "auto_slots"))
def test_auto_slots(case: Case):
    slots = auto_slots("metal", case.given["family"], case.given["memory_bytes"])
    assert {"mode": "slots", "slots": slots} == case.expect
