"""The device under sanitizers: it runs clean, and ThreadSanitizer sees kernels race."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.softmetal.probe import HERE, INSTALL, build_probe, missing_packages

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        missing_packages() is not None, reason=f"{missing_packages()} is missing: {INSTALL}"
    ),
]

WORK = """
import sys, threading
sys.path[:0] = {paths!r}
import _softmetal as probe
import numpy as np
from tests.softmetal.driver import Metal, uint
metal = Metal(probe)
probe.set("threads", 2)
"""
CLEAN = """
rows = metal.pipeline("simd", "row_sums")
count = metal.pipeline("atomics", "count")
product = metal.pipeline("matrix", "multiply_half")
def work(seed):
    rng = np.random.default_rng(seed)
    mine = Metal(probe)
    for _ in range(5):
        x = rng.integers(-9, 9, (64, 500)).astype(np.float32)
        y = mine.empty(np.float32, 64)
        mine.run(rows, [mine.put(x), y, np.array([64, 500], np.uint32).tobytes()], [64], [96])
        assert (mine.get(y, np.float32, 64) == x.sum(1)).all()
        counts = [mine.put(np.zeros(16, np.uint32)) for _ in range(4)]
        mine.run(count, [*counts, mine.put(np.arange(2048, dtype=np.uint32))], [16], [128])
        a = np.ones((64, 64), np.float16)
        mine.run(product, [mine.put(a), mine.put(a), mine.empty(np.float32, 64, 64), uint(64)],
                 [4, 4], [32], [256])
        event = mine.device.event()
        waiting = mine.queue.commands()
        waiting.wait_event(event, 1)
        waiting.commit()
        event.value = 1
        waiting.wait()
try:
    broken = metal.pipeline("faults", "barrier_for_some")
    metal.run(broken, [metal.empty(np.float32, 64)], [1], [64])
except RuntimeError:
    pass
threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("done")
"""
# Threadgroups add to one word without an atomic.
RACE = """
source = '''
kernel void race(device uint* x [[buffer(0)]], device uint* y [[buffer(1)]],
                 uint i [[thread_position_in_grid]]) {
  uint at = i;
  for (uint k = 0; k < 2000; ++k) at = y[(at * 7 + k) & 4095];
  x[0] += at + 1;
}
'''
metal.run(metal.pipeline(source, "race"), [metal.put(np.zeros(1, np.uint32)),
          metal.empty(np.uint32, 4096)], [64], [64])
print("done")
"""


def run(sanitizers: str, body: str) -> subprocess.CompletedProcess[str]:
    """A program under the sanitizers' runtime."""
    module = build_probe(sanitizers)
    name = "tsan" if sanitizers == "thread" else "asan"
    runtime = subprocess.run(
        ["clang++-19", f"-print-file-name=libclang_rt.{name}-x86_64.so"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    setup = WORK.format(paths=[str(module.parent), str(HERE.parents[1])])
    return subprocess.run(
        [sys.executable, "-c", setup + body],
        capture_output=True,
        text=True,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(Path.home()),
            "OPENBLAS_NUM_THREADS": "1",
            "LD_PRELOAD": f"{runtime} libstdc++.so.6",
            "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1",
            "UBSAN_OPTIONS": "halt_on_error=1",
            "TSAN_OPTIONS": "halt_on_error=1",
        },
    )


@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_the_device_runs_clean(sanitizers: str) -> None:
    result = run(sanitizers, CLEAN)
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr[-4000:]


def test_thread_sanitizer_sees_threadgroups_race() -> None:
    result = run("thread", RACE)
    assert result.returncode != 0
    assert "WARNING: ThreadSanitizer: data race" in result.stderr
