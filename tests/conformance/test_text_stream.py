"""Conformance of the text stream: detokenizing, stop strings, the generation loop."""

import pytest

from mference.chat.detokenizer import ByteFallbackText, ByteLevelText, GrowingText, held_bytes
from mference.chat.parts import content_of
from mference.chat.readers import TextReader
from mference.chat.stops import StopMatcher
from mference.errors import ConfigError, ContextLengthError, GenerationError
from mference.session.config import GenerationConfig
from mference.session.generation import (
    ContinuationError,
    EmptyPromptError,
    check_request,
    generate,
)
from tests.conformance.loader import cases
from tests.session.scripted import ScriptedEngine, drained

LABELS = {
    EmptyPromptError: "empty_prompt",
    ContinuationError: "invalid_continuation",
    ContextLengthError: "context_overflow",
    ConfigError: "invalid_config",
}


@pytest.mark.parametrize("case", cases("text_stream", "stop_strings"))
def test_stop_strings(case):
    matcher = StopMatcher(case.given["stops"])
    emitted = [matcher.push(chunk) for chunk in case.given["pushes"]]
    assert emitted == case.expect["emitted"]
    assert matcher.flush() == case.expect["tail"]
    assert matcher.stopped == case.expect["stopped"]


@pytest.mark.parametrize("case", cases("text_stream", "growing_decode"))
def test_growing_decode(case):
    text = GrowingText()
    assert [text.push(decode) for decode in case.given["decodes"]] == case.expect["deltas"]
    if "final" in case.given:
        assert text.flush(case.given["final"]) == case.expect["flush"]
    assert text.committed == case.expect["committed"]


@pytest.mark.parametrize("case", cases("text_stream", "byte_tokens"))
def test_byte_tokens(case):
    text = ByteLevelText()
    deltas = [text.push(bytes.fromhex(token)) for token in case.given["tokens"]]
    assert deltas == case.expect["deltas"]
    assert text.flush() == case.expect["flush"]


@pytest.mark.parametrize("case", cases("text_stream", "byte_fallback"))
def test_byte_fallback(case):
    text = ByteFallbackText()
    assert [text.push(piece) for piece in case.given["pieces"]] == case.expect["deltas"]
    assert text.flush() == case.expect["flush"]


@pytest.mark.parametrize("case", cases("text_stream", "held_bytes"))
def test_held_bytes(case):
    assert held_bytes(case.given["text"]) == case.expect["bytes"]


class _TableText:
    """A detokenizer whose tokens have fixed texts."""

    def __init__(self, table):
        self._table = table

    def push(self, token):
        return self._table.get(str(token), "")

    def flush(self):
        return ""


@pytest.mark.parametrize("case", cases("text_stream", "generation_loop"))
def test_generation_loop(case):
    given, special = case.given, case.given["special"]
    stops = dict.fromkeys(given.get("extra_stop_ids", []), "eos") | {
        special["eos"]: "eos",
        special["end_of_turn"]: "end_of_turn",
        special["tool_response"]: "tool_calls",
    }
    asked = iter(range(1, 1 << 30))
    limit = given.get("caller_stops_after")
    engine = ScriptedEngine(given["produced"])
    events, end = drained(
        generate(
            engine, given["prompt"], GenerationConfig(max_new=given["max_new"], temperature=0),
            TextReader(_TableText(given["token_text"]), given["stops"]), stops,
            should_stop=lambda: limit is not None and next(asked) >= limit,
        )
    )  # fmt: skip
    got = {
        "reason": end.reason,
        "generated": len(end.tokens),
        "token_events": [[e.index, e.token, e.text] for e in events],
        "tail": content_of(end.tail),
        "kv_position": engine.position,
        "kv_tokens": list(end.kv_tokens),
        "boundary": list(end.boundary),
    }
    assert got == got | case.expect
    assert engine.tokens == list(end.kv_tokens)


@pytest.mark.parametrize("case", cases("text_stream", "loop_preflight"))
def test_loop_preflight(case):
    given = case.given
    error = None
    try:
        GenerationConfig(max_new=given["max_new"])
        check_request(
            given["prompt"], given["max_new"], given["max_context"], position=given["cached"],
            cached=given["cached"] if given.get("resume") else 0,
        )  # fmt: skip
    except GenerationError as raised:
        error = LABELS[type(raised)]
    assert error == case.expect["error"]
