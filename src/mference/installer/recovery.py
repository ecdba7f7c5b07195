"""Putting right what a process that was killed left between two steps of an install."""

import shutil

from mference.installer.journal import read_journal
from mference.installer.paths import InstallPaths
from mference.installer.state import check_kinds, remove_partial
from mference.store.directory import MANIFEST
from mference.store.writing import sync_directory, temporary_of


def recover(paths: InstallPaths) -> bool:
    """Undo or complete a step that was cut in two; needs the lock.

    An install that died before its checkpoint existed leaves nothing; one that died while it was
    being put in its place is there. Returns whether the latter was so. Raises `UnsafePath`,
    `StateCorrupt` and `OSError`.
    """
    check_kinds(paths)
    temporary_of(paths.checkpoint).unlink(missing_ok=True)
    if paths.starting.exists():
        if paths.checkpoint.exists() and not paths.partial.exists():
            paths.starting.rename(paths.partial)
            sync_directory(paths.final.parent)
        else:
            shutil.rmtree(paths.starting)
    if not paths.checkpoint.exists() or not (paths.final / MANIFEST).exists():
        return False
    if read_journal(paths.checkpoint).promoted != paths.final.stat().st_ino:
        return False
    remove_partial(paths)
    sync_directory(paths.final.parent)
    return True
