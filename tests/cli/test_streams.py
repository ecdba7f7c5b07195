"""Standard streams that are closed, full, or not text."""

import subprocess

import pytest

from tests.cli.conftest import COMMAND

ONCE = (*COMMAND, "demo", "--once", "What is a lighthouse?")
LIGHTHOUSE = "A lighthouse is a tower with a light that gives warning of shoals to passing ships.\n"


@pytest.fixture
def shell(cli_environment, tmp_path):
    """Runs a command whose streams a shell redirects first."""

    def run(arguments, redirection):
        return subprocess.run(
            ["bash", "-c", f'"$@" {redirection}', "bash", *arguments],
            env=cli_environment, cwd=tmp_path, text=True, capture_output=True, timeout=60,
            check=False,
        )  # fmt: skip

    return run


def test_notes_do_not_join_the_answer_when_stderr_is_closed(shell):
    result = shell(ONCE, "2>&-")
    assert (result.returncode, result.stdout) == (0, LIGHTHOUSE)


def test_a_closed_stdin_is_an_empty_one(shell):
    result = shell((*COMMAND, "demo"), "<&-")
    assert (result.returncode, result.stdout) == (0, "")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("redirection", [">&-", ">/dev/full"])
@pytest.mark.parametrize("arguments", [ONCE, (*COMMAND, "--version")])
def test_an_output_that_takes_nothing_gets_one_line(shell, arguments, redirection):
    result = shell(arguments, redirection)
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("mference: ")
    assert "output" in result.stderr
