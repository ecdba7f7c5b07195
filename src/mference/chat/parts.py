"""What an answer is made of, in the order the model wrote it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Content:
    """Text the reader of the answer sees."""

    text: str


@dataclass(frozen=True)
class Reasoning:
    """Text of a thinking channel; never part of the content."""

    text: str


@dataclass(frozen=True)
class ToolCall:
    """A finished call of an offered tool.

    `arguments_json` is the same object as `arguments`: compact JSON, keys sorted, non-ASCII as is.
    """

    id: str
    name: str
    arguments: dict[str, Any]
    arguments_json: str


Part = Content | Reasoning | ToolCall


def content_of(parts: Iterable[Part]) -> str:
    """The visible text of these parts."""
    return "".join(part.text for part in parts if isinstance(part, Content))


def reasoning_of(parts: Iterable[Part]) -> str:
    """The hidden text of these parts."""
    return "".join(part.text for part in parts if isinstance(part, Reasoning))


def calls_of(parts: Iterable[Part]) -> tuple[ToolCall, ...]:
    """The tool calls among these parts, in order."""
    return tuple(part for part in parts if isinstance(part, ToolCall))
