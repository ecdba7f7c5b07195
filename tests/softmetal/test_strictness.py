"""What Apple's validation layer refuses ends the process with a line that says what, and where."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.softmetal.probe import HERE

SETUP = """
import sys
sys.path[:0] = {paths!r}
import _softmetal as probe
import numpy as np
from tests.softmetal.driver import Metal, uint
metal = Metal(probe)
scale = metal.pipeline("vector", "scale_float")
rows = metal.pipeline("simd", "row_sums")
product = metal.pipeline("matrix", "multiply_half")
b = metal.device.buffer(65536)
commands = metal.queue.commands()
def dispatch(pipeline, arguments, groups=(1, 1, 1), threads=(32, 1, 1), lengths=()):
    commands.dispatch(pipeline, list(arguments), list(groups), list(threads), list(lengths))
full = [b, b, uint(1), uint(1)]
print("ready", flush=True)
"""


def outcome(probe_path: Path, body: str, **environment: str) -> tuple[int, str]:
    """The exit status and the last line of the messages of a Python program."""
    setup = SETUP.format(paths=[str(probe_path.parent), str(HERE.parents[1])])
    result = subprocess.run(
        [sys.executable, "-c", setup + body],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), **environment},
    )
    assert result.stdout.startswith("ready"), result.stderr
    return result.returncode, result.stderr.strip().split("\n")[-1]


CASES = {
    "unbound": (
        "dispatch(scale, [b, None, uint(1), uint(1)])",
        "buffer(1) y is not bound (scale_float)",
    ),
    "bytes_for_writing": (
        "dispatch(scale, [b, bytes(64), uint(1), uint(1)])",
        "buffer(1) y is written by the kernel, and was bound with setBytes",
    ),
    "bytes_too_many": (
        "dispatch(scale, [b, b, uint(1), bytes(4097)])",
        "4097 bytes for buffer(3); setBytes takes 1 to 4096 (scale_float)",
    ),
    "bytes_too_few": (
        "dispatch(rows, [b, b, uint(1)])",
        "buffer(2) shape has 4 bytes, and the kernel's type has 8 (row_sums)",
    ),
    "offset_past_end": (
        "dispatch(scale, [(b, 65536), b, uint(1), uint(1)])",
        "offset 65536 of a buffer of 65536 bytes, at index 0",
    ),
    "offset_misaligned": (
        "dispatch(scale, [(b, 2), b, uint(1), uint(1)])",
        "buffer(0) x begins at offset 2, which is not a multiple of 4",
    ),
    "threadgroup_length": (
        "dispatch(product, full[:2] + [b, uint(8)], lengths=[200])",
        "200 bytes are not a multiple of 16 (multiply_half)",
    ),
    "threadgroup_missing": (
        "dispatch(product, full[:2] + [b, uint(8)])",
        "threadgroup(0) tile has no length (multiply_half)",
    ),
    "threadgroup_too_much": (
        "dispatch(rows, [b, b, bytes(8)], lengths=[32768])",
        "bytes of threadgroup memory are more than 32768 (row_sums)",
    ),
    "threads_too_many": (
        "dispatch(scale, full, threads=[1025, 1, 1])",
        "1025 threads in a threadgroup; this pipeline takes 1 to 1024",
    ),
    "no_threads": ("dispatch(scale, full, threads=[0, 1, 1])", "0 threads in a threadgroup"),
    "no_groups": ("dispatch(scale, full, groups=[0, 1, 1])", "the grid is empty (scale_float)"),
    "wait_inside_encoder": (
        "dispatch(scale, full); commands.wait_event(metal.device.event(), 1, False)",
        "encodeWaitForEvent:value:]: an encoder of the command buffer is still open",
    ),
    "signal_inside_encoder": (
        "dispatch(scale, full); commands.signal_event(metal.device.event(), 1, False)",
        "encodeSignalEvent:value:]: an encoder of the command buffer is still open",
    ),
    "commit_inside_encoder": (
        "dispatch(scale, full); commands.commit(False)",
        "-[MTLCommandBuffer commit]: an encoder of the command buffer is still open",
    ),
    "commit_twice": (
        "commands.commit(); commands.recommit()",
        "-[MTLCommandBuffer commit]: the command buffer was committed already",
    ),
    "encode_after_commit": (
        "commands.commit(); dispatch(scale, full)",
        "-[MTLCommandBuffer computeCommandEncoder]: the command buffer was committed",
    ),
    "wait_before_commit": (
        "commands.wait()",
        "waitUntilCompleted]: the command buffer was not committed",
    ),
    "encoder_released_open": ("probe.release_open_encoder()", "was released without endEncoding"),
    "host_memory_misaligned": (
        "metal.device.wrap(16384, 4096)",
        "is not aligned to a page of 16384 bytes",
    ),
    "host_memory_length": (
        "metal.device.wrap(4096)",
        "length 4096 is not a multiple of a page of 16384 bytes",
    ),
    "event_backwards": ("e = metal.device.event(); e.value = 4; e.value = 3", "from 4 back to 3"),
    "use_after_release": (
        "probe.use_after_release()",
        "-[SoftmetalBuffer length] was sent to an object that had been released",
    ),
    "no_pool": ("probe.autorelease_without_pool()", "autoreleased on a thread without a pool"),
    "unretained": (
        "c = metal.queue.commands(False)\n"
        "c.dispatch(scale, [metal.device.buffer(64), b, uint(1), uint(1)], [1, 1, 1], [1, 1, 1])\n"
        "import gc; gc.collect(); c.commit(); c.wait()",
        "was sent to an object that had been released",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_misuse_aborts_and_says_why(probe_path: Path, case: str) -> None:
    body, message = CASES[case]
    status, line = outcome(probe_path, body)
    assert status == -6, line
    assert line.startswith("softmetal: "), line
    assert message in line


def test_what_is_allowed_ends_well(probe_path: Path) -> None:
    body = """
dispatch(scale, full); dispatch(scale, full)
event = metal.device.event()
commands.signal_event(event, 3); dispatch(scale, full); commands.commit(); commands.wait()
assert event.value == 3 and commands.status == 4
metal.device.wrap(32768)
"""
    status, line = outcome(probe_path, body)
    assert (status, line) == (0, "")


def test_the_page_size_is_the_devices(probe_path: Path) -> None:
    body = "import sys; sys.stderr.write(str(probe.system_answers()))"
    assert outcome(probe_path, body) == (0, "[26, 1, 0, 16384]")
    changed = {
        "SOFTMETAL_OS_MAJOR": "13",
        "SOFTMETAL_GPU_FAMILY": "6",
        "SOFTMETAL_PAGE_SIZE": "4096",
    }
    assert outcome(probe_path, body, **changed) == (0, "[13, 0, 0, 4096]")


def test_a_machine_may_have_no_gpu(probe_path: Path) -> None:
    body = """
probe.set("no_device", 1)
try:
    probe.Device()
except RuntimeError as error:
    sys.stderr.write(str(error))
"""
    assert outcome(probe_path, body) == (0, "there is no Metal device")
