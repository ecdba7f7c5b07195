"""JSON as the chat side reads it: bounded nesting, no NaN."""

import json
import re
from typing import Any

from mference.jsontext import refuse_constant

MAX_DEPTH = 64

Json = Any  # what `json.loads` returns

_BRACKET_OR_STRING = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[\]{}]', re.DOTALL)


def depth(text: str) -> int:
    """The deepest nesting of arrays and objects in a JSON text, found without decoding it."""
    level = deepest = 0
    for match in _BRACKET_OR_STRING.finditer(text):
        first = match[0][0]
        if first in "[{":
            level += 1
            deepest = max(deepest, level)
        elif first in "]}":
            level -= 1
    return deepest


def decode(text: str) -> Json:
    """Decode one JSON value.

    Raises:
        ValueError: not JSON, nested deeper than 64 levels, NaN or an infinity, or an integer of
            thousands of digits.
    """
    if depth(text) > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    return json.loads(text, parse_constant=refuse_constant)
