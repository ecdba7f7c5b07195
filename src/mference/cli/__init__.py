"""The command line. Answers go to stdout, everything else to stderr.

Exit codes: 0 success, 1 failure while running, 2 usage error or a prompt that does not fit, 130
interrupted.
"""

import os
import sys

import typer

from mference.cli.chat import chat
from mference.cli.demo import demo
from mference.cli.generate import generate
from mference.cli.install import install
from mference.cli.verify import verify
from mference.errors import ConfigError, ContextLengthError, MferenceError

app = typer.Typer(
    name="mference",
    help="Run big mixture-of-experts language models in a fraction of their size in memory.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (install, verify, generate, chat, demo):
    app.command()(command)


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    if version:
        from mference import __version__

        print(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(run())


def run() -> int:
    """Run the command line; the exit code."""
    try:
        app(standalone_mode=False)
        sys.stdout.flush()
    except (ConfigError, ContextLengthError) as error:
        return _fail(error, 2)
    except MferenceError as error:
        return _fail(error, 1)
    except KeyboardInterrupt:
        print("\nmference: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader has gone: keep the interpreter from flushing into the closed pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print("mference: the output was closed before the answer was complete", file=sys.stderr)
        return 1
    except OSError as error:
        return _fail(error, 1)
    except typer.Exit as done:
        return done.exit_code
    return 0


def _fail(error: Exception, code: int) -> int:
    print(f"mference: {error}", file=sys.stderr)
    return code
