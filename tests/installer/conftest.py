"""Fixtures that several tests of the installer share."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def transitions(tmp_path_factory) -> Path:
    """The library that kills and fails at a step; see transitions.c."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs a C compiler and LD_PRELOAD")
    library = tmp_path_factory.mktemp("transitions") / "transitions.so"
    source = Path(__file__).with_name("transitions.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library
