"""Kernels that do what a GPU does not forgive fail their command buffer, and are named."""

from __future__ import annotations

import numpy as np
import pytest

from tests.softmetal.driver import Metal, uint


@pytest.mark.parametrize("check", [0, 1], ids=["guard_pages", "checked"])
@pytest.mark.parametrize("distance", [1 << 13, 0x4000_0000 - 64], ids=["near", "before"])
def test_accesses_far_outside_a_buffer_are_caught(metal: Metal, check: int, distance: int) -> None:
    metal.probe.set("check", check)
    x, y = metal.put(np.zeros(64, np.float32)), metal.empty(np.float32, 64)
    write = metal.pipeline("faults", "write_past_end")
    with pytest.raises(RuntimeError, match=r"write_past_end: a write .*buffer\(0\) y"):
        metal.run(write, [y, uint(distance)], [1], [64])
    read = metal.pipeline("faults", "read_past_end")
    with pytest.raises(RuntimeError, match=r"read_past_end: a read .*buffer\(0\) x"):
        metal.run(read, [x, y, uint(distance)], [1], [64])
    # The process and the queue go on.
    metal.run(read, [x, y, uint(0)], [1], [64])


def test_checked_kernels_may_not_touch_one_element_more(metal: Metal) -> None:
    metal.probe.set("check", 1)
    x, y = metal.device.wrap(65536), metal.empty(np.float32, 65)
    read = metal.pipeline("faults", "read_past_end")
    metal.run(read, [(x, 65536 - 4 * 64), y, uint(0)], [1], [64])
    message = r"a read of 4 bytes 0 bytes past the end of buffer\(0\) x \(256 bytes\)"
    with pytest.raises(RuntimeError, match=message):
        metal.run(read, [(x, 65536 - 4 * 64), y, uint(1)], [1], [64])
    with pytest.raises(RuntimeError, match=r"a write of 4 bytes at byte \d+ of buffer\(0\) x"):
        # A buffer that the kernel declares as const is not to be written through another name.
        source = """kernel void alias(device const float* x [[buffer(0)]]) {
          ((device float*)x)[1] = 1.0f;
        }"""
        metal.run(metal.pipeline(source, "alias"), [x], [1], [1])


@pytest.mark.parametrize("check", [0, 1], ids=["guards", "checked"])
def test_writes_past_threadgroup_memory_are_caught(metal: Metal, check: int) -> None:
    metal.probe.set("check", check)
    y = metal.empty(np.float32, 64)
    metal.run(metal.pipeline("faults", "write_past_variable"), [y], [1], [7])
    metal.run(metal.pipeline("faults", "write_past_array"), [y], [1], [31], [128])
    for name, threads, lengths in [("write_past_variable", 8, []), ("write_past_array", 32, [128])]:
        with pytest.raises(RuntimeError, match=f"{name}: a write .*outside the threadgroup memory"):
            metal.run(metal.pipeline("faults", name), [y], [1], [threads], lengths)


@pytest.mark.parametrize(
    ("name", "threads", "message"),
    [
        ("barrier_for_some", 64, "reached by 40 of 64 threads"),
        ("mixed_functions", 32, "lanes of a SIMD-group are in different SIMD-group functions"),
        ("barrier_or_sum", 64, "some lanes of a SIMD-group are in threadgroup_barrier"),
        ("matrix_for_some", 32, "ran different matrix operations"),
    ],
)
@pytest.mark.parametrize("seed", [0, 5])
def test_divergence_is_reported(
    metal: Metal, name: str, threads: int, message: str, seed: int
) -> None:
    metal.probe.set("seed", seed)
    y = metal.put(np.zeros(4096, np.float32))
    with pytest.raises(RuntimeError, match=f"{name}: .*{message}.*threadgroup 0,0,0"):
        metal.run(metal.pipeline("faults", name), [y], [1], [threads])


def test_some_seeds_expose_a_missing_barrier(metal: Metal) -> None:
    pipeline = metal.pipeline("faults", "missing_barrier")
    y = metal.empty(np.float32, 64)
    expected = np.maximum(np.arange(64) - 1, 0)
    wrong = []
    for seed in range(5):
        metal.probe.set("seed", seed)
        metal.run(pipeline, [y], [1], [64])
        wrong.append(not np.array_equal(metal.get(y, np.float32, 64), expected))
    assert wrong == [False, True, True, True, True]


def test_threadgroup_memory_begins_as_nan(metal: Metal) -> None:
    y = metal.empty(np.float32, 64)
    metal.run(metal.pipeline("faults", "uninitialized"), [y], [2], [32])
    assert np.isnan(metal.get(y, np.float32, 64)).all()


def test_some_seeds_expose_reliance_on_the_order_of_threadgroups(metal: Metal) -> None:
    metal.probe.set("threads", 1)
    pipeline = metal.pipeline("faults", "order_of_groups")
    results = set()
    for seed in range(3):
        metal.probe.set("seed", seed)
        y = metal.put(np.zeros(32, np.uint32))
        metal.run(pipeline, [y], [32], [1])
        results.add(tuple(metal.get(y, np.uint32, 32).tolist()))
    assert tuple(range(1, 33)) in results
    assert len(results) > 1


def test_a_seed_gives_the_same_schedule_again(metal: Metal) -> None:
    pipeline = metal.pipeline("faults", "missing_barrier")
    y = metal.empty(np.float32, 64)
    metal.probe.set("seed", 9)
    results = []
    for _ in range(3):
        metal.run(pipeline, [y], [1], [64])
        results.append(metal.get(y, np.float32, 64).tobytes())
    assert len(set(results)) == 1


def test_a_stack_that_is_used_up_fails_the_kernel(metal: Metal) -> None:
    x = metal.put(np.zeros(64, np.uint32))
    with pytest.raises(RuntimeError, match="deep_stack: its variables need more than the stack"):
        metal.run(metal.pipeline("faults", "deep_stack"), [x], [1], [2])
