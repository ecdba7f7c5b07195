"""Removing an install so that no moment leaves half of one at its path."""

import os
import shlex
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mference.errors import InstallError, StoreError, UnsafePath
from mference.installer.listing import Listed, found_at, is_install, is_unfinished, owner
from mference.installer.lock import InstallLock
from mference.installer.paths import InstallPaths, RepairPaths, planned_paths
from mference.installer.state import remove_partial
from mference.store.directory import MANIFEST
from mference.store.manifest import decode_manifest
from mference.store.opening import read_manifest_bytes
from mference.store.verify import unexpected_files
from mference.store.writing import sync_directory


@dataclass(frozen=True)
class Removal:
    """What is removed at `path`: the install, what an unfinished one left, or both.

    `others` are files in the install's directory that are no part of it, and are removed too.
    """

    path: Path
    found: tuple[Listed, ...]
    others: tuple[str, ...]

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return sum(listed.size for listed in self.found)


def remove_install(
    path: str | Path, confirm: Callable[[Removal], bool] = lambda _: True
) -> Removal | None:
    """Remove an install, whole or damaged, and what an unfinished one left at its path.

    `confirm` is asked once nothing can change any more what is removed; if it says no, nothing is,
    and None is returned. The directory is renamed before it is deleted; if that is interrupted,
    removing again goes on. Nothing outside it is touched but the installer's own files beside it.

    Raises `UnsafePath` for a symlink and for what is no install, `Locked` while an install runs,
    `InstallError` if there is nothing or the system refuses.
    """
    paths = planned_paths(path)
    _look(paths)  # nothing is created beside what is no install
    if not os.access(paths.final.parent, os.W_OK | os.X_OK):
        raise InstallError(
            f"{paths.final} cannot be removed: you may not write to {paths.final.parent}"
        )
    unlock = not os.path.lexists(paths.lock)
    with InstallLock(paths.lock):
        try:
            removal = _look(paths)
            if not confirm(removal):
                return None
            _remove(paths)
            unlock = True
            return removal
        finally:
            if unlock:
                paths.lock.unlink(missing_ok=True)


def _look(paths: InstallPaths) -> Removal:
    _check_kinds(paths)
    final = paths.final
    install = final.with_name(owner(final.name))
    if install != final:
        raise UnsafePath(
            f"{final} is a work file of the install {install.name}. Remove them together: mference "
            f"remove {shlex.quote(str(install))}"
        )
    if final.exists() and not is_install(final):
        raise UnsafePath(
            f"{final} is no install, or has other files and no readable {MANIFEST}, so it is not "
            "removed. Check the path, or delete it yourself."
        )
    found = found_at(paths)
    if not found:
        raise InstallError(f"there is no install at {final}. 'mference list' shows where some are.")
    return Removal(final, found, _others(final))


def _check_kinds(paths: InstallPaths) -> None:
    for path, accepts, kind in (
        (paths.final, stat.S_ISDIR, "directory"),
        (paths.partial, stat.S_ISDIR, "directory"),
        (paths.removing, stat.S_ISDIR, "directory"),
        (paths.checkpoint, stat.S_ISREG, "regular file"),
    ):
        try:
            mode = path.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        if stat.S_ISLNK(mode):
            raise UnsafePath(f"{path} is a symlink. Name the directory it leads to, or unlink it.")
        if not accepts(mode):
            raise UnsafePath(f"{path} is not a {kind}, so nothing is removed. Check the path.")


def _others(directory: Path) -> tuple[str, ...]:
    try:
        manifest = decode_manifest(read_manifest_bytes(directory))
    except StoreError:
        return ()
    return unexpected_files(directory, manifest)


def _remove(paths: InstallPaths) -> None:
    try:
        _delete(paths.removing)
        if paths.final.exists():
            _set_aside(paths.final, paths)
            _delete(paths.removing)
        if is_unfinished(paths):
            if paths.partial.exists():
                _set_aside(paths.partial, paths)
            _delete(paths.removing)
        for state in (paths, RepairPaths(paths.final)):
            remove_partial(state)
        sync_directory(paths.final.parent)
    except OSError as exc:
        error = InstallError(f"{paths.final} cannot be removed: {exc.strerror} ({exc.filename})")
        if paths.removing.exists():
            error.add_note(f"What is left is in {paths.removing}. Removing again goes on.")
        raise error from exc


def _set_aside(directory: Path, paths: InstallPaths) -> None:
    directory.rename(paths.removing)
    sync_directory(paths.removing.parent)


def _delete(directory: Path) -> None:
    if directory.exists():
        # First what makes it an install, should the rest not come to an end.
        (directory / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(directory)
