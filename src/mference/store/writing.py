"""Writing so that a crash leaves either the old bytes or the new ones, and no stray files."""

import ctypes
import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
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


def write_chunks(path: Path, chunks: Iterable[bytes]) -> tuple[int, str]:
    """Write chunks one after another as `write_durably` does; their bytes and hex SHA-256."""
    size, digest = 0, sha256()
    with new_file(path) as file:
        for chunk in chunks:
            file.write(chunk)
            digest.update(chunk)
            size += len(chunk)
    return size, digest.hexdigest()


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


def take_room(descriptor: int, size: int) -> None:
    """Give an open file its size, and its blocks in one piece where the system can do so cheaply.

    Raises `OSError`, also for a disk that has no room.
    """
    reserve = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
    if reserve and reserve(descriptor, 0, ctypes.c_int64(0), ctypes.c_int64(size)) == 0:
        return
    if reserve and (code := ctypes.get_errno()) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        raise OSError(code, os.strerror(code))
    os.ftruncate(descriptor, size)


def forget_pages(descriptor: int) -> None:
    """Let the system use the memory that holds an open file's bytes for something else."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


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
