"""Readers turn the tokens of one answer into its parts, and stop it at stop strings."""

from collections.abc import Iterable, Mapping

from mference.chat.detokenizer import Detokenizer
from mference.chat.dialects.base import Splitter
from mference.chat.parts import Content, Part
from mference.chat.stops import StopMatcher


class TextReader:
    """Reads an answer as plain text: everything but special tokens is content."""

    def __init__(self, detokenizer: Detokenizer, stops: Iterable[str] = ()) -> None:
        self._detokenizer = detokenizer
        self._stops = StopMatcher(stops)

    @property
    def stopped(self) -> bool:
        """Whether a stop string is complete; nothing after it is shown."""
        return self._stops.stopped

    def push(self, token: int) -> tuple[Part, ...]:
        """Take the next token; returns what it adds to the visible text."""
        return _content(self._stops.push(self._detokenizer.push(token)))

    def finish(self) -> tuple[Part, ...]:
        """End the answer; returns the text that was held."""
        return _content(self._stops.push(self._detokenizer.flush()) + self._stops.flush())


class AssistantReader:
    """Reads an answer in a dialect: thoughts and tool calls are kept out of the content.

    Stop strings are looked for in the content only.
    """

    def __init__(
        self,
        detokenizer: Detokenizer,
        splitter: Splitter,
        markers: Mapping[int, str],
        stops: Iterable[str] = (),
    ) -> None:
        """`markers` maps the ids of the dialect's control tokens to their roles."""
        self._detokenizer = detokenizer
        self._splitter = splitter
        self._markers = markers
        self._stops = StopMatcher(stops)

    @property
    def stopped(self) -> bool:
        """Whether a stop string is complete; nothing after it is shown."""
        return self._stops.stopped

    def push(self, token: int) -> tuple[Part, ...]:
        """Take the next token; returns the parts it completes.

        Raises:
            ToolCallError: the model wrote a tool call that is not one, or an unknown tool's.
        """
        role = self._markers.get(token)
        if role is None:
            text = self._detokenizer.push(token, keep_special=self._splitter.keeps_special)
            return self._shown(self._splitter.text(text))
        before = self._splitter.text(self._detokenizer.flush())
        return self._shown(before + self._splitter.marker(role))

    def finish(self) -> tuple[Part, ...]:
        """End the answer; returns the parts that were held.

        Raises:
            ToolCallError: the answer ended inside a tool call.
        """
        rest = self._splitter.text(self._detokenizer.flush()) + self._splitter.finish()
        return self._shown(rest) + _content(self._stops.flush())

    def _shown(self, parts: Iterable[Part]) -> tuple[Part, ...]:
        """The parts, with content passed through the stop matcher.

        Content before a tool call is released with it, so that the order of the parts is kept.
        """
        shown: list[Part] = []
        for part in parts:
            if self.stopped:
                break
            if isinstance(part, Content):
                shown += _content(self._stops.push(part.text))
            else:
                shown += (*_content(self._stops.flush()), part)
        return tuple(shown)


def _content(text: str) -> tuple[Part, ...]:
    return (Content(text),) if text else ()
