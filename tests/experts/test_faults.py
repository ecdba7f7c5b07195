"""A disk that misbehaves and a system without threads, seen through a preloaded library."""

import pytest

SCRIPT = """
import sys
import numpy as np
from pathlib import Path
from mference.errors import MferenceError
from tests.models import open_core

tokens = [2, 105, 685, 107, 656, 648, 640, 716, 1192, 683, 715, 523, 106, 107, 105, 686, 107]
try:
    core = open_core(Path(sys.argv[1]), slots=8, threads=3, readers=3)
    if "fails" in sys.argv:
        try:
            core.logits(tokens)
        except MferenceError as error:
            print(type(error).__name__, error)
        assert core.position == 0
    prefill = core.logits(tokens)
    core.rewind(0)
    decode = [core.logits([token]) for token in tokens][-1]
    assert np.array_equal(prefill, decode)
    print(prefill.tobytes().hex())
except MferenceError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture
def run(run_faulty, demo_install):
    return lambda *arguments, **faults: run_faulty(SCRIPT, demo_install, *arguments, **faults)


@pytest.mark.parametrize(
    "faults_of_reads", [{"FAULT_SHORT": 1000}, {"FAULT_EINTR": 2, "FAULT_SHORT": 5000}], ids=str
)
def test_short_and_interrupted_reads_change_nothing(run, faults_of_reads):
    assert run(**faults_of_reads) == run()


@pytest.mark.parametrize("read", [1, 9, 30, 77])
def test_any_read_that_fails_is_named_and_the_model_survives_it(run, read):
    error, bytes_ = run("fails", FAULT_EIO=read).splitlines()
    assert error.startswith("ExpertFillError cannot read")
    assert "Input/output error" in error
    assert bytes_ == run().strip()


# Three readers, two workers of the pool and the stream, in the order in which they start.
@pytest.mark.parametrize("thread", range(1, 7))
def test_any_thread_that_cannot_start_is_a_device_error(run, thread):
    assert run(FAULT_THREAD=thread).startswith("DeviceError cannot start another thread")
