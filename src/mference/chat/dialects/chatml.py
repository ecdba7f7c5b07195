"""ChatML as Qwen 3.6 speaks it: `<|im_start|>role` turns, `<think>` thoughts, `<tool_call>`s."""

from collections.abc import Collection, Sequence

from mference.chat.dialects.base import Dialect, text_turns
from mference.chat.dialects.chatml_calls import parse_calls
from mference.chat.dialects.marked_calls import MarkedCallSplitter
from mference.chat.messages import InvalidMessagesError, Message
from mference.chat.parts import Content, Part, Reasoning
from mference.chat.tools import Tool

# The opening of an answer with thinking off: a thought that is already closed.
_OPENING = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
_ROLES = ("system", "user", "assistant")
_THINK = {"think_open": "<think>", "think_close": "</think>"}


def frame(messages: Sequence[Message]) -> str:
    """The pinned text-only framing, thinking off.

    Raises:
        InvalidMessagesError: as `text_turns` does, and for roles that the model was not trained on.
    """
    turns = text_turns(messages)
    for i, (role, _) in enumerate(turns):
        if role not in _ROLES:
            raise InvalidMessagesError(
                f"messages[{i}].role: Qwen has no role {role!r}; use one of {', '.join(_ROLES)}"
            )
    framed = [f"<|im_start|>{role}\n{content.strip()}<|im_end|>\n" for role, content in turns]
    return "".join(framed) + _OPENING


def continuation(user: str) -> str:
    """What follows an answer that ended its turn: the turn's end, a user turn, an opening."""
    return f"<|im_end|>\n<|im_start|>user\n{user.strip()}<|im_end|>\n{_OPENING}"


def as_given(tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """The tools unchanged: the template writes each as JSON, with the keys that it came with."""
    return tuple(tools)


class ChatmlSplitter(MarkedCallSplitter):
    """Splits an answer at the thought and tool-call markers.

    A thought is over at the first `</think>`, however many `<think>` stand before it; one that is
    never closed is reasoning to the end, and a `</think>` with no thought to close is nothing. A
    tool call counts wherever it stands, also in a thought, which models forget to close before
    it. Inside a call the thought markers are text: an argument may well be about them.

    Line breaks next to a thought's markers, or before a call in it, are no part of the thought.
    Behind the thought that the prompt opened they are no content either: they belong to the
    framing of the answer.
    """

    def __init__(self, allowed: Collection[str], *, in_thought: bool = False) -> None:
        super().__init__(allowed, parse_calls)
        self._hidden = in_thought
        self._framed = in_thought  # whether the thought is the one that the prompt opened
        self._skips_breaks = in_thought
        self._breaks: list[str] = []  # line breaks that end the thought so far

    def _text_outside(self, text: str) -> tuple[Part, ...]:
        if self._skips_breaks:
            text = text.lstrip("\n")
            if not text:
                return ()
            self._skips_breaks = False
        if not self._hidden:
            return (Content(text),)
        thought = text.rstrip("\n")
        if not thought:
            self._breaks.append(text)
            return ()
        before, self._breaks = "".join(self._breaks), [text[len(thought) :]]
        return (Reasoning(before + thought),)

    def _marker_outside(self, role: str) -> None:
        if role == "think_open" and not self._hidden:
            self._hidden = True
            self._skips_breaks = True
        elif role == "think_close" and self._hidden:
            self._hidden = False
            self._skips_breaks = self._framed
            self._framed = False
            self._breaks = []
        elif role == "tool_open":
            self._breaks = []

    def _marker_as_text(self, role: str) -> str | None:
        return _THINK.get(role)


CHATML = Dialect(
    name="chatml",
    bos=None,
    stops={"<|endoftext|>": "eos", "<|im_end|>": "end_of_turn"},
    markers={**_THINK, "tool_open": "<tool_call>", "tool_close": "</tool_call>"},
    thoughts={"<think>": True, "</think>": False, "<|im_start|>": False},
    vital=(
        "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>",
        "</tool_call>",
    ),
    frame=frame,
    continuation=continuation,
    prepare_tools=as_given,
    parse_calls=parse_calls,
    splitter=ChatmlSplitter,
    structured_results=False,
    bridges_tool_results=False,
)  # fmt: skip
