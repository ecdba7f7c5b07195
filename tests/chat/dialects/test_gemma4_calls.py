import contextlib
import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mference.chat.dialects.base import MalformedCallError, UnknownToolError
from mference.chat.dialects.gemma4_calls import parse_calls
from mference.errors import ToolCallError

KEYS = st.from_regex(r"[A-Za-z0-9_\-.$]+", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
SYNTAX = st.lists(
    st.sampled_from(
        ["call:", "f", "{", "}", "[", "]", ":", ",", '"', '<|"|>', "\\", "u", "d83c", "1", "-", ".",
         "e", "true", "null", " ", "\n", "ü", "a"]
    )
).map("".join)  # fmt: skip


def written(value, native):
    """A value as the model writes it, in native or in JSON quotes."""
    if isinstance(value, str):
        inside = json.dumps(value, ensure_ascii=False)[1:-1]
        if not native:
            return f'"{inside}"'
        return '<|"|>' + inside.replace('<|\\"|>', '\\u003c|"|>').replace('\\"', '"') + '<|"|>'
    if isinstance(value, dict):
        pairs = (f"{key}:{written(item, native)}" for key, item in value.items())
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(written(item, native) for item in value) + "]"
    return json.dumps(value)


@given(st.dictionaries(KEYS, VALUES, max_size=4), st.booleans())
@example({"a": '<|"|>'}, True)
@settings(deadline=None)
def test_what_a_model_writes_is_read_back(arguments, native):
    (call,) = parse_calls(f"call:f_1{written(arguments, native)}", ["f_1"])
    assert call.name == "f_1"
    assert call.arguments == arguments
    assert json.loads(call.arguments_json) == arguments


@given(
    st.text() | SYNTAX | SYNTAX.map(lambda s: "call:f{" + s) | SYNTAX.map("call:f{{a:{}}}".format)
)
@settings(deadline=None, max_examples=500)
def test_whatever_the_text_only_a_tool_call_error_is_raised(text):
    with contextlib.suppress(ToolCallError):
        parse_calls(text, ["f"])


@pytest.mark.parametrize("depth", [65, 100_000])
def test_nesting_over_the_limit_is_malformed_at_any_depth(depth):
    with pytest.raises(MalformedCallError, match="64 levels"):
        parse_calls("call:f{a:" + "[" * depth, ["f"])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("call:f{a:1} x", "the end of the call at character 12, found 'x'"),
        ("call:f{a:", "ends too early: expected a value"),
        ("call:f{a:1e999}", "range of a double"),
        ("call:f{a:" + "1" * 5000 + "}", "sensible length"),
        ('call:f{a:"\n"}', "expected"),
        ('call:f{a:"\\ud83cx"}', "expected"),
        ("call:{}", "a tool name"),
        ("call:f{ü:1}", "a key"),
        ("call:f{a:１}", "a value"),
    ],
)
def test_the_error_says_what_was_expected_and_where(text, says):
    with pytest.raises(MalformedCallError, match=says):
        parse_calls(text, ["f"])


def test_an_unknown_tool_is_named_with_those_on_offer():
    with pytest.raises(UnknownToolError, match=r"'g'.*offered: a, f") as raised:
        parse_calls("call:g{}", ["f", "a"])
    assert raised.value.tool == "g"
    with pytest.raises(UnknownToolError, match="none were offered"):
        parse_calls("call:g{}", [])


def test_line_breaks_may_stand_in_native_strings():
    (call,) = parse_calls('call:f{a:<|"|>x\n\ty<|"|>}', ["f"])
    assert call.arguments == {"a": "x\n\ty"}


def test_every_call_has_its_own_id():
    ids = {parse_calls("call:f{}", ["f"])[0].id for _ in range(20)}
    assert len(ids) == 20
