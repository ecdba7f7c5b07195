"""Where an install and its work files lie, and which names and addresses are acceptable."""

import os
import sys
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from mference.errors import CheckpointError, InstallError
from mference.jsontext import is_unicode


@dataclass(frozen=True)
class InstallPaths:
    """The final directory of an install and the siblings it needs while it is made."""

    final: Path

    @property
    def partial(self) -> Path:
        """The directory in which an install grows; it exists together with `checkpoint`."""
        return self._sibling(".partial")

    @property
    def starting(self) -> Path:
        """The partial directory until its files and the checkpoint exist."""
        return self._sibling(".partial.new")

    @property
    def lock(self) -> Path:
        """The lock file: empty, left behind after use."""
        return self._sibling(".install.lock")

    @property
    def checkpoint(self) -> Path:
        """The record of the ranges already copied."""
        return self._sibling(".resume.json")

    @property
    def staging(self) -> Path:
        """Where the format lets a writer stage a range; this one has no need of it."""
        return self.partial / ".range.tmp"

    @property
    def metadata(self) -> Path:
        """Copies of the source's index and config while the install is made."""
        return self.partial / ".remote-metadata"

    def _sibling(self, suffix: str) -> Path:
        return self.final.with_name(self.final.name + suffix)


def sibling_paths(output: str | Path) -> InstallPaths:
    """The paths of an install at `output`, by name alone: `.` and `..` removed, base name NFC.

    Raises `InstallError` if no usable base name remains.
    """
    text = os.fspath(output)
    normal = os.path.normpath(text) if text else ""
    parent, name = os.path.split(normal)
    name = unicodedata.normalize("NFC", name)
    if name in ("", ".", "..") or "\0" in text or not is_unicode(name):
        raise InstallError(f"'{text}' is no usable output directory; name one such as x.gturbo")
    return InstallPaths(Path(parent) / name)


def prepared_paths(output: str | Path) -> InstallPaths:
    """As `sibling_paths`, with the parent directory created and resolved to its physical path.

    Raises `InstallError` if the parent cannot be created.
    """
    final = sibling_paths(output).final
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        return _resolved(final)
    except OSError as exc:
        raise InstallError(f"cannot create the directory {final.parent}: {exc.strerror}") from exc


def planned_paths(output: str | Path) -> InstallPaths:
    """As `prepared_paths`, for a look only: nothing is created. Raises `InstallError`."""
    return _resolved(sibling_paths(output).final)


def _resolved(final: Path) -> InstallPaths:
    try:
        place = final.parent.resolve() / final.name
    except RuntimeError:  # up to Python 3.12
        raise InstallError(f"{final.parent} is a symlink that leads to itself") from None
    if not is_unicode(str(place)):
        raise InstallError(f"'{place}' is not UTF-8; choose an output whose whole path is")
    return InstallPaths(place)


def default_output(name: str) -> Path:
    """Where an entry is installed when no output is named.

    `$MFERENCE_HOME`, else the platform's place for application data; below it `<name>.gturbo`.
    """
    if home := os.environ.get("MFERENCE_HOME"):
        return Path(home) / f"{name}.gturbo"
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        base = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return base / "mference" / f"{name}.gturbo"


def is_inside(root: str, path: str) -> bool:
    """Whether `path` lies strictly below `root`, judged by the names alone."""
    top, inner = os.path.normpath(root), os.path.normpath(path)
    return inner.startswith(top + os.sep)


def check_remote_name(name: str) -> str:
    """The name, if a source file may be called so. Raises `CheckpointError` (`unsafe_name`)."""
    parts = name.split("/")
    if (
        any(part in ("", ".", "..") for part in parts)
        or any(c in name for c in "?#\\\0")
        or not is_unicode(name)
    ):
        raise CheckpointError(f"{name!r} is no acceptable name of a source file", "unsafe_name")
    return name


def check_repo_id(repo: str) -> str:
    """The id, if it is `<owner>/<name>`. Raises `InstallError`."""
    parts = repo.split("/")
    if len(parts) != 2 or not all(parts) or ".." in repo or any(c in repo for c in "?#\\\0"):
        raise InstallError(f"{repo!r} is no repository id; it must be '<owner>/<name>'")
    return repo


def file_url(base: str, name: str) -> str:
    """The address of a source file below a base address. Raises `CheckpointError`."""
    return f"{base.rstrip('/')}/{quote(check_remote_name(name))}"
