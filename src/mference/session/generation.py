"""The generation loop: prefill the prompt, then draw, read and append one token at a time."""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mference.chat.dialects.base import MalformedCallError, StopReason
from mference.chat.parts import Part, calls_of, content_of, reasoning_of
from mference.errors import ContextLengthError, GenerationError
from mference.session.config import GenerationConfig
from mference.session.engine import Engine
from mference.session.results import Completion, FinishReason, Reply, Timings
from mference.session.sampling import Sampler


class EmptyPromptError(GenerationError):
    """The prompt has no tokens."""


class ContinuationError(GenerationError):
    """The KV state is not the beginning of the prompt that a request says it is."""


class Reader(Protocol):
    """Turns tokens into the parts of an answer; `mference.chat.readers` has two."""

    @property
    def stopped(self) -> bool:
        """Whether a stop string is complete."""

    def push(self, token: int) -> tuple[Part, ...]:
        """The parts that this token completes."""

    def finish(self) -> tuple[Part, ...]:
        """The parts still held."""


@dataclass(frozen=True)
class TokenEvent:
    """A drawn token that did not end the answer, and the parts that it completed."""

    index: int
    token: int
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The visible text of the parts; empty while text is held."""
        return content_of(self.parts)


@dataclass(frozen=True)
class Generated:
    """How a generation ended.

    `tokens` are all drawn tokens. The last of them has no KV row yet: it is the `boundary`, and
    the state holds `kv_tokens`. `tail` are the parts that were held until the end.
    """

    reason: FinishReason
    prompt: tuple[int, ...] = field(repr=False)
    tokens: tuple[int, ...] = field(repr=False)
    tail: tuple[Part, ...]
    cached: int
    timings: Timings

    @property
    def boundary(self) -> tuple[int, ...]:
        """The token that was drawn and not stored; empty if none was drawn."""
        return self.tokens[-1:]

    @property
    def kv_tokens(self) -> tuple[int, ...]:
        """The tokens in the KV state, in order."""
        return self.prompt + self.tokens[:-1]


Generation = Generator[TokenEvent, None, Generated]
"""A running generation: yields an event a token and returns how it ended."""


def answer_limit(prompt_tokens: int, max_new: int, context: int) -> int:
    """`max_new`, cut to the room that the prompt leaves in the context window.

    Raises:
        ContextLengthError: the prompt leaves no room for one token.
    """
    if prompt_tokens >= context:
        raise ContextLengthError(
            f"the prompt has {prompt_tokens:,} tokens, and a context of {context:,} holds at most "
            f"{context - 1:,} beside an answer; shorten it by {prompt_tokens - context + 1:,}, or "
            "load the model with a larger context"
        )
    return min(max_new, context - prompt_tokens)


def check_request(
    prompt_tokens: int, max_new: int, context: int, *, position: int = 0, cached: int = 0
) -> None:
    """Check that a request can run to its end before anything is computed.

    Of the prompt, `cached` tokens are in a KV state of `position` tokens.

    Raises:
        EmptyPromptError: there is no prompt.
        ContinuationError: the state is not that beginning of the prompt, or is all of it, so that
            there is no last row to draw from.
        ContextLengthError: prompt and answer do not fit the context together.
    """
    if prompt_tokens == 0:
        raise EmptyPromptError("the prompt is empty; give it at least one token")
    if not 0 <= cached < prompt_tokens or position != cached:
        raise ContinuationError(
            f"cannot continue {prompt_tokens} prompt tokens at {cached}: the KV state holds "
            f"{position}, and at least one prompt token must be left to compute; rewind first"
        )
    if prompt_tokens + max_new > context:
        raise ContextLengthError(
            f"{prompt_tokens:,} prompt tokens and {max_new:,} new ones do not fit a context of "
            f"{context:,}; ask for at most {max(0, context - prompt_tokens):,}, shorten the "
            "prompt, or load the model with a larger context"
        )


def generate(
    engine: Engine,
    prompt: Sequence[int],
    config: GenerationConfig,
    reader: Reader,
    stops: Mapping[int, StopReason],
    *,
    cached: int = 0,
    should_stop: Callable[[], bool] | None = None,
    on_prefill: Callable[[int, int], None] | None = None,
) -> Generation:
    """Draw an answer, one `TokenEvent` a token; the generator returns how it ended.

    engine: holds the first `cached` tokens of `prompt` and nothing else.
    stops: ids that end the answer, with the reason; they are counted and not shown.
    should_stop: asked between prefill chunks and after every token; the answer then ends like one
        that met a stop string.
    on_prefill: told the prompt tokens done and their total after every chunk.

    The request is checked at once, and computed as the generator is advanced. A failure leaves
    the engine wherever it was: rewind it before the next request.

    Raises:
        EmptyPromptError, ContinuationError, ContextLengthError: the request cannot start.
        ToolCallError: from the generator; the reader met a malformed tool call.
    """
    room = answer_limit(len(prompt), config.max_new, engine.context) if prompt else 1
    check_request(len(prompt), room, engine.context, position=engine.position, cached=cached)
    request = _Request(tuple(prompt), cached, room, stops, should_stop, on_prefill)
    return _generation(engine, request, Sampler(config, engine.softcap), reader)


@dataclass(frozen=True)
class _Request:
    prompt: tuple[int, ...]
    cached: int
    room: int
    stops: Mapping[int, StopReason]
    should_stop: Callable[[], bool] | None
    on_prefill: Callable[[int, int], None] | None

    def told_to_stop(self) -> bool:
        return self.should_stop is not None and self.should_stop()

    def report(self, done: int) -> None:
        if self.on_prefill is not None:
            self.on_prefill(done, len(self.prompt))


def _generation(engine: Engine, request: _Request, sampler: Sampler, reader: Reader) -> Generation:
    prompt, pending = request.prompt, request.prompt[request.cached :]
    tokens: list[int] = []
    clock = _Clock()
    sampler.observe(prompt)

    def ended(reason: FinishReason, tail: tuple[Part, ...] = ()) -> Generated:
        if reader.stopped:  # also when the text held until the end completes a stop string
            reason = "stop_string"
        return Generated(reason, prompt, tuple(tokens), tail, request.cached, clock.timings())

    while len(pending) > engine.prefill_chunk:
        engine.prefill(pending[: engine.prefill_chunk])
        pending = pending[engine.prefill_chunk :]
        request.report(len(prompt) - len(pending))
        if request.told_to_stop():
            return ended("stop_string")
    while True:
        token = _next_token(engine, sampler, pending, len(prompt) + len(tokens))
        if not tokens:
            clock.first_token()
            request.report(len(prompt))
        tokens.append(token)
        if token in request.stops:
            return ended(request.stops[token], reader.finish())
        yield TokenEvent(len(tokens) - 1, token, reader.push(token))
        if reader.stopped or request.told_to_stop():
            return ended("stop_string")
        if len(tokens) == request.room:
            return ended("max_tokens", reader.finish())
        sampler.observe((token,))
        pending = (token,)


def parts_of(events: Generation) -> Generator[Part, None, Generated]:
    """The parts of an answer as they are completed, those held until the end included."""
    while True:
        try:
            event = next(events)
        except StopIteration as end:
            generated: Generated = end.value
            break
        yield from event.parts
    yield from generated.tail
    return generated


def completion_of(parts: Sequence[Part], generated: Generated) -> Completion:
    """The completion made of these parts, `generated.tail` included among them."""
    return Completion(
        content_of(parts), generated.tokens, generated.reason, len(generated.prompt),
        len(generated.tokens), generated.cached, generated.timings,
    )  # fmt: skip


def reply_of(parts: Sequence[Part], generated: Generated, *, tools_offered: bool = False) -> Reply:
    """The reply made of these parts, `generated.tail` included among them.

    Raises:
        MalformedCallError: tools were offered, and the model waits for the result of a call that
            it did not make. Without tools the marker just ends the answer.
    """
    calls = calls_of(parts)
    if generated.reason == "tool_calls" and tools_offered and not calls:
        raise MalformedCallError("the model waits for a tool result without having called a tool")
    completion = completion_of(parts, generated)
    return Reply(completion.text, reasoning_of(parts), calls, completion)


class _Clock:
    """Times one generation: prefill until the first token, decode from there."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._first: float | None = None

    def first_token(self) -> None:
        self._first = time.perf_counter()

    def timings(self) -> Timings:
        now = time.perf_counter()
        first = now if self._first is None else self._first
        return Timings(first - self._started, now - first)


def _next_token(engine: Engine, sampler: Sampler, pending: Sequence[int], position: int) -> int:
    if sampler.needs_logits:
        return sampler.sample(engine.logits(pending), position)
    return engine.greedy(pending)
