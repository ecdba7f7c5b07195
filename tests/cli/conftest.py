"""Runs the command line: in this process, or as a child process, the way a user does."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mference import cli
from mference.cli.demo import WEATHER

COMMAND = [str(Path(sys.executable).with_name("mference"))]
Run = Callable[..., subprocess.CompletedProcess[str]]


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


@pytest.fixture
def tools_file(tmp_path: Path) -> Path:
    """Declares one tool, which the demo model knows how to call."""
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([WEATHER]))
    return path
