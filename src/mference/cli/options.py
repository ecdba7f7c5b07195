"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from mference.engine import CHUNKS
from mference.errors import ConfigError
from mference.memory import RUNGS, Slots
from mference.model import Settings
from mference.session.config import GenerationConfig

ModelDir = Annotated[
    Path, typer.Option("--model", metavar="DIR", help="An installed model (a .gturbo directory).")
]
MaxNew = Annotated[
    int, typer.Option("--max-new", metavar="N", help="Most tokens of an answer.", min=1)
]
MaxContext = Annotated[
    int,
    typer.Option("--max-context", metavar="N", help="Tokens of prompt and answer together.", min=1),
]
Temperature = Annotated[
    float, typer.Option(metavar="F", help="0 takes the most likely token every time.")
]
TopK = Annotated[
    int, typer.Option("--top-k", metavar="N", help="Draw from the N best tokens; 0 is off.")
]
TopP = Annotated[
    float, typer.Option("--top-p", metavar="F", help="Draw from the best tokens of this share.")
]
Penalty = Annotated[
    float, typer.Option("--repetition-penalty", metavar="F", help="Over 1 avoids repetition.")
]
Seed = Annotated[int | None, typer.Option(metavar="N", help="Makes the draws repeatable.")]
Stop = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXT", help="End the answer before this text; may be repeated."),
]
SlotsOption = Annotated[
    str,
    typer.Option(
        "--expert-cache-slots",
        metavar="N",
        help=f"Experts kept for each layer: {', '.join(map(str, RUNGS))}, resident, or auto.",
    ),
]
Chunk = Annotated[
    str,
    typer.Option(
        "--prefill-chunk",
        metavar="N",
        help=f"Prompt tokens computed together: {', '.join(map(str, CHUNKS))}, or auto.",
    ),
]
Threads = Annotated[
    int, typer.Option(metavar="N", help="Compute threads; 0 for one a processor.", min=0)
]
Verify = Annotated[
    Literal["full-sha256", "trusted-receipt"],
    typer.Option(help="Hash layer files before first use, or trust the last verification."),
]
AllowUnpinned = Annotated[
    bool, typer.Option("--allow-unpinned", help="Also run models that match no pinned checkpoint.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No footer after the answer.")]


def settings_of(
    *,
    max_new: int,
    temperature: float,
    top_k: int,
    top_p: float,
    repetition_penalty: float,
    seed: int | None,
    stop: list[str] | None,
) -> Settings:
    """The generation settings of the flags, before anything is loaded for them.

    Raises:
        ConfigError: one is outside its range.
    """
    settings: Settings = {
        "max_new": max_new,
        "temperature": temperature,
        "top_k": top_k or None,
        "top_p": top_p,
        "repetition_penalty": repetition_penalty,
        "seed": seed,
        "stop": stop or (),
    }
    GenerationConfig(**settings)
    return settings


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
