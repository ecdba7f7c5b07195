"""`mference verify`: re-hash an install."""

from pathlib import Path
from typing import Annotated

import typer

import mference
from mference.cli.output import byte_progress, note, size


def verify(
    model: Annotated[Path, typer.Argument(metavar="DIR", help="An installed model.")],
) -> None:
    """Check every file of an install against its manifest, and renew its receipt.

    Example:

      mference verify demo.gturbo
    """
    with byte_progress() as update:
        report = mference.verify(model, lambda _name, done, total: update("verify", done, total))
    for name in report.unexpected:
        note(f"{name} is not part of the install.")
    print(f"{model}: all {report.files} files are as the manifest says ({size(report.bytes)}).")
