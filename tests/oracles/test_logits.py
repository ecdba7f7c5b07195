"""Logits of tiny random checkpoints against float64, by every path through the runtime."""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from mference.installer.snapshot import config_family
from mference.memory import RUNGS
from mference.store import open_install
from tests.device import support
from tests.models import open_core
from tests.oracles import checkpoint
from tests.oracles.families import ALL, RUN
from tests.reference.formulas import Array

RANDOM = {f"{f.name}-{name}": (f, name) for f in RUN.values() for name in f.random}

# max |difference| / max |logit| against float64, by what the core multiplies and stores. A GPU may
# differ as mlx-lm does and half as much again, by 1e-2 where that was not measured.
BARS = {
    "float32": ({"float32_products": True, "float32_kv": True}, 1e-4),
    "int16": ({"float32_kv": True}, 2e-3),
    "production": ({}, 1e-2),
    "metal": ({"device": "metal"}, 1e-2),
}


@dataclass(frozen=True)
class Oracle:
    """A checkpoint installed, a token sequence, and float64 logits for every position."""

    install: Path
    tokens: list[int]
    logits: Array


def named_directories() -> list[Path]:
    named = os.environ.get("MFERENCE_ORACLE_DIRS", "")
    return [Path(d) for d in named.split(":") if d]


@pytest.fixture(scope="module")
def oracles(tmp_path_factory):
    """Builds each oracle once, on first use."""
    built: dict[str, Oracle] = {}

    def build(name: str) -> Oracle:
        if name not in built:
            root = tmp_path_factory.mktemp("oracle")
            if name in RANDOM:
                family, chosen = RANDOM[name]
                seed, shape, length = family.random[chosen]
                checkpoint.write(root / "ckpt", shape, seed)
                reference = family.reference(*checkpoint.read(root / "ckpt"))
                tokens, logits = checkpoint.pick_tokens(reference, length, seed)
            else:
                directory = Path(name)
                if not directory.is_dir():
                    pytest.fail(f"MFERENCE_ORACLE_DIRS names a missing directory: {directory}")
                shutil.copytree(directory / "ckpt", root / "ckpt")
                config = json.loads((root / "ckpt/config.json").read_text())
                family = ALL[config_family(config)]
                theirs = np.load(directory / "ref_fp32.npz")
                tokens = [int(t) for t in theirs["tokens"]]
                logits = family.reference(*checkpoint.read(root / "ckpt")).logits(tokens)
                recorded = np.concatenate([theirs["prefill_logits"], theirs["decode_logits"]])
                assert error(recorded, logits) < 1e-4, "our reference and theirs disagree"
            install = checkpoint.install(root / "ckpt", root / "oracle.gturbo", family.entry)
            built[name] = Oracle(install, tokens, logits)
        return built[name]

    return build


def bar_of(path: str, name: str) -> tuple[dict, float]:
    options, bar = BARS[path]
    if path != "metal":
        return options, bar
    support.opener("metal")
    if name in RANDOM:
        family, chosen = RANDOM[name]
        bar = 1.5 * family.mlx_float16[chosen]
    return options, bar


def error(got: Array, want: Array) -> float:
    return float(np.abs(got - want).max() / np.abs(want).max())


def check(got: Array, want: Array, bar: float) -> None:
    """The error bar, and equal greedy tokens wherever the reference is clearer than the error."""
    assert error(got, want) <= bar
    slack = np.abs(got - want).max()
    top = np.sort(want, axis=-1)
    clear = top[..., -1] - top[..., -2] > 2 * slack
    assert (got.argmax(-1) == want.argmax(-1))[clear].all()


NAMES = [pytest.param(n, id=n) for n in RANDOM]
NAMES += [pytest.param(str(d), id=f"{d.parent.name}-{d.name}") for d in named_directories()]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("path", BARS)
def test_decode_agrees_with_float64_at_every_position(oracles, name, path):
    oracle = oracles(name)
    options, bar = bar_of(path, name)
    core = open_core(oracle.install, context=512, **options)
    got = np.array([core.logits([t]) for t in oracle.tokens])
    check(got, oracle.logits, bar)


# The software Metal device takes seconds for each.
PREFILLS = [
    pytest.param(path, chunk, marks=[pytest.mark.slow] if path == "metal" and chunk != 64 else [])
    for path in BARS
    for chunk in (32, 64, 128)
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("path", "chunk"), PREFILLS)
def test_prefill_then_decode_agrees_with_float64(oracles, name, path, chunk):
    oracle = oracles(name)
    options, bar = bar_of(path, name)
    core = open_core(oracle.install, context=512, chunk=chunk, **options)
    prompt = max(1, len(oracle.tokens) - 8)
    got = [core.logits(oracle.tokens[:prompt])]
    got += [core.logits([t]) for t in oracle.tokens[prompt:]]
    check(np.array(got), oracle.logits[prompt - 1 :], bar)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("chunk", [32, 64, 128, 4096])
def test_prefill_gives_the_bytes_of_token_by_token_decode(oracles, name, chunk):
    oracle = oracles(name)
    stepwise = open_core(oracle.install, context=512)
    chunked = open_core(oracle.install, context=512, chunk=chunk)
    lengths = [n for n in (1, 2, 31, 33, 127, 128, 129) if n < len(oracle.tokens)]
    position = 0
    for length in lengths:
        for token in oracle.tokens[position:length]:
            want = stepwise.logits([token])
        position = length
        chunked.rewind(0)
        got = chunked.logits(oracle.tokens[:length])
        assert np.array_equal(got, want), f"prompt of {length} tokens"
        chunked.forward(oracle.tokens[length : length + 1])


@pytest.mark.parametrize("name", NAMES)
def test_greedy_head_names_the_largest_logit(oracles, name):
    oracle = oracles(name)
    with_logits = open_core(oracle.install, context=512)
    with_argmax = open_core(oracle.install, context=512)
    for token in oracle.tokens[:40]:
        assert with_argmax.greedy([token]) == int(with_logits.logits([token]).argmax())


@pytest.mark.parametrize("name", [*(f"{name}-seed1" for name in RUN), "qwen36-seed5"])
def test_both_devices_write_the_same_text_until_a_tie(oracles, name):
    support.opener("metal")
    oracle = oracles(name)
    cpu, metal = (open_core(oracle.install, context=512, device=d) for d in ("cpu", "metal"))
    piece = oracle.tokens[:24]
    for _ in range(16):
        ours, theirs = cpu.logits(piece).astype(np.float64), metal.logits(piece)
        if ours.argmax() != theirs.argmax():
            top = np.sort(ours)
            assert top[-1] - top[-2] <= 2 * np.abs(ours - theirs).max()
            return
        piece = [int(ours.argmax())]
    assert cpu.position == 24 + 15


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("slots", ["fewest", 24, "resident"])
def test_slots_never_change_the_bytes(oracles, name, slots):
    oracle = oracles(name)
    if slots == "fewest":
        chosen = open_install(oracle.install, allow_unpinned=True, warn=len).manifest.arch
        slots = next(n for n in RUNGS if n >= chosen.integer("topKExperts"))
    base = open_core(oracle.install, context=512, slots="resident", chunk=32)
    other = open_core(oracle.install, context=512, slots=slots, chunk=32, threads=3)
    prompt = max(1, len(oracle.tokens) - 8)
    assert np.array_equal(base.logits(oracle.tokens[:prompt]), other.logits(oracle.tokens[:prompt]))
    for token in oracle.tokens[prompt:]:
        assert np.array_equal(base.logits([token]), other.logits([token]))
