"""Runs `mference` as a child process that reaches a test's servers and nothing else."""

import os
import subprocess
from pathlib import Path

from tests.cli.conftest import COMMAND

HIDDEN = ("HF_", "HUGGING", "TRANSFORMERS_", "SSL_CERT")


def environment(extra: dict[str, str]) -> dict[str, str]:
    """This process's environment without what steers the hub, and with `extra`."""
    mine = {k: v for k, v in os.environ.items() if not k.startswith(HIDDEN)}
    return {**mine, "COLUMNS": "100", "NO_PROXY": "*", "NO_COLOR": "1", **extra}


def mference(*arguments: str | Path, cwd: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """The finished command; `extra` are environment variables."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        env=environment({"HF_HOME": str(cwd), **extra}),
        text=True,
        capture_output=True,
        timeout=120,
        check=False,
    )


def start_mference(*arguments: str | Path, cwd: Path, **extra: str) -> subprocess.Popen[str]:
    """The command, running."""
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        env=environment({"HF_HOME": str(cwd), **extra}),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
