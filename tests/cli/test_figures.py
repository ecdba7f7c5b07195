"""Phases, routing traces and the memory budget on the command line."""

import re

import pytest

from mference.inspect import RoutingTrace

QUESTION = ("--prompt", "A lighthouse is", "--max-new", "5", "--temperature", "0")


@pytest.fixture
def generate(mference_command, demo_install):
    return lambda *arguments: mference_command(
        "generate", "--model", demo_install, *QUESTION, *arguments
    )


def test_phases_follow_the_footer(generate):
    plain, told = generate(), generate("--phases")
    assert told.returncode == 0
    assert told.stdout == plain.stdout
    lines = told.stderr.splitlines()
    assert lines[0].startswith("[prompt ")
    assert [line.split()[0] for line in lines[1:]] == [
        "cb1", "io", "cb2", "map", "head", "experts", "memory",
    ]  # fmt: skip
    assert re.search(r"[1-9]\d* misses, [\d,]+ evictions, [1-9][\d.]* [kM]B read", lines[6])


def test_quiet_drops_the_footer_alone(generate):
    assert generate("--phases", "--quiet").stderr.startswith("cb1 ")


@pytest.mark.parametrize(("value", "shown"), [("1", True), ("0", False)])
def test_phases_by_the_environment(generate, cli_environment, monkeypatch, value, shown):
    monkeypatch.setitem(cli_environment, "MFERENCE_PHASES", value)
    assert ("cb1 " in generate().stderr) == shown


def test_a_trace_is_recorded(generate, tmp_path):
    assert generate("--trace", "routing.npz").returncode == 0
    experts = RoutingTrace.load(tmp_path / "routing.npz").experts
    assert experts.shape[0] > 5
    assert len(set(experts.flatten().tolist())) > 8


def test_a_trace_needs_a_folder(generate):
    result = generate("--trace", "no/such/routing.npz")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "mference: --trace no/such/routing.npz: there is no such folder\n"


def test_a_chat_is_traced_to_its_end(mference_command, demo_install, tmp_path):
    result = mference_command(
        "chat", "--model", demo_install, "--trace", "routing.npz", "--phases",
        stdin="What is 1 + 1?\nWhat is 2 + 2?\n",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("cb1 ") == 2
    assert RoutingTrace.load(tmp_path / "routing.npz").experts.shape[0] > 40


def test_a_memory_budget_is_kept_or_refused(generate):
    assert generate("--memory", "2GiB").returncode == 0
    refused = generate("--memory", "1MiB")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.count("\n") == 1
    unreadable = generate("--memory", "much")
    assert unreadable.returncode == 2
    assert "--memory 'much'" in unreadable.stderr
