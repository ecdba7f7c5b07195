"""Any sequence of commands, faults, kills and damage: an install loses nothing and blocks nothing.

Hypothesis chooses the sequence. Every command is a child process of its own.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from errno import EIO, ENOSPC
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from mference.families import ENTRIES
from mference.installer import FolderSource, Limits
from mference.installer.paths import prepared_paths
from mference.installer.plan import Range, RangePlan, digest_headers
from mference.installer.preparation import prepare
from mference.installer.run import Run
from mference.store import verify_install
from mference.store.directory import WEIGHTS
from tests.installer.contents import contents
from tests.installer.forked import Installers, Order, Outcome, installers
from tests.installer.server import Fault, RangeServer, Unrest, serve
from tests.installer.toys import write_source

CHUNK = 6000
STATE = ("StateMissing", "StateIncompatible", "StateCorrupt")
# What an install may end with, beside what its state forbids.
DISK = ("NoSpace", "InstallError", "PromotionUnsupported")
SERVER = ("HttpStatusError", "RangeError", "Unreachable", "BodyTruncated")


@dataclass
class World:
    """A toy on a server and what its installs look like; `digests` are those of its ranges."""

    server: RangeServer
    do: Installers
    folder: Path
    plan: RangePlan
    index: bytes
    digests: dict[str, str]
    quiet: dict[str, bytes]
    old: Path
    previous: dict[str, bytes]


def digest_of(r: Range, files: dict[str, bytes]) -> str:
    digest = sha256()
    for header, part in zip(digest_headers(r), r.parts, strict=True):
        digest.update(header)
        digest.update(files[part.path][part.destination_offset : part.destination_end])
    return digest.hexdigest()


@pytest.fixture(scope="module")
def world(transitions: Path, tmp_path_factory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("sequences")
    other = write_source(folder / "other")
    (other / "tokenizer.json").write_text('{"an": "older one"}')
    with serve(write_source(folder / "source")) as server, installers(transitions) as do:
        for source, name in ((str(other), "old"), (server.base, "quiet")):
            outcome = do(Order(str(folder / name / "x.gturbo"), source, chunk=CHUNK))
            assert outcome.well, outcome
        quiet, previous = (contents(folder / name / "x.gturbo") for name in ("quiet", "old"))
        source, paths = FolderSource(folder / "source"), prepared_paths(folder / "plan.gturbo")
        prepared = prepare(
            Run(
                source,
                ENTRIES["demo"],
                paths,
                allow_unpinned=True,
                limits=Limits(chunk=CHUNK, gather=0),
            )
        )
        digests = {r.id: digest_of(r, quiet) for r in prepared.plan.ranges}
        old = folder / "old" / "x.gturbo"
        yield World(
            server, do, folder, prepared.plan, prepared.index, digests, quiet, old, previous
        )


KILLS = st.builds(
    lambda mode, step: {"mode": mode, "step": step},
    st.sampled_from(["before", "torn", "power"]),
    st.integers(1, 150),
)
FULL = st.builds(
    lambda step: {"mode": "fail from here", "step": step, "error": ENOSPC, "growing": True},
    st.integers(10, 120),
)
BROKEN = st.builds(
    lambda step: {"mode": "fail once", "step": step, "error": EIO}, st.integers(10, 120)
)
PAUSES = st.builds(lambda at: {"pause_at": at}, st.integers(0, 50_000))
TROUBLE = st.one_of(st.just({}), PAUSES, KILLS, FULL, BROKEN)
WEATHER = st.one_of(
    st.none(),
    st.builds(Unrest, st.integers(0, 10**6), st.just(0.3), st.just(False)),
    st.builds(
        lambda fault, skip: (fault, skip),
        st.sampled_from(
            [
                Fault(status=403),
                Fault(status=503),
                Fault(stop="start"),
                Fault(headers={"Content-Range": "bytes 0-0/1"}),
            ]
        ),
        st.integers(0, 10),
    ),
)


SHARE = st.floats(0, 1, exclude_max=True)


def spoil(path: Path, share: float, how: str) -> None:
    """Flip a bit of a file or cut it, at that share of its bytes, or delete it."""
    data = bytearray(path.read_bytes())
    at = int(share * len(data))
    if how == "delete":
        path.unlink()
    elif how == "truncate":
        path.write_bytes(data[:at])
    elif data:
        data[at] ^= 0x01
        path.write_bytes(data)


class Sequence(RuleBasedStateMachine):
    """The commands on one output, by a user who may also spoil what lies there.

    `had` is the install that the user had before, `spoilt` says that saved state was damaged in
    a way that only a refusal can answer.
    """

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.place = Path(tempfile.mkdtemp(dir=world.folder))
        self.paths = prepared_paths(self.place / "x.gturbo")
        self.had: dict[str, bytes] | None = None
        self.spoilt = False

    @initialize(
        old=st.booleans(),
        pause_at=st.one_of(st.none(), st.integers(5_000, 40_000)),
        flip=st.one_of(st.none(), SHARE),
    )
    def begin(self, old: bool, pause_at: int | None, flip: float | None) -> None:
        """Start with an old install or none, and with an interrupted new one, spoilt, or none."""
        if old:
            shutil.copytree(self.world.old, self.paths.final)
            self.had = self.world.previous
        if pause_at:
            order = self.order(overwrite=True, pause_at=pause_at)
            assert self.command(order).error == "KeyboardInterrupt"
            if flip:
                spoil(self.paths.partial / "packed_experts/layer_00.bin", flip, "flip")

    @rule(
        resume=st.booleans(),
        overwrite=st.booleans(),
        connections=st.sampled_from([1, 4]),
        trouble=TROUBLE,
        weather=WEATHER,
    )
    def install(self, resume, overwrite, connections, trouble, weather) -> None:
        how = {"resume": resume, "overwrite": overwrite, "connections": connections, **trouble}
        order = self.order(**how)
        outcome = self.command(order, weather)
        allowed = set(STATE) | {"InstallError"}
        allowed |= {"KeyboardInterrupt"} if "pause_at" in trouble else set()
        allowed |= set(DISK) if "error" in trouble else set()
        allowed |= set(SERVER) if isinstance(weather, tuple) else set()
        assert outcome.killed or outcome.error is None or outcome.error in allowed, outcome
        if outcome.error == "StateCorrupt":
            assert self.spoilt
        if outcome.well:
            self.check_finished()

    @rule()
    def go_on(self) -> None:
        """What the user does next: one command, or two if saved state was spoilt."""
        order = self.order(resume=self.saved, overwrite=self.paths.final.exists())
        outcome = self.command(order)
        if self.spoilt and outcome.error in ("StateCorrupt", "StateIncompatible", "StateMissing"):
            if self.saved:
                self.discard()
            outcome = self.command(replace(order, resume=False))
        assert outcome.well, outcome
        self.check_finished()

    @rule()
    def discard(self) -> None:
        saved = self.saved
        outcome = self.world.do(Order(str(self.paths.final), action="discard", mode="count"))
        assert outcome.well or (not saved and outcome.error == "StateMissing"), outcome
        self.spoilt = False
        assert self.others() <= {"x.gturbo.install.lock"}

    @rule()
    def verify(self) -> None:
        if self.paths.final.exists():
            with tempfile.TemporaryDirectory() as folder:
                copy = shutil.copytree(self.paths.final, Path(folder) / "x.gturbo")
                assert verify_install(copy).unexpected == ()

    # What is drawn never depends on what is there: threads make that differ from run to run.
    @rule(
        file=SHARE, byte=SHARE, how=st.sampled_from(["flip", "flip", "truncate", "delete", "add"])
    )
    def damage(self, file: float, byte: float, how: str) -> None:
        files = sorted(p for p in self.paths.partial.rglob("*") if p.is_file())
        if how == "add" and self.paths.partial.exists():
            (self.paths.partial / "stranger").write_text("from elsewhere")
        elif files:
            spoil(files[int(file * len(files))], byte, how)

    @rule(byte=SHARE, how=st.sampled_from(["flip", "truncate", "delete"]))
    def damage_the_journal(self, byte: float, how: str) -> None:
        if self.paths.checkpoint.exists():
            self.spoilt = True
            spoil(self.paths.checkpoint, byte, how)

    @invariant()
    def the_final_directory_is_an_install_or_absent(self) -> None:
        found = contents(self.paths.final) if self.paths.final.exists() else None
        assert found in (self.had, self.world.quiet)
        self.had = found

    def teardown(self) -> None:
        if self.place.exists():
            self.go_on()
            shutil.rmtree(self.place)

    @property
    def saved(self) -> bool:
        """Whether there is saved state, as far as a user can see."""
        return self.paths.checkpoint.exists() or self.paths.partial.exists()

    def order(self, **how: object) -> Order:
        place, source = str(self.paths.final), self.world.server.base
        return Order(place, source, chunk=CHUNK, **{"mode": "count", **how})

    def others(self) -> set[str]:
        return {p.name for p in self.place.iterdir()} - {"x.gturbo"}

    def command(self, order: Order, weather: Unrest | tuple[Fault, int] | None = None) -> Outcome:
        """Carry out an order; what is recorded and undamaged is not asked for again."""
        server = self.world.server
        good = self.good_ranges() if order.resume else []
        server.forget()
        if isinstance(weather, Unrest):
            server.faults = weather
        elif weather:
            server.arm(weather[0], skip=weather[1], times=10**6)
        outcome = self.world.do(order)
        mine = [a for a in server.asked if a.tensors and a.process == str(outcome.process)]
        for r in good:
            for asked in mine:
                assert (
                    asked.name != r.shard
                    or asked.end <= r.offset
                    or r.offset + r.size <= asked.first
                ), f"{r.id} was asked for again"
        got = sorted(
            (a.name, a.first, a.end)
            for a in server.delivered
            if a.tensors and a.process == str(outcome.process)
        )
        for one, following in pairwise(got):
            assert one[0] != following[0] or one[2] <= following[1]
        return outcome

    def good_ranges(self) -> list[Range]:
        """The ranges that the journal records and whose bytes are as they were written."""
        try:
            journal = json.loads(self.paths.checkpoint.read_bytes())
            recorded = {c["id"]: c["destinationDigest"] for c in journal["completedRanges"]}
            files = {
                name: (self.paths.partial / name).read_bytes() for name in self.world.plan.outputs
            }
        except (OSError, ValueError, KeyError, TypeError):
            return []
        if {name: len(data) for name, data in files.items()} != dict(self.world.plan.outputs):
            return []
        if not files[WEIGHTS].startswith(self.world.index):
            return []
        return [
            r
            for r in self.world.plan.ranges
            if recorded.get(r.id) == self.world.digests[r.id] == digest_of(r, files)
        ]

    def check_finished(self) -> None:
        assert contents(self.paths.final) == self.world.quiet
        assert self.others() == {"x.gturbo.install.lock"}
        self.spoilt = False


QUIET = settings(
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


def test_no_sequence_of_commands_loses_a_byte_or_blocks_the_next(world: World):
    some = settings(QUIET, max_examples=20, stateful_step_count=8, derandomize=True)
    run_state_machine_as_test(lambda: Sequence(world), settings=some)


@pytest.mark.slow
def test_no_long_sequence_of_commands_loses_a_byte_or_blocks_the_next(world: World):
    many = settings(QUIET, max_examples=150, stateful_step_count=25)
    run_state_machine_as_test(lambda: Sequence(world), settings=many)
