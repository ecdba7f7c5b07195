"""Carrying out one range: read it and place its parts; and digesting what was written."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from mference.installer.plan import Copy, Range, digest_headers
from mference.installer.source import BLOCK, Source, blocks

DEFAULT_SCRATCH = BLOCK
MAX_SCRATCH = 1_048_575


def copy_range(
    source: Source,
    r: Range,
    size: int,
    root: Path,
    *,
    scratch: int = DEFAULT_SCRATCH,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Write every part of a range into the files below `root`.

    The bytes go from the source straight to their places; at most `scratch` output bytes are in
    memory. `size` is that of the whole shard, `progress` is called with source bytes. Nothing is
    forced to the disk yet. Raises the `InstallError` branch and `OSError`.
    """
    with ExitStack() as stack:
        outputs: dict[str, int] = {}
        for part in r.parts:
            if part.path not in outputs:
                output = os.open(root / part.path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                stack.callback(os.close, output)
                outputs[part.path] = output
        placed = _Placement(r.offset, [_Part(p, outputs[p.path], scratch) for p in r.parts])

        def take(block: bytes) -> None:
            placed.take(block)
            if progress:
                progress(len(block))

        source.read(r.shard, r.offset, r.size, size, take)


def digested_bytes(
    r: Range, root: Path, scratch: int, progress: Callable[[int], None] | None = None
) -> Iterator[bytes]:
    """What the digest of a range is over: its headers, and what the files below `root` hold.

    At most `scratch` bytes at a time; `progress` is called with those of files. Raises
    `CheckpointError` if a file is too short or cannot be read, and `OSError`.
    """
    for header, part in zip(digest_headers(r), r.parts, strict=True):
        yield header
        descriptor = os.open(root / part.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for block in blocks(
                descriptor, part.destination_offset, part.output_size, scratch, part.path
            ):
                yield block
                if progress:
                    progress(len(block))
        finally:
            os.close(descriptor)


class _Placement:
    """Gives each part the bytes that belong to it, of blocks that come in the shard's order."""

    def __init__(self, start: int, parts: Iterable["_Part"]) -> None:
        self._at = start
        self._waiting = sorted(parts, key=lambda p: p.copy.source_offset, reverse=True)
        self._open: list[_Part] = []

    def take(self, block: bytes) -> None:
        start, end = self._at, self._at + len(block)
        while self._waiting and self._waiting[-1].copy.source_offset < end:
            self._open.append(self._waiting.pop())
        view = memoryview(block)
        for part in self._open:
            first, last = part.copy.source_offset, part.copy.source_end
            part.write(view[max(0, first - start) : min(end, last) - start])
        self._open = [part for part in self._open if part.copy.source_end > end]
        self._at = end


class _Part:
    """One part of a range on its way into an open file."""

    def __init__(self, copy: Copy, output: int, scratch: int) -> None:
        self.copy = copy
        self._output = output
        self._at = copy.destination_offset
        self._tile = copy.transform.tile(scratch)
        self._rest = b""

    def write(self, data: memoryview) -> None:
        if self.copy.transform.is_identity:
            self._write(data)
            return
        whole = self._rest + data
        end = len(whole) - len(whole) % self.copy.transform.unit
        for start in range(0, end, self._tile):
            tile = whole[start : min(end, start + self._tile)]
            self._write(memoryview(self.copy.transform.apply(tile)))
        self._rest = whole[end:]

    def _write(self, data: memoryview) -> None:
        while data:
            count = os.pwrite(self._output, data, self._at)
            data = data[count:]
            self._at += count
