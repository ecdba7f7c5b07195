"""One model, several threads, signals and forks: a clear error, and the model survives."""

import os
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mference.errors import DeviceError, ExpertFillError, GenerationError
from tests.models import open_core

PROMPT = list(np.random.default_rng(1).integers(200, 8000, 600))


def wait_until_computing(core) -> None:
    """Returns once another thread's call is under way."""
    while True:
        try:
            core.rewind(0)
        except GenerationError:
            return
        time.sleep(0.001)


def test_a_second_caller_is_refused_and_disturbs_nothing(demo_install):
    core = open_core(demo_install, context=10_000)
    prompt = PROMPT * 15  # about a second: longer than the others' calls
    want = core.logits(prompt)
    refused = []

    def call() -> None:
        for _ in range(50):
            for use in (lambda: core.greedy([5]), lambda: core.rewind(0)):
                with pytest.raises(GenerationError, match="already computing"):
                    use()
            refused.append((core.position, core.counters()["tokens"] % len(prompt)))

    for _ in range(3):
        core.rewind(0)
        with ThreadPoolExecutor(4) as threads:
            first = threads.submit(core.logits, prompt)
            wait_until_computing(core)
            others = [threads.submit(call) for _ in range(3)]
            for other in others:
                other.result()
            assert not first.done()
            assert np.array_equal(first.result(), want)
    # Others see the state of the last call that ended.
    assert set(refused) == {(0, 0)}


def test_a_signal_handler_that_raises_stops_a_prompt_and_the_model_survives(demo_install):
    core = open_core(demo_install, context=20_000, chunk=4096)
    prompt = PROMPT * 20
    want = core.logits(PROMPT)

    def interrupt(*_: object) -> None:
        with pytest.raises(GenerationError, match="already computing"):
            core.greedy([1])
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for seconds in (0.02, 0.06, 0.1):
            core.rewind(0)
            signal.setitimer(signal.ITIMER_REAL, seconds)
            with pytest.raises(KeyboardInterrupt):
                core.logits(prompt)
            assert core.position % 4096 == 0
            core.rewind(0)
            assert np.array_equal(core.logits(PROMPT), want)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_forked_child_is_told_to_load_again_and_can_end(demo_install):
    core = open_core(demo_install)
    core.greedy([2, 105])
    child = os.fork()
    if child == 0:
        code = 1
        try:
            core.greedy([5])
        except DeviceError as error:
            code = 0 if "load it again" in str(error) else 2
        del core
        os._exit(code)
    for _ in range(200):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.05)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the child never ended")
    assert os.waitstatus_to_exitcode(status) == 0
    core.greedy([5])


def test_no_rewind_into_a_window_that_a_failed_chunk_overwrote(demo_install, tmp_path):
    copy = tmp_path / "copy.gturbo"
    shutil.copytree(demo_install, copy)
    core = open_core(copy, context=4000, slots=8)
    core.forward(PROMPT[:400])
    last = copy / "packed_experts" / "layer_05.bin"
    content = last.read_bytes()
    os.truncate(last, 0)
    with pytest.raises(ExpertFillError):
        core.forward(PROMPT[400:528])
    last.write_bytes(content)
    assert core.position == 400

    # Five layers have put 128 rows into their rings of 256; position 390 sees from 263 on.
    with pytest.raises(DeviceError, match="overwritten"):
        core.rewind(390)
    core.rewind(399)
    want = open_core(demo_install, context=4000).logits(PROMPT[:400])
    assert np.array_equal(core.logits(PROMPT[399:400]), want)
