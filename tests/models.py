"""Opens the core of an install the way tests need it."""

from pathlib import Path
from typing import Any

from mference import _core
from mference.engine import build_core
from mference.store import open_install


def open_core(path: Path, **options: Any) -> _core.Model:
    """The C++ model of an install, pinned or not. Options are those of `build_core`."""
    install = open_install(path, allow_unpinned=True, warn=lambda _line: None)
    return build_core(install, **options)
