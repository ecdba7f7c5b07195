"""The embedded demo model: a pocket dictionary in the Gemma 4 architecture.

Its checkpoint is package data; `installed()` puts it through the real installer, once, into the
user's cache directory.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from mference.errors import InstallError, Locked, StateError, StoreError
from mference.installer import Progress, discard_partial, install
from mference.store import Install, open_install

_PATIENCE = 60.0  # seconds to wait for another process that is installing the same model


def cache_directory() -> Path:
    """Where installs that nobody named a place for are kept.

    Raises:
        InstallError: there is no home directory.
    """
    if named := os.environ.get("XDG_CACHE_HOME"):
        return Path(named) / "mference"
    try:
        home = Path.home()
    except RuntimeError:
        raise InstallError(
            "this user has no home directory; name a directory for the demo in XDG_CACHE_HOME"
        ) from None
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "mference"
    return home / ".cache" / "mference"


def installed(progress: Callable[[Progress], None] | None = None) -> Install:
    """The demo's install, opened; made first if it is missing, damaged or of another version.

    Raises:
        InstallError: it could not be installed; says why.
    """
    target = cache_directory() / "demo.gturbo"
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            opened = open_install(target)
            for layer in range(opened.layout.num_layers):
                opened.verify_layer(layer)
            return opened
        except StoreError:
            try:
                install(output=target, entry="demo", overwrite=target.exists(), progress=progress)
            except Locked:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
                continue
            except StateError:
                # An earlier attempt was cut short. A second's work is not worth keeping.
                discard_partial(target)
                continue
        return open_install(target)
