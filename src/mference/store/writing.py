"""Writing so that a crash leaves either the old bytes or the new ones, and no stray files."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


def write_durably(path: Path, data: bytes) -> None:
    """Create or replace a file and force its bytes to the disk; a symlink there is replaced.

    Raises `OSError`.
    """
    with new_file(path) as file:
        file.write(data)


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A new file to write, whose bytes are on the disk when the context ends; an old one goes.

    Raises `OSError`.
    """
    path.unlink(missing_ok=True)
    with path.open("xb") as file:
        yield file
        file.flush()
        sync_file(file.fileno())


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file via `<file>.tmp` and rename, with the directory entry forced to the disk.

    A failure leaves the old file and no other. Raises `OSError`.
    """
    temporary = temporary_of(path)
    try:
        write_durably(temporary, data)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_directory(path.parent)


def temporary_of(path: Path) -> Path:
    """The file by which `write_atomically` replaces `path`; a process that is killed leaves it."""
    return path.with_name(path.name + ".tmp")


def sync_file(descriptor: int) -> None:
    """Force an open file's bytes to the disk, past its own cache. Raises `OSError`."""
    full = getattr(fcntl, "F_FULLFSYNC", None)  # on macOS, where fsync stops at the disk's cache
    if full is not None:
        with suppress(OSError):  # network file systems know no such thing
            fcntl.fcntl(descriptor, full)
            return
    os.fsync(descriptor)


def sync_directory(path: Path) -> None:
    """Force a directory's entries to the disk. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
