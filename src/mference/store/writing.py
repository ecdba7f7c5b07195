"""Writing small files so that a crash leaves either the old bytes or the new ones."""

import os
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path


def write_durably(path: Path, data: bytes) -> None:
    """Create or replace a file's contents and force them to the disk. Raises `OSError`."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_chunks(path: Path, chunks: Iterable[bytes]) -> tuple[int, str]:
    """Write chunks one after another as `write_durably` does; their bytes and hex SHA-256."""
    size, digest = 0, sha256()
    with path.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)
            digest.update(chunk)
            size += len(chunk)
        file.flush()
        os.fsync(file.fileno())
    return size, digest.hexdigest()


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file via `<file>.tmp` and rename, with the directory entry forced to the disk.

    A failure leaves the old file and no other. Raises `OSError`.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        write_durably(temporary, data)
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Force a directory's entries to the disk. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
