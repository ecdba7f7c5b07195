"""One installer at a time for each output path."""

import errno
import fcntl
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import Self

from mference.errors import InstallError, Locked, UnsafePath

_SIGNATURE = b"process "
_SIGNATURE_CAP = 300


class InstallLock:
    """An advisory lock on a file that is created when needed and left behind.

    While it is held, the file says by whom.
    Opening it holds the lock until `close`, or until the process ends however it ends. Raises
    `Locked` while another process (or another opening) holds it, `UnsafePath` if the path is not
    a regular file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._descriptor = os.open(path, flags, 0o600)
        except OSError as exc:
            if exc.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                raise UnsafePath(f"{path} is not a regular file. Remove it.") from None
            raise InstallError(
                f"cannot write to {path.parent}: {exc.strerror} ({path.name}). Choose an output "
                "in a directory that you may write to."
            ) from exc
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.verify()
            self._sign(f"{_SIGNATURE.decode()}{os.getpid()} on {socket.gethostname()}")
        except BlockingIOError:
            holder = self._holder()
            os.close(self._descriptor)
            raise Locked(
                f"another install is writing {path.name.removesuffix('.install.lock')}{holder}. "
                "Wait for it to finish, or stop it."
            ) from None
        except OSError as exc:
            os.close(self._descriptor)
            raise InstallError(f"cannot lock {path}: {exc.strerror}") from exc
        except BaseException:
            os.close(self._descriptor)
            raise

    def verify(self) -> None:
        """Check that the path still names the file that is locked. Raises `UnsafePath`."""
        held = os.fstat(self._descriptor)
        if not stat.S_ISREG(held.st_mode):
            raise UnsafePath(f"{self._path} is not a regular file. Remove it.")
        try:
            there = self._path.lstat()
        except FileNotFoundError:
            raise UnsafePath(f"{self._path} was removed while it was locked") from None
        if (held.st_dev, held.st_ino) != (there.st_dev, there.st_ino):
            raise UnsafePath(f"{self._path} was replaced while it was being locked")

    def close(self) -> None:
        """Release the lock; the file stays, empty."""
        self._sign("")
        os.close(self._descriptor)

    def _sign(self, name: str) -> None:
        """Write who holds the lock, unless a file of somebody else's lies there."""
        with suppress(OSError):  # a full disk
            if os.pread(self._descriptor, len(_SIGNATURE), 0) in (b"", _SIGNATURE):
                os.ftruncate(self._descriptor, 0)
                os.pwrite(self._descriptor, name.encode(), 0)

    def _holder(self) -> str:
        """Who says that they hold the lock, for messages."""
        try:
            name = os.pread(self._descriptor, _SIGNATURE_CAP, 0).decode()
        except (OSError, UnicodeError):
            name = ""
        return f" ({name})" if name.isprintable() and name else ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
