"""Libraries that tests load before all others, to get between a process and its system."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def compiled(source: Path, folder: Path) -> Path:
    """A C file as a library in `folder`; skips the test where that cannot be."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs a C compiler and LD_PRELOAD")
    library = folder / f"{source.stem}.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library
