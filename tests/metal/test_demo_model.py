"""The demo model on the Metal device answers as it does on the CPU."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mference
from tests.models import open_core

REFERENCE = Path(__file__).parents[1] / "data" / "demo" / "reference"
PROMPTS = json.loads((REFERENCE / "prompts.json").read_text("utf-8"))
CASES = {case["name"]: case for case in PROMPTS["cases"]}
FAST = 4


@pytest.fixture(scope="module")
def model(demo_install):
    with mference.load(demo_install, device="metal") as model:
        yield model


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(answer, id=answer["prompt"], marks=[] if i < FAST else pytest.mark.slow)
        for i, answer in enumerate(PROMPTS["answers"])
    ],
)
def test_greedy_answer_equals_the_reference(model, answer):
    reply = model.chat([{"role": "user", "content": answer["prompt"]}], temperature=0)
    assert reply.content == answer["answer"]
    assert reply.completion.tokens[-1] == answer["stop"]


def test_the_command_gives_the_text_of_the_cpu_on_metal(demo_install):
    def run(device):
        arguments = ["generate", "--model", demo_install, "--device", device, "--temperature", "0"]
        arguments += ["--prompt", "What is a violin?", "--max-new", "12"]
        done = subprocess.run(
            [Path(sys.executable).with_name("mference"), *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("metal") == run("cpu") != ""


@pytest.mark.parametrize("talk", PROMPTS["report"]["tool calls"][:2], ids=lambda t: t["prompt"])
def test_tool_call_equals_the_reference(model, talk):
    messages = [{"role": "user", "content": talk["prompt"]}]
    reply = model.chat(messages, tools=CASES["tools"]["tools"], temperature=0)
    first = model.format.tokenizer.decode(reply.completion.tokens, keep_special=True)
    assert first == talk["first"]


def test_prefill_in_chunks_agrees_with_decode(demo_install):
    tokens = CASES["conversation"]["prompt_ids"][:70]
    core = open_core(demo_install, device="metal", chunk=128)
    whole = core.logits(tokens)
    by_chunk = open_core(demo_install, device="metal", chunk=32).logits(tokens)
    core.rewind(0)
    for token in tokens:
        one = core.logits([token])
    for other in (by_chunk, one):
        assert np.abs(other - whole).max() / np.abs(whole).max() < 1e-2
        assert other.argmax() == whole.argmax()


def test_the_same_run_gives_the_same_bytes(demo_install):
    def run(slots):
        core = open_core(demo_install, device="metal", slots=slots)
        core.forward(CASES["lighthouse"]["prompt_ids"])
        return core.logits([107])

    first = run(16)
    for slots in (16, 8, "resident"):
        assert np.array_equal(first, run(slots))
