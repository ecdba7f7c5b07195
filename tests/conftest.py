"""Fixtures that several parts of the suite share."""

import os

# The references multiply small matrices: a pool of threads costs them more than it gives, most of
# all beside the model's own.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections.abc import Iterator
from pathlib import Path

import pytest

import mference


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
