"""`mference remove`: delete an install."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from mference.cli.exits import FAILURE, one_line
from mference.cli.list import state_text
from mference.cli.output import note, size
from mference.errors import ConfigError
from mference.installer.removal import Removal, remove_install


def remove(
    model: Annotated[Path, typer.Argument(metavar="DIR", help="An install, finished or not.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove an install, and what an unfinished one left, after asking.

    Examples:

      mference remove demo.gturbo

      mference remove demo.gturbo --yes
    """
    removed = remove_install(model, (lambda _: True) if yes else _asked)
    if removed is None:
        note("Nothing was removed.")
        raise typer.Exit(FAILURE)
    note(f"Removed {one_line(str(removed.path))} ({size(removed.size)}).")


def _asked(removal: Removal) -> bool:
    """Whether the person at the terminal wants it removed.

    Raises:
        ConfigError: there is no terminal.
    """
    model = next((listed.model for listed in removal.found if listed.model), "unknown model")
    what = f"{removal.path} ({model}, {size(removal.size)})"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfigError(f"there is no terminal to ask whether to remove {what}: give --yes")
    note(f"{one_line(what)}: {'; '.join(map(state_text, removal.found))}.")
    if removal.others:
        note(f"It also has what is no part of an install: {one_line(', '.join(removal.others))}.")
    print("Remove it? [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        note("")
    return answer.strip().lower() in ("y", "yes")
