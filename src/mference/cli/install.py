"""`mference install`: repack a checkpoint into a `.gturbo` directory."""

from pathlib import Path
from typing import Annotated

import typer

import mference
from mference.cli import options
from mference.cli.output import byte_progress, note, size
from mference.errors import ConfigError
from mference.families import ENTRIES, supported_names
from mference.installer import discard_partial


def install(
    output: Annotated[Path, typer.Option(metavar="DIR", help="The directory to make.")],
    model: Annotated[
        str, typer.Option(metavar="NAME", help="The pinned checkpoint: gemma4 or demo.")
    ] = "gemma4",
    source: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|URL", help="A checkpoint's folder, or the address above its files."
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what is there, once the new one is done.")
    ] = False,
    allow_unpinned: options.AllowUnpinned = False,
    discard: Annotated[
        bool,
        typer.Option("--discard-partial", help="Remove what an unfinished install left, and exit."),
    ] = False,
) -> None:
    """Install a checkpoint: copy its weights, unchanged, into the layout that streams.

    Examples:

      mference install --model demo --output demo.gturbo

      mference install --model gemma4 --source ./gemma-4-26b-a4b-it-4bit --output gemma4.gturbo
    """
    if model not in ENTRIES:
        raise ConfigError(f"--model {model}: unknown model; choose one of {supported_names()}")
    if discard:
        if source is not None or overwrite or allow_unpinned:
            raise ConfigError("--discard-partial goes with --output alone")
        discard_partial(output)
        note(f"Removed what was left of an unfinished install of {output}.")
        return
    with byte_progress() as update:
        report = mference.install(
            source,
            output,
            entry=model,
            overwrite=overwrite,
            allow_unpinned=allow_unpinned,
            progress=lambda p: update(p.phase, p.done, p.total),
        )
    note(f"Installed {report.path} ({size(report.bytes)}).")
