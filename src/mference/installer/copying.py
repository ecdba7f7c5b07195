"""Copying the ranges of an install over several connections, and hashing each file once whole.

Each connection is a thread that carries out one range after another. What they wrote is read back,
while the system still holds it, by threads that hash: each range for its digest, and each file once
it is whole. Another thread forces the digested ranges to the disk, all that have come together
while it did so the last time, so that nobody waits for the disk. The calling thread records what is
done: it alone writes the journal, reports progress, and can be interrupted.
"""

import errno
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Event, Thread

from mference.errors import CheckpointError, HttpError, NoSpace
from mference.installer.hashing import THREADS, Message, hash_messages
from mference.installer.http_rules import is_retryable
from mference.installer.journal import CompletedRange, Journal, write_journal
from mference.installer.plan import Range, RangePlan
from mference.installer.run import Progress, Run
from mference.installer.source import Interrupted
from mference.installer.space import free_space, unallocated
from mference.installer.transfer import copy_range, digested_bytes
from mference.store.directory import WEIGHTS, file_blocks
from mference.store.manifest import FileRecord
from mference.store.writing import forget_pages, sync_file

_REPORT_INTERVAL_S = 0.1
_CONNECTION_PATIENCE_S = 5.0
_DISK_PATIENCE_S = 30.0


@dataclass(frozen=True)
class _Copied:
    range: Range
    digest: str


@dataclass(frozen=True)
class _Synced:
    ranges: list[_Copied]


@dataclass(frozen=True)
class _Hashed:
    path: str
    sha256: str


@dataclass(frozen=True)
class _Failed:
    """What ended a thread; `range` is what it was copying, if it was."""

    error: BaseException
    range: Range | None = None


_Event = _Copied | _Synced | _Hashed | _Failed


def copy_ranges(
    run: Run, plan: RangePlan, journal: Journal
) -> tuple[Journal, dict[str, FileRecord]]:
    """Copy every range that the journal lacks; the full journal, and each output's size and hash.

    A connection that fails in a way that may pass gives its range to the others; only when none
    is left does the install fail. Whatever ends the copy, the ranges that are on the disk by then
    are recorded. Raises the `InstallError` branch, `OSError`, and `KeyboardInterrupt`.
    """
    copying = _Copying(run, plan, journal)
    try:
        copying.start()
        copying.finish()
    except BaseException:
        copying.abandon()
        raise
    copying.stop()
    return copying.journal, {
        path: FileRecord(size, copying.hashes[path]) for path, size in plan.outputs.items()
    }


def in_store_order(plan: RangePlan, ranges: Iterable[Range]) -> list[Range]:
    """Ranges in an order in which one layer file after another becomes whole.

    First those that fill common weights alone, then layer by layer what fills experts, with what
    else lies between them in the source: of that, most is common weights, which end last.
    """
    rank = {path: i for i, path in enumerate(plan.outputs)}

    def key(r: Range) -> tuple[int, tuple[int, int]]:
        layers = (rank[part.path] for part in r.parts if part.path != WEIGHTS)
        first = min((rank[part.path], part.destination_offset) for part in r.parts)
        return min(layers, default=-1), first

    return sorted(ranges, key=key)


class _Copying:
    """The threads of one copy and what they have done."""

    def __init__(self, run: Run, plan: RangePlan, journal: Journal) -> None:
        self.journal = journal
        self.hashes: dict[str, str] = {}
        self._run, self._plan = run, plan
        copied = {done.id for done in journal.completed}
        self._left = {r.id: r for r in plan.ranges if r.id not in copied}
        self._sizes = {r.shard: self._shard_size(r.shard) for r in self._left.values()}
        self._unfilled = Counter(
            path for r in self._left.values() for path in {part.path for part in r.parts}
        )
        self._before = sum(r.size for r in plan.ranges) - sum(r.size for r in self._left.values())
        self._ranges: SimpleQueue[Range | None] = SimpleQueue()
        self._messages: SimpleQueue[Message | None] = SimpleQueue()
        self._unsynced: SimpleQueue[_Copied | None] = SimpleQueue()
        self._events: SimpleQueue[_Event] = SimpleQueue()
        self._stopped = Event()
        count = min(run.limits.connections, len(self._left))
        self._copied_bytes = [0] * count
        self._hashed_bytes = 0
        self._connections = count
        self._written = journal
        self._forgotten: set[str] = set()
        self._copy_ended = False
        self._serving = [Thread(target=self._serve, args=(i,), daemon=True) for i in range(count)]
        self._hashing = [Thread(target=self._hash, daemon=True) for _ in range(THREADS)]
        self._syncing = [Thread(target=self._sync, daemon=True)]

    def start(self) -> None:
        for r in in_store_order(self._plan, self._left.values()):
            self._ranges.put(r)
        for path in self._plan.outputs:
            if not self._unfilled[path]:
                self._hash_file(path)
        for thread in (*self._serving, *self._hashing, *self._syncing):
            thread.start()

    def finish(self) -> None:
        """Record results until there are no more to come."""
        while self._left or len(self.hashes) < len(self._plan.outputs):
            for event in self._next_events():
                match event:
                    case _Copied():
                        self._fill(event.range)
                    case _Synced():
                        self._record(event.ranges)
                        self._check_room()
                    case _Hashed():
                        self.hashes[event.path] = event.sha256
                    case _Failed():
                        self._give_up_or_go_on(event)
            self._report()

    def stop(self) -> None:
        """End the threads, each kind once there is no more work for it from the kind before it.

        One that hangs in a connection is left to its time-out.
        """
        self._stopped.set()
        for threads, queue, patience in (
            (self._serving, self._ranges, _CONNECTION_PATIENCE_S),
            (self._hashing, self._messages, _DISK_PATIENCE_S),
            (self._syncing, self._unsynced, _DISK_PATIENCE_S),
        ):
            deadline = time.monotonic() + patience
            for _ in threads:
                queue.put(None)
            for thread in threads:
                if thread.ident is not None:
                    thread.join(max(0.0, deadline - time.monotonic()))

    def abandon(self) -> None:
        """End the threads now, and record what they had done."""
        self._stopped.set()
        self._run.source.interrupt()
        self.stop()
        synced = [event.ranges for event in self._drained() if isinstance(event, _Synced)]
        with suppress(OSError):
            self._record([copied for ranges in synced for copied in ranges])

    def _shard_size(self, shard: str) -> int:
        size = self._run.source.size(shard, ranged=True)
        if size is None:
            raise CheckpointError(f"{shard} disappeared from the source", "missing_file")
        return size

    def _serve(self, connection: int) -> None:
        def advance(count: int) -> None:
            if self._stopped.is_set():
                raise Interrupted
            self._copied_bytes[connection] += count

        while (r := self._ranges.get()) is not None and not self._stopped.is_set():
            before = self._copied_bytes[connection]
            try:
                copy_range(
                    self._run.source,
                    r,
                    self._sizes[r.shard],
                    self._run.paths.partial,
                    scratch=self._run.limits.scratch,
                    progress=advance,
                )
            except BaseException as exc:
                self._copied_bytes[connection] = before
                self._events.put(_Failed(exc, r))
                return
            self._digest(r)

    def _digest(self, r: Range) -> None:
        def done(digest: str) -> None:
            copied = _Copied(r, digest)
            self._events.put(copied)
            self._unsynced.put(copied)

        pieces = digested_bytes(r, self._run.paths.partial, self._run.limits.scratch)
        self._messages.put(Message(pieces, done))

    def _hash_file(self, path: str) -> None:
        def pieces() -> Iterator[memoryview]:
            for block in file_blocks(self._run.paths.partial / path):
                if self._stopped.is_set():
                    return
                yield block
                self._hashed_bytes += len(block)

        def done(found: str) -> None:
            if not self._stopped.is_set():
                self._events.put(_Hashed(path, found))

        self._messages.put(Message(pieces(), done))

    def _hash(self) -> None:
        try:
            hash_messages(self._messages)
        except BaseException as exc:
            self._events.put(_Failed(exc))

    def _sync(self) -> None:
        try:
            for ranges in self._gathered():
                for path in {part.path for copied in ranges for part in copied.range.parts}:
                    with (self._run.paths.partial / path).open("rb") as file:
                        sync_file(file.fileno())
                self._events.put(_Synced(ranges))
                self._forget_hashed()
        except BaseException as exc:
            self._events.put(_Failed(exc))

    def _gathered(self) -> Iterator[list[_Copied]]:
        """Ranges that were digested within the same moment; the last ones at once."""
        expected = len(self._left)
        while (copied := self._unsynced.get()) is not None:
            ranges = [copied]
            deadline = time.monotonic() + self._run.limits.gather
            while copied and len(ranges) < expected:
                try:
                    copied = self._unsynced.get(timeout=max(0.0, deadline - time.monotonic()))
                except Empty:
                    break
                ranges += [copied] if copied else []
            expected -= len(ranges)
            yield ranges
            if copied is None:
                return

    def _forget_hashed(self) -> None:
        """Free the memory that holds files which nobody reads again, for those still to come."""
        for path in set(self.hashes) - self._forgotten:
            with (self._run.paths.partial / path).open("rb") as file:
                forget_pages(file.fileno())
            self._forgotten.add(path)

    def _next_events(self) -> Iterator[_Event]:
        with suppress(Empty):
            yield self._events.get(timeout=_REPORT_INTERVAL_S)
        yield from self._drained()

    def _drained(self) -> Iterator[_Event]:
        with suppress(Empty):
            while True:
                yield self._events.get_nowait()

    def _give_up_or_go_on(self, failure: _Failed) -> None:
        error = failure.error
        self._connections -= failure.range is not None
        if failure.range is None or not self._connections or not _may_pass(error):
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise self._no_space(free_space(self._run.paths.partial)) from error
            raise error
        self._ranges.put(failure.range)

    def _record(self, copied: list[_Copied]) -> None:
        self.journal = self.journal.with_ranges(
            CompletedRange(e.range.id, e.digest, e.range.size, e.range.output_size) for e in copied
        )
        if self.journal != self._written:
            write_journal(self._run.paths.checkpoint, self.journal)
            self._written = self.journal
        for event in copied:
            del self._left[event.range.id]

    def _fill(self, r: Range) -> None:
        """Have each file hashed that has become whole."""
        for path in dict.fromkeys(part.path for part in r.parts):
            self._unfilled[path] -= 1
            if not self._unfilled[path]:
                self._hash_file(path)

    def _check_room(self) -> None:
        """Stop before a disk that others fill too is quite full."""
        free = free_space(self._run.paths.partial)
        if free < min(self._unallocated(), self._run.entry.reserve_bytes):
            raise self._no_space(free)

    def _unallocated(self) -> int:
        """Bytes that the outputs have yet to take on the disk."""
        return unallocated(self._run.paths.partial / path for path in self._plan.outputs)

    def _no_space(self, free: int) -> NoSpace:
        # As much as a resumed install asks for before it begins.
        needed = self._unallocated() + self._plan.chunk + self._run.entry.reserve_bytes
        return NoSpace(
            f"No space left on device for {self._run.paths.partial}: the rest of the install needs "
            f"{needed} bytes, {free} are free; free at least {max(1, needed - free)} more, then "
            "continue"
        )

    def _report(self) -> None:
        if not self._copy_ended:
            self._copy_ended = not self._left
            self._run.report(
                Progress("copy", self._before + sum(self._copied_bytes), self._plan.source_bytes)
            )
        if self._copy_ended:
            total = sum(self._plan.outputs.values())
            done = total if len(self.hashes) == len(self._plan.outputs) else self._hashed_bytes
            self._run.report(Progress("verify", done, total))


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, HttpError) and is_retryable(error)
