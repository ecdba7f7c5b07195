"""Making a finished install visible: one rename, or one atomic swap with the old install."""

import ctypes
import os
import shutil
import sys
from pathlib import Path

from mference.errors import PromotionUnsupported
from mference.store.writing import sync_directory

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_RENAME_SWAP = 2


def promote(partial: Path, final: Path) -> None:
    """Put a finished directory at its final path; an old one there is replaced, then removed.

    At every moment `final` is the old install or the new one, complete. Raises
    `PromotionUnsupported`, with the old install untouched, where directories cannot be swapped.
    """
    if final.exists():
        exchange(partial, final)
        sync_directory(final.parent)
        shutil.rmtree(partial)
    else:
        partial.rename(final)
    sync_directory(final.parent)


def exchange(first: Path, second: Path) -> None:
    """Swap two directories atomically. Raises `PromotionUnsupported`."""
    try:
        function, arguments = _swap_call(os.fsencode(first), os.fsencode(second))
        result = function(*arguments)
        reason = os.strerror(ctypes.get_errno())
    except AttributeError:
        result, reason = -1, "the system has no such call"
    if result != 0:
        raise PromotionUnsupported(
            f"cannot swap {first.name} with {second.name} on this file system ({reason}). The old "
            "install is untouched. Remove it, or install to another path."
        )


def _swap_call(
    first: bytes, second: bytes
) -> tuple["ctypes._NamedFuncPointer", tuple[int | bytes, ...]]:
    library = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "darwin":
        return library.renamex_np, (first, second, _RENAME_SWAP)
    return library.renameat2, (_AT_FDCWD, first, _AT_FDCWD, second, _RENAME_EXCHANGE)
