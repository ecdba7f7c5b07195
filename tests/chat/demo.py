"""The embedded demo checkpoint's chat side, and its reference prompts."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from mference.chat.format import ChatFormat

CHECKPOINT = Path(__file__).parents[2] / "src/mference/demo/checkpoint"
PROMPTS = Path(__file__).parents[1] / "data/demo/reference/prompts.json"


@cache
def chat_format() -> ChatFormat:
    return ChatFormat.load(CHECKPOINT)


@cache
def prompts() -> dict[str, Any]:
    return json.loads(PROMPTS.read_text("utf-8"))
