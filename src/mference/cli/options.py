"""Options that several commands share."""

import functools
import inspect
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, get_args

import typer

from mference.chat.format import ChatFormat
from mference.cli.output import note, print_footer, print_phases
from mference.devices import Device
from mference.engine import CHUNKS, Advice, check_sizes
from mference.errors import ConfigError
from mference.jsontext import is_unicode
from mference.memory import RUNGS, Slots, parse_bytes
from mference.model import Answer, Model, Settings, assemble, chat_format_of
from mference.session.config import GenerationConfig
from mference.store import Install, Policy, open_install
from mference.store.opening import POLICIES


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no whole number") from None


def _real(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no number") from None


def _word(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise typer.BadParameter(f"{text!r} is none of {', '.join(words)}")
        return text

    return parse


ToolsFile = Annotated[
    Path | None,
    typer.Option("--tools", metavar="FILE", help="Offer the functions of this JSON array."),
]
Thinking = Annotated[
    bool, typer.Option("--thinking", help="Let the model think first; its thoughts go to stderr.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
MaxContext = Annotated[
    int, typer.Option(metavar="N", parser=_whole, help="Tokens of prompt and answer together.")
]
AllowUnpinned = Annotated[
    bool, typer.Option("--allow-unpinned", help="Take what matches no pinned checkpoint, too.")
]

# What the checks of the Python API call these flags.
_FLAGS = {name: "--" + name.replace("_", "-") for name in (*Settings.__annotations__, "threads")}
_FLAGS |= {"context": "--max-context", "memory": "--memory"}
_NAMES = re.compile(rf"\b({'|'.join(_FLAGS)})\b")


@dataclass(frozen=True, kw_only=True)
class GenerationOptions:
    """The flags of a command that loads a model and generates; checked when made.

    Raises:
        ConfigError: one is outside its range, or they contradict each other.
    """

    model: Annotated[
        Path, typer.Option(metavar="DIR", help="An installed model (a .gturbo directory).")
    ]
    max_new: Annotated[
        int, typer.Option(metavar="N", parser=_whole, help="Most tokens of an answer.")
    ] = 1024
    max_context: MaxContext = 4096
    temperature: Annotated[
        float,
        typer.Option(metavar="F", parser=_real, help="0 takes the most likely token every time."),
    ] = 0.2
    top_k: Annotated[
        int,
        typer.Option(metavar="N", parser=_whole, help="Draw from the N best tokens; 0 is off."),
    ] = 64
    top_p: Annotated[
        float,
        typer.Option(metavar="F", parser=_real, help="Draw from the best tokens of this share."),
    ] = 0.95
    repetition_penalty: Annotated[
        float, typer.Option(metavar="F", parser=_real, help="Over 1 avoids repetition.")
    ] = 1.0
    seed: Annotated[
        int | None, typer.Option(metavar="N", parser=_whole, help="Makes the draws repeatable.")
    ] = None
    stop: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="End the answer before this text; may be repeated."),
    ] = None
    device: Annotated[
        Device,
        typer.Option(
            metavar="|".join(get_args(Device)),
            parser=_word(*get_args(Device)),
            help="What computes; auto is a Mac's GPU where there is one.",
        ),
    ] = "auto"
    expert_cache_slots: Annotated[
        str,
        typer.Option(
            metavar="N",
            help=f"Experts kept for each layer: {', '.join(map(str, RUNGS))}, resident, or auto.",
        ),
    ] = "auto"
    prefill_chunk: Annotated[
        str,
        typer.Option(
            metavar="N",
            help=f"Prompt tokens computed together: {', '.join(map(str, CHUNKS))}, or auto.",
        ),
    ] = "auto"
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Most own memory, such as 6GiB: auto keeps within it."),
    ] = None
    rdadvise: Annotated[
        Advice,
        typer.Option(
            metavar="|".join(get_args(Advice)),
            parser=_word(*get_args(Advice)),
            help="Tell the system of reads to come; changes the speed at most.",
        ),
    ] = "off"
    threads: Annotated[
        int,
        typer.Option(metavar="N", parser=_whole, help="Compute threads; 0 for one a processor."),
    ] = 0
    verify: Annotated[
        Policy,
        typer.Option(
            metavar="|".join(POLICIES),
            parser=_word(*POLICIES),
            help="Hash layer files before first use, or trust the last verification.",
        ),
    ] = "full-sha256"
    flash_head: Annotated[
        bool, typer.Option("--flash-head", help="Approximate output head; Maple only.")
    ] = False
    allow_unpinned: AllowUnpinned = False
    quiet: Annotated[bool, typer.Option("--quiet", help="No footer after the answer.")] = False
    phases: Annotated[
        bool,
        typer.Option(
            "--phases", envvar="MFERENCE_PHASES", help="Say after the footer where the time went."
        ),
    ] = False
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Record which experts each token used (.npz)."),
    ] = None

    def __post_init__(self) -> None:
        for text in self.stop or ():
            require_unicode("--stop", text)
        parse_slots(self.expert_cache_slots)
        parse_chunk(self.prefill_chunk)
        if self.trace is not None:
            _check_place(self.trace)
        with _flags_named():
            if self.memory is not None:
                parse_bytes(self.memory)
            GenerationConfig(**self.settings)
            check_sizes(self.max_context, self.threads)

    @property
    def settings(self) -> Settings:
        """What the generation loop is told."""
        return {
            "max_new": self.max_new,
            "temperature": self.temperature,
            "top_k": self.top_k or None,
            "top_p": self.top_p,
            "repetition_penalty": self.repetition_penalty,
            "seed": self.seed,
            "stop": self.stop or (),
        }

    def open(self) -> tuple[Install, ChatFormat]:
        """The install and its chat format. Raises as `mference.load` does."""
        install = open_install(
            self.model, policy=self.verify, allow_unpinned=self.allow_unpinned, warn=note
        )
        if self.flash_head:
            note(f"--flash-head: {install.family} has only the exact head, which is used.")
        return install, chat_format_of(install)

    def assemble(self, install: Install, form: ChatFormat, auto_chunk: int) -> Model:
        """The model; `auto_chunk` is the chunk that `auto` stands for. Raises as `load` does."""
        return assemble(
            install,
            form,
            device=self.device,
            slots=parse_slots(self.expert_cache_slots),
            context=self.max_context,
            prefill_chunk=parse_chunk(self.prefill_chunk) or auto_chunk,
            memory=self.memory,
            threads=self.threads,
            advice=self.rdadvise,
        )

    def show_figures(self, answer: Answer) -> None:
        """The footer of an answer, and where its time went, as far as they are wanted."""
        if not self.quiet:
            print_footer(answer)
        if self.phases:
            print_phases(answer)

    @contextmanager
    def traced(self, model: Model) -> Iterator[None]:
        """Write the routing trace of what runs inside, however that ends, if one is asked for."""
        if self.trace is None:
            yield
            return
        try:
            with model.trace_routing() as trace:
                yield
        finally:
            trace.save(self.trace)


def with_generation_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command, whose argument `options` is made of flags of its own: one a field."""

    @functools.wraps(command)
    def run(**given: object) -> None:
        shared = {field.name: given.pop(field.name) for field in fields(GenerationOptions)}
        command(options=GenerationOptions(**shared), **given)  # type: ignore[arg-type]

    own = inspect.signature(command).parameters.values()
    parameters = [
        *(parameter for parameter in own if parameter.name != "options"),
        *(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.default is MISSING else field.default,
                annotation=field.type,
            )
            for field in fields(GenerationOptions)
        ),
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


@contextmanager
def _flags_named() -> Iterator[None]:
    """Errors of what runs inside name the flags instead of the Python API's arguments."""
    try:
        yield
    except ConfigError as error:
        message = _NAMES.sub(lambda name: _FLAGS[name[0]], str(error))
        raise ConfigError(message) from None


def check_context(tokens: int) -> None:
    """Check --max-context where no model is loaded.

    Raises:
        ConfigError: it is outside its range.
    """
    with _flags_named():
        check_sizes(tokens, 0)


def require_unicode(flag: str, text: str) -> None:
    """Check a text of the command line.

    Raises:
        ConfigError: its bytes were not UTF-8.
    """
    if not is_unicode(text):
        raise ConfigError(f"{flag}: not UTF-8; give it as UTF-8 text")


def _check_place(trace: Path) -> None:
    """Check that a trace can be written there before it is made."""
    if trace.is_dir():
        raise ConfigError(f"--trace {trace}: this is a folder; name a file in it")
    folder = trace.absolute().parent
    if not folder.is_dir():
        raise ConfigError(f"--trace {trace}: there is no such folder")
    if not os.access(trace if trace.exists() else folder, os.W_OK):
        raise ConfigError(f"--trace {trace}: you may not write there; name another file")


def parse_slots(text: str) -> Slots:
    """The value of --expert-cache-slots.

    Raises:
        ConfigError: it is not one of the choices.
    """
    if text == "auto":
        return "auto"
    if text == "resident":
        return "resident"
    return _choice("--expert-cache-slots", text, RUNGS, "resident, auto")


def parse_chunk(text: str) -> int | None:
    """The value of --prefill-chunk; None for auto.

    Raises:
        ConfigError: it is not one of the choices.
    """
    return None if text == "auto" else _choice("--prefill-chunk", text, CHUNKS, "auto")


def _choice(flag: str, text: str, numbers: tuple[int, ...], words: str) -> int:
    for number in numbers:
        if text == str(number):
            return number
    choices = ", ".join(map(str, numbers))
    raise ConfigError(f"{flag} {text!r}: choose one of {choices}, {words}")
