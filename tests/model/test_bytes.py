"""The same bytes by every way to the same tokens: random walks over what must not matter."""

import numpy as np
import pytest

from mference import _core
from mference.engine import CHUNKS
from mference.errors import DeviceError
from tests.models import open_core

CONTEXT = 700
PIECES = [1, 1, 1, 2, 3, 17, 31, 33, 100, 257]


def tokens_of(seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(200, 8000, CONTEXT).tolist()


@pytest.fixture(scope="module")
def want(demo_install):
    """Logits after each token, one token at a time, every expert in a slot of its own."""
    core = open_core(demo_install, context=CONTEXT, slots=64, threads=1)
    return [core.logits([token]) for token in tokens_of(1)]


def walk(core: _core.Model, rng: np.random.Generator, steps: int, want: list) -> None:
    tokens = tokens_of(1)
    for _ in range(steps):
        position = core.position
        if position == CONTEXT or rng.random() < 0.25:
            near = int(rng.integers(max(0, position - 140), position + 1))
            try:
                core.rewind(near if rng.random() < 0.7 else 0)
            except DeviceError as error:
                assert "overwritten" in str(error)
                core.rewind(0)
            continue
        end = min(CONTEXT, position + int(rng.choice(PIECES)))
        piece = tokens[position:end]
        if rng.random() < 0.2:
            assert core.greedy(piece) == int(want[end - 1].argmax())
        else:
            assert np.array_equal(core.logits(piece), want[end - 1]), (position, end)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_walks_over_pieces_rewinds_slots_chunks_threads_and_instruction_sets(
    demo_install, want, seed
):
    rng = np.random.default_rng(seed)
    options = {
        "slots": rng.choice([8, 16, 24, 32, 64, 0]).item() or "resident",
        "chunk": rng.choice(CHUNKS[:5]).item(),
        "threads": rng.choice([1, 2, 3, 5, 9]).item(),
        "readers": rng.choice([1, 2, 8]).item(),
        "isa": rng.choice(_core.cpu_isas()).item(),
    }
    core = open_core(demo_install, context=CONTEXT, **options)
    walk(core, rng, 60, want)


@pytest.mark.parametrize("isa", _core.cpu_isas())
@pytest.mark.parametrize("slots", [8, "resident"])
def test_a_short_walk_gives_the_same_bytes(demo_install, want, slots, isa):
    core = open_core(demo_install, context=CONTEXT, slots=slots, chunk=32, threads=3, isa=isa)
    walk(core, np.random.default_rng(slots == 8), 15, want)
