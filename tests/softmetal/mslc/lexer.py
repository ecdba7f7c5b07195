"""Tokens of preprocessed source. White space and line markers are tokens too."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .errors import CompileError

_TOKEN = re.compile(
    r"""
    (?P<directive>^[ \t]*\#[^\n]*$)
  | (?P<space>\s+)
  | (?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
  | (?P<number>0[xX][0-9a-fA-F]+[uUlL]*|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\w*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<punct>::|->|.)
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
_MARKER = re.compile(r'\s*#\s*(?:line\s+)?(\d+)\s+"([^"]*)"')

OPENING = {"(": ")", "[": "]", "{": "}"}
CLOSING = {close: open_ for open_, close in OPENING.items()}


@dataclass
class Source:
    """Tokens by position. A rewrite changes `text`; kinds and places stay those of the original."""

    text: list[str] = field(default_factory=list)
    kind: list[str] = field(default_factory=list)
    place: list[tuple[str, int]] = field(default_factory=list)
    partner: dict[int, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.text)

    def after(self, i: int) -> int:
        """The next token that is no white space, or the end."""
        i += 1
        while i < len(self.text) and self.kind[i] in ("space", "directive"):
            i += 1
        return i

    def before(self, i: int) -> int:
        """The previous token that is no white space, or -1."""
        i -= 1
        while i >= 0 and self.kind[i] in ("space", "directive"):
            i -= 1
        return i

    def at(self, i: int) -> str:
        """A token's text; nothing past either end."""
        return self.text[i] if 0 <= i < len(self.text) else ""

    def join(self, first: int, last: int) -> str:
        """The text of tokens first to last - 1."""
        return "".join(self.text[first:last])

    def significant(self, first: int, last: int) -> list[int]:
        """The positions of the tokens in [first, last) that are no white space."""
        return [i for i in range(first, last) if self.kind[i] not in ("space", "directive")]

    def close_angle(self, i: int) -> int:
        """The `>` of the template arguments that begin at `<`, or -1 if it is a comparison."""
        depth = 0
        while i < len(self.text):
            text = self.text[i]
            if text == "<":
                depth += 1
            elif text == ">":
                depth -= 1
                if depth == 0:
                    return i
            elif text in OPENING:
                i = self.partner[i]
            elif text in (";", "{", "}", ")", "]"):
                return -1
            i += 1
        return -1

    def is_attribute(self, i: int) -> bool:
        """Whether `[[` of an attribute begins here."""
        return (
            self.at(i) == "["
            and self.at(i + 1) == "["
            and self.kind[self.after(i + 1)] == "name"
            and self.partner[i] == self.partner[i + 1] + 1
        )

    def clear(self, first: int, last: int, replacement: str = "") -> None:
        """Puts a text in the place of tokens [first, last), and keeps their line breaks."""
        for i in range(first, last):
            self.text[i] = "\n" * self.text[i].count("\n") if self.kind[i] == "space" else ""
        self.text[first] = replacement + self.text[first]

    def error(self, i: int, message: str) -> CompileError:
        """An error at a token."""
        file, line = self.place[min(i, len(self.place) - 1)]
        return CompileError(f"{file}:{line}: error: {message}")


def lex(text: str, name: str) -> Source:
    """The tokens of a text whose line markers name its files."""
    source = Source()
    place = (name, 1)
    open_: list[int] = []
    for match in _TOKEN.finditer(text):
        kind, token = str(match.lastgroup), match.group()
        i = len(source.text)
        source.text.append(token)
        source.kind.append(kind)
        source.place.append(place)
        if kind == "directive":
            marker = _MARKER.match(token)
            if marker:
                place = (marker.group(2), int(marker.group(1)) - 1)
        elif token in OPENING:
            open_.append(i)
        elif token in CLOSING:
            if not open_ or source.text[open_[-1]] != CLOSING[token]:
                raise source.error(i, f"unmatched '{token}'")
            source.partner[i] = open_[-1]
            source.partner[open_.pop()] = i
        place = (place[0], place[1] + token.count("\n"))
    if open_:
        raise source.error(open_[-1], f"unmatched '{source.text[open_[-1]]}'")
    return source
