"""Compiled libraries by the hash of everything they are made of, shared by all processes."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def default_directory() -> Path:
    """SOFTMETAL_CACHE, or softmetal in the user's cache directory."""
    named = os.environ.get("SOFTMETAL_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "softmetal"


class Cache:
    """Files that appear complete or not at all."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @staticmethod
    def key(*parts: str) -> str:
        """A name for what these texts decide."""
        digest = hashlib.sha256()
        for part in parts:
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part.encode())
        return digest.hexdigest()[:32]

    def get(self, name: str, make: Callable[[Path], None]) -> Path:
        """The file of a name. `make` writes it if it is absent: in one process at a time."""
        path = self.directory / name
        if path.exists():
            return path
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                handle, fresh = tempfile.mkstemp(dir=self.directory, suffix=".partial")
                os.close(handle)
                try:
                    make(Path(fresh))
                    Path(fresh).replace(path)
                finally:
                    Path(fresh).unlink(missing_ok=True)
        return path
