"""Eager commits: a token's missing experts are queued before their reads have landed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mference import _core
from tests.device import support
from tests.models import open_core

TOKENS = [2, 105, 685, 107, 656, 648, 640, 716, 1192, 683, 715, 523, 106, 107, 105, 686, 107]

SCRIPT = """
import sys
from pathlib import Path
from mference.errors import MferenceError
from tests.models import open_core

core = open_core(Path(sys.argv[1]), slots=8, readers=3)
try:
    for token in map(int, sys.argv[2].split(",")):
        logits = core.logits([token])
    print(core.counters()["eager_commits"], logits.tobytes().hex())
except MferenceError as error:
    print(type(error).__name__, error)
    core.rewind(0)
    for token in map(int, sys.argv[2].split(",")):
        logits = core.logits([token])
    print(logits.tobytes().hex())
"""


@pytest.fixture
def run(run_faulty, demo_install):
    tokens = ",".join(map(str, TOKENS))
    return lambda **variables: run_faulty(SCRIPT, demo_install, tokens, **variables).split()


def test_slow_reads_are_overtaken_and_change_nothing(run):
    count, eager = run(FAULT_DELAY=2000)
    none, waited = run(FAULT_DELAY=2000, MFERENCE_EAGER_ROUTED=0)
    assert int(count) > len(TOKENS)
    assert int(none) == 0
    assert eager == waited


def test_reads_that_end_in_another_order_change_nothing(run):
    count, staggered = run(FAULT_STAGGER=3000)
    assert int(count) > len(TOKENS)
    assert staggered == run(MFERENCE_EAGER_ROUTED=0)[1]


@pytest.mark.parametrize("read", [1, 10, 41, 200])
def test_a_read_that_fails_aborts_the_step(run, read):
    error, *message, after = run(FAULT_EIO=read, FAULT_DELAY=300)
    assert error == "ExpertFillError"
    assert " ".join(message).endswith("Input/output error")
    assert after == run()[1]


@pytest.mark.parametrize("slots", [8, 16, 64])
def test_both_ways_give_the_same_bytes(demo_install, monkeypatch, slots):
    def logits():
        core = open_core(demo_install, slots=slots)
        return np.stack([core.logits([token]) for token in TOKENS]), core.counters()

    eager, counted = logits()
    monkeypatch.setenv("MFERENCE_EAGER_ROUTED", "0")
    waited, none = logits()
    assert np.array_equal(eager, waited)
    assert none["eager_commits"] == 0
    assert counted["misses"] == none["misses"]


@pytest.fixture(scope="module", params=["cpu", "metal"])
def gate_device(request):
    return support.cpu() if request.param == "cpu" else support.gpu("metal")


@given(order=st.permutations(range(1, 7)), bad=st.sets(st.integers(1, 6)))
def test_the_event_passes_a_fill_only_after_all_before_it(gate_device, order, bad):
    gate = _core.FillGate(gate_device)
    assert [gate.add() for _ in order] == sorted(order)
    ended = set()
    for number in order:
        gate.end(number, "the disk is gone" if number in bad else "")
        ended.add(number)
        first_open = min(set(range(1, 8)) - ended)
        assert gate.value == first_open - 1
        assert gate.failures == len(bad & ended)


def test_fills_are_numbered_on_after_all_have_ended(gate_device):
    gate = _core.FillGate(gate_device)
    for number in (1, 2, 3):
        assert gate.add() == number
        gate.end(number)
        assert gate.value == number
