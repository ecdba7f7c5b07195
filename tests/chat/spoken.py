"""The dialects that cases ask for; skips what is not built yet, and says so."""

import pytest

from mference.chat.dialects import DIALECTS
from mference.chat.dialects.base import Dialect
from mference.chat.format import ChatFormat
from tests.chat import demo, qwen

# Tool calls are named after the model that writes them.
_NAMES = {"qwen": "chatml"}
# Other families frame ChatML in their own ways.
_CHATML_FAMILIES = (None, "qwen36")
_FORMATS = {"gemma": demo.chat_format, "chatml": qwen.chat_format}


def dialect_or_skip(name: str, family: str | None = None) -> Dialect:
    name = _NAMES.get(name, name)
    if name not in DIALECTS:
        pytest.skip(f"family not built yet: {name}")
    if name == "chatml" and family not in _CHATML_FAMILIES:
        pytest.skip(f"family not built yet: {family}")
    return DIALECTS[name]


def chat_format_or_skip(name: str, family: str | None = None) -> ChatFormat:
    """A chat side of the dialect with the ids of the pinned model's control tokens."""
    return _FORMATS[dialect_or_skip(name, family).name]()
