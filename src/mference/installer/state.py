"""What may lie at an output path when an install starts, and how saved state is discarded."""

import shutil
import stat
from pathlib import Path

from mference.errors import (
    InstallError,
    StateCorrupt,
    StateIncompatible,
    StateMissing,
    UnsafePath,
)
from mference.installer.advice import HOW_TO_DISCARD, HOW_TO_RESUME
from mference.installer.listing import is_install
from mference.installer.lock import InstallLock
from mference.installer.paths import InstallPaths, RepairPaths, prepared_paths
from mference.store.writing import temporary_of


def check_kinds(paths: InstallPaths) -> None:
    """Check that each path is absent or what it should be; a symlink never is.

    Raises `UnsafePath`.
    """
    for path, accepts, kind in (
        (paths.final, stat.S_ISDIR, "directory"),
        (paths.partial, stat.S_ISDIR, "directory"),
        (paths.starting, stat.S_ISDIR, "directory"),
        (paths.checkpoint, stat.S_ISREG, "regular file"),
        (paths.lock, stat.S_ISREG, "regular file"),
    ):
        mode = _mode(path)
        if mode is not None and not accepts(mode):
            raise UnsafePath(f"{path} exists and is not a {kind}. Move it away.")


def check_start(paths: InstallPaths, *, overwrite: bool = False, resume: bool = False) -> None:
    """Check, before any byte of the source is asked for, that an install may start.

    Raises `UnsafePath`, also for an old directory that is no install; `InstallError` if the final
    directory exists without `overwrite`; and `StateCorrupt`, `StateMissing` or `StateIncompatible`
    if saved state and `resume` do not fit.
    """
    check_final(paths, overwrite=overwrite)
    partial, checkpoint = paths.partial.exists(), paths.checkpoint.exists()
    if partial != checkpoint:
        found, lost = (
            (paths.partial, paths.checkpoint) if partial else (paths.checkpoint, paths.partial)
        )
        raise StateCorrupt(f"{found.name} exists without {lost.name}. {HOW_TO_DISCARD}")
    if resume and not partial:
        raise _missing(paths)
    if partial and not resume:
        raise StateIncompatible(
            f"an unfinished install of {paths.final} is saved in {paths.partial.name} and must be "
            f"dealt with first. {HOW_TO_RESUME} {HOW_TO_DISCARD}"
        )


def check_final(paths: InstallPaths, *, overwrite: bool) -> None:
    """Check that an install may be put at the final path, now.

    Raises `UnsafePath`, also for an old directory that is no install, and `InstallError` if there
    is an install that is not to be overwritten.
    """
    check_kinds(paths)
    if paths.final.exists() and not overwrite:
        raise InstallError(
            f"{paths.final} exists already. Choose another output, or overwrite it (--overwrite)."
        )
    _check_replaceable(paths.final)


def _check_replaceable(final: Path) -> None:
    """Check that an old directory is an install, whole or damaged, or empty. Raises `UnsafePath`.

    Replacing removes it with everything in it.
    """
    if final.exists() and any(final.iterdir()) and not is_install(final):
        raise UnsafePath(
            f"{final} is not empty and no install, so it is not overwritten. Choose another "
            "output, or move it away."
        )


def discard_partial(output: str | Path) -> None:
    """Remove the saved state of an unfinished install or repair of `output`, and nothing else.

    Raises `StateMissing` if there is none, `Locked` while an install runs, `UnsafePath`.
    """
    paths = prepared_paths(output)
    with InstallLock(paths.lock):
        found = False
        for state in (paths, RepairPaths(paths.final)):
            check_kinds(state)
            found |= any(p.exists() for p in (state.partial, state.checkpoint, state.starting))
            remove_partial(state)
        if not found:
            raise _missing(paths)


def remove_partial(paths: InstallPaths) -> None:
    """Remove the partial directory and the checkpoint, whichever exist. Raises `OSError`.

    The checkpoint goes last: a partial directory without one could not be told from a stranger's.
    """
    for folder in (paths.starting, paths.partial):
        if folder.exists():
            shutil.rmtree(folder)
    for file in (temporary_of(paths.checkpoint), paths.checkpoint):
        file.unlink(missing_ok=True)


def _missing(paths: InstallPaths) -> StateMissing:
    return StateMissing(
        f"no resumable install state: there is no unfinished install of {paths.final}"
    )


def _mode(path: Path) -> int | None:
    try:
        return path.lstat().st_mode
    except FileNotFoundError:
        return None
