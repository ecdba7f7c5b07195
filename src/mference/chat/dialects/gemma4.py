"""Gemma 4: `<|turn>role` turns, `<|channel>` thoughts, `<|tool_call>call:name{...}` calls."""

from collections.abc import Collection, Sequence

from mference.chat.dialects.base import Dialect, MalformedCallError
from mference.chat.dialects.gemma4_calls import parse_calls
from mference.chat.dialects.gemma4_schema import declarable
from mference.chat.messages import InvalidMessagesError, Message
from mference.chat.parts import Content, Part, Reasoning
from mference.errors import ToolCallError

# The opening of an answer with thinking off: a thought that is already closed.
_OPENING = "<|turn>model\n<|channel>thought\n<channel|>"
_VISIBLE_CHANNELS = ("final", "answer")


def frame(messages: Sequence[Message]) -> str:
    """The pinned text-only framing, thinking off.

    Raises:
        InvalidMessagesError: a message without text, a tool message or call, or a late system
            message; those need the checkpoint's own template.
    """
    turns = [_turn(i, message) for i, message in enumerate(messages)]
    return "<bos>" + "".join(turns) + _OPENING


def continuation(user: str) -> str:
    """What follows an answer that ended its turn: the turn's end, a user turn, an opening."""
    return f"<turn|>\n<|turn>user\n{user.strip()}<turn|>\n{_OPENING}"


def _turn(index: int, message: Message) -> str:
    role, content = message.role, message.content
    if role == "tool" or message.tool_calls or not isinstance(content, str):
        raise InvalidMessagesError(
            f"messages[{index}]: text-only framing cannot hold a {role} message with tool calls "
            "or results; the install has no chat template, so install it again"
        )
    if role == "system" and index:
        raise InvalidMessagesError(
            f"messages[{index}]: a system message must be the first; merge it into the first one"
        )
    return f"<|turn>{'model' if role == 'assistant' else role}\n{content.strip()}<turn|>\n"


class Gemma4Splitter:
    """Splits an answer at the channel and tool-call markers."""

    def __init__(self, allowed: Collection[str]) -> None:
        self._allowed = allowed
        self._label: str | None = None  # the channel label read so far, while it is being read
        self._hidden = False
        self._call: list[str] | None = None  # the text of the open tool call
        self._called = False
        self._failure: ToolCallError | None = None

    @property
    def keeps_special(self) -> bool:
        """Inside a tool call the string quote `<|"|>` is text."""
        return self._call is not None

    def text(self, text: str) -> tuple[Part, ...]:
        """Take ordinary text: content, reasoning, a piece of a channel label or of a tool call."""
        self._refuse_after_failure()
        if not text:
            return ()
        if self._call is not None:
            self._call.append(text)
            return ()
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

    def marker(self, role: str) -> tuple[Part, ...]:
        """Take a control token.

        Raises:
            ToolCallError: it cannot stand here, or it closes a call that does not parse.
        """
        self._refuse_after_failure()
        try:
            return self._marker(role)
        except ToolCallError as error:
            self._failure = error
            raise

    def finish(self) -> tuple[Part, ...]:
        """End the answer; an unfinished channel label is dropped.

        Raises:
            MalformedCallError: a tool call is still open.
        """
        self._refuse_after_failure()
        if self._call is not None:
            self._failure = MalformedCallError(
                "the answer ended inside a tool call; allow more tokens or ask again"
            )
            raise self._failure
        return ()

    def _marker(self, role: str) -> tuple[Part, ...]:
        if role == "tool_close":
            if self._call is None:
                raise MalformedCallError("the model closed a tool call that it had not opened")
            calls = parse_calls("".join(self._call), self._allowed)
            self._call = None
            self._called = True
            return calls
        if self._call is not None:
            raise MalformedCallError(f"the model wrote a {role} marker inside a tool call")
        if role == "tool_open":
            self._call = []
        elif role == "channel_open":
            self._label = ""
        elif role == "channel_close":
            self._label = None
            self._hidden = False
        elif role == "tool_response_open" and not self._called:
            raise MalformedCallError("the model waits for a tool result without having called")
        return ()

    def _refuse_after_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


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
    vital=("<bos>", "<eos>", "<|turn>", "<turn|>", "<|channel>", "<channel|>"),
    frame=frame,
    continuation=continuation,
    prepare_tools=declarable,
    parse_calls=parse_calls,
    splitter=Gemma4Splitter,
    bridges_tool_results=True,
)
