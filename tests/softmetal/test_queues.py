"""Command buffers run later and in order; events gate them; failures can be asked for."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from tests.softmetal.driver import Metal, uint

ADD = """
kernel void add(device uint* x [[buffer(0)]], constant uint& value [[buffer(1)]]) { x[0] += value; }
kernel void twice(device uint* x [[buffer(0)]]) { x[0] *= 2; }
"""


def until(condition) -> bool:
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)
    return condition()


def test_a_command_buffer_waits_for_an_event_of_the_host(metal: Metal) -> None:
    x = metal.put(np.array([5], np.uint32))
    library = metal.library(ADD)
    gate, done = metal.device.event(), metal.device.event()
    first = metal.queue.commands()
    first.wait_event(gate, 7)
    first.dispatch(library.pipeline("add"), [x, uint(3)], [1, 1, 1], [1, 1, 1])
    first.signal_event(done, 1)
    first.commit()
    second = metal.queue.commands()
    second.dispatch(library.pipeline("twice"), [x], [1, 1, 1], [1, 1, 1])
    second.commit()
    assert not done.wait(1, 30)
    assert second.status < 4
    assert metal.get(x, np.uint32, 1)[0] == 5
    gate.value = 7
    second.wait()
    assert done.wait(1, 0)
    assert metal.get(x, np.uint32, 1)[0] == 16


def test_queues_wait_for_each_other(metal: Metal) -> None:
    other = metal.device.queue()
    x = metal.put(np.array([1], np.uint32))
    library = metal.library(ADD)
    event = metal.device.event()
    late = other.commands()
    late.wait_event(event, 1)
    late.dispatch(library.pipeline("twice"), [x], [1, 1, 1], [1, 1, 1])
    late.commit()
    early = metal.queue.commands()
    early.dispatch(library.pipeline("add"), [x, uint(4)], [1, 1, 1], [1, 1, 1])
    early.signal_event(event, 1)
    early.commit()
    late.wait()
    assert metal.get(x, np.uint32, 1)[0] == 10


def test_a_listener_is_told_of_a_value(metal: Metal) -> None:
    event = metal.device.event()
    timer = threading.Timer(0.02, lambda: setattr(event, "value", 5))
    timer.start()
    assert event.notified(4, 5000) == 4
    assert event.notified(3, 5000) == 3  # of a value that has passed
    assert event.notified(9, 20) is None
    timer.join()


def test_an_event_that_never_comes_fails_the_command_buffer(metal: Metal) -> None:
    metal.probe.set("event_timeout_ms", 30)
    commands = metal.queue.commands()
    commands.wait_event(metal.device.event(), 2)
    commands.commit()
    with pytest.raises(RuntimeError, match="an event did not reach 2 in time"):
        commands.wait()


def test_completed_handlers_may_come_late(metal: Metal) -> None:
    metal.probe.set("delay_completion_us", 50_000)
    commands = metal.queue.commands()
    commands.commit()
    commands.wait()
    assert not commands.handled
    assert until(lambda: commands.handled)


def test_the_nth_command_buffer_fails_when_asked(metal: Metal) -> None:
    metal.probe.set("fail_command_buffer", 2)
    x = metal.put(np.array([0], np.uint32))
    pipeline = metal.pipeline(ADD, "add")
    event = metal.device.event()
    statuses = []
    for value in (1, 2, 3):
        commands = metal.queue.commands()
        commands.dispatch(pipeline, [x, uint(10**value)], [1, 1, 1], [1, 1, 1])
        commands.signal_event(event, value)
        commands.commit()
        try:
            commands.wait()
            statuses.append((4, event.value))
        except RuntimeError as error:
            assert str(error) == "a failure that was asked for"
            assert until(lambda c=commands: c.handled)
            statuses.append((commands.status, event.value))
    # What failed has neither run nor signalled.
    assert statuses == [(4, 1), (5, 1), (4, 3)]
    assert metal.get(x, np.uint32, 1)[0] == 1010


def test_the_compiler_fails_when_asked(metal: Metal) -> None:
    metal.probe.set("fail_compile", 1)
    with pytest.raises(RuntimeError, match="program_source:1:1: error: a failure"):
        metal.library(ADD)


def test_a_failure_of_a_kernel_leaves_the_rest_of_its_command_buffer_undone(metal: Metal) -> None:
    x = metal.put(np.array([1], np.uint32))
    commands = metal.queue.commands()
    y = metal.put(np.zeros(64, np.float32))
    broken = metal.pipeline("faults", "barrier_for_some")
    commands.dispatch(broken, [y], [1, 1, 1], [64, 1, 1])
    commands.dispatch(metal.pipeline(ADD, "twice"), [x], [1, 1, 1], [1, 1, 1])
    commands.commit()
    with pytest.raises(RuntimeError, match="barrier_for_some"):
        commands.wait()
    assert metal.get(x, np.uint32, 1)[0] == 1


def test_time_on_the_gpu_is_measured(metal: Metal) -> None:
    x = metal.put(np.array([1], np.uint32))
    commands = metal.run(metal.pipeline(ADD, "twice"), [x], [1], [1])
    assert 0 < commands.seconds < 5


def test_buffers_longer_than_the_limit_are_not_made(metal: Metal) -> None:
    metal.probe.set("max_buffer_length", 1 << 20)
    assert metal.device.buffer(1 << 20) is not None
    assert metal.device.buffer((1 << 20) + 1) is None
    assert metal.device.wrap(1 << 20) is not None
    assert metal.device.wrap((1 << 20) + 16384) is None


def test_nothing_is_left_alive(metal: Metal) -> None:
    names = ["SoftmetalCommandBuffer", "SoftmetalEncoder", "SoftmetalBuffer", "SoftmetalEvent"]
    assert until(lambda: metal.probe.live_objects("SoftmetalCommandBuffer") == 0)
    before = [metal.probe.live_objects(name) for name in names]
    pipeline = metal.pipeline(ADD, "add")
    for _ in range(20):
        x = metal.put(np.array([1], np.uint32))
        event = metal.device.event()
        commands = metal.queue.commands()
        commands.dispatch(pipeline, [x, uint(1)], [1, 1, 1], [1, 1, 1])
        commands.signal_event(event, 1)
        commands.commit()
        commands.wait()
    del x, event, commands
    assert until(lambda: [metal.probe.live_objects(name) for name in names] == before)


def test_two_queues_share_the_cores(metal: Metal) -> None:
    pipeline = metal.pipeline(ADD, "add")
    buffers = [metal.put(np.array([0], np.uint32)) for _ in range(4)]

    def work(buffer) -> None:
        queue = metal.device.queue()
        for _ in range(50):
            commands = queue.commands()
            for _ in range(4):
                commands.dispatch(pipeline, [buffer, uint(1)], [1, 1, 1], [1, 1, 1])
            commands.commit()
            commands.wait()

    threads = [threading.Thread(target=work, args=(b,)) for b in buffers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [metal.get(b, np.uint32, 1)[0] for b in buffers] == [200] * 4


def test_strings_collections_and_exceptions_work_as_on_a_mac(metal: Metal) -> None:
    assert metal.probe.text_of_collections() == "a-1-2-3-0.50"
    assert metal.probe.exceptions_are_caught()
