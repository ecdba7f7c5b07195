"""`mference families`: the models that this version knows."""

from typing import Annotated, Any

import typer
from rich.table import Table

from mference.cli.output import print_table, size
from mference.families import ENTRIES, PinnedEntry, supported_entries
from mference.jsontext import compact


def families(
    json: Annotated[
        bool, typer.Option("--json", help="Every detail, as a JSON list, sizes in bytes.")
    ] = False,
) -> None:
    """List the pinned models: what `install --model NAME` downloads and leaves on the disk.

    Example:

      mference families
    """
    if json:
        print(compact([_details(entry) for entry in ENTRIES.values()]))
        return
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in ("name", "download", "installed", "runs", "source"):
        amount = heading in ("download", "installed")
        table.add_column(
            heading, justify="right" if amount else "left", no_wrap=heading != "source",
            overflow="fold",
        )  # fmt: skip
    for entry in ENTRIES.values():
        table.add_row(
            entry.name,
            _size(entry.download_bytes),
            _size(entry.installed_bytes),
            "yes" if _runs(entry) else "no",
            "in the package" if entry.embedded else f"{entry.repo} @ {entry.revision[:7]}",
        )
    print_table(table)


def _size(count: int | None) -> str:
    return "unknown" if count is None else size(count) if count else "none"


def _runs(entry: PinnedEntry) -> bool:
    return entry in supported_entries()


def _details(entry: PinnedEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "note": entry.note,
        "family": entry.family,
        "repo": entry.repo,
        "revision": entry.revision,
        "index_sha256": entry.index_sha256,
        "model_id": entry.model_id,
        "embedded": entry.embedded,
        "runs": _runs(entry),
        "download_bytes": entry.download_bytes,
        "installed_bytes": entry.installed_bytes,
        "reserve_bytes": entry.reserve_bytes,
    }
