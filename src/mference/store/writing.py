"""Writing small files so that a crash leaves either the old bytes or the new ones."""

import os
from contextlib import suppress
from pathlib import Path


def write_durably(path: Path, data: bytes) -> None:
    """Create or replace a file's contents and force them to the disk. Raises `OSError`."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


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
