import json

import pytest

from mference.chat.messages import (
    FunctionCall,
    InvalidMessagesError,
    Message,
    conversation,
    read_messages,
)
from mference.errors import ConfigError

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": [1]}'}}


def test_openai_style_dicts_become_messages():
    given = [
        {"role": "system", "content": "S", "name": "n", "unknown": 1},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": {"k": 1}, "tool_call_id": "c1"},
        Message("user", "x"),
    ]
    assert conversation(given) == (
        Message("system", "S", name="n"),
        Message("user", "ab"),
        Message("assistant", None, (FunctionCall("f", {"a": [1]}, "c1"),)),
        Message("tool", {"k": 1}, tool_call_id="c1"),
        Message("user", "x"),
    )


def test_a_template_sees_arguments_as_a_mapping_and_no_absent_keys():
    seen = conversation([{"role": "assistant", "tool_calls": [CALL]}])[0].for_template()
    assert seen == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": [1]}}}
        ],
    }


def test_a_call_may_be_flat_and_without_arguments():
    message = conversation([{"role": "assistant", "tool_calls": [{"name": "f"}]}])[0]
    assert message.tool_calls == (FunctionCall("f", {}),)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("hello", "expected a list of messages"),
        ({"role": "user"}, "expected a list of messages"),
        ([1], r"messages\[0\]: expected an object, got int"),
        ([{}], r"messages\[0\]\.role: missing; use one of"),
        ([{"role": "model", "content": "x"}], r"messages\[0\]\.role: 'model'"),
        ([{"role": "user"}], r"messages\[0\]\.content: missing"),
        ([{"role": "assistant", "content": None}], r"\.content: missing"),
        ([{"role": "user", "content": 3}], r"\.content: expected text"),
        ([{"role": "user", "content": {"a": 1}}], r"\.content: expected text"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], r"\.content\[0\].*image_url"),
        ([{"role": "user", "content": [{"type": "text"}]}], r"\.content\[0\]"),
        ([{"role": "user", "content": "x", "tool_calls": [CALL]}], "only an assistant"),
        ([{"role": "assistant", "tool_calls": "f"}], r"\.tool_calls: expected a list"),
        ([{"role": "assistant", "tool_calls": [{}]}], r"\.tool_calls\[0\]: .*function\.name"),
        (
            [{"role": "assistant", "tool_calls": [{"name": "f", "arguments": "{"}]}],
            "not valid JSON",
        ),
        ([{"role": "assistant", "tool_calls": [{"name": "f", "arguments": "1"}]}], "an object"),
        ([{"role": "tool", "content": "x", "tool_call_id": 3}], r"\.tool_call_id: expected text"),
    ],
)
def test_a_wrong_shape_names_the_message_and_the_key(given, says):
    with pytest.raises(InvalidMessagesError, match=says):
        conversation(given)


def test_a_messages_file_is_read(tmp_path):
    path = tmp_path / "m.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps([{"role": "user", "content": "ü"}]).encode())
    assert read_messages(path) == (Message("user", "ü"),)


@pytest.mark.parametrize(
    ("data", "error", "says"),
    [
        (None, ConfigError, "cannot read messages file"),
        (b"[\xff]", ConfigError, "not UTF-8 at byte 1"),
        (b"[{", ConfigError, "not valid JSON"),
        (b"[" * 100_000, ConfigError, "nested deeper than 64"),
        (b"[NaN]", ConfigError, "NaN"),
        (b"{}", InvalidMessagesError, "expected a list"),
        (
            b'[{"role": "user", "content": "a"}, {"role": "x"}]',
            InvalidMessagesError,
            r"\[1\]\.role",
        ),
    ],
)
def test_a_bad_messages_file_says_what_is_wrong_with_it(tmp_path, data, error, says):
    path = tmp_path / "m.json"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(error, match=says) as raised:
        read_messages(path)
    assert "m.json" in str(raised.value)
