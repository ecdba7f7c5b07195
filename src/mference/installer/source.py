"""Where a checkpoint comes from: the protocol the installer reads by, and a folder."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from mference.errors import CheckpointError, SourceMismatch
from mference.installer.paths import check_remote_name

DEMO_CHECKPOINT = Path(__file__).resolve().parents[1] / "demo" / "checkpoint"


Sink = Callable[[bytes], None]
BLOCK = 512 << 10


class Interrupted(Exception):  # noqa: N818 - a request, not a failure
    """The reads of a source were told to end; only the one who told them sees it."""


class Source(Protocol):
    """A checkpoint's files by name; reads may be made from several threads at once.

    All methods raise the `InstallError` branch.
    """

    @property
    def description(self) -> str:
        """Where the files are, for people."""
        ...

    @property
    def identity(self) -> str:
        """What ties saved state to this source and no other."""
        ...

    def size(self, name: str, *, ranged: bool = False) -> int | None:
        """Bytes of a file, None if there is none; `ranged` insists on reads of parts."""
        ...

    def read(self, name: str, offset: int, length: int, size: int, sink: Sink) -> None:
        """Give the bytes [offset, offset + length) of a file to `sink`, in order, once each.

        `size` is that of the whole file. No block is longer than `BLOCK`. What `sink` raises
        ends the read and is passed on.
        """
        ...

    def interrupt(self) -> None:
        """Let the reads of other threads end soon, with any exception; no further ones begin."""
        ...

    def close(self) -> None:
        """Release connections."""
        ...


class FolderSource:
    """The files of a local folder; symlinks to files are followed, as hub caches use them.

    Raises `SourceMismatch` if the folder does not exist.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._interrupted = False
        if not self._folder.is_dir():
            raise SourceMismatch(f"{self._folder} is not a folder with a checkpoint in it")

    @property
    def description(self) -> str:
        """The folder."""
        return str(self._folder)

    @property
    def identity(self) -> str:
        """The folder's absolute path."""
        return str(self._folder.absolute())

    def size(self, name: str, *, ranged: bool = False) -> int | None:  # noqa: ARG002
        """Bytes of a file, None if there is no regular file of that name."""
        path = self._folder / check_remote_name(name)
        return path.stat().st_size if path.is_file() else None

    def read(self, name: str, offset: int, length: int, size: int, sink: Sink) -> None:
        """As `Source.read`. Raises `CheckpointError` (`missing_file`, `changed`, `truncated`)."""
        path = self._folder / check_remote_name(name)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as exc:
            raise CheckpointError(f"cannot read {path}: {exc.strerror}", "missing_file") from exc
        try:
            if os.fstat(descriptor).st_size != size:
                raise CheckpointError(f"{path} changed its size while it was read", "changed")
            for block in blocks(descriptor, offset, length, BLOCK, str(path)):
                if self._interrupted:
                    raise Interrupted
                sink(block)
        finally:
            os.close(descriptor)

    def interrupt(self) -> None:
        """Let reads end with their next block."""
        self._interrupted = True

    def close(self) -> None:
        """Nothing to release."""


def read_range(source: Source, name: str, offset: int, length: int, size: int) -> bytes:
    """The bytes [offset, offset + length) of a source file of `size` bytes, for small reads.

    Raises the `InstallError` branch; `CheckpointError` (`truncated`) if the file ends early.
    """
    data = bytearray()
    source.read(name, offset, length, size, data.extend)
    return bytes(data)


def blocks(descriptor: int, start: int, length: int, block: int, name: str) -> Iterator[bytes]:
    """The bytes [start, start + length) of an open file, `block` at a time.

    Raises `CheckpointError` (`truncated`) if the file ends early, or (`unreadable`) if the system
    cannot read it.
    """
    end = start + length
    while start < end:
        try:
            data = os.pread(descriptor, min(block, end - start), start)
        except OSError as exc:
            raise CheckpointError(f"cannot read {name}: {exc.strerror}", "unreadable") from exc
        if not data:
            raise CheckpointError(f"{name} ends {end - start} bytes too early", "truncated")
        start += len(data)
        yield data


def read_small(source: Source, name: str, cap: int) -> bytes | None:
    """The whole of a file of at most `cap` bytes, None if there is none.

    Raises `CheckpointError` (`too_large`) above the cap.
    """
    size = source.size(name)
    if size is None:
        return None
    if size > cap:
        raise CheckpointError(f"{name} has {size} bytes, at most {cap} are accepted", "too_large")
    return read_range(source, name, 0, size, size) if size else b""
