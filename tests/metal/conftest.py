"""The Metal device, for tests of whole models on it."""

import pytest

from mference import _core


@pytest.fixture(autouse=True)
def _needs_metal() -> None:
    if not hasattr(_core, "metal_device"):
        pytest.skip("this build has no Metal device; CONTRIBUTING.md says which packages it needs")
