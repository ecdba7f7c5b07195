"""Opens the core of an install the way tests need it."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

from mference import _core
from mference.engine import build_core
from mference.store import open_install


def open_core(path: Path, **options: Any) -> _core.Model:
    """The C++ model of an install, pinned or not. Options are those of `build_core`."""
    install = open_install(path, allow_unpinned=True, warn=lambda _line: None)
    return build_core(install, **options)


def core_arguments(path: Path, **options: Any) -> dict[str, Any]:
    """What `open_core` would hand to `_core.Model`, for a test to spoil."""
    captured: dict[str, Any] = {}
    with patch.object(_core, "Model", lambda **arguments: captured.update(arguments)):
        open_core(path, **options)
    return captured
