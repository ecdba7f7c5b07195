"""Reads Qwen's calls: `<function=NAME>`, `<parameter=KEY>` with a value on lines of its own."""

import json
import re
from collections.abc import Collection
from typing import NoReturn

from mference.chat import json_text
from mference.chat.dialects.base import (
    MAX_CALL_DEPTH,
    MalformedCallError,
    check_call_size,
    finished_call,
)
from mference.chat.json_text import Json
from mference.chat.parts import ToolCall
from mference.jsontext import refuse_constant

_FUNCTION = re.compile(r"<function=([A-Za-z0-9_-]{1,64})>\n")
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>(?=\n)")
_VALUE_END = "\n</parameter>\n"
_FUNCTION_END = "</function>"
_SPACE = " \t\r\n"
_JSON_STARTS = tuple("{[-0123456789tfn")
# Python's decoder keeps one frame a level; what is deeper is not decoded to see if it is JSON.
_DECODED_DEPTH = 512


def parse_calls(text: str, allowed: Collection[str]) -> tuple[ToolCall, ...]:
    """The one call in the text between a pair of tool-call markers.

    A value that is a JSON object, array, number, boolean or null is taken as one; any other, a
    quoted string too, is text as it stands. A parameter written twice has the last value.

    Raises:
        OversizedCallError: over 256 KiB of UTF-8.
        MalformedCallError: not this syntax, or JSON nested deeper than 64 levels.
        UnknownToolError: a well-formed call of a tool that is not in `allowed`.
    """
    check_call_size(text)
    body = text.strip()
    function = _FUNCTION.match(body)
    if function is None:
        _fail(body, 0, "<function=NAME> on a line of its own")
    arguments: dict[str, Json] = {}
    at = function.end()
    while parameter := _PARAMETER.match(body, at):
        # The line break behind the tag may be the one before the end: then the value is empty.
        start = parameter.end()
        end = body.find(_VALUE_END, start)
        if end < 0:
            _fail(body, start, "a value that </parameter> on a line of its own ends")
        arguments[parameter[1]] = _value(body[start + 1 : end])
        at = end + len(_VALUE_END)
    if body[at:] != _FUNCTION_END:
        _fail(body, at, "<parameter=KEY> on a line of its own, or </function> as the last one")
    return (finished_call(function[1], arguments, allowed),)


def _value(text: str) -> Json:
    head = text.lstrip(_SPACE)
    if not head.startswith(_JSON_STARTS):
        return text
    depth = json_text.depth(text) if head.startswith(("{", "[")) else 0
    if depth > MAX_CALL_DEPTH and (depth > _DECODED_DEPTH or _is_json(text)):
        raise MalformedCallError(
            f"the model wrote a tool call with a value nested deeper than {MAX_CALL_DEPTH} levels"
        )
    try:
        return json_text.decode(text)
    except ValueError:
        return text


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=refuse_constant)
    except ValueError:
        return False
    except RecursionError:  # the caller's own stack was deep already
        return True
    return True


def _fail(body: str, at: int, expected: str) -> NoReturn:
    seen = body[at : at + 20]
    raise MalformedCallError(
        f"the model wrote a tool call that does not parse: expected {expected} at character {at}, "
        f"found {seen!r}"
    )
