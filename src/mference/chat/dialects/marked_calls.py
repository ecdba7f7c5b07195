"""What splitters share whose tool calls stand between two marker tokens."""

from collections.abc import Callable, Collection

from mference.chat.dialects.base import MalformedCallError
from mference.chat.parts import Part, ToolCall
from mference.errors import ToolCallError


class MarkedCallSplitter:
    """A `Splitter` that collects calls between `tool_open` and `tool_close`, and fails closed.

    A subclass says what text and the other markers are outside of calls.
    """

    def __init__(
        self,
        allowed: Collection[str],
        parse_calls: Callable[[str, Collection[str]], tuple[ToolCall, ...]],
    ) -> None:
        self._allowed = allowed
        self._parse_calls = parse_calls
        self._call: list[str] | None = None  # the text of the open tool call
        self._called = False
        self._failure: ToolCallError | None = None

    @property
    def keeps_special(self) -> bool:
        """Inside a tool call special tokens are text."""
        return self._call is not None

    def text(self, text: str) -> tuple[Part, ...]:
        """Take ordinary text: a piece of a tool call, or what the dialect makes of it."""
        self._refuse_after_failure()
        if not text:
            return ()
        if self._call is not None:
            self._call.append(text)
            return ()
        return self._text_outside(text)

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
        """End the answer; what is unfinished outside of calls is dropped.

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

    def _text_outside(self, text: str) -> tuple[Part, ...]:
        raise NotImplementedError

    def _marker_outside(self, role: str) -> None:
        """What a marker outside of calls does, one that opens a call included."""
        raise NotImplementedError

    def _marker_as_text(self, role: str) -> str | None:
        """What a marker is inside a tool call; None where it cannot stand there."""
        del role
        return None

    def _marker(self, role: str) -> tuple[Part, ...]:
        if role == "tool_close":
            if self._call is None:
                raise MalformedCallError("the model closed a tool call that it had not opened")
            calls = self._parse_calls("".join(self._call), self._allowed)
            self._call = None
            self._called = True
            return calls
        if self._call is not None:
            text = self._marker_as_text(role)
            if text is None:
                raise MalformedCallError(f"the model wrote a {role} marker inside a tool call")
            self._call.append(text)
        else:
            if role == "tool_open":
                self._call = []
            self._marker_outside(role)
        return ()

    def _refuse_after_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
