"""Gemma 4: `<|turn>role` turns, `<|channel>` thoughts, `<|tool_call>call:name{...}` calls."""

from collections.abc import Collection, Sequence

from mference.chat.dialects.base import Dialect, MalformedCallError, text_turns
from mference.chat.dialects.gemma4_calls import parse_calls
from mference.chat.dialects.gemma4_schema import declarable
from mference.chat.dialects.marked_calls import MarkedCallSplitter
from mference.chat.messages import Message
from mference.chat.parts import Content, Part, Reasoning

# The opening of an answer with thinking off: a thought that is already closed.
_OPENING = "<|turn>model\n<|channel>thought\n<channel|>"
_VISIBLE_CHANNELS = ("final", "answer")


def frame(messages: Sequence[Message]) -> str:
    """The pinned text-only framing, thinking off. Raises as `text_turns` does."""
    turns = [
        f"<|turn>{'model' if role == 'assistant' else role}\n{content.strip()}<turn|>\n"
        for role, content in text_turns(messages)
    ]
    return "<bos>" + "".join(turns) + _OPENING


def continuation(user: str) -> str:
    """What follows an answer that ended its turn: the turn's end, a user turn, an opening."""
    return f"<turn|>\n<|turn>user\n{user.strip()}<turn|>\n{_OPENING}"


class Gemma4Splitter(MarkedCallSplitter):
    """Splits an answer at the channel and tool-call markers.

    Inside a tool call the string quote `<|"|>` is text, and no marker may stand there.
    """

    def __init__(self, allowed: Collection[str], *, in_thought: bool = False) -> None:
        super().__init__(allowed, parse_calls)
        self._label: str | None = None  # the channel label read so far, while it is being read
        self._hidden = in_thought

    def _text_outside(self, text: str) -> tuple[Part, ...]:
        """Content, reasoning or a piece of a channel label."""
        if self._label is not None:
            label, newline, text = (self._label + text).partition("\n")
            if not newline:
                self._label = label
                return ()
            self._label = None
            self._hidden = label.strip().lower() not in _VISIBLE_CHANNELS
            if not text:
                return ()
        return (Reasoning(text) if self._hidden else Content(text),)

    def _marker_outside(self, role: str) -> None:
        if role == "channel_open":
            self._label = ""
        elif role == "channel_close":
            self._label = None
            self._hidden = False
        elif role == "tool_response_open" and not self._called:
            raise MalformedCallError("the model waits for a tool result without having called")


GEMMA4 = Dialect(
    name="gemma",
    bos="<bos>",
    stops={"<eos>": "eos", "<turn|>": "end_of_turn", "<|tool_response>": "tool_calls"},
    markers={
        "channel_open": "<|channel>",
        "channel_close": "<channel|>",
        "tool_open": "<|tool_call>",
        "tool_close": "<tool_call|>",
        "tool_response_open": "<|tool_response>",
        "tool_response_close": "<tool_response|>",
    },
    thoughts={"<|channel>": True, "<channel|>": False, "<|turn>": False},
    vital=("<bos>", "<eos>", "<|turn>", "<turn|>", "<|channel>", "<channel|>"),
    frame=frame,
    continuation=continuation,
    prepare_tools=declarable,
    parse_calls=parse_calls,
    splitter=Gemma4Splitter,
    structured_results=True,
    bridges_tool_results=True,
)
