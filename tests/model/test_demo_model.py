"""The demo model answers as its reference does, by every way of running it."""

import json
from pathlib import Path

import numpy as np
import pytest

import mference
from tests.models import open_core

REFERENCE = Path(__file__).parents[1] / "data" / "demo" / "reference"
PROMPTS = json.loads((REFERENCE / "prompts.json").read_text("utf-8"))
CASES = {case["name"]: case for case in PROMPTS["cases"]}
TOOLS = CASES["tools"]["tools"]


@pytest.fixture(scope="module")
def model(demo_install):
    with mference.load(demo_install) as model:
        yield model


@pytest.mark.parametrize("answer", PROMPTS["answers"], ids=lambda a: a["prompt"])
def test_greedy_answer_equals_the_reference(model, answer):
    reply = model.chat([{"role": "user", "content": answer["prompt"]}], temperature=0)
    assert reply.content == answer["answer"]
    assert reply.completion.tokens[-1] == answer["stop"]
    assert reply.completion.finish_reason == "end_of_turn"


@pytest.mark.parametrize("talk", PROMPTS["report"]["tool calls"], ids=lambda t: t["prompt"])
def test_tool_conversation_equals_the_reference(model, talk):
    messages = [{"role": "user", "content": talk["prompt"]}]
    reply = model.chat(messages, tools=TOOLS, temperature=0)
    first = model.format.tokenizer.decode(reply.completion.tokens, keep_special=True)
    assert first == talk["first"]
    if "call" not in talk:
        assert reply.tool_calls == ()
        return
    (call,) = reply.tool_calls
    assert {"name": call.name, "arguments": call.arguments} == talk["call"]
    assert reply.completion.finish_reason == "tool_calls"
    messages += [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call.id, "type": "function", "function": talk["call"]}],
        },
        {
            "role": "tool",
            "tool_call_id": call.id,
            "name": call.name,
            "content": talk["result"],
        },
    ]
    final = model.chat(messages, tools=TOOLS, temperature=0)
    assert final.content == talk["final"]
    assert final.completion.tokens[-1] == talk["stop"]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("chunk", [32, 128])
def test_tokens_and_logits_follow_the_reference(model, demo_install, name, chunk):
    case = CASES[name]
    reference = np.load(REFERENCE / f"{name}.npz")
    assert model.format.render(case["messages"], case["tools"]) == case["rendered"]
    assert model.format.prompt_ids(case["messages"], case["tools"]) == case["prompt_ids"]

    core = open_core(demo_install, chunk=chunk)
    logits = [core.logits(case["prompt_ids"])]
    logits += [core.logits([token]) for token in reference["decode_ids"]]
    want = np.array([reference["prefill_last_logits"], *reference["decode_logits"]])
    assert np.array(logits).argmax(-1).tolist() == want.argmax(-1).tolist()
    # A near-tie in a router may swap an expert; on clear rows the logits agree closely.
    error = np.abs(np.array(logits) - want).max(axis=-1) / np.abs(want).max()
    assert np.median(error) < 1e-2


@pytest.mark.parametrize("name", CASES)
def test_best_tokens_at_each_prompt_position_follow_the_reference(demo_install, name):
    reference = np.load(REFERENCE / f"{name}.npz")
    core = open_core(demo_install, float32_products=True, float32_kv=True)
    for token, ids, values in zip(
        reference["prompt_ids"], reference["prefill_top5_ids"], reference["prefill_top5_logits"],
        strict=True,
    ):  # fmt: skip
        got = core.logits([token])
        np.testing.assert_allclose(got[ids], values, atol=2e-2)


@pytest.mark.parametrize("slots", [8, 24, 64, "resident", "auto"])
def test_slots_and_threads_never_change_an_answer(demo_install, slots):
    question = [{"role": "user", "content": "What is another meaning of bank?"}]
    with mference.load(demo_install, slots=slots, threads=1, prefill_chunk=32) as model:
        reply = model.chat(question, temperature=0)
    assert reply.content.startswith("Bank can also mean a financial institution")


def test_experts_are_read_from_disk_into_a_quarter_of_the_slots(demo_install):
    with mference.load(demo_install) as model:
        model.chat([{"role": "user", "content": "What is a dog?"}], temperature=0)
        report = model.report()
    assert report.slots == 16
    assert report.misses > 0
    assert report.hits > 0
    assert report.evictions > 0
    assert report.bytes_read == report.misses * model.install.layout.expert_stride


def test_resident_experts_are_never_read(demo_install):
    with mference.load(demo_install, slots="resident") as model:
        model.generate("A dog is", max_new=8, temperature=0)
        report = model.report()
    assert (report.misses, report.bytes_read, report.hit_rate) == (0, 0, 1.0)
