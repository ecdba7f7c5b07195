"""An install's chat side in one value: tokenizer, dialect and template."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from mference.chat.detokenizer import Detokenizer
from mference.chat.dialects import detect
from mference.chat.dialects.base import (
    AmbiguousBoundaryError,
    Dialect,
    NotInDialectError,
    StopReason,
    UnsupportedDialectError,
)
from mference.chat.messages import InvalidMessagesError, Message, MessageLike, conversation
from mference.chat.readers import AssistantReader, TextReader
from mference.chat.template import ChatTemplate, MissingTemplateError, load_template
from mference.chat.tokenizer import Tokenizer
from mference.chat.tools import ToolLike, offered


@dataclass(frozen=True)
class ChatFormat:
    """How prompts are written for a model and how its answers are read."""

    tokenizer: Tokenizer
    dialect: Dialect
    template: ChatTemplate | None = None

    def __post_init__(self) -> None:
        missing = [t for t in self.dialect.vital if self.tokenizer.id_of(t) is None]
        if missing:
            raise UnsupportedDialectError(
                f"the tokenizer lacks {', '.join(missing)}, which the {self.dialect.name} dialect "
                "needs; this is not the tokenizer of the installed model"
            )

    @classmethod
    def load(cls, directory: str | Path, dialect: Dialect | None = None) -> "ChatFormat":
        """Read a tokenizer directory; the dialect is told from its tokens unless given.

        Raises:
            MissingFile, StoreError: the tokenizer is absent or damaged.
            TemplateError: the template does not compile, or the dialect is not supported.
        """
        tokenizer = Tokenizer.load(directory)
        if dialect is None:
            dialect = detect(lambda token: tokenizer.id_of(token) is not None)
        return cls(tokenizer, dialect, load_template(directory))

    def render(
        self,
        messages: Sequence[MessageLike],
        tools: Sequence[ToolLike] | None = None,
        *,
        enable_thinking: bool = False,
    ) -> str:
        """The prompt text for a conversation, up to where the answer begins.

        Raises:
            TemplateError: the messages or tools are not well formed, or the template refuses them,
                or it knows nothing of thinking and is asked for it.
        """
        turns = conversation(messages)
        if not self.dialect.structured_results:
            turns = tuple(_with_text_result(i, message) for i, message in enumerate(turns))
        declared = self.dialect.prepare_tools(offered(tools))
        if self.template is not None:
            if enable_thinking and not self.template.can_think:
                raise NotInDialectError(
                    f"{self.template.where} has no thinking to turn on: this model answers at "
                    "once; ask it without thinking"
                )
            return self.template.render(
                turns,
                declared,
                special_tokens=self._special_tokens,
                enable_thinking=enable_thinking,
            )
        if declared or enable_thinking:
            raise MissingTemplateError(
                "tools and thinking need the checkpoint's chat template, and this install has "
                "none; install the model again"
            )
        return self.dialect.frame(turns)

    def prompt_ids(
        self,
        messages: Sequence[MessageLike],
        tools: Sequence[ToolLike] | None = None,
        *,
        enable_thinking: bool = False,
    ) -> list[int]:
        """The ids of a rendered conversation. The text brings its own start token."""
        return self.tokenizer.encode(self.render(messages, tools, enable_thinking=enable_thinking))

    def raw_ids(self, prompt: str) -> list[int]:
        """The ids of a prompt without chat framing, after the start token if there is one."""
        bos = self.tokenizer.id_of(self.dialect.bos) if self.dialect.bos else None
        return ([] if bos is None else [bos]) + self.tokenizer.encode(prompt)

    def continuation_ids(self, user: str) -> list[int]:
        """The ids that put a user's next message behind a finished answer in the KV state.

        The first is the token that ended the answer, which is not in the state yet.
        """
        return self.tokenizer.encode(self.dialect.continuation(user))

    def tool_result_ids(self, rendered: Sequence[int], called: Sequence[int]) -> list[int]:
        """The ids that put tool results behind the calls that end the KV state.

        `rendered` is the whole conversation with its results, `called` are the tokens of the
        calls as the model wrote them, closing marker included.

        Raises:
            NotInDialectError: in this dialect results begin a new turn.
            AmbiguousBoundaryError: the calls occur never, or more than once, in the render, or
                are not followed by a result.
        """
        if not self.dialect.bridges_tool_results:
            raise NotInDialectError(
                f"the {self.dialect.name} dialect cannot add tool results to cached state; "
                "render the whole conversation"
            )
        width = len(called)
        ends = [
            start + width
            for start in range(len(rendered) - width + 1)
            if width and list(rendered[start : start + width]) == list(called)
        ]
        marker = self.tokenizer.id_of(self.dialect.markers["tool_response_open"])
        if len(ends) != 1 or list(rendered[ends[0] : ends[0] + 1]) != [marker]:
            raise AmbiguousBoundaryError(
                f"the cached tool calls occur {len(ends)} times in the rendered conversation; "
                "they must occur once and be followed by a result; render it from the start"
            )
        return list(rendered[ends[0] :])

    @cached_property
    def stops(self) -> dict[int, StopReason]:
        """The ids that end an answer, and the reason each stands for."""
        ids = self.tokenizer.ids_of(self.dialect.stops)
        return {found: self.dialect.stops[token] for token, found in ids.items()}

    @cached_property
    def markers(self) -> dict[int, str]:
        """The ids of the dialect's control tokens, and the role of each."""
        ids = self.tokenizer.ids_of(self.dialect.markers.values())
        return {ids[token]: role for role, token in self.dialect.markers.items() if token in ids}

    def starts_in_thought(self, prompt: Sequence[int]) -> bool:
        """Whether the answer to a prompt begins inside a thought that the prompt has opened."""
        return next((self._thoughts[t] for t in reversed(prompt) if t in self._thoughts), False)

    def text_reader(self, stops: Iterable[str] = ()) -> TextReader:
        """A reader for the answer to a raw prompt."""
        return TextReader(Detokenizer(self.tokenizer), stops)

    def assistant_reader(
        self,
        tools: Sequence[ToolLike] | None = None,
        stops: Iterable[str] = (),
        *,
        prompt: Sequence[int] = (),
    ) -> AssistantReader:
        """A reader for an assistant's answer to a prompt; `tools` are those it was offered."""
        splitter = self.dialect.splitter(
            [tool.name for tool in offered(tools)], in_thought=self.starts_in_thought(prompt)
        )
        return AssistantReader(Detokenizer(self.tokenizer), splitter, self.markers, stops)

    @cached_property
    def _thoughts(self) -> dict[int, bool]:
        ids = self.tokenizer.ids_of(self.dialect.thoughts)
        return {found: self.dialect.thoughts[token] for token, found in ids.items()}

    @cached_property
    def _special_tokens(self) -> dict[str, str]:
        bos = {"bos_token": self.dialect.bos} if self.dialect.bos else {}
        return {**bos, **self.tokenizer.special_names}


def _with_text_result(index: int, message: Message) -> Message:
    """The message, with a tool's result that is an object written as JSON."""
    if message.content is None or isinstance(message.content, str):
        return message
    try:
        text = json.dumps(message.content, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise InvalidMessagesError(
            f"messages[{index}].content: the result cannot be written as JSON: {error}"
        ) from error
    return replace(message, content=text)
