"""A loaded model: what `mference.load` returns."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import index
from pathlib import Path
from typing import Self, TypedDict, TypeVar, Unpack

from mference.chat.format import ChatFormat
from mference.chat.messages import InvalidMessagesError, MessageLike, conversation
from mference.chat.parts import Content, Part
from mference.chat.tokenizer import find_tokenizer
from mference.chat.tools import ToolLike
from mference.devices import Device
from mference.engine import Advice, CoreEngine, build_core
from mference.errors import ConfigError, GenerationError
from mference.inspect import RoutingTrace
from mference.memory import Slots
from mference.report import Report, process_memory
from mference.session.config import GenerationConfig
from mference.session.generation import (
    Generated,
    Generation,
    Reader,
    completion_of,
    generate,
    parts_of,
    reply_of,
)
from mference.session.results import Completion, Reply
from mference.store import Install, Policy, open_install
from mference.store.opening import POLICIES

T = TypeVar("T")
OnPrefill = Callable[[int, int], None]


class Settings(TypedDict, total=False):
    """Keyword settings of a generation: the fields of `GenerationConfig`."""

    max_new: int
    temperature: float
    top_k: int | None
    top_p: float | None
    repetition_penalty: float
    seed: int | None
    stop: str | Sequence[str]


class Answer(Iterator[str]):
    """An answer as it is written: iterate over it for pieces of visible text.

    After the last piece `completion`, `reply` and `report` describe the whole answer. Closing it,
    or starting another generation on the same model, ends it early.
    """

    def __init__(
        self, events: Generation, report: Callable[[], Report], *, tools_offered: bool
    ) -> None:
        self._stream = parts_of(events)
        self._model_report = report
        self._report = report()
        self._tools_offered = tools_offered
        self._turn = threading.Lock()
        self._parts: list[Part] = []
        self._generated: Generated | None = None

    def __next__(self) -> str:
        while True:
            part = self._next_part()
            if isinstance(part, Content):
                return part.text

    def parts(self) -> Iterator[Part]:
        """Iterate over content, reasoning and tool calls instead, in the order written."""
        with suppress(StopIteration):
            while True:
                yield self._next_part()

    def _next_part(self) -> Part:
        try:
            part = self._alone(lambda: next(self._stream))
        except StopIteration as end:
            if isinstance(end.value, Generated):
                self._generated = end.value
                self._report = self._model_report().since(self._report)
            raise StopIteration from None
        self._parts.append(part)
        return part

    def close(self) -> None:
        """End the answer where it is.

        Raises:
            GenerationError: it is being computed, by another thread or further up the stack.
        """
        self._alone(self._stream.close)

    def _alone(self, step: Callable[[], T]) -> T:
        if not self._turn.acquire(blocking=False):
            raise GenerationError(
                "the model is already computing an answer, for another thread or for the function "
                "that calls this; wait for it, or load one model for each"
            )
        try:
            return step()
        finally:
            self._turn.release()

    def _finished(self) -> Generated:
        for _ in self:
            pass
        if self._generated is None:
            raise GenerationError("this answer was ended before it was complete")
        return self._generated

    @property
    def completion(self) -> Completion:
        """The whole answer as text and counts; computes what is left of it."""
        generated = self._finished()
        return completion_of(self._parts, generated)

    @property
    def reply(self) -> Reply:
        """The whole answer as a chat reply; computes what is left of it.

        Raises:
            ToolCallError: the model wrote a tool call that is not one.
        """
        generated = self._finished()
        return reply_of(self._parts, generated, tools_offered=self._tools_offered)

    @property
    def report(self) -> Report:
        """What the model counted for this answer; computes what is left of it."""
        self._finished()
        return self._report


def load(
    path: str | Path,
    *,
    device: Device = "auto",
    slots: Slots = "auto",
    context: int = 4096,
    prefill_chunk: int = 128,
    memory: int | str | None = None,
    threads: int = 0,
    advice: Advice = "off",
    verify: Policy = "full-sha256",
    allow_unpinned: bool = False,
    warn: Callable[[str], None] | None = None,
) -> "Model":
    """Open an installed model.

    Args:
        path: a `.gturbo` directory made by `mference.install`.
        device: what computes: `cpu`, `metal` (the GPU of a Mac), or `auto`, the GPU of a Mac where
            there is one, else the CPU.
        slots: experts kept in memory for each layer: 8, 16, 24, 32, 64, 96, 128, `resident` (map
            the layer files whole), or `auto` (every expert once read where that fits in free
            memory, else as many as fit; 16 for the embedded demo). The output is the same.
        context: most tokens of prompt and answer together; sets the size of the KV state.
        prefill_chunk: prompt tokens computed together: 32, 64 ... 4096. The output is the same.
        memory: most bytes of own memory, as a number or a text such as `6GiB`: expert slots, keys
            and values, scratch, Python. `auto` then takes the most slots that keep within it.
            Mapped files are not own memory: the system may drop and read them again.
        threads: compute threads; 0 for one a processor.
        advice: whether the system is told which experts are about to be read: `off`; `default`,
            always; `bounded`, unless a request misses more than 12 experts or 384 MiB; `adaptive`,
            as bounded, and only while the device has work and no earlier advice for the same token
            took 1 ms. The output is the same; what it gains depends on the disk.
        verify: `full-sha256` hashes each layer file before its first use; `trusted-receipt` relies
            on the receipt of the last verification.
        allow_unpinned: also open an install that matches no pinned entry.
        warn: receives one line if the install is unpinned; the log otherwise.

    Raises:
        StoreError: the directory is not an install that can be used; each condition has a class.
        ConfigError: an argument is outside its range, or the budget does not hold the model.
        DeviceError: the device is not available, or the system has not enough memory.
    """
    if verify not in POLICIES:
        raise ConfigError(f"verify is {verify!r}; choose one of {', '.join(POLICIES)}")
    install = open_install(path, policy=verify, allow_unpinned=allow_unpinned, warn=warn)
    return assemble(
        install,
        chat_format_of(install),
        device=device,
        slots=slots,
        context=context,
        prefill_chunk=prefill_chunk,
        memory=memory,
        threads=threads,
        advice=advice,
    )


def chat_format_of(install: Install) -> ChatFormat:
    """The tokenizer and template of an install.

    A directory named in `MFERENCE_TOKENIZER_DIR` stands in where the install has no tokenizer.
    Raises as `ChatFormat.load` does.
    """
    directory = find_tokenizer(install.path, os.environ.get("MFERENCE_TOKENIZER_DIR"))
    return ChatFormat.load(directory or install.tokenizer_dir)


def assemble(
    install: Install,
    chat_format: ChatFormat,
    *,
    device: Device = "auto",
    slots: Slots,
    context: int,
    prefill_chunk: int,
    memory: int | str | None = None,
    threads: int,
    advice: Advice = "off",
) -> "Model":
    """The model of an open install, for callers that need its tokenizer before its size.

    Arguments and errors are those of `load`.
    """
    core = build_core(
        install,
        device=device,
        slots=slots,
        context=context,
        chunk=prefill_chunk,
        memory=memory,
        threads=threads,
        advice=advice,
    )
    arch = install.manifest.arch
    engine = CoreEngine(core, arch=arch, context=context, chunk=prefill_chunk)
    return Model(install, chat_format, engine)


class Model:
    """A model ready to generate; made by `mference.load`, one sequence at a time.

    Use it as a context manager, or call `close()`: expert slots and state are freed then. Each
    generation starts from an empty state. One thread at a time: a call while another one computes
    raises `GenerationError`. The interpreter is free to run other threads meanwhile.
    """

    def __init__(self, install: Install, chat_format: ChatFormat, engine: CoreEngine) -> None:
        self.install = install
        self.format = chat_format
        self._engine: CoreEngine | None = engine
        self._answer: Answer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the model's memory. Closing twice is harmless.

        Raises:
            GenerationError: an answer is being computed; the model stays open.
        """
        if self._answer is not None:
            self._answer.close()
        self._answer = None
        self._engine = None

    @property
    def context(self) -> int:
        """Most tokens of prompt and answer together."""
        return self._open().context

    def generate(
        self, prompt: str, *, on_prefill: OnPrefill | None = None, **settings: Unpack[Settings]
    ) -> Completion:
        """Continue a raw text prompt; no chat framing is added.

        Args:
            prompt: text; special tokens written in it take effect.
            on_prefill: told the prompt tokens done, and their total, after each chunk.
            **settings: fields of `GenerationConfig`, such as `max_new=64, temperature=0`.

        Raises:
            ConfigError: a setting is outside its range, or the prompt is no text.
            ContextLengthError: the prompt does not fit the context.
            ExpertFillError: an expert could not be read.
        """
        if not isinstance(prompt, str):
            raise ConfigError(f"generate continues a text, got {type(prompt).__name__}; use chat")
        return self.stream(prompt, on_prefill=on_prefill, **settings).completion

    def chat(
        self,
        messages: Sequence[MessageLike],
        *,
        tools: Sequence[ToolLike] | None = None,
        thinking: bool = False,
        on_prefill: OnPrefill | None = None,
        **settings: Unpack[Settings],
    ) -> Reply:
        """Answer a conversation.

        Args:
            messages: `{"role": "user", "content": "..."}` and so on, oldest first.
            tools: functions the model may call, declared as for OpenAI's chat completions.
            thinking: let the model think first; what it thinks is `Reply.reasoning`.
            on_prefill: told the prompt tokens done, and their total, after each chunk.
            **settings: fields of `GenerationConfig`.

        Raises:
            TemplateError: the messages or tools are not well formed, or the model cannot think.
            ToolCallError: the model wrote a tool call that is not one.
            ConfigError, ContextLengthError, ExpertFillError: as in `generate`.
        """
        turns = conversation(messages)
        answer = self.stream(
            turns, tools=tools, thinking=thinking, on_prefill=on_prefill, **settings
        )
        return answer.reply

    def stream(
        self,
        prompt: str | Sequence[MessageLike],
        *,
        tools: Sequence[ToolLike] | None = None,
        thinking: bool = False,
        on_prefill: OnPrefill | None = None,
        **settings: Unpack[Settings],
    ) -> Answer:
        """Like `generate` for a text, like `chat` for messages, but piece by piece.

        Nothing is computed before the first piece is asked for. Raises as they do.
        """
        self._open()
        GenerationConfig(**settings)
        if isinstance(prompt, str):
            if thinking:
                raise ConfigError("thinking goes with messages; a text is continued as it stands")
            ids = self.format.raw_ids(prompt)
            return self.stream_ids(ids, chat=False, on_prefill=on_prefill, **settings)
        turns = conversation(prompt)
        if not turns:
            raise InvalidMessagesError("messages: there is no message to answer")
        ids = self.format.prompt_ids(turns, tools, enable_thinking=thinking)
        return self.stream_ids(ids, chat=True, tools=tools, on_prefill=on_prefill, **settings)

    def stream_ids(
        self,
        ids: Sequence[int],
        *,
        chat: bool,
        tools: Sequence[ToolLike] | None = None,
        on_prefill: OnPrefill | None = None,
        **settings: Unpack[Settings],
    ) -> Answer:
        """Like `stream`, for a prompt whose ids are known.

        Args:
            ids: the prompt, from `format.prompt_ids` or `format.raw_ids`.
            chat: read an assistant's answer, whose thoughts and tool calls are no visible text.
            tools: those that the prompt declares.
            on_prefill: told the prompt tokens done, and their total, after each chunk.
            **settings: fields of `GenerationConfig`.

        Raises:
            ConfigError: an id is none of the vocabulary's, or a setting is outside its range.
        """
        engine = self._open()
        config = GenerationConfig(**settings)
        prompt = _tokens(ids, engine.vocabulary)
        reader: Reader = (
            self.format.assistant_reader(tools, config.stop, prompt=prompt)
            if chat
            else self.format.text_reader(config.stop)
        )
        if self._answer is not None:
            self._answer.close()
        engine.rewind(0)
        events = generate(engine, prompt, config, reader, self.format.stops, on_prefill=on_prefill)
        self._answer = Answer(events, self.report, tools_offered=bool(tools))
        return self._answer

    def report(self) -> Report:
        """The counters of this model since it was loaded."""
        engine = self._open()
        return Report(**engine.counters(), memory=process_memory(*engine.memory_peak()))

    @contextmanager
    def trace_routing(self) -> Iterator[RoutingTrace]:
        """Record which experts the router chooses, for as long as the `with` block runs.

        The trace it yields is empty inside the block and complete after it. Tracing inside of
        tracing starts anew. A few hundred bytes are kept for each token.
        """
        engine = self._open()
        trace = RoutingTrace(num_experts=self.install.manifest.arch.integer("numExperts"))
        engine.record_routing(on=True)
        try:
            yield trace
        finally:
            trace.experts = engine.routing()
            engine.record_routing(on=False)

    def _open(self) -> CoreEngine:
        if self._engine is None:
            raise GenerationError("this model is closed; load it again")
        return self._engine


def _tokens(ids: Sequence[int], vocabulary: int) -> list[int]:
    try:
        tokens = [index(token) for token in ids]
    except TypeError:
        raise ConfigError(f"ids must be a sequence of token ids, not {ids!r:.80}") from None
    if wrong := [token for token in tokens if not 0 <= token < vocabulary]:
        raise ConfigError(f"token {wrong[0]} is outside the vocabulary of {vocabulary}")
    return tokens
