"""Drops old messages of a conversation until it fits the context window."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mference.chat.messages import Message

_GUIDANCE = ("system", "developer")


@dataclass(frozen=True)
class Trimmed:
    """What is left of a conversation, its cost in tokens, and whether that is within the limit."""

    kept: tuple[Message, ...]
    tokens: int
    dropped: int
    fits: bool


def trim_history(
    messages: Sequence[Message], limit: int, count: Callable[[Sequence[Message]], int]
) -> Trimmed:
    """Drop the oldest messages until the rendered conversation has at most `limit` tokens.

    A leading system message and the newest message always stay. `count` renders and counts the
    whole conversation again after every drop, because the cost of a message depends on its
    neighbours. Tool results go, and stay, together with the call that they answer; with the newest
    results the question stays that led to them, without which templates refuse to render.
    """
    kept = list(messages)
    first = 1 if kept and kept[0].role in _GUIDANCE else 0
    newest = 1
    while newest < len(kept) - first and kept[-newest].role == "tool":
        newest += 1
    question = _question(kept) if newest > 1 else 0
    tokens = count(kept)
    while tokens > limit:
        if len(kept) - first == question:
            first += 1
        if first >= len(kept) - newest:
            break
        del kept[first]
        while first < len(kept) - newest and kept[first].role == "tool":
            del kept[first]
        tokens = count(kept)
    return Trimmed(tuple(kept), tokens, len(messages) - len(kept), tokens <= limit)


def _question(messages: Sequence[Message]) -> int:
    """How far from the end the last user message is: 1 for the last message, 0 if there is none."""
    places = (i + 1 for i, message in enumerate(reversed(messages)) if message.role == "user")
    return next(places, 0)
