"""Whether the disk can hold an install."""

import errno
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from mference.errors import InstallError, NoSpace


def required_space(output: int, reused: int, chunk: int, reserve: int) -> int:
    """Bytes that must be free: what is still to be written, one chunk, and the reserve.

    Raises `InstallError` if the sum is no 64-bit size.
    """
    need = output - reused + chunk + reserve
    if need >= 2**64 or reused > output:
        raise InstallError(f"{output} bytes of output are no possible size")
    return need


def free_space(folder: Path) -> int:
    """Bytes free on the disk of a folder, or of the first folder above it that exists."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def unallocated(files: Iterable[Path]) -> int:
    """Bytes that files of their full size have yet to take on the disk, as far as it tells."""
    total = 0
    for file in files:
        found = file.stat()
        total += max(0, found.st_size - allocated(found))
    return total


def allocated(file: os.stat_result) -> int:
    """Bytes that a file takes on the disk."""
    return file.st_blocks * 512  # the unit of POSIX, whatever the disk's blocks are


def check_space(required: int, available: int, where: Path) -> None:
    """Raise `NoSpace`, with the shortfall, if fewer bytes are available than required."""
    if available < required:
        raise NoSpace(
            f"{where} has {available} bytes free, the install needs {required}: "
            f"{required - available} more. Free some space, or choose another output."
        )


def named(error: OSError) -> InstallError:
    """The error that tells a user what the system refused."""
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpace(f"{error.strerror}{where}: free some space, then continue")
    return InstallError(f"the install failed: {error.strerror}{where}")
