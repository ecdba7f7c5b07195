"""Runs the command line as a child process, the way a user does."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mference.cli.demo import WEATHER

COMMAND = [str(Path(sys.executable).with_name("mference"))]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def cli_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    cache = tmp_path_factory.mktemp("cache")
    return {**os.environ, "XDG_CACHE_HOME": str(cache), "COLUMNS": "100", "NO_COLOR": "1"}


@pytest.fixture
def mference_command(cli_environment: dict[str, str], tmp_path: Path) -> Run:
    """Runs `mference ARGUMENTS` in an empty directory; `stdin` is what it reads."""

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
def tools_file(tmp_path: Path) -> Path:
    """Declares one tool, which the demo model knows how to call."""
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([WEATHER]))
    return path
