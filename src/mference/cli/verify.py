"""`mference verify`: re-hash an install."""

from pathlib import Path
from typing import Annotated

import typer

import mference
from mference.cli.output import byte_progress, note


def verify(
    model: Annotated[Path, typer.Argument(metavar="DIR", help="An installed model.")],
) -> None:
    """Check every file of an install against its manifest, and renew its receipt.

    Example:

      mference verify demo.gturbo
    """
    with byte_progress() as update:
        report = mference.verify(model, progress=lambda done, total: update("verify", done, total))
    for name in report.extra:
        note(f"{name} is not part of the install.")
    print(f"{model}: {report.files} files verified")
