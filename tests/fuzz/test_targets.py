"""Seeds, simple damages of them, and every input that once was a finding, through the targets."""

import random
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS

FINDINGS = sorted((Path(__file__).parent / "findings").glob("*/*"))


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_their_damages_are_read_or_refused(name):
    target = TARGETS[name]
    rng = random.Random(name)
    seeds = list(target.seeds())
    assert seeds
    for seed in seeds:
        target.run(seed)
        for _ in range(8):
            at, length = rng.randrange(len(seed) + 1), rng.randrange(4)
            damaged = seed[:at] + rng.randbytes(rng.randrange(3)) + seed[at + length :]
            target.run(damaged)


@pytest.mark.parametrize("path", FINDINGS, ids=lambda p: f"{p.parent.name}-{p.name}")
def test_a_finding_stays_fixed(path):
    TARGETS[path.parent.name].run(path.read_bytes())
