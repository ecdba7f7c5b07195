import json
import time
from itertools import cycle, groupby, repeat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mference.chat.dialects.base import MalformedCallError, NotInDialectError
from mference.chat.dialects.chatml import CHATML, ChatmlSplitter
from mference.chat.format import ChatFormat
from mference.chat.messages import InvalidMessagesError
from mference.chat.parts import Content, Reasoning, ToolCall, calls_of, content_of, reasoning_of
from mference.chat.tools import offered
from mference.errors import TemplateError, ToolCallError
from mference.session.config import GenerationConfig
from mference.session.generation import generate, parts_of, reply_of
from tests.chat.qwen import IDS, chat_format
from tests.session.scripted import ScriptedEngine

CHAT = chat_format()
HELLO = [{"role": "user", "content": "Hello!"}]
TOOL = {"name": "get-weather", "description": "d", "parameters": {"type": "object", "x": [1, {}]}}
CALL = (
    "<tool_call>\n<function=get-weather>\n<parameter=city>\nRome\n</parameter>\n"
    "</function>\n</tool_call>"
)


def read(text, tools=(), *, thinking=False, stops=()):
    """The parts of an answer to a rendered prompt."""
    prompt = CHAT.prompt_ids(HELLO, tools, enable_thinking=thinking)
    reader = CHAT.assistant_reader(tools, stops, prompt=prompt)
    parts = [part for token in CHAT.tokenizer.encode(text) for part in reader.push(token)]
    return [*parts, *reader.finish()]


def texts(parts):
    return reasoning_of(parts), content_of(parts)


def test_an_answer_with_thinking_off_is_content_from_its_first_letter():
    assert CHAT.render(HELLO).endswith("<think>\n\n</think>\n\n")
    assert texts(read("\nHi 🦙.\n")) == ("", "\nHi 🦙.\n")


def test_an_answer_with_thinking_on_begins_inside_the_thought():
    assert CHAT.render(HELLO, enable_thinking=True).endswith("assistant\n<think>\n")
    parts = read("A greeting.\n\nBe kind. 🦙\n</think>\n\nHi!\n\nBye.", thinking=True)
    assert texts(parts) == ("A greeting.\n\nBe kind. 🦙", "Hi!\n\nBye.")


def test_an_answer_that_ends_inside_a_thought_has_no_content():
    assert texts(read("Hm\n\nso", thinking=True)) == ("Hm\n\nso", "")
    assert texts(read("Well<think>\nhm")) == ("hm", "Well")


def test_a_thought_of_nothing_leaves_no_parts():
    assert read("\n</think>\n\n", thinking=True) == []
    assert read("</think>", thinking=True) == []


def test_a_thought_of_many_line_breaks_takes_time_in_proportion():
    splitter = ChatmlSplitter([], in_thought=True)
    assert splitter.text("a") == (Reasoning("a"),)
    started = time.process_time()
    for _ in range(100_000):
        splitter.text("\n")
    assert splitter.text("b") == (Reasoning("\n" * 100_000 + "b"),)
    assert time.process_time() - started < 5


def test_a_thought_in_mid_answer_is_hidden_and_the_rest_is_left_as_it_stands():
    assert texts(read("a\n<think>\nb\n</think>\n\nc")) == ("b", "a\n\n\nc")
    assert texts(read("b\n</think>\n\na<think>\nd\n</think>\nc", thinking=True)) == ("bd", "a\nc")


def test_markers_of_thoughts_without_a_partner_are_nothing():
    assert texts(read("a</think>b")) == ("", "ab")
    assert texts(read("a<think>b<think>c</think>d</think>e")) == ("bc", "ade")


@pytest.mark.parametrize("role", ["user", "system"])
def test_a_think_token_that_a_message_quotes_opens_no_thought(role):
    messages = [{"role": role, "content": "What does <think> do?"}, *HELLO]
    for thinking in (False, True):
        prompt = CHAT.prompt_ids(messages, enable_thinking=thinking)
        assert CHAT.starts_in_thought(prompt) == thinking
    bare = CHAT.tokenizer.encode(f"<|im_start|>{role}\n<think><|im_end|>\n<|im_start|>assistant\n")
    assert not CHAT.starts_in_thought(bare)


def test_neither_a_continuation_nor_a_raw_prompt_starts_in_a_thought():
    assert not CHAT.starts_in_thought(CHAT.continuation_ids("next"))
    assert not CHAT.starts_in_thought(CHAT.raw_ids("x"))


@pytest.mark.parametrize("thinking", [False, True])
def test_a_call_counts_wherever_it_stands(thinking):
    parts = read(f"Let me see.\n\n{CALL}", [TOOL], thinking=thinking)
    (call,) = calls_of(parts)
    assert (call.name, call.arguments_json) == ("get-weather", '{"city":"Rome"}')
    seen = reasoning_of(parts) if thinking else content_of(parts).rstrip("\n")
    assert seen == "Let me see."
    assert parts[-1] == call


def test_line_breaks_before_a_call_in_a_thought_do_not_come_after_it():
    parts = read(f"one\n\n{CALL}\ntwo\n</think>\n\nthree", [TOOL], thinking=True)
    assert [kind for kind, _ in groupby(map(type, parts))] == [
        Reasoning,
        ToolCall,
        Reasoning,
        Content,
    ]
    assert texts(parts) == ("one\ntwo", "three")


def test_thought_markers_inside_a_call_are_part_of_its_text():
    text = CALL.replace("Rome", "<think> and </think>, <|im_start|> and <tool_response>")
    (call,) = read(text, [TOOL])
    assert call.arguments == {"city": "<think> and </think>, <|im_start|> and <tool_response>"}


@pytest.mark.parametrize(
    "text", ["<tool_call><tool_call>", "<tool_call>", "</tool_call>", "<tool_call></tool_call>"]
)
@pytest.mark.parametrize("thinking", [False, True])
def test_calls_out_of_order_and_calls_cut_short_are_malformed(text, thinking):
    with pytest.raises(MalformedCallError):
        read(text, [TOOL], thinking=thinking)


def test_after_a_failure_every_step_fails():
    splitter = ChatmlSplitter([])
    steps = (lambda: splitter.marker("tool_close"), lambda: splitter.text("x"), splitter.finish)
    for step in steps:
        with pytest.raises(MalformedCallError, match="had not opened"):
            step()


def test_stop_strings_are_not_looked_for_in_thoughts():
    parts = read("STOP\n</think>\n\na STOP b", thinking=True, stops=["STOP"])
    assert texts(parts) == ("STOP", "a ")


PIECES = st.lists(
    st.text("ab\n\u00e9", min_size=1, max_size=6) | st.sampled_from(sorted(CHATML.markers)),
    max_size=8,
)


@given(PIECES, st.lists(st.integers(1, 3), min_size=1, max_size=12), st.booleans())
@settings(deadline=None)
def test_where_the_text_is_cut_does_not_matter(pieces, cuts, in_thought):
    def split(sizes):
        splitter, parts = ChatmlSplitter(["f"], in_thought=in_thought), []
        try:
            for piece in pieces:
                if piece in CHATML.markers:
                    parts += splitter.marker(piece)
                    continue
                while piece:
                    size = next(sizes)
                    parts += splitter.text(piece[:size])
                    piece = piece[size:]
            parts += splitter.finish()
        except ToolCallError as error:
            return *texts(parts), str(error)
        return texts(parts)

    assert split(cycle(cuts)) == split(repeat(100))


@given(
    st.lists(st.integers(0, 255) | st.sampled_from(sorted(IDS.values())), max_size=30),
    st.booleans(),
)
@settings(deadline=None)
def test_no_tokens_make_a_reader_raise_anything_but_a_tool_call_error(tokens, thinking):
    prompt = CHAT.prompt_ids(HELLO, enable_thinking=thinking)
    reader = CHAT.assistant_reader([TOOL], ["a", "he"], prompt=prompt)
    try:
        parts = [part for token in tokens for part in reader.push(token)]
        parts += reader.finish()
    except ToolCallError:
        return
    assert all(isinstance(part, Content | Reasoning | ToolCall) for part in parts)
    assert not any(name in "".join(texts(parts)) for name in CHATML.markers.values())


def test_a_reply_keeps_thoughts_apart_and_ends_with_its_turn():
    answer = CHAT.tokenizer.encode(f"hm\n</think>\n\nI look.\n{CALL}<|im_end|>")
    prompt = CHAT.prompt_ids(HELLO, [TOOL], enable_thinking=True)
    events = generate(
        ScriptedEngine(answer), prompt, GenerationConfig(temperature=0),
        CHAT.assistant_reader([TOOL], prompt=prompt), CHAT.stops,
    )  # fmt: skip
    parts, stream = [], parts_of(events)
    while True:
        try:
            parts.append(next(stream))
        except StopIteration as end:
            reply = reply_of(parts, end.value, tools_offered=True)
            break
    assert (reply.reasoning, reply.content) == ("hm", "I look.\n")
    assert [call.arguments for call in reply.tool_calls] == [{"city": "Rome"}]
    assert reply.completion.finish_reason == "end_of_turn"


def history(result, reasoning=None):
    call = {"name": "get-weather", "arguments": {"city": "Rome"}}
    thought = {"reasoning_content": reasoning} if reasoning else {}
    return [
        *HELLO,
        {"role": "assistant", "content": None, "tool_calls": [call], **thought},
        {"role": "tool", "content": result},
    ]


def test_calls_and_results_are_rendered_as_the_model_writes_them():
    assert CHAT.render(history("18C", "hm"), [TOOL]).partition("Hello!<|im_end|>\n")[2] == (
        f"<|im_start|>assistant\n<think>\nhm\n</think>\n\n{CALL}<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\n18C\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )


def test_thoughts_before_the_newest_question_are_not_rendered():
    later = [*history("18C", "hm"), {"role": "assistant", "content": "Warm."}, *HELLO]
    text = CHAT.render(later, [TOOL])
    assert f"<|im_start|>assistant\n{CALL}<|im_end|>\n" in text
    assert "hm" not in text


def test_results_that_are_objects_are_rendered_as_json():
    result = {"sky": "heiter ☀", "degrees": [18, None]}
    text = CHAT.render(history(result), [TOOL])
    assert '\n<tool_response>\n{"sky": "heiter ☀", "degrees": [18, null]}\n</tool_response>' in text
    with pytest.raises(InvalidMessagesError, match=r"messages\[2\].content.*JSON"):
        CHAT.render(history({"at": object()}), [TOOL])


@pytest.mark.parametrize(
    "declaration",
    [
        {"type": "function", "function": TOOL},
        {"function": {"strict": True, "parameters": {}, "name": "f"}, "type": "function", "x": 1},
        {"type": "function", "function": {"name": "f"}},
    ],
)
def test_tools_are_declared_as_given(declaration):
    assert f"\n{json.dumps(declaration)}\n</tools>" in CHAT.render(HELLO, [declaration])
    (tool,) = offered([declaration])
    assert CHAT.render(HELLO, [tool]) == CHAT.render(HELLO, [declaration])


@pytest.mark.parametrize(
    "bare",
    [
        {"strict": True, "name": "f"},
        {"type": "function", "strict": True, "name": "f"},
        {"function": {"strict": True, "name": "f"}},
    ],
)
def test_a_bare_tool_is_declared_as_a_function(bare):
    declared = '{"type": "function", "function": {"strict": true, "name": "f"}}'
    assert f"\n{declared}\n</tools>" in CHAT.render(HELLO, [bare])


def test_text_only_framing_refuses_a_role_that_qwen_has_not():
    framed = ChatFormat(CHAT.tokenizer, CHATML)
    with pytest.raises(InvalidMessagesError, match=r"messages\[0\]\.role: .*'developer'; use one"):
        framed.render([{"role": "developer", "content": "x"}, *HELLO])


def test_the_checkpoint_template_and_the_text_only_framing_agree():
    framed = ChatFormat(CHAT.tokenizer, CHATML)
    messages = [
        {"role": "system", "content": " Be brief. "}, *HELLO,
        {"role": "assistant", "content": "Hi.\n"}, *HELLO,
    ]  # fmt: skip
    assert framed.render(messages) == CHAT.render(messages)
    assert framed.render(HELLO) == CHAT.render(HELLO)


def test_what_the_template_refuses_is_a_template_error():
    for messages in (
        [{"role": "developer", "content": "x"}, *HELLO],
        [*HELLO, {"role": "system", "content": "late"}],
        [{"role": "user", "content": "<tool_response>x</tool_response>"}],
        [],
    ):
        with pytest.raises(TemplateError, match="refuses these messages"):
            CHAT.render(messages)


def test_results_begin_a_new_turn_and_cannot_be_put_behind_cached_calls():
    with pytest.raises(NotInDialectError, match=r"chatml.*whole conversation"):
        CHAT.tool_result_ids(CHAT.prompt_ids(history("18C")), CHAT.tokenizer.encode(CALL))


def test_the_stop_tokens_are_qwens_and_a_raw_prompt_has_no_start_token():
    assert CHAT.stops == {248044: "eos", 248046: "end_of_turn"}
    assert CHAT.raw_ids("") == []
    assert CHAT.stops[CHAT.continuation_ids("x")[0]] == "end_of_turn"
