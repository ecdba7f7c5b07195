"""Skips what belongs to a dialect that is not built yet, and says so."""

import pytest

from mference.chat.dialects import DIALECTS
from mference.chat.dialects.base import Dialect


def dialect_or_skip(name: str) -> Dialect:
    if name not in DIALECTS:
        pytest.skip(f"family not built yet: {name}")
    return DIALECTS[name]
