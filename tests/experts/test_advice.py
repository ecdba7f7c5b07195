"""Read advice: which requests are announced to the system, and that nothing else depends on it."""

from itertools import pairwise
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mference
from mference._core import planning
from mference.engine import Advice
from mference.errors import ConfigError
from tests.models import open_core

MODES = get_args(Advice)
TOKENS = [2, 105, 685, 107, 656, 648, 640, 716, 1192, 683, 715, 523, 106, 107, 105, 686, 107]

SCRIPT = """
import sys
from pathlib import Path
from tests.experts.test_advice import run
logits, counted = run(Path(sys.argv[1]), sys.argv[2])
print(counted["advice_calls"], logits.tobytes().hex())
"""


def run(install, advice):
    """Logits of a prompt and of the same tokens one by one, and what was counted."""
    core = open_core(install, slots=8, advice=advice)
    rows = [core.logits(TOKENS)]
    core.rewind(0)
    rows += [core.logits([token]) for token in TOKENS]
    return np.array(rows), core.counters()


@pytest.fixture(scope="module")
def by_mode(demo_install):
    return {mode: run(demo_install, mode) for mode in MODES}


def test_the_output_is_the_same_bytes_in_every_mode(by_mode):
    want, without = by_mode["off"]
    for logits, counted in by_mode.values():
        assert logits.tobytes() == want.tobytes()
        for key in ("hits", "misses", "evictions", "bytes_read"):
            assert counted[key] == without[key]


def test_default_names_every_byte_that_is_read(by_mode):
    counted = by_mode["default"][1]
    assert counted["advice_bytes"] == counted["bytes_read"] > 0
    assert 0 < counted["advice_calls"] <= counted["misses"]
    # The demo's requests are small, so the limits change nothing.
    assert by_mode["bounded"][1]["advice_bytes"] == counted["bytes_read"]


def test_adaptive_says_nothing_while_the_device_has_nothing_to_compute(by_mode):
    advised = by_mode["adaptive"][1]["advice_bytes"]
    assert 0 < advised < by_mode["default"][1]["advice_bytes"]


def test_off_and_mapped_layers_ask_for_nothing(by_mode, demo_install):
    assert by_mode["off"][1]["advice_calls"] == 0
    core = open_core(demo_install, slots="resident", advice="default")
    core.logits(TOKENS)
    assert core.counters()["advice_calls"] == 0


@pytest.mark.parametrize("mode", MODES[1:])
def test_advice_that_the_system_refuses_changes_nothing(run_faulty, demo_install, by_mode, mode):
    calls, logits = run_faulty(SCRIPT, demo_install, mode, FAULT_ADVICE=1).split()
    assert int(calls) > 0
    assert logits == by_mode[mode][0].tobytes().hex()


def test_adaptive_gives_up_for_the_rest_of_a_token_after_a_slow_call(run_faulty, demo_install):
    def calls(mode: str) -> int:
        return int(run_faulty(SCRIPT, demo_install, mode, FAULT_ADVICE=1500).split()[0])

    # A prompt and its tokens one by one: one advised request in each, of at most eight ranges.
    assert 0 < calls("adaptive") <= 8 * (1 + len(TOKENS)) < calls("bounded")


def test_an_unknown_mode_is_a_config_error(demo_install):
    with pytest.raises(ConfigError, match=r"'always'.*off, default, bounded, adaptive"):
        mference.load(demo_install, advice="always")


def test_a_report_counts_what_was_advised(demo_install):
    with mference.load(demo_install, slots=8, advice="default") as model:
        model.generate("A dog is", max_new=2, temperature=0)
        report = model.report()
    assert report.advice_bytes == report.bytes_read
    assert 0 < report.advice_calls <= report.misses


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=12))
def test_merged_ranges_are_the_same_bytes_in_order_and_apart(ranges):
    merged = planning.merge(ranges)
    covered = {byte for offset, size in ranges for byte in range(offset, offset + size)}
    assert sum(size for _, size in merged) == len(covered)
    assert {byte for offset, size in merged for byte in range(offset, offset + size)} == covered
    assert all(a + size < b for (a, size), (b, _) in pairwise(merged))
