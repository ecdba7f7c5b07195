"""Conformance of chat framing: prompts, continuations, dialects, schemas."""

import pytest

from mference.chat.dialects import detect
from mference.chat.dialects.base import (
    AmbiguousBoundaryError,
    NotInDialectError,
    UnsupportedDialectError,
)
from mference.chat.dialects.gemma4_schema import flattened
from mference.chat.messages import InvalidMessagesError, conversation
from mference.chat.template import MissingTemplateError
from mference.chat.tokenizer import find_tokenizer
from mference.errors import TemplateError
from mference.families import pinned_entry
from tests.chat.spoken import chat_format_or_skip, dialect_or_skip
from tests.conformance.loader import cases

LABELS = {
    InvalidMessagesError: "invalid_messages",
    UnsupportedDialectError: "unsupported_dialect",
    NotInDialectError: "unsupported_for_dialect",
    MissingTemplateError: "missing_tool_template",
    AmbiguousBoundaryError: "ambiguous_boundary",
    TemplateError: "template_error",
}
# Tokens that the code has no use for, or none by that name.
TOKENS = {
    "bos": "<bos>",
    "pad": "<pad>",
    "im_start": "<|im_start|>",
    "tool_response_open": "<tool_response>",
    "tool_response_close": "</tool_response>",
}


def check(case, make):
    """Compare a rendered text, or the error, with what the case expects."""
    try:
        text = make()
    except TemplateError as error:
        assert LABELS[type(error)] == case.expect.get("error"), error
        return
    assert "error" not in case.expect
    expect = case.expect
    assert text == expect.get("text", text)
    assert text.startswith(expect.get("starts_with", ""))
    assert text.endswith(expect.get("ends_with", ""))
    assert all(piece in text for piece in expect.get("contains", []))


@pytest.mark.parametrize("case", cases("chat_templates", "render"))
def test_text_only_framing(case):
    dialect = dialect_or_skip(case.given["dialect"], case.given.get("family"))
    check(case, lambda: dialect.frame(conversation(case.given["messages"])))


@pytest.mark.parametrize("case", cases("chat_templates", "continuation"))
def test_continuation(case):
    dialect = dialect_or_skip(case.given["dialect"], case.given.get("family"))
    text = dialect.continuation(case.given["user"])
    assert text == case.expect["text"]
    ends = next(t for t, reason in dialect.stops.items() if reason == case.expect["first_token"])
    assert text.startswith(ends)


@pytest.mark.parametrize("case", cases("chat_templates", "token_facts"))
def test_token_facts(case):
    """The tests' tokenizers have the control tokens at their models' ids, and fewer others."""
    chat = chat_format_or_skip(case.given["dialect"], case.given.get("family"))
    facts = {fact: chat.tokenizer.id_of(token) for fact, token in TOKENS.items()}
    facts |= {reason: number for number, reason in chat.stops.items()}
    facts |= {role: number for number, role in chat.markers.items()}
    facts |= {
        "stops": sorted(chat.stops),
        "bos_prefixed": chat.raw_ids("") != [],
        "starts_in_thought": chat.starts_in_thought(
            chat.prompt_ids([{"role": "user", "content": "hi"}])
        ),
        "vocab": pinned_entry(case.given["family"]).arch["vocabSize"],
    }
    assert facts == facts | case.expect


@pytest.mark.parametrize("case", cases("chat_templates", "dialect_detection"))
def test_dialect_detection(case):
    if "family" in case.given:
        dialect_or_skip(case.given["family"])
    if "dialect" in case.expect:
        dialect_or_skip(case.expect["dialect"])
    tokens = case.given["special_tokens"]
    assert detect(lambda token: token in tokens).name == case.expect["dialect"]


@pytest.mark.parametrize("case", cases("chat_templates", "prompt_ids"))
def test_prompt_ids(case):
    dialect_or_skip(case.given["dialect"], case.given.get("family"))
    pytest.skip("needs the vocabulary of Gemma 4, which no test downloads")


@pytest.mark.parametrize("case", cases("chat_templates", "tokenizer_lookup"))
def test_tokenizer_lookup(case, tmp_path):
    if "family" in case.given:
        dialect_or_skip(case.given["family"])
    places = {"sidecar": tmp_path / "install/tokenizer", "override": tmp_path / "override"}
    for name, path in places.items():
        path.mkdir(parents=True)
        if case.given[f"{name}_has_tokenizer_json"]:
            (path / "tokenizer.json").touch()
    override = str(places["override"]) if case.given["override_set"] else ""
    found = find_tokenizer(tmp_path / "install", override)
    source = next((name for name, path in places.items() if path == found), "none")
    assert source == case.expect["source"]


@pytest.mark.parametrize("case", cases("chat_templates", "deepseek_tool_chat"))
def test_deepseek_tool_chat(case):
    dialect = dialect_or_skip("deepseek")
    check(case, lambda: dialect.frame(conversation(case.given["messages"])))


@pytest.mark.parametrize("case", cases("chat_templates", "tool_result_bridge"))
def test_tool_result_bridge(case):
    chat = chat_format_or_skip(case.given["dialect"])
    call = chat.tokenizer.encode("<|tool_call>call:f{}<tool_call|>")
    after = chat.tokenizer.encode("<|tool_response>response:f{value:1}<tool_response|>")
    times = case.given.get("cached_call_occurrences_in_full_render", 1)
    rendered = [2, *(call + after) * times]
    try:
        assert chat.tool_result_ids(rendered, call) == after
        error = None
    except TemplateError as raised:
        error = LABELS[type(raised)]
    assert error == case.expect.get("error")


@pytest.mark.parametrize("case", cases("chat_templates", "tool_template"))
def test_tool_template(case):
    chat = chat_format_or_skip(case.given["dialect"], case.given.get("family"))
    check(case, lambda: chat.render(case.given["messages"], case.given["tools"]))


@pytest.mark.parametrize("case", cases("chat_templates", "gemma_schema"))
def test_gemma_schema(case):
    flat = flattened(case.given["schema"])
    assert flat == case.expect["schema"]
    assert flattened(flat) == flat
