"""A budget in bytes: what it buys, and what it refuses before anything is loaded."""

import re

import pytest

import mference
from mference.errors import ConfigError, DeviceError
from mference.families import pinned_entry
from mference.memory import choose_slots, footprint_of, forecast_memory, parse_bytes, rungs

GIB = 1 << 30
GEMMA = pinned_entry("gemma4").arch
FOOTPRINT = footprint_of(GEMMA)


def choose(slots="auto", *, budget=None, available=64 * GIB, context=4096, default=None):
    return choose_slots(
        slots, GEMMA, FOOTPRINT,
        context=context, chunk=128, available=available, budget=budget, default=default,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("6GiB", 6 * GIB),
        ("6GB", 6_000_000_000),
        ("500MiB", 500 << 20),
        (" 1.5 kb ", 1500),
        ("2tib", 2 << 40),
        ("4096", 4096),
        (4096, 4096),
    ],
)
def test_bytes_are_written_with_or_without_a_unit(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "value",
    ["", "6", "GiB", "6 apples", "-6GiB", "6G", "0GiB", "0", 0, -1, True, 1.5, "nan", "1e9", "٦GB"],
)
def test_what_is_no_number_of_bytes_is_refused(value):
    if value == "6":
        assert parse_bytes(value) == 6
        return
    with pytest.raises(ConfigError, match=r"6GiB, 6GB or 500MiB"):
        parse_bytes(value)


@pytest.mark.parametrize("budget", [GIB * n // 2 for n in range(3, 32)])
def test_auto_takes_the_largest_rung_within_the_budget(budget):
    slots = choose(budget=budget)
    assert slots in rungs(GEMMA)
    needs = {
        n: forecast_memory(GEMMA, FOOTPRINT, n, context=4096, chunk=128).own for n in rungs(GEMMA)
    }
    assert needs[slots] <= budget
    assert all(need > budget for n, need in needs.items() if n > slots)


def test_a_larger_context_leaves_fewer_slots():
    assert choose(budget=4 * GIB, context=4096) > choose(budget=4 * GIB, context=65536)


def test_a_budget_beyond_the_machine_is_cut_to_it():
    assert choose(budget=100 * GIB, available=4 * GIB) == 32


def test_a_budget_below_the_smallest_rung_names_what_would_do():
    with pytest.raises(ConfigError, match=r"budget of 1\.07 GB is too small") as refused:
        choose(budget=GIB)
    amount = re.search(r"at least (\d+MiB)", str(refused.value))
    assert amount
    assert choose(budget=parse_bytes(amount[1])) == 8


@pytest.mark.parametrize("slots", [16, 128, "resident"])
def test_a_choice_of_slots_must_keep_within_the_budget(slots):
    with pytest.raises(ConfigError, match="too small"):
        choose(slots, budget=600 << 20)
    assert choose(slots, budget=20 * GIB) == slots


@pytest.mark.parametrize("slots", [16, "auto", "resident"])
def test_more_than_is_available_is_refused_with_both_amounts(slots):
    with pytest.raises(DeviceError, match=r"not enough memory: .* 100.0 MB is available"):
        choose(slots, available=100_000_000)


def test_auto_steps_down_where_its_rule_would_not_fit():
    assert choose(available=int(1.3 * GIB)) == 8


def test_auto_without_a_budget_keeps_every_expert_where_all_fit():
    assert choose(available=64 * GIB) == 128
    assert choose(available=64 * GIB, default=16) == 16


def test_a_model_is_loaded_within_a_budget(demo_install):
    with mference.load(demo_install, memory="70MiB") as model:
        assert model.chat([{"role": "user", "content": "Hello!"}], temperature=0).content
        assert model.report().slots == 64


def test_a_budget_that_holds_no_model_is_refused_at_the_load(demo_install):
    with pytest.raises(ConfigError, match=r"10.5 MB is too small.*at least \d+MiB"):
        mference.load(demo_install, memory="10MiB")
    with pytest.raises(ConfigError, match="500MiB"):
        mference.load(demo_install, memory="much")
