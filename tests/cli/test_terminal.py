"""`mference chat` in a terminal: a real pseudo-terminal with a real child process."""

import stat

import pytest

from tests.cli.conftest import COMMAND

# With such a penalty the demo model answers start tokens with one silent token for ever.
ENDLESS = (
    "--temperature", "0", "--repetition-penalty", "1e-9", "--max-context", "100000",
    "--max-new", "99000",
)  # fmt: skip


@pytest.fixture
def chat(terminal, demo_install):
    """Starts a chat in a terminal and waits for its prompt."""

    def start(*arguments, **changes):
        started = terminal(
            *COMMAND, "chat", "--model", demo_install, "--quiet", *arguments, **changes
        )
        started.expect("> ")
        return started

    return start


def test_ctrl_d_ends_the_chat_and_arrow_up_brings_back_the_last_session(chat, tmp_path):
    first = chat("--temperature", "0")
    first.type("What is a dog?\n")
    first.expect("genus Canis")
    first.expect("> ")
    first.type("\x04")
    assert first.end() == 0
    kept = tmp_path / "state/mference/chat_history"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    second = chat("--temperature", "0")
    second.type("\x1b[A")
    second.expect("What is a dog?")
    second.type("\n")
    second.expect("genus Canis")
    second.expect("> ")
    second.type("/quit\n")
    assert second.end() == 0


def test_ctrl_c_at_the_prompt_ends_the_chat(chat):
    talk = chat()
    talk.interrupt()
    talk.expect("mference: interrupted")
    assert talk.end() == 130
    assert "Traceback" not in talk.shown


def test_ctrl_c_in_an_answer_ends_the_answer_alone(chat):
    talk = chat(*ENDLESS)
    talk.type("<bos><bos>\n")
    talk.expect("<bos><bos>")
    talk.interrupt()
    talk.expect("interrupted; this question is not part of the conversation")
    talk.expect("> ")
    talk.type("/history\n/quit\n")
    assert talk.end() == 0
    assert "user: " not in talk.shown


def test_a_history_that_cannot_be_kept_breaks_nothing(chat, tmp_path):
    (tmp_path / "file").write_text("")
    talk = chat("--temperature", "0", XDG_STATE_HOME=str(tmp_path / "file"))
    talk.type("What is a dog?\n")
    talk.expect("genus Canis")
    talk.expect("> ")
    talk.type("\x04")
    assert talk.end() == 0
    assert "Traceback" not in talk.shown


def test_an_error_in_a_terminal_is_a_line_and_the_chat_goes_on(chat):
    talk = chat("--temperature", "0", "--max-context", "64")
    talk.type("word " * 70 + "\n")
    talk.expect("and the context has 64")
    talk.expect("> ")
    talk.type("What is a dog?\n")
    talk.expect("genus Canis")
    talk.expect("> ")
    talk.type("\x04")
    assert talk.end() == 0


def test_the_prompt_stays_out_of_an_answer_that_goes_to_a_file(terminal, demo_install, tmp_path):
    command = [*COMMAND, "chat", "--model", demo_install, "--temperature", "0", "--quiet"]
    started = terminal("sh", "-c", f'exec "$@" > {tmp_path}/answer.txt', "sh", *command)
    started.expect("> ")
    started.type("What is the capital of Mongolia?\n")
    started.expect("> ")
    started.type("\x04")
    assert started.end() == 0
    answer = (tmp_path / "answer.txt").read_text()
    assert answer == "The capital of Mongolia is Ulaanbaatar.\n"


def test_the_user_types_the_result_of_a_call(chat, tools_file):
    talk = chat("--temperature", "0", "--tools", tools_file)
    talk.type("What is the weather in Lisbon?\n")
    talk.expect('get_weather({"city":"Lisbon"})')
    talk.expect("get_weather result> ")
    talk.type('{"temperature": 21, "sky": "clear"}\n')
    talk.expect("It is 21 degrees and clear in Lisbon.")
    talk.expect("> ")
    talk.type("\x04")
    assert talk.end() == 0
