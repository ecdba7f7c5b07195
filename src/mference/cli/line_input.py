"""Lines from a terminal, with editing and a history that is kept, or from a pipe."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from mference.cli.output import note
from mference.errors import ConfigError
from mference.jsontext import is_unicode

KEPT = 1000


class LineInput:
    """Reads lines from standard input.

    In a terminal they can be edited, and the arrow keys bring back lines of earlier sessions.
    """

    def __init__(self) -> None:
        self._terminal = sys.stdin.isatty()
        # Python's own editing writes the prompt to stdout, which must be the terminal then too.
        self._readline = _readline() if self._terminal and sys.stdout.isatty() else None
        self._file = history_file() if self._readline else None
        if self._readline and self._file:
            with suppress(OSError):
                self._readline.read_history_file(self._file)

    def read(self, prompt: str) -> str | None:
        """The next line, or None at the end of input. A terminal shows `prompt` first.

        Raises:
            ConfigError: the line is not UTF-8.
            KeyboardInterrupt: Ctrl-C in a terminal.
        """
        try:
            line = self._edited(prompt) if self._readline else self._plain(prompt)
        except EOFError:
            line = None
        except KeyboardInterrupt:
            note("")
            raise
        if line is None and self._terminal:
            note("")
        if line is not None and not is_unicode(line):
            raise ConfigError("standard input: this line is not UTF-8; give it as UTF-8 text")
        return line

    def _edited(self, prompt: str) -> str:
        line = input(prompt)
        if self._readline and self._file and line.strip():
            _save(self._readline, self._file)
        return line

    def _plain(self, prompt: str) -> str | None:
        if self._terminal:
            print(prompt, end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        return line.rstrip("\n") if line else None


def history_file() -> Path | None:
    """Where lines typed in earlier sessions are kept; None without a home directory."""
    state = os.environ.get("XDG_STATE_HOME")
    try:
        folder = Path(state) if state else Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    return folder / "mference" / "chat_history"


def _readline() -> ModuleType | None:
    try:
        import readline
    except ImportError:  # a Python built without it
        return None
    readline.set_history_length(KEPT)
    return readline


def _save(readline: ModuleType, file: Path) -> None:
    """Keep the lines, readable for the user alone; a place that takes no files is no error."""
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))
        readline.write_history_file(file)
