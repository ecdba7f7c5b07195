"""Where a checkpoint comes from: the protocol the installer reads by, and a folder."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from mference.errors import CheckpointError, SourceMismatch
from mference.installer.paths import check_remote_name

DEMO_CHECKPOINT = Path(__file__).resolve().parents[1] / "demo" / "checkpoint"


class Source(Protocol):
    """A checkpoint's files by name. All methods raise the `InstallError` branch."""

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

    def open_range(
        self, name: str, offset: int, length: int, size: int, staging: Path
    ) -> AbstractContextManager[tuple[int, int]]:
        """A file descriptor and the offset in it at which [offset, offset + length) begins.

        `size` is that of the whole file. A source that must fetch the bytes puts them into
        `staging`, which does not exist before and not after.
        """
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

    @contextmanager
    def open_range(
        self,
        name: str,
        offset: int,
        length: int,  # noqa: ARG002 - the reader stops by itself
        size: int,
        staging: Path,  # noqa: ARG002
    ) -> Iterator[tuple[int, int]]:
        """The file itself, at the offset: nothing is staged. Raises `CheckpointError`."""
        path = self._folder / check_remote_name(name)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as exc:
            raise CheckpointError(f"cannot read {path}: {exc.strerror}", "missing_file") from exc
        try:
            if os.fstat(descriptor).st_size != size:
                raise CheckpointError(f"{path} changed its size while it was read", "changed")
            yield descriptor, offset
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Nothing to release."""


def read_range(
    source: Source, name: str, offset: int, length: int, size: int, staging: Path
) -> bytes:
    """The bytes [offset, offset + length) of a source file of `size` bytes, for small reads.

    Raises the `InstallError` branch; `CheckpointError` (`truncated`) if the file ends early.
    """
    with source.open_range(name, offset, length, size, staging) as (descriptor, start):
        return b"".join(bytes(block) for block in blocks(descriptor, start, length, length, name))


def blocks(descriptor: int, start: int, length: int, block: int, name: str) -> Iterator[bytes]:
    """The bytes [start, start + length) of an open file, `block` at a time.

    Raises `CheckpointError` (`truncated`) if the file ends early.
    """
    end = start + length
    while start < end:
        data = os.pread(descriptor, min(block, end - start), start)
        if not data:
            raise CheckpointError(f"{name} ends {end - start} bytes too early", "truncated")
        start += len(data)
        yield data


def read_small(source: Source, name: str, cap: int, staging: Path) -> bytes | None:
    """The whole of a file of at most `cap` bytes, None if there is none.

    Raises `CheckpointError` (`too_large`) above the cap.
    """
    size = source.size(name)
    if size is None:
        return None
    if size > cap:
        raise CheckpointError(f"{name} has {size} bytes, at most {cap} are accepted", "too_large")
    return read_range(source, name, 0, size, size, staging) if size else b""
