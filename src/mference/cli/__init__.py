"""The command line. Answers go to stdout, everything else to stderr.

Exit codes: 0 success, 1 failure while running, 2 usage error or a prompt that does not fit, 130
interrupted.
"""

import sys
from typing import Annotated

import typer

from mference.cli.chat import chat
from mference.cli.demo import demo
from mference.cli.doctor import doctor
from mference.cli.exits import INTERRUPTED, fail, guarded, prepare_streams
from mference.cli.families import families
from mference.cli.generate import generate
from mference.cli.install import install
from mference.cli.list import list_
from mference.cli.remove import remove
from mference.cli.verify import verify

app = typer.Typer(
    name="mference",
    help="Run big mixture-of-experts language models in a fraction of their size in memory.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (install, families, list_, verify, remove, generate, chat, demo, doctor):
    app.command(command.__name__.rstrip("_"))(guarded(command))


@app.callback(invoke_without_command=True)
@guarded
def _options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from mference import __version__

        print(__version__)
    elif context.invoked_subcommand is None:
        print(context.get_help())


def main() -> None:
    """Run the command line and exit with its code."""
    prepare_streams()
    code = guarded(app)(standalone_mode=False)
    if code == INTERRUPTED:  # typer makes a code of Ctrl-C outside of a command
        fail(KeyboardInterrupt(), INTERRUPTED)
    sys.exit(code)
