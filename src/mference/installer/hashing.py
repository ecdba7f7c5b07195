"""SHA-256 over many messages, two at a time where the processor is faster that way."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from queue import Empty, SimpleQueue

LANES = 1
THREADS = 2


@dataclass(frozen=True)
class Message:
    """Bytes to be hashed, in pieces, and what is done with their hash (hex)."""

    pieces: Iterator[bytes] | Iterator[memoryview]
    done: Callable[[str], None]


def hash_messages(messages: SimpleQueue[Message | None]) -> None:
    """Hash messages in the order in which they come, until None does.

    Raises what reading a message or being done with one raises.
    """
    lanes: list[_Lane] = []
    ended = False
    while lanes or not ended:
        while not ended and len(lanes) < LANES:
            try:
                message = messages.get_nowait() if lanes else messages.get()
            except Empty:
                break
            if message is None:
                ended = True
            else:
                lanes.append(_Lane(message))
        lanes = [lane for lane in lanes if lane.refill()]
        _advance(lanes)


class _Lane:
    """One message on its way through."""

    def __init__(self, message: Message) -> None:
        self.hash = sha256()
        self.rest = memoryview(b"")
        self._message = message

    def refill(self) -> bool:
        """See that there are bytes to hash; False after the last."""
        while not self.rest:
            piece = next(self._message.pieces, None)
            if piece is None:
                self._message.done(self.hash.hexdigest())
                return False
            self.rest = memoryview(piece)
        return True

    def take(self, count: int) -> memoryview:
        """The next bytes."""
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken


def _advance(lanes: list[_Lane]) -> None:
    for lane in lanes:
        lane.hash.update(lane.take(len(lane.rest)))
