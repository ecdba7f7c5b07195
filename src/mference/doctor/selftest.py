"""The self-test: the embedded model's greedy tokens, on every device and instruction set."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mference import _core
from mference.chat.format import ChatFormat
from mference.devices import DeviceName, built_devices
from mference.engine import DEMO_SLOTS, build_core
from mference.installer import install
from mference.store import Install, open_install


@dataclass(frozen=True)
class Golden:
    """A conversation, its prompt's token ids, and the ids of the greedy answer with its stop."""

    name: str
    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...]
    prompt: tuple[int, ...]
    answer: tuple[int, ...]


@dataclass(frozen=True)
class Verdict:
    """How one device did: the number of tokens compared, and where the first one differs."""

    device: str
    tokens: int
    difference: str


def goldens() -> tuple[Golden, ...]:
    """The golden tokens that ship with the package."""
    text = files("mference.doctor").joinpath("goldens.json").read_text("utf-8")
    return tuple(
        Golden(
            case["name"],
            tuple(case["messages"]),
            tuple(case["tools"]),
            tuple(case["prompt"]),
            tuple(case["answer"]),
        )
        for case in json.loads(text)
    )


def self_test(
    cases: Sequence[Golden] | None = None, told: Callable[[Verdict], None] | None = None
) -> list[Verdict]:
    """Install the embedded model in a temporary directory and compare its tokens.

    Args:
        cases: what to compare with; the goldens of the package by default.
        told: receives each verdict as it is reached.

    Raises:
        InstallError, StoreError, DeviceError: the model could not be installed, opened or run.
    """
    chosen = goldens() if cases is None else cases
    verdicts = []
    with TemporaryDirectory(prefix="mference-self-test-") as folder:
        target = Path(folder) / "demo.gturbo"
        install(output=target, entry="demo")
        opened = open_install(target)
        text = ChatFormat.load(opened.tokenizer_dir)
        for device, isa in _ways():
            verdict = _examine(opened, text, device, isa, chosen)
            verdicts.append(verdict)
            if told:
                told(verdict)
    return verdicts


def _ways() -> Iterator[tuple[DeviceName, str]]:
    """Every device of this build, and on the CPU every instruction set."""
    for device in built_devices():
        for isa in _core.cpu_isas() if device == "cpu" else ["auto"]:
            yield device, isa


def _examine(
    opened: Install, text: ChatFormat, device: DeviceName, isa: str, cases: Sequence[Golden]
) -> Verdict:
    name = f"cpu {isa}" if device == "cpu" else device
    core = build_core(opened, device=device, slots=DEMO_SLOTS, isa=isa)
    compared = 0
    for case in cases:
        prompt = text.prompt_ids(case.messages, case.tools)
        if difference := _difference(prompt, case.prompt):
            return Verdict(name, compared, f"the prompt of '{case.name}': {difference}")
        core.rewind(0)
        answer = [core.greedy(prompt)]
        while len(answer) < len(case.answer):
            answer.append(core.greedy([answer[-1]]))
        compared += len(answer)
        if difference := _difference(answer, case.answer):
            return Verdict(name, compared, f"the answer to '{case.name}': {difference}")
    return Verdict(name, compared, "")


def _difference(found: Sequence[int], expected: Sequence[int]) -> str:
    for i, (got, want) in enumerate(zip(found, expected, strict=False)):
        if got != want:
            return f"token {i} is {got}, not {want}"
    if len(found) != len(expected):
        return f"{len(found)} tokens, not {len(expected)}"
    return ""
