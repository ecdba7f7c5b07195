"""JSON as the chat side reads it: bounded nesting, no NaN."""

import json
import math
import re
from pathlib import Path
from typing import Any

from mference.errors import ConfigError
from mference.jsontext import is_unicode, refuse_constant

MAX_DEPTH = 64
FILE_CAP = 64 << 20

Json = Any  # what `json.loads` returns

_BRACKET_OR_STRING = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[\]{}]', re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


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
        ValueError: not JSON, nested deeper than 64 levels, NaN or an infinity, a number that no
            double comes near, an integer of thousands of digits, or half of a surrogate pair.
    """
    if depth(text) > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    value = json.loads(text, parse_constant=refuse_constant, parse_float=_real, parse_int=_whole)
    if _SURROGATE.search(text) and not is_unicode(json.dumps(value, ensure_ascii=False)):
        raise ValueError("a text holds one half of a surrogate pair; remove it")
    return value


def _real(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits:.40} is larger than any double")
    return value


def _whole(digits: str) -> int:
    try:
        return int(digits)
    except ValueError:
        raise ValueError(f"a number of {len(digits):,} digits") from None


def read_file(path: str | Path, kind: str) -> Json:
    """Decode a JSON file that a user names; `kind` says in messages what it is, such as `tools`.

    Raises:
        ConfigError: the file cannot be read, is larger than 64 MiB, not UTF-8 or not JSON.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(FILE_CAP + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {kind} file {path}: {error.strerror}") from error
    if len(data) > FILE_CAP:
        raise ConfigError(f"{path}: larger than {FILE_CAP} bytes, which no context can hold")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: not UTF-8 at byte {error.start}; save the file as UTF-8"
        ) from error
    try:
        return decode(text.removeprefix("\ufeff"))
    except ValueError as error:
        raise ConfigError(f"{path}: not valid JSON: {error}") from error
