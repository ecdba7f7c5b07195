"""What the rest of the package asks of a dialect: the markup that some models were trained on."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from mference.chat.messages import Message
from mference.chat.parts import Part, ToolCall
from mference.chat.tools import Tool
from mference.errors import TemplateError, ToolCallError

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


@dataclass(frozen=True)
class Dialect:
    """One dialect. Tokens are named by their text; ids are looked up in the install's tokenizer.

    `bos` starts a raw prompt, or is None where the dialect has no start token. `stops` maps each
    token that ends an answer to the reason reported. `markers` maps a role to its control token.
    `vital` are the tokens without which a tokenizer cannot speak the dialect.
    """

    name: str
    bos: str | None
    stops: Mapping[str, StopReason]
    markers: Mapping[str, str]
    vital: tuple[str, ...]
    frame: Callable[[Sequence[Message]], str]
    """Text-only prompt, for installs without a template."""
    continuation: Callable[[str], str]
    """Text that follows a finished answer in the KV state: end of turn, user turn, next opening."""
    prepare_tools: Callable[[Sequence[Tool]], tuple[Tool, ...]]
    """Tools as the dialect's templates can declare them."""
    parse_calls: Callable[[str, Collection[str]], tuple[ToolCall, ...]]
    """The calls in the text between tool markers; the collection names the tools on offer."""
    splitter: Callable[[Collection[str]], Splitter]
    """A splitter for one answer; the collection names the tools on offer."""
    bridges_tool_results: bool
    """Whether tool results can follow a call in the KV state without a new turn."""
