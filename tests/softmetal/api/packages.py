"""Apple's metal-cpp headers and PyObjC's metadata, from two packages that macOS wheels carry."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

from tests.softmetal.mslc.cache import default_directory

if TYPE_CHECKING:
    from pathlib import Path

_PACKAGES = [
    ("mlx-metal==0.32.4", "macosx_14_0_arm64", "mlx/include/metal_cpp/"),
    ("pyobjc-framework-Metal==12.2.2", "macosx_10_9_universal2", "Metal/_metadata.py"),
]


def fetch() -> Path:
    """The directory they are unpacked in: downloaded once. Raises CalledProcessError without a
    package index."""
    directory = default_directory() / "apple"
    for requirement, platform, wanted in _PACKAGES:
        marker = directory / f"{requirement}.complete"
        if marker.exists():
            continue
        wheels = directory / "wheels"
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
             "--no-deps", "--only-binary=:all:", "--python-version", "3.11",
             "--platform", platform, "--dest", str(wheels), requirement],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        name = requirement.split("==")[0].replace("-", "_").lower()
        wheel = next(w for w in wheels.glob("*.whl") if w.name.lower().startswith(name))
        with zipfile.ZipFile(wheel) as archive:
            names = [n for n in archive.namelist() if n.startswith(wanted)]
            archive.extractall(directory, names)
        wheel.unlink()
        marker.touch()
    return directory
