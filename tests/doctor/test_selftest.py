"""The self-test passes here, its goldens are the reference's, and another token fails it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mference import _core
from mference.chat.format import ChatFormat
from mference.devices import built_devices
from mference.doctor import goldens, self_test
from mference.store import open_install

REFERENCE = Path(__file__).parents[1] / "data" / "demo" / "reference" / "prompts.json"
PROMPTS = json.loads(REFERENCE.read_text("utf-8"))
NAMES = [f"cpu {isa}" for isa in _core.cpu_isas()] + [d for d in built_devices() if d != "cpu"]
GOLDENS = {golden.name: golden for golden in goldens()}


@pytest.fixture(scope="module")
def text(demo_install):
    return ChatFormat.load(open_install(demo_install).tokenizer_dir).tokenizer


@pytest.fixture(scope="module")
def verdicts():
    return {verdict.device: verdict for verdict in self_test()}


@pytest.mark.parametrize("name", NAMES)
def test_every_device_computes_the_golden_tokens(verdicts, name):
    verdict = verdicts[name]
    assert verdict.difference == ""
    assert verdict.tokens == sum(len(golden.answer) for golden in goldens())


def test_golden_answers_are_those_of_the_reference(text):
    answers = {a["prompt"]: a for a in PROMPTS["answers"]}
    shared = GOLDENS.keys() & answers.keys()
    assert len(shared) >= 5
    for name in shared:
        golden = GOLDENS[name].answer
        assert text.decode(golden[:-1]) == answers[name]["answer"]
        assert golden[-1] == answers[name]["stop"]


def test_the_golden_conversation_is_that_of_the_reference():
    case = next(c for c in PROMPTS["cases"] if c["name"] == "conversation")
    golden = GOLDENS["a conversation"]
    assert list(golden.prompt) == case["prompt_ids"]
    assert list(golden.answer[:16]) == case["decode_ids"]


def test_the_golden_tool_conversation_is_that_of_the_reference(text):
    talk = PROMPTS["report"]["tool calls"][0]
    call = GOLDENS["a tool call"].answer
    assert text.decode(call, keep_special=True) == talk["first"]
    result = GOLDENS["the result of a tool call"]
    assert text.decode(result.answer[:-1]) == talk["final"]
    assert result.answer[-1] == talk["stop"]


def test_another_token_is_found_and_named():
    golden = GOLDENS["Hello!"]
    wrong = replace(golden, answer=(*golden.answer[:3], 7))
    verdicts = self_test([wrong])
    assert [v.device for v in verdicts] == NAMES
    for verdict in verdicts:
        assert verdict.difference == (
            f"the answer to 'Hello!': token 3 is {golden.answer[3]}, not 7"
        )


def test_another_prompt_is_found_and_named():
    golden = GOLDENS["Hello!"]
    (first, *_) = self_test([replace(golden, prompt=golden.prompt[:-1])])
    assert first.difference.startswith("the prompt of 'Hello!': ")
