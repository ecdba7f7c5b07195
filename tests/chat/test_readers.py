import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mference.chat.dialects.base import UnknownToolError
from mference.chat.parts import Content, Reasoning, ToolCall, calls_of, content_of, reasoning_of
from mference.errors import ToolCallError
from tests.chat.demo import chat_format

CHAT = chat_format()
TOOL = {"name": "f", "parameters": {}}


def read(text, tools=None, stops=()):
    reader = CHAT.assistant_reader(tools, stops)
    parts = [part for token in CHAT.tokenizer.encode(text) for part in reader.push(token)]
    return [*parts, *reader.finish()], reader


def test_an_answer_is_split_in_the_order_it_was_written():
    parts, _ = read(
        '<|channel>thought\nhm 🦙<channel|>See: <|tool_call>call:f{a:<|"|>ü<|"|>}<tool_call|>',
        [TOOL],
    )
    assert reasoning_of(parts) == "hm 🦙"
    assert content_of(parts) == "See: "
    (call,) = calls_of(parts)
    assert (call.name, call.arguments_json) == ("f", '{"a":"ü"}')
    kinds = [type(part) for part in parts]
    assert kinds == sorted(kinds, key=[Reasoning, Content, ToolCall].index)


def test_bytes_held_before_a_marker_belong_before_it():
    reader = CHAT.assistant_reader()
    first_byte = CHAT.tokenizer.encode("🦙")[0]
    assert reader.push(first_byte) == ()
    assert reader.push(CHAT.tokenizer.id_of("<|channel>")) == (Content("\ufffd"),)


def test_stop_strings_are_looked_for_in_the_content_only():
    parts, reader = read(
        "<|channel>thought\nSTOP<channel|>a ST<|channel>x\ny<channel|>z", (), ["STOP"]
    )
    assert content_of(parts) == "a STz"
    assert not reader.stopped
    parts, reader = read("one STOP two<|channel>thought\nthree", (), ["STOP"])
    assert content_of(parts) == "one "
    assert reader.stopped


def test_content_held_for_a_stop_comes_before_the_call_that_follows():
    parts, _ = read("a ST<|tool_call>call:f{}<tool_call|>", [TOOL], ["STOP"])
    assert content_of(parts[:-1]) == "a ST"
    assert isinstance(parts[-1], ToolCall)


def test_a_call_without_tools_on_offer_is_an_error():
    with pytest.raises(UnknownToolError):
        read("<|tool_call>call:f{}<tool_call|>")


def test_plain_text_has_no_special_tokens():
    reader = CHAT.text_reader(["END"])
    tokens = CHAT.tokenizer.encode("<|turn>a 🦙 E")
    assert content_of([p for t in tokens for p in reader.push(t)]) == "a 🦙 "
    assert content_of(reader.finish()) == "E"


@given(st.lists(st.integers(0, CHAT.tokenizer.size - 1) | st.sampled_from(list(CHAT.markers))))
@settings(deadline=None)
def test_no_tokens_make_a_reader_raise_anything_but_a_tool_call_error(tokens):
    reader = CHAT.assistant_reader([TOOL], ["a", "he"])
    try:
        parts = [part for token in tokens for part in reader.push(token)]
        parts += reader.finish()
    except ToolCallError:
        return
    assert not any(name in content_of(parts) for name in CHAT.dialect.markers.values())
