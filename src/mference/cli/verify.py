"""`mference verify`: re-hash an install."""

from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

import mference
from mference.cli.json_output import damage_json, verify_json
from mference.cli.options import Json
from mference.cli.output import byte_progress, note, size
from mference.errors import StoreError


def verify(
    model: Annotated[Path, typer.Argument(metavar="DIR", help="An installed model.")],
    json: Json = False,
) -> None:
    """Check every file of an install against its manifest, and renew its receipt.

    All damaged and missing files are named; 'install --repair' fetches them again.

    Examples:

      mference verify demo.gturbo

      mference verify demo.gturbo --json
    """
    try:
        with byte_progress() as update:
            report = mference.verify(
                model,
                lambda name, done, total: update("verify", done, total, PurePosixPath(name).name),
            )
    except StoreError as error:
        if json and error.damaged:
            print(damage_json(model, error.damaged))
        raise
    if json:
        print(verify_json(report))
        return
    for name in report.unexpected:
        note(f"{name} is not part of the install.")
    print(f"{model}: all {report.files} files are as the manifest says ({size(report.bytes)}).")
