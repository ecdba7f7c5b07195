"""Conformance of the generation command line.

The cases are written for one flat command. Here `--chat` is the command `chat`, and a prompt or a
messages file goes to `generate`. The values, defaults, ranges, exit codes and streams bind; which
flags there are besides, and whether `--flag=value` is a spelling of `--flag value`, does not.
"""

import json
import os
import signal
import subprocess
import time
from dataclasses import asdict, fields

import pytest
import typer

from mference import cli
from mference.chat.history import trim_history
from mference.chat.messages import conversation
from mference.cli.chat import CHUNK
from mference.cli.options import GenerationOptions, parse_chunk, parse_slots
from mference.engine import auto_chunk
from mference.session.generation import answer_limit
from tests.chat.demo import chat_format
from tests.cli.conftest import COMMAND, run_here
from tests.conformance.loader import cases

SWITCHES = {"--chat", "--quiet", "--flash-head", "--help"}
GREEDY = ("--temperature", "0")


def ours(argv):
    """The flat command line as one of ours: the command, and its arguments."""
    command, arguments, rest = "generate", [], iter(argv)
    for word in rest:
        if word == "--chat":
            command = "chat"
            continue
        arguments.append(word)
        if word.startswith("--") and word not in SWITCHES:
            arguments += [value for value in [next(rest, None)] if value is not None]
    return [command, *arguments]


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs the command line in this process: exit code, stdout, stderr."""

    def command(*arguments, stdin=""):
        done = run_here(monkeypatch, capsys, ["mference", *map(str, arguments)], stdin)
        return done.returncode, done.stdout, done.stderr

    return command


def parsed(argv):
    """The values of a command line, as the command itself parses it, by the cases' names."""
    name, *arguments = ours(argv)
    command = typer.main.get_command(cli.app).commands[name]
    with command.make_context(name, arguments) as context:
        flags = context.params
    options = GenerationOptions(
        **{field.name: flags[field.name] for field in fields(GenerationOptions)}
    )
    values = {**flags, **asdict(options), **options.settings}
    for path in ("model", "messages_file"):
        values[path] = None if values.get(path) is None else str(values[path])
    return values | {
        "chat": name == "chat",
        "stops": values["stop"],
        "expert_cache_slots": parse_slots(options.expert_cache_slots),
        "prefill_chunk": parse_chunk(options.prefill_chunk),
    }


def guidance(run, argv, install):
    """The system message that a chat with these arguments begins with."""
    arguments = ours(argv)
    arguments[arguments.index("--model") + 1] = install
    _, _, said = run(*arguments, stdin="/history\n")
    return said.removeprefix("system: ").removesuffix("\n")


@pytest.mark.parametrize("case", cases("cli", "generate_args"))
def test_generate_args(case, run, demo_install):
    argv, expect = case.given["argv"], case.expect
    if "parsed" in expect:
        got = parsed(argv)
        if "system" in expect["parsed"]:
            got["system"] = guidance(run, argv, demo_install)
        assert got == got | expect["parsed"]
        return
    error = expect.get("error", {})
    if "=" in error.get("flag", ""):
        pytest.skip("the spelling --flag=value does not bind")
    code, out, err = run(*ours(argv))
    assert code == expect["exit"]
    if expect.get("help"):
        assert out.startswith("Usage: ")
        return
    assert out == ""
    assert err.count("\n") == 1
    named = (
        error.get("flags") or [error["flag"]] if error["kind"] != "mode_missing" else ["--prompt"]
    )
    assert any(flag in err for flag in named)
    assert error.get("value", "") in err


@pytest.mark.parametrize("case", cases("cli", "help_lists"))
def test_help_lists(case, run):
    if case.given["tool"] != "generate":
        pytest.skip("the help of the installer is checked with the installer")
    listed = run("generate", "--help")[1] + run("chat", "--help")[1]
    missing = [flag for flag in case.expect["options"] if f"{flag} " not in listed]
    assert missing in ([], ["--chat"])  # `chat` is a command here


@pytest.mark.parametrize("case", cases("cli", "auto_chunk"))
def test_auto_chunk(case):
    given = case.given
    chunk = CHUNK if given["mode"] == "chat" else auto_chunk(given["prompt_tokens"])
    assert chunk == case.expect["chunk"]


@pytest.mark.parametrize("case", cases("cli", "budget"))
def test_budget(case):
    given = case.given
    limit = answer_limit(given["prompt_tokens"], given["max_new"], given["max_context"])
    assert limit == case.expect["max_new"]


@pytest.mark.parametrize("case", cases("cli", "exit_code"))
def test_exit_code(case, run, demo_install, tmp_path):
    if "signal" in case.given:
        # After two start tokens the demo model repeats itself until the context is full.
        process = subprocess.Popen(
            [*COMMAND, "generate", "--model", str(demo_install), "--prompt", "<bos><bos>", *GREEDY,
             "--max-context", "100000", "--max-new", "99000"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ),
        )  # fmt: skip
        time.sleep(3)
        process.send_signal(getattr(signal, f"SIG{case.given['signal']}"))
        assert process.communicate(timeout=30)[1] == "mference: interrupted\n"
        assert process.returncode == case.expect["exit"]
        return
    model = tmp_path / "missing" if "failure" in case.given else demo_install
    code, *_ = run("generate", "--model", model, "--prompt", "A dog is", "--max-new", "2")
    assert code == case.expect["exit"]


@pytest.mark.parametrize("case", cases("cli", "streams"))
def test_streams(case, run, demo_install):
    quiet = ["--quiet"] if case.given["quiet"] else []
    _, out, err = run(
        "generate", "--model", demo_install, "--prompt", "A dog is", "--max-new", "4", *quiet
    )
    assert bool(out.strip()) == ("generated text" in case.expect["stdout"])
    assert ("tokens/s" in err) == ("timing footer" in case.expect["stderr"])
    assert bool(err) == bool(case.expect["stderr"])
    assert "tokens/s" not in out


@pytest.mark.parametrize("case", cases("cli", "raw_prompt"))
def test_raw_prompt(case, run, demo_install, tmp_path):
    text, form = "What is a dog?", chat_format()
    messages = [{"role": "user", "content": text}]
    (tmp_path / "chat.json").write_text(json.dumps(messages))
    mode = case.given["mode"]
    value = text if mode == "prompt" else tmp_path / "chat.json"
    _, out, _ = run(
        "generate", "--model", demo_install, f"--{mode}", value, "--json", "--max-new", "1"
    )
    given = form.render(messages) if case.expect["chat_template"] else text
    expected = len(form.tokenizer.encode(given)) + case.expect["add_bos"]
    assert json.loads(out)["usage"]["prompt_tokens"] == expected


@pytest.mark.parametrize("case", cases("cli", "trim_history"))
def test_trim_history(case):
    given = case.given
    trimmed = trim_history(
        conversation(given["messages"]),
        given["limit"],
        lambda kept: given["tokens_fixed"] + given["tokens_per_message"] * len(kept),
    )
    got = {
        "kept": [message.content for message in trimmed.kept],
        "tokens": trimmed.tokens,
        "dropped": trimmed.dropped,
        "fits": trimmed.fits,
    }
    assert got == case.expect


DIALOG = "system: S\nuser: What is a dog?\nassistant: A dog is"
# What stderr holds when the history is asked for afterwards, and how often it was printed.
EFFECTS = {
    "ignored": (DIALOG, 1),
    "history printed to standard error": (DIALOG, 2),
    "history reset to the system message": ("The conversation is empty.\nsystem: S\n", 1),
    "unknown command notice, history unchanged": (f" or Ctrl-D ends it.\n{DIALOG}", 1),
    "exit 0": ("", 0),
}


@pytest.mark.parametrize("case", cases("cli", "chat_command"))
def test_chat_command(case, run, demo_install):
    effect, typed = case.expect["effect"], case.given["input"]
    rest = "" if typed == "end of input" else f"{typed}\n/history\n"
    code, out, err = run(
        "chat", "--model", demo_install, "--system", "S", *GREEDY, "--quiet",
        stdin=f"What is a dog?\n{rest}",
    )  # fmt: skip
    holds, times = EFFECTS[effect]
    assert code == 0
    assert out.count("\n") == 1  # one answer
    assert holds in err
    assert err.count("system: S\n") == times
