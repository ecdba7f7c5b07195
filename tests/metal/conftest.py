"""The Metal device, for tests of whole models on it; its kernels, for tests that change them."""

import shutil
from pathlib import Path

import pytest

from tests.device import support

KERNELS = Path(__file__).parents[2] / "metal"


@pytest.fixture(autouse=True)
def _needs_metal() -> None:
    support.opener("metal")


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """A copy of metal/ of the test's own."""
    return shutil.copytree(KERNELS, tmp_path / "metal")
