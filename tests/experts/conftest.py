"""A disk that misbehaves and a system that refuses, through a preloaded library."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def faults(tmp_path_factory):
    """The library that injects faults into a process; see faults.c."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs a C compiler and LD_PRELOAD")
    library = tmp_path_factory.mktemp("faults") / "faults.so"
    source = Path(__file__).with_name("faults.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


@pytest.fixture
def run_faulty(faults):
    """Runs a script in a process of its own under the faults named; what it printed."""

    def run(script: str, *arguments: str | Path, **variables: int) -> str:
        preloaded = os.environ.get("LD_PRELOAD", "")
        # Only the core may start threads.
        environment = {"OPENBLAS_NUM_THREADS": "1"}
        environment |= {name: str(value) for name, value in variables.items()}
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments],
            env=os.environ | environment | {"LD_PRELOAD": f"{preloaded} {faults}".strip()},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
