"""Installs that are killed, or whose disk fails, at each single step, and what comes next."""

import errno
import json
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from mference.installer.paths import prepared_paths
from tests.installer.contents import contents, names_in
from tests.installer.forked import Installers, Mode, Order, Outcome, installers
from tests.installer.server import RangeServer, serve
from tests.installer.toys import write_source

LARGE = 16384
LEFT = ["x.gturbo", "x.gturbo.install.lock"]
DISKS = [("fail from here", errno.ENOSPC), ("fail once", errno.EIO), ("fail from here", errno.EIO)]


@dataclass
class Bench:
    """A toy in a folder and on a server, a quiet install of it, and an older one to overwrite."""

    server: RangeServer
    do: Installers
    folder: Path
    quiet: dict[str, bytes]
    old: Path
    previous: dict[str, bytes]
    planned: dict[int, int] = field(default_factory=dict)

    def order(self, *, remote: bool = False, **how: object) -> Order:
        place = Path(tempfile.mkdtemp(dir=self.folder))
        source = self.server.base if remote else str(self.server.folder)
        return Order(str(place / "x.gturbo"), source, mode="count", **how)

    def steps(self, order: Order) -> list[str]:
        """The steps of an install that nothing disturbs."""
        place = self.prepare(order)
        self.server.forget()
        outcome = self.do(order)
        assert outcome.well, outcome
        self.planned[order.chunk] = sum(asked.tensors for asked in self.server.asked)
        shutil.rmtree(place)
        return list(outcome.steps)

    def prepare(self, order: Order) -> Path:
        place = Path(order.output).parent
        place.mkdir(exist_ok=True)
        if order.overwrite:
            shutil.copytree(self.old, order.output)
        return place

    def check(self, order: Order, *, first_wrong: bool = False) -> Outcome:
        """Carry out an order that goes wrong, then what its user does next, once."""
        place = self.prepare(order)
        self.server.forget()
        outcome = self.do(order)
        assert outcome.killed or not outcome.error or named(outcome, order.error), outcome
        paths = prepared_paths(order.output)
        before = contents(paths.final) if paths.final.exists() else None
        assert before in (self.previous if order.overwrite else None, self.quiet)
        recorded = recorded_in(paths.checkpoint)
        again = replace(order, mode="count", kill_after=None)
        if paths.checkpoint.exists() or before != self.quiet:
            resume = paths.checkpoint.exists()
            if first_wrong and before != self.quiet:
                refused = self.do(replace(again, resume=not resume))
                assert refused.error == ("StateIncompatible" if resume else "StateMissing")
            self.server.forget()
            second = self.do(replace(again, resume=resume))
            assert second.well, second
            assert second.reused >= sum(done["destinationBytes"] for done in recorded)
            if "://" in order.source:
                left = self.planned[order.chunk] - len(recorded) if before != self.quiet else 0
                mine = [a for a in self.server.asked if a.process == str(second.process)]
                assert sum(asked.tensors for asked in mine) == left
        assert contents(paths.final) == self.quiet
        assert names_in(place) == LEFT
        shutil.rmtree(place)
        return outcome


def named(outcome: Outcome, number: int) -> bool:
    """Whether an error says what the disk said, or is the class for it."""
    if outcome.error == "NoSpace":
        return number == errno.ENOSPC
    kinds = ("InstallError", "PromotionUnsupported")
    return outcome.error in kinds and os.strerror(number) in outcome.message


def recorded_in(checkpoint: Path) -> list[dict[str, Any]]:
    """The ranges that a checkpoint says are on the disk."""
    return json.loads(checkpoint.read_text())["completedRanges"] if checkpoint.exists() else []


@pytest.fixture(scope="module")
def bench(transitions: Path, tmp_path_factory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("crashes")
    other = write_source(folder / "other")
    (other / "tokenizer.json").write_text('{"an": "older one"}')
    with serve(write_source(folder / "source")) as server, installers(transitions) as do:
        for source, name in ((str(other), "old"), (server.base, "quiet")):
            outcome = do(Order(str(folder / name / "x.gturbo"), source))
            assert outcome.well, outcome
        quiet, old = folder / "quiet" / "x.gturbo", folder / "old" / "x.gturbo"
        assert contents(old) != contents(quiet)
        yield Bench(server, do, folder, contents(quiet), old, contents(old))


def sweep(bench: Bench, order: Order, mode: Mode, *, every: int = 1, last: int = 0) -> None:
    """Let an install go wrong at each of its steps in turn, of the `last` ones if any."""
    steps = bench.steps(order)
    assert len(steps) > 80
    failed = 0
    numbers = range(max(0, len(steps) - last) if last else 1, len(steps) + 1, every)
    for n in numbers:
        try:
            outcome = bench.check(replace(order, mode=mode, step=n), first_wrong=n % 8 == 0)
        except AssertionError as exc:
            exc.add_note(f"{mode} at step {n} of {len(steps)}: {steps[n - 1]}")
            raise
        failed += not outcome.well
    # The steps of two threads come in any order and number, so that the last may not come.
    assert failed > len(numbers) * 0.8


def test_an_install_killed_at_any_step_is_completed_by_one_more_command(bench: Bench):
    sweep(bench, bench.order(chunk=LARGE), "torn")


def test_an_install_that_loses_power_loses_nothing_that_it_has_recorded(bench: Bench):
    sweep(bench, bench.order(chunk=LARGE), "power", every=2)


def test_an_overwrite_killed_at_any_step_leaves_the_old_install_or_the_new_one(bench: Bench):
    sweep(bench, bench.order(chunk=LARGE, overwrite=True), "torn", last=30)


@pytest.mark.parametrize(("mode", "error"), DISKS)
def test_an_install_whose_disk_fails_names_that_and_goes_on(bench: Bench, mode: Mode, error: int):
    growing = error == errno.ENOSPC
    sweep(bench, bench.order(chunk=LARGE, error=error, growing=growing), mode)


def test_a_discard_killed_at_any_step_is_completed_by_another(bench: Bench):
    order = bench.order(chunk=LARGE)
    paths, discard = prepared_paths(order.output), replace(order, action="discard")
    count = n = 1
    while n <= count:
        assert bench.do(replace(order, pause_at=20_000)).error == "KeyboardInterrupt"
        first = bench.do(replace(discard, mode="torn", step=n) if n > 1 else discard)
        assert first.killed == (n > 1)
        count = max(count, len(first.steps))
        if paths.partial.exists() or paths.checkpoint.exists():
            assert bench.do(discard).well
        assert names_in(paths.final.parent) == [paths.lock.name]
        n += 1
    assert count > 5
    assert bench.do(order).well
    assert contents(paths.final) == bench.quiet


@pytest.mark.parametrize("mode", ["torn", "power"])
def test_a_repair_killed_at_any_step_is_completed_by_another(bench: Bench, mode: Mode):
    order = replace(bench.order(chunk=LARGE), action="repair")
    final = Path(order.output)
    names = ("packed_experts/layer_00.bin", "tokenizer/tokenizer.json")
    count = n = 1
    while n <= count:
        shutil.copytree(bench.folder / "quiet" / "x.gturbo", final)
        for name in names:
            (final / name).write_bytes(b"damaged")
        first = bench.do(replace(order, mode=mode, step=n) if n > 1 else order)
        count = max(count, len(first.steps))
        for name in bench.quiet.keys() - {"receipt"}:
            data = (final / name).read_bytes()
            assert data == bench.quiet[name] or (name in names and data == b"damaged")
        second = bench.do(order)
        assert second.well, second
        assert contents(final) == bench.quiet
        assert names_in(final.parent) == LEFT
        shutil.rmtree(final.parent)
        n += 1 + (mode == "power")
    assert count > 50


def test_an_install_killed_at_random_instants_fetches_no_recorded_range_again(bench: Bench):
    at_random_instants(bench, count=20, connections=1)


@pytest.mark.slow
@pytest.mark.parametrize("connections", [1, 4])
def test_an_install_is_completed_after_each_of_two_hundred_kills(bench: Bench, connections: int):
    at_random_instants(bench, count=200, connections=connections)


@pytest.mark.slow
@pytest.mark.parametrize(("connections", "overwrite"), [(4, False), (1, True)])
@pytest.mark.parametrize("mode", ["before", "torn", "power"])
def test_a_download_of_many_ranges_is_completed_after_any_step(bench, mode, connections, overwrite):
    sweep(bench, bench.order(remote=True, connections=connections, overwrite=overwrite), mode)


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "error", "every"), [(*disk, 3) for disk in DISKS])
def test_a_download_of_many_ranges_survives_a_disk_that_fails(bench, mode, error, every):
    growing = error == errno.ENOSPC
    sweep(bench, bench.order(remote=True, error=error, growing=growing), mode, every=every)


def at_random_instants(bench: Bench, *, count: int, connections: int) -> None:
    order = bench.order(remote=True, connections=connections)
    bench.steps(order)
    chance = random.Random(connections)
    killed = 0
    for _ in range(count):
        outcome = bench.check(replace(order, kill_after=chance.uniform(0.001, 0.12)))
        killed += outcome.killed
    assert killed > count / 4
