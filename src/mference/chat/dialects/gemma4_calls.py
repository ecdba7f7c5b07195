"""Reads `call:name{key:value,...}`, Gemma 4's tool-call syntax. Anything unexpected is an error."""

import math
import re
from collections.abc import Collection
from typing import NoReturn

from mference.chat.dialects.base import (
    MAX_CALL_DEPTH,
    MalformedCallError,
    check_call_size,
    finished_call,
)
from mference.chat.json_text import Json
from mference.chat.parts import ToolCall

_QUOTE = '<|"|>'
_SPACE = re.compile(r"[ \t\r\n]*")
_NAME = re.compile(r"[A-Za-z0-9_]+")
_KEY = re.compile(r"[A-Za-z0-9_\-.$]+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_ESCAPE = re.compile(r'[bfnrt"\\/u]')
_HEX4 = re.compile(r"[0-9A-Fa-f]{4}")
_WORDS: tuple[tuple[str, Json], ...] = (("true", True), ("false", False), ("null", None))
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "/": "/"}
# A run without escapes; a native string may hold raw line breaks, a JSON string may not.
_PLAIN = {_QUOTE: re.compile(r'(?:(?!<\|"\|>)[^\\])*'), '"': re.compile(r'[^"\\\x00-\x1f]*')}


def parse_calls(text: str, allowed: Collection[str]) -> tuple[ToolCall, ...]:
    """The one call in the text between a pair of tool-call markers.

    Raises:
        OversizedCallError: over 256 KiB of UTF-8.
        MalformedCallError: not this syntax, or nested deeper than 64 levels.
        UnknownToolError: a well-formed call of a tool that is not in `allowed`.
    """
    check_call_size(text)
    return (finished_call(*_Reader(text).call(), allowed),)


class _Reader:
    """A recursive-descent reader; `_at` is the next character to read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def call(self) -> tuple[str, dict[str, Json]]:
        self._space()
        self._expect("call:")
        self._space()
        name = self._match(_NAME, "a tool name")
        self._space()
        self._expect("{")
        arguments = self._object(0)
        self._space()
        if self._at != len(self._text):
            self._fail("the end of the call")
        return name, arguments

    def _value(self, depth: int) -> Json:
        for quote in _PLAIN:
            if self._take(quote):
                return self._string(quote)
        if self._take("{"):
            return self._object(self._deeper(depth))
        if self._take("["):
            return self._array(self._deeper(depth))
        for word, value in _WORDS:
            if self._take(word):
                return value
        return self._number()

    def _object(self, depth: int) -> dict[str, Json]:
        found: dict[str, Json] = {}
        self._space()
        if self._take("}"):
            return found
        while True:
            self._space()
            key = self._match(_KEY, "a key")
            self._space()
            self._expect(":")
            self._space()
            found[key] = self._value(depth)
            self._space()
            if self._take("}"):
                return found
            self._expect(",")

    def _array(self, depth: int) -> list[Json]:
        found: list[Json] = []
        self._space()
        if self._take("]"):
            return found
        while True:
            self._space()
            found.append(self._value(depth))
            self._space()
            if self._take("]"):
                return found
            self._expect(",")

    def _string(self, quote: str) -> str:
        pieces = []
        while True:
            pieces.append(self._match(_PLAIN[quote], "text"))
            if self._take(quote):
                return "".join(pieces)
            self._expect("\\")
            pieces.append(self._escape())

    def _escape(self) -> str:
        letter = self._match(_ESCAPE, "an escape")
        if letter != "u":
            return _ESCAPES[letter]
        code = int(self._match(_HEX4, "four hexadecimal digits"), 16)
        if 0xDC00 <= code < 0xE000:
            self._fail("the first half of a surrogate pair")
        if 0xD800 <= code < 0xDC00:
            self._expect("\\u")
            low = int(self._match(_HEX4, "four hexadecimal digits"), 16)
            if not 0xDC00 <= low < 0xE000:
                self._fail("the second half of a surrogate pair")
            code = 0x10000 + (code - 0xD800) * 0x400 + low - 0xDC00
        return chr(code)

    def _number(self) -> int | float:
        match = _NUMBER.match(self._text, self._at)
        if match is None:
            self._fail("a value")
        try:
            number = float(match[0]) if match[1] or match[2] else int(match[0])
        except ValueError:  # an integer of thousands of digits
            self._fail("a number of sensible length")
        if not math.isfinite(number):
            self._fail("a number within the range of a double")
        self._at = match.end()
        return number

    def _deeper(self, depth: int) -> int:
        if depth == MAX_CALL_DEPTH:
            self._fail(f"at most {MAX_CALL_DEPTH} levels of nesting")
        return depth + 1

    def _space(self) -> None:
        self._match(_SPACE, "white space")

    def _take(self, token: str) -> bool:
        found = self._text.startswith(token, self._at)
        if found:
            self._at += len(token)
        return found

    def _expect(self, token: str) -> None:
        if not self._take(token):
            self._fail(repr(token))

    def _match(self, pattern: re.Pattern[str], what: str) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            self._fail(what)
        self._at = match.end()
        return match[0]

    def _fail(self, expected: str) -> NoReturn:
        seen = self._text[self._at : self._at + 20]
        raise MalformedCallError(
            f"the model wrote a tool call that does not parse: expected {expected} at character "
            f"{self._at}, found {seen!r}" if seen else
            f"the model wrote a tool call that ends too early: expected {expected}"
        )  # fmt: skip
