"""The device looks experts up by itself: the same bytes, and less for the host to do."""

import numpy as np
import pytest

from mference.errors import ExpertFillError
from mference.families import FAMILIES
from tests.models import open_core
from tests.oracles import checkpoint
from tests.oracles.families import RUN

# A slot for each expert, for half of them, and more experts a token than a tile takes.
SLOTS = {"seed1": (8,), "seed2": (8, 16), "seed7": (24,)}
CASES = [
    ("cpu", family, name, slots, eager)
    for family in RUN
    for name in SLOTS
    for slots in SLOTS[name]
    for eager in ("1", "0")
]
# The software Metal device is slow.
CASES += [("metal", family, "seed1", 8, "0") for family in RUN]
CASES += [("metal", family, "seed7", 24, "1") for family in RUN]
CASES += [("metal", "qwen36", "seed2", 8, "1")]
TOKENS = [int(t) for t in np.random.default_rng(3).integers(3, 500, 60)]
PROMPT = 12


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Tiny checkpoints, each installed once."""
    built = {}

    def build(family: str, name: str):
        if (family, name) not in built:
            root = tmp_path_factory.mktemp("checkpoint")
            seed, shape, _ = RUN[family].random[name]
            built[family, name] = checkpoint.write_and_install(root, shape, seed, RUN[family].entry)
        return built[family, name]

    return build


def run(install, monkeypatch, setting: str | None, **options):
    """Logits of a prompt and of the tokens after it, one at a time, and what was counted."""
    monkeypatch.delenv("MFERENCE_SLOT_MAP", raising=False)
    if setting is not None:
        monkeypatch.setenv("MFERENCE_SLOT_MAP", setting)
    core = open_core(install, context=128, chunk=32, **options)
    logits = [core.logits(TOKENS[:PROMPT])]
    logits += [core.logits([token]) for token in TOKENS[PROMPT:]]
    return np.array(logits), core.counters()


@pytest.mark.parametrize(("device", "family", "name", "slots", "eager"), CASES)
def test_a_map_changes_no_byte_and_no_count_of_experts(
    installed, gpu_or_skip, monkeypatch, device, family, name, slots, eager
):
    gpu_or_skip(device)
    monkeypatch.setenv("MFERENCE_EAGER_ROUTED", eager)
    install = installed(family, name)
    plain, without = run(install, monkeypatch, "0", slots=slots, device=device)
    mapped, counted = run(install, monkeypatch, "1", slots=slots, device=device)
    assert np.array_equal(plain, mapped)
    for key in ("hits", "misses", "evictions", "bytes_read"):
        assert counted[key] == without[key]
    assert without["all_hit_layers"] == without["plans_skipped"] == 0
    assert counted["all_hit_layers"] == counted["plans_skipped"] > 0


@pytest.mark.parametrize("family", RUN)
def test_a_family_has_a_map_as_it_says_unless_the_user_says_otherwise(
    installed, monkeypatch, family
):
    install = installed(family, "seed1")
    for setting, wanted in ((None, FAMILIES[family].slot_map), ("0", False), ("1", True)):
        _, counted = run(install, monkeypatch, setting, slots=8)
        assert (counted["all_hit_layers"] > 0) == wanted


def test_mapped_layer_files_need_no_map(installed, monkeypatch):
    _, counted = run(installed("qwen36", "seed1"), monkeypatch, "1", slots="resident")
    assert counted["all_hit_layers"] == 0
    assert counted["misses"] == 0


def test_every_layer_hits_once_all_experts_were_read(installed, monkeypatch):
    monkeypatch.setenv("MFERENCE_SLOT_MAP", "1")
    core = open_core(installed("qwen36", "seed1"), context=128, slots=8)
    for token in TOKENS:
        core.forward([token])
    before = core.counters()
    assert before["misses"] == 8 * 5  # every expert of five layers
    core.forward([TOKENS[0]])
    after = core.counters()
    assert after["all_hit_layers"] - before["all_hit_layers"] == 5
    assert after["hits"] - before["hits"] == 5 * 2


def write_on(core, recover=None):
    """Logits of single tokens and of a chunk of five, experts read by then, and what failed.

    After a pass that failed, `recover(core, kept, at)` is to bring the sequence back to position
    `at`, of which `kept` is a snapshot; what failed are the lengths of those passes.
    """
    logits, misses, failed, at, kept = [], [], [], 0, core.snapshot()
    while at < 28:
        piece = TOKENS[at : at + (5 if at == CHUNK_AT else 1)]
        try:
            logits.append(core.logits(piece))
        except ExpertFillError:
            failed.append(len(piece))
            recover(core, kept, at)
            continue
        misses.append(core.counters()["misses"])
        at += len(piece)
        kept = core.snapshot()
    return np.array(logits), misses, failed


def start_over(core, _kept, at: int) -> None:
    core.rewind(0)
    core.forward(TOKENS[:at])


CHUNK_AT = 11
RECOVERIES = {"snapshot": lambda core, kept, _at: core.restore(kept), "start over": start_over}

FAULTY = """
import sys
import numpy as np
from pathlib import Path
from tests.model.test_slot_map import RECOVERIES, write_on
from tests.models import open_core

core = open_core(Path(sys.argv[1]), context=128, chunk=32, slots=8)
logits, _, failed = write_on(core, RECOVERIES[sys.argv[2]])
np.save(sys.argv[3], logits)
print(failed, core.counters()["all_hit_layers"])
"""


@pytest.mark.parametrize("family", RUN)
@pytest.mark.parametrize(
    ("failing", "length", "recovery"), [(8, 1, "start over"), (CHUNK_AT, 5, "snapshot")]
)
def test_a_map_is_right_after_a_token_or_a_chunk_whose_experts_could_not_be_read(
    installed, run_faulty, monkeypatch, tmp_path, family, failing, length, recovery
):
    install = installed(family, "seed2")
    monkeypatch.setenv("MFERENCE_SLOT_MAP", "0")
    want, misses, _ = write_on(open_core(install, context=128, chunk=32, slots=8))
    read = (misses[failing - 1] + misses[failing]) // 2  # an expert is one read
    out = tmp_path / "logits.npy"
    said = run_faulty(FAULTY, install, recovery, out, FAULT_EIO=read, MFERENCE_SLOT_MAP=1)
    failed, hits = said.rsplit(maxsplit=1)
    assert failed == f"[{length}]"
    assert int(hits) > 0
    assert np.array_equal(np.load(out), want)
