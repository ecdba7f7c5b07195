"""What the tests of the model share."""

import pytest

from tests.device import support


@pytest.fixture(scope="session")
def gpu_or_skip():
    """Called with a device's name: skips where this build has no such device."""

    def check(device: str) -> None:
        if device != "cpu":
            support.opener(device)

    return check
