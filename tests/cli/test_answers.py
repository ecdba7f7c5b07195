"""What answers look like: JSON, tool calls, thoughts, and text without a chat template."""

import json
import shutil

import pytest

import mference
from mference.chat.messages import FunctionCall, Message
from mference.chat.tools import Tool
from mference.cli.conversation import Conversation
from mference.cli.output import message_line, note, show_reply
from mference.errors import ToolCallError
from mference.model import Answer, Model
from mference.session.config import GenerationConfig
from mference.session.generation import generate
from tests.chat import qwen
from tests.chat.demo import CHECKPOINT, chat_format
from tests.session.scripted import ScriptedEngine

LIGHTHOUSE = "A lighthouse is a tower with a light that gives warning of shoals to passing ships."
GREEDY = ("--temperature", "0")


@pytest.fixture
def question(tmp_path):
    """Writes a messages file of one question; its path."""

    def write(text):
        path = tmp_path / "chat.json"
        path.write_text(json.dumps([{"role": "user", "content": text}]))
        return path

    return write


@pytest.fixture(scope="session")
def bare_install(tmp_path_factory):
    """The demo model installed from a folder that has no chat template."""
    place = tmp_path_factory.mktemp("bare")
    shutil.copytree(CHECKPOINT, place / "source", ignore=shutil.ignore_patterns("*.jinja"))
    mference.install(place / "source", place / "bare.gturbo", entry="demo")
    return place / "bare.gturbo"


def test_json_holds_the_answer_and_its_counts(mference_process, demo_install, question):
    result = mference_process(
        "generate", "--model", demo_install, "--messages-file",
        question("What is a lighthouse?"), "--json", *GREEDY,
    )  # fmt: skip
    assert (result.returncode, result.stderr, result.stdout.count("\n")) == (0, "", 1)
    value = json.loads(result.stdout)
    assert value["text"] == LIGHTHOUSE
    assert value["tool_calls"] == []
    assert value["finish_reason"] == "end_of_turn"
    prompt = chat_format().prompt_ids([{"role": "user", "content": "What is a lighthouse?"}])
    answer = chat_format().tokenizer.encode(LIGHTHOUSE + "<turn|>")
    assert value["usage"] == {"prompt_tokens": len(prompt), "completion_tokens": len(answer)}
    assert value["timings"]["prefill_seconds"] > 0
    assert value["timings"]["decode_seconds"] > 0
    assert value["report"]["slots"] == 16
    assert value["report"]["misses"] > 0
    assert value["report"]["bytes_read"] > 1000
    assert "reasoning" not in value


def test_a_tool_of_the_file_is_called(mference_command, demo_install, question, tools_file):
    arguments = (
        "generate", "--model", demo_install, "--messages-file",
        question("What is the weather in Lisbon?"), "--tools", tools_file, *GREEDY, "--quiet",
    )  # fmt: skip
    assert mference_command(*arguments).stdout == 'get_weather({"city":"Lisbon"})\n'
    value = json.loads(mference_command(*arguments, "--json").stdout)
    (call,) = value["tool_calls"]
    assert (call["name"], call["arguments"]) == ("get_weather", {"city": "Lisbon"})
    assert value["text"] == ""
    assert value["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        ('{"temperature": 21, "sky": "clear"}', "It is 21 degrees and clear in Lisbon."),
        ("21 and sunny", "The weather in Lisbon: 21 and sunny."),
    ],
)
def test_a_pipe_gives_the_result_of_a_call_on_the_next_line(
    mference_command, demo_install, tools_file, result, answer
):
    shown = mference_command(
        "chat", "--model", demo_install, "--tools", tools_file, *GREEDY, "--quiet",
        stdin=f"What is the weather in Lisbon?\n{result}\n/history\n",
    )  # fmt: skip
    assert shown.returncode == 0
    assert shown.stdout == f'get_weather({{"city":"Lisbon"}})\n{answer}\n'
    said = shown.stderr.splitlines()
    assert [line.split(":")[0] for line in said] == [
        "user", "assistant", "get_weather result", "assistant",
    ]  # fmt: skip
    assert said[1] == 'assistant: get_weather({"city":"Lisbon"})'


def test_clearing_forgets_the_call_that_waits(mference_command, demo_install, tools_file):
    shown = mference_command(
        "chat", "--model", demo_install, "--tools", tools_file, *GREEDY, "--quiet",
        stdin="What is the weather in Lisbon?\n/clear\nWhat is a lighthouse?\n",
    )  # fmt: skip
    assert shown.stdout.endswith(f"\n{LIGHTHOUSE}\n")


def test_the_oldest_messages_make_room(mference_command, demo_install):
    shown = mference_command(
        "chat", "--model", demo_install, *GREEDY, "--quiet", "--max-context", "96",
        "--system", "You are a pocket dictionary.",
        stdin="What is a dog?\nWhat is a lighthouse?\nWhat is a lighthouse?\n/history\n",
    )  # fmt: skip
    assert shown.returncode == 0
    assert "oldest messages no longer fit" in shown.stderr
    assert "system: You are a pocket dictionary." in shown.stderr
    assert "user: What is a dog?" not in shown.stderr
    assert shown.stdout.endswith(f"{LIGHTHOUSE}\n")


def test_a_message_that_never_fits_ends_a_pipe(mference_command, demo_install):
    shown = mference_command(
        "chat", "--model", demo_install, "--max-context", "16", stdin="What is a dog? " * 9
    )
    assert (shown.returncode, shown.stdout) == (2, "")
    assert "--max-context" in shown.stderr


@pytest.mark.parametrize("thinking", [True, False])
def test_thoughts_go_to_stderr_or_nowhere(capsys, demo_model, thinking):
    form = chat_format()
    written = "<|channel>thought\nA greeting.<channel|>Hello.<turn|>"
    engine = ScriptedEngine(form.tokenizer.encode(written), vocabulary=form.tokenizer.size)
    config = GenerationConfig(temperature=0)
    events = generate(engine, [2], config, form.assistant_reader(), form.stops)
    reply = show_reply(Answer(events, demo_model.report, tools_offered=False), thinking=thinking)
    out, err = capsys.readouterr()
    assert out == "Hello.\n"
    assert err == ("A greeting.\n" if thinking else "")
    assert (reply.content, reply.reasoning) == ("Hello.", "A greeting.")


class _ScriptedModelEngine(ScriptedEngine):
    """With the counters of a real engine, which answers report."""

    def __init__(self, real, produced):
        super().__init__(produced, vocabulary=1 << 18)
        self.counters, self.memory_peak = real.counters, real.memory_peak


CALL = "<tool_call>\n<function=get_weather>\n</function>\n</tool_call>"


@pytest.fixture
def qwen_conversation(demo_model):
    """A conversation with a model that writes these answers, and the model's engine."""

    def start(*written, thinking=True, **settings):
        form = qwen.chat_format()
        engine = _ScriptedModelEngine(
            demo_model._engine, [token for text in written for token in form.tokenizer.encode(text)]
        )
        conversation = Conversation(
            Model(demo_model.install, form, engine), {"temperature": 0, **settings},
            tools=[Tool("get_weather")], thinking=thinking, figures=lambda _: note("[figures]"),
        )  # fmt: skip
        return conversation, engine

    return start


def test_a_thought_that_is_cut_short_ends_its_line_and_leaves_no_turn(capsys, qwen_conversation):
    conversation, _ = qwen_conversation("only a thought", max_new=14)
    conversation.take("Weather?")
    out, err = capsys.readouterr()
    assert out == ""
    thought, cut, figures, left_out = err.splitlines()
    assert (thought, figures) == ("only a thought", "[figures]")
    assert "ended inside a thought; raise --max-new" in cut
    assert "not part of the conversation" in left_out
    assert conversation.messages == []
    assert conversation.prompt == "> "


def test_a_cut_after_a_result_forgets_the_call_with_its_question(capsys, qwen_conversation):
    call = f"</think>{CALL}<|im_end|>"
    conversation, _ = qwen_conversation(call, "h" * 80, max_new=80)
    conversation.take("Weather?")
    conversation.take("18C")
    assert "raise --max-new" in capsys.readouterr().err
    assert conversation.messages == []


@pytest.mark.parametrize("written", ["hm</tool_call>", "hm<tool_call><|im_end|>"])
def test_a_thought_before_an_error_ends_its_line(capsys, qwen_conversation, written):
    conversation, _ = qwen_conversation(written)
    with pytest.raises(ToolCallError):
        conversation.take("Weather?")
    assert capsys.readouterr() == ("", "hm\n")


def test_content_before_an_error_ends_its_line(capsys, qwen_conversation):
    conversation, _ = qwen_conversation("Let me look.\n</tool_call>", thinking=False)
    with pytest.raises(ToolCallError):
        conversation.take("Weather?")
    assert capsys.readouterr().out == "Let me look.\n"


LINE = "get_weather({})\n"


@pytest.mark.parametrize(
    ("written", "shown", "content"),
    [
        (f"{CALL}\n{CALL}", LINE * 2, None),
        (f"Let me look.\n\n{CALL}", f"Let me look.\n{LINE}", "Let me look."),
        (f"{CALL}\n\nThere.\n", f"There.\n{LINE}", "There."),
        (f"a\n{CALL}\nb", f"a\n\nb\n{LINE}", "a\n\nb"),
        ("\n    a\n\n    b \n", "\n    a\n\n    b\n", "\n    a\n\n    b \n"),
        ("", "", ""),
    ],
)
def test_white_space_around_calls_is_not_shown_or_kept(
    capsys, qwen_conversation, written, shown, content
):
    conversation, _ = qwen_conversation(f"{written}<|im_end|>", thinking=False)
    conversation.take("Weather?")
    assert capsys.readouterr().out == shown
    said = conversation.messages[-1]
    assert said.content == content
    line = " ".join(
        [*([content.strip()] if content else []), *(LINE[:-1] for _ in said.tool_calls)]
    )
    assert message_line(said) == f"assistant: {line}"


def test_an_empty_result_is_a_line_of_the_history():
    assert message_line(Message("tool", {}, name="f")) == "f result: {}"
    assert message_line(Message("assistant", " \n", (FunctionCall("f", {}),))) == "assistant: f({})"


def test_a_thought_before_a_call_is_shown_to_the_model_again_with_the_result(
    capsys, qwen_conversation
):
    form = qwen.chat_format()
    conversation, engine = qwen_conversation(
        f"Look.\n</think>\n\n{CALL}<|im_end|>", "Warm.\n</think>\n\n18C.<|im_end|>"
    )
    conversation.take("Weather?")
    assert conversation.prompt == "get_weather result> "
    conversation.take('{"degrees": 18}')
    out, err = capsys.readouterr()
    assert out == "get_weather({})\n18C.\n"
    assert err == "Look.\n[figures]\nWarm.\n[figures]\n"
    assert form.tokenizer.decode(engine.tokens, keep_special=True).endswith(
        "user\nWeather?<|im_end|>\n"
        f"<|im_start|>assistant\n<think>\nLook.\n</think>\n\n{CALL}<|im_end|>\n"
        '<|im_start|>user\n<tool_response>\n{"degrees": 18}\n</tool_response><|im_end|>\n'
        "<|im_start|>assistant\n<think>\nWarm.\n</think>\n\n18C."
    )


def test_thinking_is_asked_of_the_template(mference_command, demo_install, question):
    def tokens(*flags):
        result = mference_command(
            "generate", "--model", demo_install, "--messages-file", question("Hello!"), "--json",
            "--max-new", "1", *flags,
        )  # fmt: skip
        return json.loads(result.stdout)["usage"]["prompt_tokens"]

    form, messages = chat_format(), [{"role": "user", "content": "Hello!"}]
    assert tokens() == len(form.prompt_ids(messages))
    assert tokens("--thinking") == len(form.prompt_ids(messages, enable_thinking=True))


def test_without_a_template_text_is_framed_the_same(mference_command, bare_install, question):
    result = mference_command(
        "generate", "--model", bare_install, "--messages-file",
        question("What is a lighthouse?"), *GREEDY, "--quiet",
    )  # fmt: skip
    assert (result.returncode, result.stdout, result.stderr) == (0, LIGHTHOUSE + "\n", "")


@pytest.mark.parametrize("flag", ["--tools", "--thinking"])
@pytest.mark.parametrize("command", ["generate", "chat"])
def test_without_a_template_tools_and_thinking_are_refused_at_once(
    mference_command, bare_install, question, tools_file, command, flag
):
    messages = ["--messages-file", question("Hello!")] if command == "generate" else []
    value = [tools_file] if flag == "--tools" else []
    result = mference_command(command, "--model", bare_install, *messages, flag, *value)
    assert (result.returncode, result.stdout) == (1, "")
    assert "need the checkpoint's chat template" in result.stderr


def test_models_without_a_flash_head_say_so_and_answer(mference_command, demo_install, question):
    result = mference_command(
        "generate", "--model", demo_install, "--messages-file",
        question("What is a lighthouse?"), "--flash-head", *GREEDY, "--quiet",
    )  # fmt: skip
    assert result.stdout == LIGHTHOUSE + "\n"
    assert result.stderr.count("\n") == 1
    assert "the exact head" in result.stderr


@pytest.mark.parametrize("advice", ["default", "bounded", "adaptive"])
def test_read_advice_changes_no_answer(mference_command, demo_install, question, advice):
    result = mference_command(
        "generate", "--model", demo_install, "--messages-file",
        question("What is a lighthouse?"), "--rdadvise", advice, *GREEDY, "--json",
    )  # fmt: skip
    value = json.loads(result.stdout)
    assert value["text"] == LIGHTHOUSE
    assert value["report"]["advice_calls"] > 0


def test_verify_prints_json(mference_command, demo_install, tmp_path):
    # A verification writes a new receipt.
    own = shutil.copytree(demo_install, tmp_path / "own.gturbo")
    result = mference_command("verify", own, "--json")
    assert result.returncode == 0
    value = json.loads(result.stdout)
    assert value["path"] == str(own)
    assert value["files"] > 10
    assert value["unexpected"] == []


def test_output_that_the_character_set_lacks_becomes_question_marks(
    mference_process, cli_environment, monkeypatch
):
    monkeypatch.setitem(cli_environment, "PYTHONIOENCODING", "ascii")
    result = mference_process("demo", "--once", "What is the capital of Brazil?")
    assert (result.returncode, result.stdout) == (0, "The capital of Brazil is Bras?lia.\n")
