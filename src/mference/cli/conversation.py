"""The state of a chat: its messages, and the tool results that the model waits for."""

from collections.abc import Callable, Sequence
from typing import Any

from mference.chat import json_text
from mference.chat.history import trim_history
from mference.chat.messages import FunctionCall, Message
from mference.chat.tools import Tool
from mference.cli.output import note, print_footer, show_reply, unanswered
from mference.errors import ContextLengthError
from mference.model import Answer, Model, Settings


class Conversation:
    """Shows an answer for every question, and for every complete set of tool results.

    A question whose answer fails, or ends before it begins, leaves no trace, nor do the calls made
    for it.
    """

    def __init__(
        self,
        model: Model,
        settings: Settings,
        *,
        guidance: str = "",
        tools: Sequence[Tool] = (),
        thinking: bool = False,
        figures: Callable[[Answer], None] = print_footer,
    ) -> None:
        """`guidance` is the system message; with `thinking` thoughts are shown on stderr.

        `figures` shows what an answer took.
        """
        self._model = model
        self._settings = settings
        self._start = [Message("system", guidance)] if guidance else []
        self._tools = tools
        self._thinking = thinking
        self._figures = figures
        self.clear()

    def clear(self) -> None:
        """Forget everything but the guidance."""
        self.messages = list(self._start)
        self._settled = self.messages
        self._owed: list[FunctionCall] = []

    @property
    def prompt(self) -> str:
        """What a terminal asks for: a question, or the result of a call."""
        return f"{self._owed[0].name} result> " if self._owed else "> "

    def take(self, line: str) -> None:
        """Take a question or a tool's result, and show the answer unless more results are due.

        A result that is a JSON object is given to the model as one, any other as text.

        Raises:
            ContextLengthError: the message alone does not fit.
            KeyboardInterrupt, MferenceError: the answer was ended.
        """
        if self._owed:
            call = self._owed.pop(0)
            content = _result(line)
            message = Message("tool", content, tool_call_id=call.id, name=call.name)
        else:
            self._settled = self.messages
            message = Message("user", line)
        self.messages = [*self.messages, message]
        if self._owed:
            return
        try:
            self._answer()
        except BaseException:
            self.messages = self._settled
            raise

    def _answer(self) -> None:
        ids: list[int] = []

        def count(messages: Sequence[Message]) -> int:
            ids[:] = self._model.format.prompt_ids(
                messages, self._tools, enable_thinking=self._thinking
            )
            return len(ids)

        trimmed = trim_history(self.messages, self._model.context - 1, count)
        if trimmed.dropped:
            note(f"[the {trimmed.dropped} oldest messages no longer fit and were left out]")
        if not trimmed.fits:
            raise ContextLengthError(
                f"this message needs {trimmed.tokens} tokens, and the context has "
                f"{self._model.context}; shorten it, or start again with a larger --max-context"
            )
        answer = self._model.stream_ids(ids, chat=True, tools=self._tools, **self._settings)
        reply = show_reply(answer, thinking=self._thinking)
        self._figures(answer)
        if unanswered(reply):
            self.messages = self._settled
            note("[this question is not part of the conversation]")
            return
        calls = tuple(FunctionCall(c.name, c.arguments, c.id) for c in reply.tool_calls)
        # What a model writes around its calls is mostly line breaks.
        content = (reply.content.strip() or None) if calls else reply.content
        # Templates show a model what it thought before its calls, and drop what is older.
        said = Message("assistant", content, calls, reasoning=reply.reasoning or None)
        self.messages = [*trimmed.kept, said]
        self._owed = list(calls)


def _result(line: str) -> str | dict[str, Any]:
    try:
        value = json_text.decode(line)
    except ValueError:
        return line
    return value if isinstance(value, dict) else line
