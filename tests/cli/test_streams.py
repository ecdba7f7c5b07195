"""Standard streams that are closed, full, or not text."""

import pytest

ONCE = ("demo", "--once", "What is a lighthouse?")
LIGHTHOUSE = "A lighthouse is a tower with a light that gives warning of shoals to passing ships.\n"


def test_notes_do_not_join_the_answer_when_stderr_is_closed(shell):
    result = shell('"$@" 2>&-', *ONCE)
    assert (result.returncode, result.stdout) == (0, LIGHTHOUSE)


def test_a_closed_stdin_is_an_empty_one(shell):
    result = shell('"$@" <&-', "demo")
    assert (result.returncode, result.stdout) == (0, "")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("redirection", [">&-", ">/dev/full"])
@pytest.mark.parametrize("arguments", [ONCE, ("--version",)])
def test_an_output_that_takes_nothing_gets_one_line(shell, arguments, redirection):
    result = shell(f'"$@" {redirection}', *arguments)
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("mference: ")
    assert "output" in result.stderr
