"""Fixtures that several tests of the installer share."""

from pathlib import Path

import pytest

from tests.preloads import compiled


@pytest.fixture(scope="session")
def transitions(tmp_path_factory) -> Path:
    """The library that kills and fails at a step; see transitions.c."""
    return compiled(
        Path(__file__).with_name("transitions.c"), tmp_path_factory.mktemp("transitions")
    )
