import pytest

from mference.chat.dialects.base import MalformedCallError, UnknownToolError
from mference.chat.parts import Content, content_of
from mference.errors import ContextLengthError
from mference.session.config import GenerationConfig
from mference.session.generation import (
    ContinuationError,
    EmptyPromptError,
    completion_of,
    generate,
    parts_of,
    reply_of,
)
from tests.chat.demo import chat_format, prompts
from tests.session.scripted import ScriptedEngine, drained

CHAT = chat_format()
GREEDY = GenerationConfig(temperature=0)
ANSWER = CHAT.tokenizer.encode("A tower. END not this<turn|>")


def run(engine, prompt=(2, 105), config=GREEDY, reader=None, **options):
    return generate(
        engine, list(prompt), config, reader or CHAT.text_reader(config.stop), CHAT.stops, **options
    )


def complete(events):
    return completion_of(*drained(parts_of(events)))


def reply(events, *, tools_offered=False):
    return reply_of(*drained(parts_of(events)), tools_offered=tools_offered)


def test_a_completion_has_text_counts_and_reason():
    completion = complete(run(ScriptedEngine(ANSWER)))
    assert completion.text == "A tower. END not this"
    assert completion.finish_reason == "end_of_turn"
    assert completion.tokens == tuple(ANSWER)
    assert (completion.prompt_tokens, completion.completion_tokens) == (2, len(ANSWER))
    assert completion.timings.prefill >= 0 <= completion.timings.decode


def test_a_stop_string_ends_the_answer_and_leaves_consistent_state():
    engine = ScriptedEngine(ANSWER)
    events, end = drained(run(engine, config=GenerationConfig(temperature=0, stop=(" END",))))
    assert "".join(event.text for event in events) == "A tower."
    assert (end.reason, end.tail) == ("stop_string", ())
    assert engine.tokens == list(end.kv_tokens)
    assert engine.position == 2 + len(end.tokens) - 1
    assert end.boundary == end.tokens[-1:]


def test_the_prompt_is_prefilled_in_chunks_with_reports():
    engine = ScriptedEngine([106], prefill_chunk=32)
    reports = []
    complete(
        run(engine, range(200, 300), on_prefill=lambda done, total: reports.append((done, total)))
    )
    assert engine.calls == [("prefill", 32)] * 3 + [("greedy", 4)]
    assert reports == [(32, 100), (64, 100), (96, 100), (100, 100)]


def test_a_cached_beginning_is_not_computed_again():
    engine = ScriptedEngine([106], held=[2, 105])
    _, end = drained(run(engine, [2, 105, 107], cached=2))
    assert engine.calls == [("greedy", 1)]
    assert end.cached == 2
    assert engine.tokens == [2, 105, 107]


def test_a_caller_can_stop_in_the_middle_of_the_prompt():
    engine = ScriptedEngine([], prefill_chunk=32)
    events, end = drained(run(engine, range(200, 300), should_stop=lambda: True))
    assert (events, end.reason, end.tokens, end.boundary) == ([], "stop_string", (), ())
    assert engine.position == 32


@pytest.mark.parametrize(
    ("settings", "head"),
    [
        ({"temperature": 0}, "greedy"),
        ({"temperature": 0, "repetition_penalty": 1.1}, "logits"),
        ({"temperature": 0.7, "seed": 1}, "logits"),
    ],
)
def test_the_head_is_the_fused_one_only_when_pure_greedy(settings, head):
    engine = ScriptedEngine([200, 106], vocabulary=8192)
    completion = complete(run(engine, config=GenerationConfig(**settings)))
    assert completion.tokens == (200, 106)
    assert {name for name, _ in engine.calls} == {head}


def test_the_window_bounds_the_answer():
    engine = ScriptedEngine([200] * 10, context=5)
    assert complete(run(engine)).completion_tokens == 3
    with pytest.raises(ContextLengthError, match=r"5 tokens.*shorten it by 1"):
        run(ScriptedEngine([], context=5), [1] * 5)


def test_requests_that_cannot_start_compute_nothing():
    engine = ScriptedEngine([106], held=[2])
    for error, options in (
        (EmptyPromptError, {"prompt": []}),
        (ContinuationError, {"prompt": [2, 3]}),
        (ContinuationError, {"prompt": [2], "cached": 1}),
    ):
        with pytest.raises(error):
            run(engine, **options)
    assert engine.calls == []


def test_a_reply_separates_reasoning_content_and_calls():
    tools = prompts()["cases"][2]["tools"]
    text = (
        "<|channel>thought\nhm<channel|>Let me see."
        '<|tool_call>call:get_weather{city:<|"|>Rome<|"|>}<tool_call|><|tool_response>'
    )
    engine = ScriptedEngine(CHAT.tokenizer.encode(text))
    answer = reply(run(engine, reader=CHAT.assistant_reader(tools)), tools_offered=True)
    assert (answer.reasoning, answer.content) == ("hm", "Let me see.")
    assert [(c.name, c.arguments) for c in answer.tool_calls] == [("get_weather", {"city": "Rome"})]
    assert answer.completion.finish_reason == "tool_calls"
    assert answer.completion.text == answer.content


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("<|tool_call>call:get_weather{<tool_call|>", MalformedCallError),
        ("<|tool_call>call:other{}<tool_call|>", UnknownToolError),
        ("<|tool_call>call:get_weather{}<turn|>", MalformedCallError),
        ("<|tool_response>", MalformedCallError),
    ],
)
def test_a_reply_with_a_broken_call_fails(text, error):
    tools = prompts()["cases"][2]["tools"]
    engine = ScriptedEngine(CHAT.tokenizer.encode(text))
    with pytest.raises(error):
        reply(run(engine, reader=CHAT.assistant_reader(tools)), tools_offered=True)


def test_without_tools_the_result_marker_just_ends_the_answer():
    engine = ScriptedEngine(CHAT.tokenizer.encode("Hm.<|tool_response>"))
    assert reply(run(engine, reader=CHAT.assistant_reader())).content == "Hm."


def test_text_held_at_the_end_is_in_the_tail_and_in_the_completion():
    tokens = [*CHAT.tokenizer.encode("ok 🦙"), 106]
    _, end = drained(run(ScriptedEngine(tokens)))
    assert end.tail == (Content("🦙"),)
    assert complete(run(ScriptedEngine(tokens))).text == "ok 🦙"


def test_a_stop_string_in_text_held_until_the_end_is_reported():
    tokens = [*CHAT.tokenizer.encode("ok 🦙"), 106]
    completion = complete(
        run(ScriptedEngine(tokens), config=GenerationConfig(temperature=0, stop="🦙"))
    )
    assert (completion.text, completion.finish_reason) == ("ok ", "stop_string")


def test_parts_of_an_answer_include_those_held_until_the_end():
    stream = parts_of(run(ScriptedEngine([*CHAT.tokenizer.encode("ok 🦙"), 106])))
    parts, end = drained(stream)
    assert content_of(parts) == "ok 🦙"
    assert end.reason == "end_of_turn"
