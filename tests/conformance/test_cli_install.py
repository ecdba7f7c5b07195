"""The install and verify commands against the conformance cases of one flat installer command.

What that command called `--verify-install --input-gturbo DIR` is `verify DIR` here.
"""

from pathlib import Path
from typing import Any

import pytest
import typer.main

from mference.cli import app
from mference.cli.install import checked
from mference.errors import ConfigError
from tests.conformance.loader import Case, cases
from tests.installer.command import mference
from tests.installer.server import serve

USAGE = 2
LABELS = {"MissingParameter": "missing_required", "BadOptionUsage": "missing_value"}


def command_line(argv: list[str]) -> tuple[str, list[str]]:
    """The command here that stands for the flat one, and its arguments."""
    if "--verify-install" not in argv:
        return "install", argv
    dropped = ("--verify-install", "--input-gturbo")
    return "verify", [a for a in argv if a not in dropped]


def parsed(argv: list[str]) -> dict[str, Any]:
    """What the arguments mean, without carrying it out; a usage error as `error` and `exit`."""
    name, arguments = command_line(argv)
    commands: Any = typer.main.get_command(app)
    try:
        values = commands.commands[name].make_context(name, arguments).params
        if name == "verify":
            return {"mode": "verify", "input": str(values["model"])}
        request = checked(**values)
    except ConfigError as error:
        return {"error": "invalid", "exit": USAGE, "says": str(error)}
    except Exception as error:
        code = getattr(error, "exit_code", None)
        if code is None:
            raise
        label = LABELS.get(type(error).__name__, "invalid")
        return {"error": label, "exit": code, "says": str(error)}
    mode = "discard" if request.discard else "install"
    return {**vars(request), "mode": mode, "output": str(request.output)}


@pytest.mark.parametrize("case", cases("cli", "install_args"))
def test_install_args(case: Case):
    argv = case.given["argv"]
    if "--attach-mtp" in argv:
        pytest.skip("attaching a draft head is a later task")
    expect = dict(case.expect)
    mentions = expect.pop("mentions", [])
    found = parsed(argv)
    assert {key: found.get(key) for key in expect} == expect
    assert ("error" in found) == ("error" in expect)
    for text in mentions:
        assert text in found["says"]


@pytest.mark.parametrize("case", cases("cli", "install_run"))
def test_install_run(case: Case, tmp_path: Path):
    given, expect = case.given, case.expect
    assert given["disk"] == "empty"
    _, argv = command_line(given["argv"])
    with serve(tmp_path) as server:
        result = mference("install", *argv, cwd=tmp_path, HF_ENDPOINT=server.base)
    assert result.returncode == expect["exit"]
    for text in expect.get("mentions", []):
        assert text in result.stderr
    if "requests" in expect:
        assert len(server.requests) == expect["requests"]
