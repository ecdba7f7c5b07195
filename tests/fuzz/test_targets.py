"""Seeds, simple damages of them, and every input that once was a finding, through the targets."""

import random
import time
from pathlib import Path

import pytest

from mference.jsontext import compact
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


NOTHING = {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}
HEADER = compact({f"tensor {i}": NOTHING for i in range(60_000)})
EXPERT: dict[str, object] = {"offset": 0, "size": 1, "tensors": {}}
LAYER = {"layer": 0, "file": "layer_00.bin", "experts": [EXPERT] * 60_000}
OPENED, CLOSED = "<function=f>\n<parameter=a>\n", "\n</parameter>\n</function>"
LARGE = {
    "calls": f"call:f{{a:{list(range(40_000))}}}",
    "calls, no end": "call:f{" + " " * 250_000,
    "calls, escapes": 'call:f{a:"' + "\\n" * 120_000 + '"}',
    "chatml_calls": OPENED + "[1]\n</parameter>\n<parameter=a>\n" * 8_000 + CLOSED,
    "chatml_calls, no end": OPENED + "x\n</parameter>\n<parameter=a>" * 8_000,
    "chatml_calls, brackets": OPENED + "[" * 260_000 + CLOSED,
    "chatml_calls, quotes": OPENED + "[" + '"' * 260_000 + CLOSED,
    "header": HEADER + "\0\0\0\0",
    "header, a key twice": HEADER[:-1] + ',"tensor 59999":{}}' + "\0\0\0\0",
    "header, dimensions": compact({"tensor": {**NOTHING, "shape": [2**62] * 20_000}}) + "\0\0\0\0",
    "layout": compact(
        {"expertStride": 1, "numLayers": 1, "expertsPerLayer": 60_000, "layers": [LAYER]}
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_large_input_is_read_or_refused_in_linear_time(name):
    data = LARGE[name].encode()
    start = time.process_time()
    TARGETS[name.split(",")[0]].run(data)
    assert time.process_time() - start < 5
