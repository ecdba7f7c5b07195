"""Runs the command line: in this process, or as a child process, the way a user does.

A child's terminal is a real pseudo-terminal.
"""

import fcntl
import io
import json
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mference import cli
from mference.cli.demo import WEATHER

COMMAND = [str(Path(sys.executable).with_name("mference"))]
Run = Callable[..., subprocess.CompletedProcess[str]]
ESCAPES = re.compile(r"\x1b\[[?0-9;]*[a-zA-Z]")


@pytest.fixture(scope="session")
def cli_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    cache = tmp_path_factory.mktemp("cache")
    return {**os.environ, "XDG_CACHE_HOME": str(cache), "COLUMNS": "100", "NO_COLOR": "1"}


def run_here(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
    stdin: str,
) -> subprocess.CompletedProcess[str]:
    """Run `mference` in this process; an error that it does not catch is the test's."""
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
    with pytest.raises(SystemExit) as left:
        cli.main()
    return subprocess.CompletedProcess(command, left.value.code or 0, *capsys.readouterr())


@pytest.fixture
def mference_command(
    cli_environment: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Runs `mference ARGUMENTS` here, in an empty directory; `stdin` is what it reads."""

    def run(*arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
        for name, value in cli_environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(tmp_path)
        return run_here(monkeypatch, capsys, ["mference", *map(str, arguments)], stdin)

    return run


@pytest.fixture
def mference_process(cli_environment: dict[str, str], tmp_path: Path) -> Run:
    """As `mference_command`, in a process of its own: for what only the whole program shows."""

    def run(*arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *map(str, arguments)],
            input=stdin,
            cwd=tmp_path,
            env=cli_environment,
            text=True,
            capture_output=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def shell(cli_environment: dict[str, str], tmp_path: Path) -> Run:
    """Runs a line of bash in an empty directory; "$@" in it is `mference ARGUMENTS`."""

    def run(line: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", line, "bash", *COMMAND, *map(str, arguments)],
            cwd=tmp_path,
            env=cli_environment,
            text=True,
            capture_output=True,
            timeout=60,
            check=False,
        )

    return run


class Terminal:
    """A child process on a pseudo-terminal."""

    def __init__(self, arguments, environment):
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=environment,
            start_new_session=True, preexec_fn=_take_terminal,
        )  # fmt: skip
        os.close(theirs)
        self.shown = ""
        self._seen = 0

    def expect(self, text, seconds=30):
        """Wait until the terminal shows `text` after what was expected before."""
        deadline = time.monotonic() + seconds
        while (at := self.shown.find(text, self._seen)) < 0:
            assert time.monotonic() < deadline, f"{text!r} is not in {self.shown[self._seen :]!r}"
            self._read()
        self._seen = at + len(text)

    def type(self, text):
        os.write(self._ours, text.encode())

    def interrupt(self):
        """Ctrl-C, as late as a person's: Python's prompt loses one that comes while it is drawn."""
        time.sleep(1)
        self.type("\x03")

    def end(self):
        """The exit code, once the child has closed the terminal."""
        deadline = time.monotonic() + 30
        while self._read():
            assert time.monotonic() < deadline, f"the child goes on: {self.shown[self._seen :]!r}"
        return self._process.wait(timeout=30)

    def close(self):
        os.close(self._ours)  # a child that still runs is hung up on
        self._process.wait(timeout=30)

    def _read(self):
        if not select.select([self._ours], [], [], 0.1)[0]:
            return True
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # Linux reports the closed other end so
            return False
        self.shown += ESCAPES.sub("", data.decode())
        return bool(data)


def _take_terminal():
    # Ctrl-C reaches the processes that the terminal controls.
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture
def terminal(cli_environment, tmp_path):
    """Runs a command on a pseudo-terminal; what a chat keeps lies in `tmp_path/state`."""
    started = []

    def start(*command, **changes):
        environment = {**cli_environment, "XDG_STATE_HOME": str(tmp_path / "state"), **changes}
        started.append(Terminal([str(part) for part in command], environment))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture
def tools_file(tmp_path: Path) -> Path:
    """Declares one tool, which the demo model knows how to call."""
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([WEATHER]))
    return path
