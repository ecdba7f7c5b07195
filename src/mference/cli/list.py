"""`mference list`: the installs on this machine."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from mference.cli.exits import one_line
from mference.cli.output import note, print_table, size
from mference.errors import InstallError
from mference.installer.listing import Listed, list_installs
from mference.installer.paths import default_place
from mference.jsontext import compact


def list_(
    directories: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[DIR]...",
            help="Where to look, too: an install, or a directory with installs in it.",
            show_default=False,
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Every detail, as a JSON list, sizes in bytes.")
    ] = False,
) -> None:
    """List the installs, and the unfinished ones, on this machine.

    They are looked for in MFERENCE_HOME, or where the system keeps a user's data, and in each DIR.

    Examples:

      mference list

      mference list . --json
    """
    named = directories or []
    default = _default_place(optional=bool(named))
    places = [default, *named] if default and default.exists() else named
    found = {listed: None for place in places for listed in list_installs(place)}
    if json:
        print(compact([_fields(listed) for listed in found]))
    elif found:
        _show(list(found))
    else:
        _say_how([default, *named] if default else named)


def state_text(listed: Listed) -> str:
    """How an install is, in a few words."""
    text: str = "half removed" if listed.state == "removing" else listed.state
    if listed.copied is not None and listed.total is not None:
        text += f", {size(listed.copied)} of {size(listed.total)} copied"
    return text + ", in use by an install" * listed.running


def _show(found: list[Listed]) -> None:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("model", overflow="fold")
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("state")
    table.add_column("verified", no_wrap=True)
    table.add_column("path", overflow="fold")
    for listed in found:
        table.add_row(
            Text(one_line(listed.model or "unknown")),
            size(listed.size),
            state_text(listed),
            Text(one_line(listed.verified or "no")),
            Text(one_line(str(listed.path))),
        )
    print_table(table)
    for listed in found:
        if listed.problem:
            note(one_line(listed.problem))


def _default_place(*, optional: bool) -> Path | None:
    try:
        return default_place()
    except InstallError:
        if optional:
            return None
        raise


def _say_how(places: list[Path]) -> None:
    looked = " or ".join(one_line(str(place)) for place in places)
    output = shlex.quote(str(places[0] / "demo.gturbo"))
    command = f"mference install --model demo --output {output}"
    note(f"There is no install in {looked}. To make one: {one_line(command)}")


def _fields(listed: Listed) -> dict[str, Any]:
    return {**asdict(listed), "path": str(listed.path)}
