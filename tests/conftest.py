"""Fixtures that several parts of the suite share."""

import os

# The references multiply small matrices: a pool of threads costs them more than it gives, most of
# all beside the model's own.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mference
from tests.preloads import compiled


@pytest.fixture(scope="session")
def demo_install(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded model, installed once. Tests that change it make their own copy."""
    path = tmp_path_factory.mktemp("demo") / "demo.gturbo"
    mference.install(output=path, entry="demo")
    return path


@pytest.fixture
def demo_model(demo_install: Path) -> Iterator[mference.Model]:
    with mference.load(demo_install) as model:
        yield model


@pytest.fixture(scope="session")
def faults(tmp_path_factory):
    """The library that injects faults into a process; see faults.c."""
    return compiled(Path(__file__).with_name("faults.c"), tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="session")
def run_faulty(faults):
    """Runs a script in a process of its own under the faults named; what it printed."""

    def run(script: str, *arguments: str | Path | int, **variables: int) -> str:
        preloaded = os.environ.get("LD_PRELOAD", "")
        # Only the core may start threads.
        environment = {"OPENBLAS_NUM_THREADS": "1"}
        environment |= {name: str(value) for name, value in variables.items()}
        done = subprocess.run(
            [sys.executable, "-c", script, *map(str, arguments)],
            env=os.environ | environment | {"LD_PRELOAD": f"{preloaded} {faults}".strip()},
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
