"""Logits of tiny Gemma 4 checkpoints against float64, by every path through the runtime."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import mference
from mference.memory import RUNGS
from mference.store import open_install
from tests.device import support
from tests.models import open_core
from tests.oracles import checkpoint
from tests.oracles.gemma4 import MLX_FLOAT16, RANDOM
from tests.reference.gemma4 import Array, Gemma4Reference

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


def install_checkpoint(source: Path, target: Path) -> Path:
    """Installs a checkpoint that has no tokenizer of its own."""
    staged = target.parent / "staged"
    shutil.copytree(source, staged)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if not (staged / name).exists():
            (staged / name).write_text("{}")
    mference.install(staged, target, entry="gemma4", allow_unpinned=True)
    return target


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
                seed, shape, length = RANDOM[name]
                checkpoint.write(root / "ckpt", shape, seed)
                reference = Gemma4Reference(*checkpoint.read(root / "ckpt"))
                tokens, logits = checkpoint.pick_tokens(reference, length, seed)
            else:
                directory = Path(name)
                if not directory.is_dir():
                    pytest.fail(f"MFERENCE_ORACLE_DIRS names a missing directory: {directory}")
                shutil.copytree(directory / "ckpt", root / "ckpt")
                theirs = np.load(directory / "ref_fp32.npz")
                tokens = [int(t) for t in theirs["tokens"]]
                logits = Gemma4Reference(*checkpoint.read(root / "ckpt")).logits(tokens)
                recorded = np.concatenate([theirs["prefill_logits"], theirs["decode_logits"]])
                assert error(recorded, logits) < 1e-4, "our reference and theirs disagree"
            install = install_checkpoint(root / "ckpt", root / "oracle.gturbo")
            built[name] = Oracle(install, tokens, logits)
        return built[name]

    return build


def bar_of(path: str, name: str) -> tuple[dict, float]:
    options, bar = BARS[path]
    if path != "metal":
        return options, bar
    support.opener("metal")
    return options, 1.5 * MLX_FLOAT16[name] if name in MLX_FLOAT16 else bar


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


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("path", BARS)
@pytest.mark.parametrize("chunk", [32, 64, 128])
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
