"""Finds stop strings in a stream of text chunks."""

from collections.abc import Iterable


class StopMatcher:
    """Lets text through until a stop string is complete, and nothing from its start on.

    Text that could be the beginning of a stop string is held until it is clear that it is not.
    The stop string completed first wins; of those completed by the same character, the longest.
    So the result does not depend on how the text was cut into chunks. Empty stops are ignored.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = tuple(dict.fromkeys(stop for stop in stops if stop))
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """Take the next chunk; returns the text that is now safe to show."""
        if self.stopped or not text:
            return ""
        text = self._held + text
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.stopped = True
            self._held = ""
            return text[: min(found)[1]]
        keep = self._possible_start(text)
        self._held = text[keep:]
        return text[:keep]

    def flush(self) -> str:
        """The held text, which no stop string can complete any more."""
        held, self._held = self._held, ""
        return held

    def _possible_start(self, text: str) -> int:
        """Where the longest ending of `text` that begins a stop string starts."""
        for start in range(max(0, len(text) - self._longest + 1), len(text)):
            ending = text[start:]
            if any(stop.startswith(ending) for stop in self._stops):
                return start
        return len(text)
