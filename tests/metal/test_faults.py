"""Reads and command buffers that fail on the Metal device: a named error, or the same bytes."""

import pytest

SCRIPT = """
import sys
from pathlib import Path
from mference.errors import MferenceError
from tests.models import open_core

tokens = [2, 105, 685, 107, 656, 648]

def run():
    core.rewind(0)
    core.forward(tokens[:-2])
    for token in tokens[-2:]:
        logits = core.logits([token])
    return logits.tobytes().hex()[:2000]

try:
    core = open_core(Path(sys.argv[1]), device="metal", slots=8, readers=3)
except MferenceError as error:
    print(type(error).__name__, error)
    sys.exit()
try:
    print("ok", run(), core.counters()["eager_commits"])
except MferenceError as error:
    print(type(error).__name__, error)
    print(run())
"""


@pytest.fixture
def run(run_faulty, demo_install):
    return lambda **variables: run_faulty(SCRIPT, demo_install, **variables).splitlines()


@pytest.fixture(scope="module")
def expected(run_faulty, demo_install):
    ok, logits, _ = run_faulty(SCRIPT, demo_install).split()
    assert ok == "ok"
    return logits


def test_slow_reads_are_overtaken_and_change_nothing(run, expected):
    (line,) = run(FAULT_DELAY=2000)
    ok, logits, eager = line.split()
    assert (ok, logits) == ("ok", expected)
    assert int(eager) > 0
    (line,) = run(FAULT_DELAY=2000, MFERENCE_EAGER_ROUTED=0)
    assert line.split() == ["ok", expected, "0"]


def test_reads_that_end_in_another_order_change_nothing(run, expected):
    (line,) = run(FAULT_STAGGER=3000)
    ok, logits, eager = line.split()
    assert (ok, logits) == ("ok", expected)
    assert int(eager) > 0


@pytest.mark.parametrize("read", [3, 40, 90])
def test_a_read_that_fails_is_an_expert_fill_error(run, expected, read):
    error, logits = run(FAULT_EIO=read, FAULT_DELAY=200)
    assert error.startswith("ExpertFillError cannot read")
    assert logits == expected


# A late handler hears of the failure when buffers behind it have signalled their events.
@pytest.mark.parametrize("late", [0, 2000])
@pytest.mark.parametrize("number", [1, 7, 20])
def test_a_command_buffer_that_fails_is_a_device_error_with_its_kernels(
    run, expected, number, late
):
    error, logits = run(SOFTMETAL_FAIL_COMMAND_BUFFER=number, SOFTMETAL_DELAY_COMPLETION_US=late)
    assert error.startswith("DeviceError the GPU failed while it ran ")
    assert logits == expected


def test_late_completion_handlers_change_nothing(run, expected):
    (line,) = run(SOFTMETAL_DELAY_COMPLETION_US=300)
    assert line.split()[:2] == ["ok", expected]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_order_of_threads_changes_nothing(run, expected, seed):
    (line,) = run(SOFTMETAL_SEED=seed)
    assert line.split()[:2] == ["ok", expected]


def test_every_access_lies_in_a_buffer(run):
    # Kernels that check are compiled differently, and round in other places.
    (line,) = run(SOFTMETAL_CHECK=1)
    assert line.startswith("ok ")


def test_small_buffers_are_cut_between_tensors(run, expected):
    (line,) = run(SOFTMETAL_MAX_BUFFER_LENGTH=1 << 22)
    assert line.split()[:2] == ["ok", expected]


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"SOFTMETAL_NO_DEVICE": 1}, "no GPU that Metal can use"),
        ({"SOFTMETAL_OS_MAJOR": 13}, "needs macOS 14 or newer, and this is macOS 13"),
        ({"SOFTMETAL_GPU_FAMILY": 6}, "needs Apple Silicon (M1 or newer)"),
        ({"SOFTMETAL_FAIL_COMPILE": 1}, "the Metal kernels do not compile"),
        ({"SOFTMETAL_MAX_BUFFER_LENGTH": 1 << 18}, "do not fit a buffer of this GPU"),
    ],
)
def test_what_a_machine_lacks_is_said_when_the_device_is_opened(run, variables, message):
    (line,) = run(**variables)
    assert line.startswith("DeviceError ")
    assert message in line
