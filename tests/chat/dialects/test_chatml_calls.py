import contextlib
import json

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from mference.chat.dialects.base import MalformedCallError, UnknownToolError
from mference.chat.dialects.chatml_calls import parse_calls
from mference.errors import ToolCallError
from tests.chat.qwen import chat_format

CHAT = chat_format()
KEYS = st.from_regex(r"[^>\n]+", fullmatch=True).filter(lambda key: key.isprintable())
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
SYNTAX = st.lists(
    st.sampled_from(
        ["<function=f>", "</function>", "<parameter=a>", "</parameter>", "\n", "<", ">", "[", "}",
         '"', "1", "-", "true", " ", "ü"]
    )
).map("".join)  # fmt: skip


def call(value, close="</function>"):
    return f"\n<function=f>\n<parameter=a>\n{value}\n</parameter>\n{close}\n"


def is_plain(value):
    """Whether a text reads as itself: it is not JSON, and does not hold what ends a value."""
    try:
        typed = not isinstance(json.loads(value), str)
    except ValueError:
        typed = False
    return not typed and "\n</parameter>\n" not in f"\n{value}\n"


@given(st.dictionaries(KEYS, JSON, max_size=4))
@example({"a": ""})
@example({"a": "\n"})
@example({"a": '"quoted"'})
@example({"a b": " </parameter>", "c": {"d": "\n</parameter>\n"}})
@settings(deadline=None)
def test_what_the_template_writes_is_read_back(arguments):
    assume(all(is_plain(v) for v in arguments.values() if isinstance(v, str)))
    history = [
        {"role": "user", "content": "u"},
        {"role": "assistant", "tool_calls": [{"name": "f-1", "arguments": arguments}]},
    ]
    text = CHAT.render(history)
    body = text.partition("<tool_call>")[2].rpartition("</tool_call>")[0]
    (read,) = parse_calls(body, ["f-1"])
    assert read.name == "f-1"
    assert read.arguments == arguments
    assert json.loads(read.arguments_json) == arguments


@given(st.text() | SYNTAX | SYNTAX.map(call))
@settings(deadline=None, max_examples=500)
def test_whatever_the_text_only_a_tool_call_error_is_raised(text):
    with contextlib.suppress(ToolCallError):
        parse_calls(text, ["f"])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e3", 1000.0),
        ('{"a": [null]}', {"a": [None]}),
        ("\t-0.5\r", -0.5),
        ('"7"', '"7"'),
        ("NaN", "NaN"),
        ("1e999", "1e999"),
        ("[1e999]", "[1e999]"),
        ("9" * 5000, "9" * 5000),
        ('["\\ud83c"]', '["\\ud83c"]'),
        ("True", "True"),
        ("１", "１"),
        ("[" * 600 + " opened in a text", None),
        ("see " + "[" * 600, "see " + "[" * 600),
    ],
)
def test_a_value_is_json_or_the_text_as_it_stands(text, value):
    if value is None:
        with pytest.raises(MalformedCallError, match="64 levels"):
            parse_calls(call(text), ["f"])
        return
    assert parse_calls(call(text), ["f"])[0].arguments == {"a": value}


@pytest.mark.parametrize("depth", [65, 500, 120_000])
def test_nesting_over_the_limit_is_malformed_at_any_depth(depth):
    with pytest.raises(MalformedCallError, match="64 levels"):
        parse_calls(call("[" * depth + "]" * depth), ["f"])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", r"expected <function=NAME> .* at character 0, found ''"),
        ("<function=f>\n<parameter=a>\n1", "expected a value that </parameter>"),
        (call("1", "</function"), r"</function> as the last one .*found '</function'"),
        (call("1") + "x", "as the last one"),
        ("<function=f>\n <parameter=a>\n1\n</parameter>\n</function>", "expected <parameter=KEY>"),
        ("<function=f>\r\n</function>", "expected <function=NAME>"),
        ("<function=ü>\n</function>", "expected <function=NAME>"),
    ],
)
def test_the_error_says_what_was_expected_and_where(text, says):
    with pytest.raises(MalformedCallError, match=says):
        parse_calls(text, ["f"])


def test_a_value_ends_at_its_first_closing_line():
    (read,) = parse_calls(call("a\n</parameter>\n<parameter=b>\n\nb"), ["f"])
    assert read.arguments == {"a": "a", "b": "\nb"}
    with pytest.raises(MalformedCallError):
        parse_calls(call("a\n</parameter>\nb"), ["f"])


def test_an_unknown_tool_is_named_with_those_on_offer():
    with pytest.raises(UnknownToolError, match=r"'g'.*offered: a, f") as raised:
        parse_calls("<function=g>\n</function>", ["f", "a"])
    assert raised.value.tool == "g"


def test_every_call_has_its_own_id():
    assert len({parse_calls(call("1"), ["f"])[0].id for _ in range(20)}) == 20
