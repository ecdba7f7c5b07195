"""What the rest of the package asks of a dialect: the markup that some models were trained on."""

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from mference.chat.json_text import Json
from mference.chat.messages import InvalidMessagesError, Message
from mference.chat.parts import Part, ToolCall
from mference.chat.tools import Tool
from mference.errors import TemplateError, ToolCallError
from mference.jsontext import compact

StopReason = Literal["eos", "end_of_turn", "tool_calls"]

MAX_CALL_BYTES = 256 * 1024
MAX_CALL_DEPTH = 64


class MalformedCallError(ToolCallError):
    """The text between the tool-call markers, or the order of the markers, is not the dialect's."""


class OversizedCallError(ToolCallError):
    """A tool call is longer than 256 KiB."""


class UnknownToolError(ToolCallError):
    """The model called a tool that was not offered; `tool` is its name."""

    def __init__(self, tool: str, allowed: Collection[str]) -> None:
        offer = f"offered: {', '.join(sorted(allowed))}" if allowed else "none were offered"
        super().__init__(f"the model called the tool {tool!r}, which it was not offered ({offer})")
        self.tool = tool


class UnsupportedDialectError(TemplateError):
    """The tokenizer belongs to a dialect that this version does not speak."""


class NotInDialectError(TemplateError):
    """The dialect, or the model's template for it, has no form for what is asked."""


class AmbiguousBoundaryError(TemplateError):
    """The place where cached state ends cannot be found in a rendered prompt for certain."""


class Splitter(Protocol):
    """Splits one answer into content, reasoning and tool calls; fails closed.

    After an error every further step raises that error again.
    """

    @property
    def keeps_special(self) -> bool:
        """Whether special tokens are part of the text at this point, as inside a tool call."""

    def text(self, text: str) -> tuple[Part, ...]:
        """Take ordinary text."""

    def marker(self, role: str) -> tuple[Part, ...]:
        """Take one of the dialect's control tokens, by its role in `Dialect.markers`."""

    def finish(self) -> tuple[Part, ...]:
        """The answer is over; releases what is still held."""


class MakesSplitter(Protocol):
    """Makes the splitter of one answer."""

    def __call__(self, allowed: Collection[str], *, in_thought: bool = False) -> Splitter:
        """`allowed` names the tools on offer.

        `in_thought` says that the prompt has opened a thought, in which the answer begins.
        """


@dataclass(frozen=True)
class Dialect:
    """One dialect. Tokens are named by their text; ids are looked up in the install's tokenizer.

    `bos` starts a raw prompt, or is None where the dialect has no start token. `stops` maps each
    token that ends an answer to the reason reported. `markers` maps a role to its control token.
    `thoughts` are the tokens that tell whether a prompt ends inside of a thought: the last of them
    in it decides. `vital` are the tokens without which a tokenizer cannot speak the dialect.
    """

    name: str
    bos: str | None
    stops: Mapping[str, StopReason]
    markers: Mapping[str, str]
    thoughts: Mapping[str, bool]
    vital: tuple[str, ...]
    frame: Callable[[Sequence[Message]], str]
    """Text-only prompt, for installs without a template."""
    continuation: Callable[[str], str]
    """Text that follows a finished answer in the KV state: end of turn, user turn, next opening."""
    prepare_tools: Callable[[Sequence[Tool]], tuple[Tool, ...]]
    """Tools as the dialect's templates can declare them."""
    parse_calls: Callable[[str, Collection[str]], tuple[ToolCall, ...]]
    """The calls in the text between tool markers; the collection names the tools on offer."""
    splitter: MakesSplitter
    structured_results: bool
    """Whether templates take a tool's result as an object; else it is given as JSON text."""
    bridges_tool_results: bool
    """Whether tool results can follow a call in the KV state without a new turn."""


def text_turns(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """Role and content of messages that can be framed without a template.

    Raises:
        InvalidMessagesError: a message without text, a tool message or call, or a late system
            message; those need the checkpoint's own template.
    """
    turns = []
    for i, message in enumerate(messages):
        role, content = message.role, message.content
        if role == "tool" or message.tool_calls or not isinstance(content, str):
            raise InvalidMessagesError(
                f"messages[{i}]: text-only framing cannot hold a {role} message with tool calls "
                "or results; the install has no chat template, so install it again"
            )
        if role == "system" and i:
            raise InvalidMessagesError(
                f"messages[{i}]: a system message must be the first; merge it into the first one"
            )
        turns.append((role, content))
    return turns


def check_call_size(text: str) -> None:
    """Refuse the text of a tool call that is longer than any is read.

    Raises:
        OversizedCallError: over 256 KiB of UTF-8.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_CALL_BYTES:
        raise OversizedCallError(
            f"the model wrote a tool call of {size:,} bytes; at most {MAX_CALL_BYTES:,} are read"
        )


def finished_call(name: str, arguments: dict[str, Json], allowed: Collection[str]) -> ToolCall:
    """A call that was read, with an id of its own.

    Raises:
        UnknownToolError: no tool of that name is in `allowed`.
    """
    if name not in allowed:
        raise UnknownToolError(name, allowed)
    return ToolCall(f"call_{uuid.uuid4().hex[:24]}", name, arguments, compact(arguments))
