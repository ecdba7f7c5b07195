"""How a command that could not finish says so: one line on stderr and an exit code."""

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec

import typer

from mference.chat.messages import InvalidMessagesError
from mference.errors import ConfigError, ContextLengthError, MferenceError

FAILURE = 1
USAGE = 2
INTERRUPTED = 130

P = ParamSpec("P")


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """The command, with every error that a user can cause turned into a message and a code."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
            sys.stdout.flush()
        except (ConfigError, ContextLengthError, InvalidMessagesError) as error:
            fail(error, USAGE)
        except MferenceError as error:
            fail(error, FAILURE)
        except KeyboardInterrupt as interrupt:
            fail(interrupt, INTERRUPTED)
        except BrokenPipeError:
            # The reader has gone: nothing may be flushed into the closed pipe again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            fail(BrokenPipeError("the output was closed before the answer was complete"), FAILURE)
        except OSError as error:
            where = error.filename or "the output cannot be written"
            fail(OSError(f"{where}: {error.strerror}"), FAILURE)

    return run


def open_missing_streams() -> None:
    """Stand in for standard streams that the caller closed, which Python leaves as None.

    Input is then empty, and notes go nowhere instead of into the answers.

    Raises:
        SystemExit: standard output is closed; with FAILURE.
    """
    nowhere = Path(os.devnull)
    sys.stdin = sys.stdin or nowhere.open()
    sys.stderr = sys.stderr or nowhere.open("w")
    if sys.stdout is None:
        print("mference: standard output is closed; answers need a place to go", file=sys.stderr)
        sys.exit(FAILURE)


def fail(error: BaseException, code: int) -> None:
    """Print the error, and what its notes advise, and exit.

    Raises:
        typer.Exit: always.
    """
    print(f"mference: {str(error) or 'interrupted'}", file=sys.stderr)
    for advice in getattr(error, "__notes__", ()):
        print(advice, file=sys.stderr)
    raise typer.Exit(code)
