"""`mference verify`: re-hash an install."""

from pathlib import Path
from typing import Annotated

import typer

import mference
from mference.cli.json_output import verify_json
from mference.cli.options import Json
from mference.cli.output import byte_progress, note, size


def verify(
    model: Annotated[Path, typer.Argument(metavar="DIR", help="An installed model.")],
    json: Json = False,
) -> None:
    """Check every file of an install against its manifest, and renew its receipt.

    Examples:

      mference verify demo.gturbo

      mference verify demo.gturbo --json
    """
    with byte_progress() as update:
        report = mference.verify(model, lambda _name, done, total: update("verify", done, total))
    if json:
        print(verify_json(report))
        return
    for name in report.unexpected:
        note(f"{name} is not part of the install.")
    print(f"{model}: all {report.files} files are as the manifest says ({size(report.bytes)}).")
