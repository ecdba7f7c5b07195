"""The commands as a user runs them: what goes to which stream, and the exit code."""

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

import mference
from mference import demo
from mference.errors import InstallError
from tests.cli.conftest import COMMAND

LIGHTHOUSE = "A lighthouse is a tower with a light that gives warning of shoals to passing ships."
GREEDY = ("--temperature", "0")


def test_demo_once_prints_the_answer_and_nothing_else_on_stdout(mference_process):
    result = mference_process("demo", "--once", "What is a lighthouse?")
    assert (result.returncode, result.stdout) == (0, LIGHTHOUSE + "\n")
    assert "tokens/s" in result.stderr


def test_demo_tour_shows_answers_a_tool_call_and_figures(mference_command):
    result = mference_command("demo", "--tour")
    assert result.returncode == 0
    for line in (
        LIGHTHOUSE,
        "The capital of Mongolia is Ulaanbaatar.",
        "17 + 25 = 42.",
        'calls get_weather({"city":"Lisbon"})',
    ):
        assert line in result.stdout
    for figure in ("speed ", "experts ", "memory "):
        assert figure in result.stdout


def test_a_word_after_a_slash_is_no_question(mference_command):
    result = mference_command("demo", stdin="/other\nWhat is a lighthouse?\n")
    assert result.stdout == LIGHTHOUSE + "\n"
    assert "/other is no command. /clear starts over" in result.stderr


def test_a_user_without_a_home_is_told_what_to_name(monkeypatch):
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(InstallError, match="XDG_CACHE_HOME"):
        demo.cache_directory()


def test_demo_chats_over_a_pipe_with_memory_of_the_conversation(mference_process):
    result = mference_process(
        "demo", stdin="What is a dog?\n/history\n/clear\n/history\n/quit\nx\n"
    )
    assert result.returncode == 0
    assert result.stdout.startswith("A dog is a member of the genus Canis")
    assert result.stdout.count("\n") == 1
    assert "user: What is a dog?" in result.stderr
    assert "assistant: A dog is" in result.stderr
    assert result.stderr.count("user:") == 1


@pytest.mark.parametrize(
    "name", ["model_weights.bin", "packed_experts/layer_03.bin", "tokenizer/tokenizer.json"]
)
def test_demo_is_reinstalled_when_its_install_is_damaged(mference_command, cli_environment, name):
    assert mference_command("demo", "--once", "Hello!").returncode == 0
    damaged = f"{cli_environment['XDG_CACHE_HOME']}/mference/demo.gturbo/{name}"
    with open(damaged, "r+b") as file:  # noqa: PTH123 - a byte in place
        file.seek(200_000)
        file.write(b"\xff\x00\xff")
    result = mference_command("demo", "--once", "What is a lighthouse?")
    assert (result.returncode, result.stdout) == (0, LIGHTHOUSE + "\n")


def test_install_verify_generate(mference_process):
    installed = mference_process("install", "--model", "demo", "--output", "d.gturbo")
    assert (installed.returncode, installed.stdout) == (0, "")
    assert "Installed" in installed.stderr
    verified = mference_process("verify", "d.gturbo")
    assert verified.returncode == 0
    assert verified.stdout.startswith("d.gturbo: all ")
    generated = mference_process(
        "generate", "--model", "d.gturbo", "--prompt", "A lighthouse is", *GREEDY, "--max-new", "6"
    )
    assert generated.returncode == 0
    assert generated.stdout.strip()
    assert "answer" in generated.stderr


def test_an_install_that_was_killed_can_be_discarded_and_made_again(mference_process, tmp_path):
    for name in ("d.gturbo.partial", "d.gturbo"):
        (tmp_path / name).mkdir()
    (tmp_path / "d.gturbo.resume.json").write_text("{}")
    install = ("install", "--model", "demo", "--output", "d.gturbo")
    refused = mference_process(*install, "--overwrite")
    assert refused.returncode == 1
    assert "install --discard-partial --output" in refused.stderr
    assert mference_process("install", "--discard-partial", "--output", "d.gturbo").returncode == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["d.gturbo", "d.gturbo.install.lock"]
    assert mference_process(*install, "--overwrite").returncode == 0


def test_generate_answers_a_messages_file(mference_process, demo_install, tmp_path):
    (tmp_path / "chat.json").write_text(
        json.dumps([{"role": "user", "content": "What is a lighthouse?"}])
    )
    result = mference_process(
        "generate", "--model", demo_install, "--messages-file", "chat.json", *GREEDY, "--quiet"
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, LIGHTHOUSE + "\n", "")


def test_stop_text_is_not_shown(mference_command, demo_install, tmp_path):
    (tmp_path / "chat.json").write_text('[{"role": "user", "content": "What is a lighthouse?"}]')
    result = mference_command(
        "generate", "--model", demo_install, "--messages-file", "chat.json", *GREEDY,
        "--stop", " with a light",
    )  # fmt: skip
    assert result.stdout == "A lighthouse is a tower\n"


def test_a_seed_makes_draws_repeatable(mference_process, demo_install):
    command = (
        "generate", "--model", demo_install, "--prompt", "The", "--temperature", "1.5",
        "--max-new", "16", "--seed", "7",
    )  # fmt: skip
    first, second = mference_process(*command), mference_process(*command)
    assert first.returncode == 0
    assert first.stdout == second.stdout


def test_chat_follows_a_system_message(mference_command, demo_install):
    result = mference_command(
        "chat", "--model", demo_install, "--system", "You are a pocket dictionary.", *GREEDY,
        "--quiet", stdin="What is a dog?\n",
    )  # fmt: skip
    assert result.returncode == 0
    assert result.stdout.startswith("A dog is a member of the genus Canis")


def test_help_and_version(mference_command):
    usage = mference_command("--help")
    assert usage.returncode == 0
    for command in ("install", "list", "verify", "remove", "generate", "chat", "demo"):
        assert command in usage.stdout
        assert mference_command(command, "--help").returncode == 0
    assert mference_command("--version").stdout.strip() == mference.__version__


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("generate", "--model", "nowhere", "--prompt", "x"), 1, "nowhere"),
        (("generate", "--prompt", "x"), 2, "--model"),
        (("generate", "--model", "DEMO"), 2, "--prompt"),
        (("generate", "--model", "DEMO", "--prompt", "a", "--messages-file", "b"), 2, "one of"),
        (
            ("generate", "--model", "DEMO", "--prompt", "x", "--temperature", "-1"),
            2,
            "--temperature",
        ),
        (("chat", "--model", "DEMO", "--temperature", "-1"), 2, "--temperature"),
        (("generate", "--model", "DEMO", "--prompt", "x", "--top-k", "300"), 2, "--top-k"),
        (("generate", "--model", "DEMO", "--prompt", "x", "--max-new", "0"), 2, "--max-new"),
        (("generate", "--model", "DEMO", "--prompt", "x", "--max-context", "2"), 2, "context"),
        (("generate", "--model", "DEMO", "--prompt", "x", "--prefill-chunk", "99"), 2, "99"),
        (("generate", "--model", "DEMO", "--prompt", "x", "--prefill-chunk", "３２"), 2, "'３２'"),
        (
            ("generate", "--model", "DEMO", "--prompt", "x", "--expert-cache-slots", "7"),
            2,
            "resident",
        ),
        (("generate", "--model", "DEMO", "--prompt", "x", "--wrong"), 2, "--wrong"),
        (("generate", "--model", "DEMO", "--messages-file", "none.json"), 2, "none.json"),
        (("verify", "nowhere"), 1, "nowhere"),
        (("demo", "--once", "x", "--tour"), 2, "one of"),
        (("install", "--source", "", "--output", "o.gturbo"), 2, "--source is empty"),
        (("install", "--resume", "--output", "o.gturbo"), 1, "no resumable install state"),
        (("install", "--resume", "--discard-partial", "--output", "o"), 2, "mutually exclusive"),
        (("install", "--discard-partial", "--model", "demo", "--output", "o"), 2, "--output alone"),
        (("install", "--base-url", "ftp://x", "--output", "o.gturbo"), 2, "--base-url 'ftp://x'"),
        (("install", "--base-url", "http://x", "--source", ".", "--output", "o"), 2, "not both"),
        (("install", "--model", "llama", "--output", "o.gturbo"), 2, "llama"),
        (("install", "--model", "maple", "--output", "o.gturbo"), 1, "maple"),
        (("install", "--source", "nowhere", "--output", "o.gturbo"), 1, "nowhere"),
        (("install", "--discard-partial", "--output", "o.gturbo"), 1, "no unfinished install"),
        (("install", "--discard-partial", "--overwrite", "--output", "o"), 2, "--output alone"),
        (("frobnicate",), 2, "frobnicate"),
    ],
)
def test_bad_input_gets_one_clear_message(mference_command, demo_install, arguments, code, says):
    result = mference_command(*(str(demo_install) if a == "DEMO" else a for a in arguments))
    assert result.returncode == code
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    assert not result.stderr.startswith("\n")
    assert result.stdout == ""


def start(arguments, environment, directory, **streams):
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        cwd=directory,
        env=environment,
        text=True,
        stderr=subprocess.PIPE,
        **streams,
    )


def interrupted(process) -> str:
    """Sends Ctrl-C after a while; what the command then says. It must end within seconds."""
    time.sleep(3)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    sent = time.monotonic()
    _, errors = process.communicate(timeout=30)
    assert time.monotonic() - sent < 5
    assert process.returncode == 130
    return errors


def test_interrupt_during_decode_ends_with_130(demo_install, cli_environment, tmp_path):
    # After two start tokens the demo model repeats itself until the context is full.
    arguments = (
        "generate", "--model", demo_install, "--prompt", "<bos><bos>", *GREEDY,
        "--max-context", "100000", "--max-new", "99000",
    )  # fmt: skip
    process = start(arguments, cli_environment, tmp_path, stdout=subprocess.PIPE)
    assert interrupted(process) == "mference: interrupted\n"


def test_interrupt_during_prefill_ends_with_130(demo_install, cli_environment, tmp_path):
    message = {"role": "user", "content": "tower " * 90_000}
    (tmp_path / "long.json").write_text(json.dumps([message]))
    arguments = (
        "generate", "--model", demo_install, "--messages-file", "long.json",
        "--max-context", "250000", "--max-new", "1",
    )  # fmt: skip
    process = start(arguments, cli_environment, tmp_path, stdout=subprocess.PIPE)
    assert interrupted(process) == "mference: interrupted\n"


def test_a_closed_output_ends_the_answer(demo_install, cli_environment, tmp_path):
    arguments = ("generate", "--model", demo_install, "--prompt", "A dog is", *GREEDY)
    process = start(arguments, cli_environment, tmp_path, stdout=subprocess.PIPE)
    process.stdout.close()
    process.stdout = None
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert errors.count("\n") == 1
    assert "output was closed" in errors
