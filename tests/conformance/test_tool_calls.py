"""Conformance of tool calls: each dialect's syntax, and splitting an answer into its parts."""

import pytest

from mference.chat import json_text
from mference.chat.dialects.base import MalformedCallError, OversizedCallError, UnknownToolError
from mference.chat.parts import Content, ToolCall
from mference.errors import ToolCallError
from tests.chat.spoken import dialect_or_skip
from tests.conformance.loader import cases, text

LABELS = {
    MalformedCallError: "malformed",
    OversizedCallError: "oversized",
    UnknownToolError: "unknown_tool",
}


def nesting(value):
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(nesting, value), default=0) if isinstance(value, list) else 0


@pytest.mark.parametrize("case", cases("tool_calls", "gemma", "qwen", "deepseek", "maple"))
def test_dialect_syntax(case):
    dialect = dialect_or_skip(case.kind)
    source, allowed = text(case.given["text"]), case.given["allowed"]
    if "error" in case.expect:
        with pytest.raises(ToolCallError) as raised:
            dialect.parse_calls(source, allowed)
        assert LABELS[raised.type] == case.expect["error"]
        if "tool" in case.expect:
            assert raised.value.tool == case.expect["tool"]
        return
    calls = dialect.parse_calls(source, allowed)
    assert len(calls) == len(case.expect["calls"])
    for call, expected in zip(calls, case.expect["calls"], strict=True):
        assert call.name == expected["name"]
        if "arguments" in expected:
            assert call.arguments == expected["arguments"]
        if "arguments_json" in expected:
            assert call.arguments_json == expected["arguments_json"]
        if "argument_depth" in expected:
            deep = expected["argument_depth"]
            assert nesting(call.arguments[deep["key"]]) == deep["levels"]


def merged(events):
    """Events as the cases write them, adjacent content put together."""
    out = []
    for event in events:
        if "content" in event and out and "content" in out[-1]:
            out[-1] = {"content": out[-1]["content"] + event["content"]}
        else:
            out.append(event)
    return out


def described(parts, key="content"):
    """Content and calls; reasoning is hidden."""
    for part in parts:
        if isinstance(part, Content):
            yield {key: part.text}
        elif isinstance(part, ToolCall):
            yield {"tool_call": {"name": part.name, "arguments": part.arguments}}


def feed(splitter, step):
    if "special" in step:
        return splitter.marker(step["special"])
    return splitter.text(step.get("text", step.get("flushed")))


@pytest.mark.parametrize("case", cases("tool_calls", "assistant_stream"))
def test_assistant_stream(case):
    splitter = dialect_or_skip(case.given["dialect"]).splitter(case.given["allowed"])
    events, finish = [], "ok"
    for number, step in enumerate(case.given["feed"]):
        try:
            events += described(feed(splitter, step))
        except ToolCallError as error:
            finish = f"raises {LABELS[type(error)]} at step {number}"
            for later in [*case.given["feed"][number + 1 :], {"text": "x"}]:
                with pytest.raises(type(error)):
                    feed(splitter, later)
            break
    else:
        try:
            events += described(splitter.finish(), "content_at_finish")
        except ToolCallError as error:
            finish = LABELS[type(error)]
    assert merged(events) == merged(case.expect["events"])
    assert finish == case.expect["finish"]
    assert any("tool_call" in event for event in events) == case.expect["has_tool_calls"]


@pytest.mark.parametrize("case", cases("tool_calls", "json_depth"))
def test_json_depth(case):
    try:
        json_text.decode(text(case.given["text"]))
        accepted = True
    except ValueError:
        accepted = False
    assert accepted == case.expect["accepted"]
