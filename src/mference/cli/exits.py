"""How a command that could not finish says so: one line on stderr and an exit code."""

import functools
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, ParamSpec, TypeVar

import typer

from mference.chat.messages import InvalidMessagesError
from mference.chat.tools import InvalidToolsError
from mference.errors import ConfigError, ContextLengthError, MferenceError

FAILURE = 1
USAGE = 2
INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM

# The base of what typer raises for a command line it cannot parse; typer does not export it.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]

P = ParamSpec("P")
R = TypeVar("R")


class Terminated(KeyboardInterrupt):
    """The process was asked to end, by SIGTERM."""


@contextmanager
def termination_interrupts() -> Iterator[None]:
    """Let SIGTERM end what runs as Ctrl-C does, so that it can put its state in order."""

    def end(*_: object) -> NoReturn:
        raise Terminated("terminated")

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def guarded(command: Callable[P, R]) -> Callable[P, R]:
    """The command, with every error that a user can cause turned into a message and a code."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            result = command(*args, **kwargs)
            sys.stdout.flush()
            return result
        except _UsageError as error:
            fail(_usage(error), USAGE)
        except (ConfigError, ContextLengthError, InvalidMessagesError, InvalidToolsError) as error:
            fail(error, USAGE)
        except MferenceError as error:
            fail(error, FAILURE)
        except Terminated as termination:
            fail(termination, TERMINATED)
        except KeyboardInterrupt as interrupt:
            fail(interrupt, INTERRUPTED)
        except BrokenPipeError:
            _abandon_output()
            fail(BrokenPipeError("the output was closed before the answer was complete"), FAILURE)
        except MemoryError:
            fail(
                MemoryError("not enough memory; close other programs, or raise this one's limit"),
                FAILURE,
            )
        except OSError as error:
            if isinstance(error, FileNotFoundError) and error.filename is None:
                fail(OSError("the current folder no longer exists; change to another"), FAILURE)
            if error.filename is None:
                _abandon_output()
            where = error.filename or "the output cannot be written"
            fail(OSError(f"{where}: {error.strerror}"), FAILURE)

    return run


def prepare_streams() -> None:
    """Stand in for standard streams that the caller closed, which Python leaves as None.

    Input is then empty, and notes go nowhere instead of into the answers. Input that is not text
    is let through to whoever checks it, and output that the terminal's character set lacks
    becomes question marks.

    Raises:
        SystemExit: standard output is closed; with FAILURE.
    """
    nowhere = Path(os.devnull)
    sys.stdin = sys.stdin or nowhere.open()
    sys.stderr = sys.stderr or nowhere.open("w")
    if sys.stdout is None:
        fail(OSError("standard output is closed; answers need a place to go"), FAILURE)
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, "replace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


def fail(error: BaseException, code: int) -> NoReturn:
    """Print the error, and what its notes advise, and exit.

    Raises:
        SystemExit: always.
    """
    print(f"mference: {_one_line(str(error)) or 'interrupted'}", file=sys.stderr)
    for advice in getattr(error, "__notes__", ()):
        print(_one_line(advice), file=sys.stderr)
    sys.exit(code)


def _one_line(text: str) -> str:
    """The text with line ends, and what else a terminal might act on, written as escapes."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _usage(error: Exception) -> Exception:
    """A usage error on one line, with the command whose help explains more."""
    said = " ".join(error.format_message().split())  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    return ValueError(
        f"{said.rstrip('.')}. See {context.command_path} --help." if context else said
    )


def _abandon_output() -> None:
    """Nothing may be flushed again into what has refused it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
