"""What a generation gives back."""

from dataclasses import dataclass, field
from typing import Literal

from mference.chat.parts import ToolCall

FinishReason = Literal["eos", "end_of_turn", "tool_calls", "stop_string", "max_tokens"]


@dataclass(frozen=True)
class Timings:
    """Seconds from the request to the first drawn token, and from there to the last one."""

    prefill: float
    decode: float


@dataclass(frozen=True)
class Completion:
    """A finished answer as text.

    `tokens` are all that were drawn, the one that ended the answer included. `cached_tokens` of
    the prompt were already in the KV state.
    """

    text: str
    tokens: tuple[int, ...] = field(repr=False)
    finish_reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    timings: Timings


@dataclass(frozen=True)
class Reply:
    """A finished assistant answer: content to show, reasoning to hide, tools to call."""

    content: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]
    completion: Completion
