"""A sequence can be put aside and taken up again, to the byte."""

import shutil

import numpy as np
import pytest

from mference.errors import DeviceError
from tests.models import open_core
from tests.oracles import checkpoint, qwen36
from tests.oracles.families import RUN

CONTEXT = 128
TOKENS = [int(t) for t in np.random.default_rng(4).integers(3, 500, CONTEXT)]


@pytest.fixture(scope="module")
def installs(tmp_path_factory):
    made = {}
    for name, family in RUN.items():
        root = tmp_path_factory.mktemp(name)
        seed, shape, _ = family.random["seed1"]
        made[name] = checkpoint.write_and_install(root, shape, seed, family.entry)
    return made


def steps(core, first: int, last: int) -> np.ndarray:
    return np.array([core.logits([token]) for token in TOKENS[first:last]])


@pytest.mark.parametrize("family", RUN)
@pytest.mark.parametrize(
    ("device", "at"), [("cpu", 1), ("cpu", 2), ("cpu", 40), ("cpu", 70), ("metal", 34)]
)
def test_what_follows_a_restored_snapshot_has_the_same_bytes(
    installs, gpu_or_skip, family, device, at
):
    gpu_or_skip(device)
    core = open_core(installs[family], context=CONTEXT, chunk=32, device=device)
    core.forward(TOKENS[:at])
    kept = core.snapshot()
    assert kept.position == at
    want = steps(core, at, at + 12)
    core.forward(TOKENS[: CONTEXT - core.position])  # something else, over the rings' ends
    core.restore(kept)
    assert core.position == at
    assert np.array_equal(steps(core, at, at + 12), want)
    other = open_core(installs[family], context=CONTEXT, chunk=32, device=device)
    other.restore(kept)
    assert np.array_equal(steps(other, at, at + 12), want)


def test_a_snapshot_takes_what_was_written_and_no_more(installs):
    core = open_core(installs["qwen36"], context=CONTEXT)
    empty = core.snapshot().bytes
    # Four linear layers: 4 matrices of 64 x 64 float32, and 3 float16 rows of 512 channels.
    assert empty == 4 * (4 * 64 * 64 * 4 + 3 * 512 * 2)
    core.forward(TOKENS[:10])
    # One full layer: 2 heads of 64 float16 keys and values.
    assert core.snapshot().bytes == empty + 10 * 2 * 2 * 64 * 2


def test_recurrent_states_go_back_only_to_the_beginning(installs):
    core = open_core(installs["qwen36"], context=CONTEXT)
    want = steps(core, 0, 20)
    core.rewind(20)
    with pytest.raises(DeviceError, match="recurrent states, which only lead forward"):
        core.rewind(19)
    assert core.position == 20
    core.rewind(0)
    assert np.array_equal(steps(core, 0, 20), want)


def test_a_snapshot_of_another_model_is_refused(installs, tmp_path):
    kept = open_core(installs["qwen36"], context=CONTEXT).snapshot()
    with pytest.raises(DeviceError, match="another model"):
        open_core(installs["gemma4"], context=CONTEXT).restore(kept)
    twin = shutil.copytree(installs["qwen36"], tmp_path / "twin.gturbo")
    with pytest.raises(DeviceError, match="another model"):
        open_core(twin, context=CONTEXT).restore(kept)


def test_a_snapshot_needs_a_context_that_holds_it_and_rings_of_its_size(installs):
    core = open_core(installs["gemma4"], context=CONTEXT, chunk=32)
    want = steps(core, 0, 6)
    core.rewind(0)
    core.forward(TOKENS[:5])
    short = core.snapshot()
    core.forward(TOKENS[5:70])
    long = core.snapshot()

    def other(**options):
        return open_core(installs["gemma4"], **{"context": CONTEXT, "chunk": 32} | options)

    with pytest.raises(DeviceError, match=r"70 tokens, and this context 64; load.*larger"):
        other(context=64).restore(long)
    with pytest.raises(DeviceError, match="rings have another size"):
        other(chunk=64).restore(long)
    with pytest.raises(DeviceError, match="of another type"):
        other(float32_kv=True).restore(short)
    # Where no ring has come round yet, its size does not matter.
    for wider in (other(chunk=64), other(context=2 * CONTEXT)):
        wider.restore(short)
        assert np.array_equal(wider.logits(TOKENS[5:6]), want[5])


SCRIPT = """
import sys
from pathlib import Path
import numpy as np
from mference.errors import DeviceError, ExpertFillError
from tests.model.test_snapshots import TOKENS
from tests.models import open_core

core = open_core(Path(sys.argv[1]), context=128, slots=8)
for at, token in enumerate(TOKENS):
    kept = core.snapshot()
    try:
        core.forward([token])
    except ExpertFillError:
        break
assert core.position == at > 0
print(at)
for attempt in (lambda: core.forward([token]), core.snapshot, lambda: core.rewind(at)):
    try:
        attempt()
    except DeviceError as error:
        print(error)
core.restore(kept)
after = core.logits([token])
core.rewind(0)
for token in TOKENS[: at + 1]:
    again = core.logits([token])
assert np.array_equal(after, again)
"""


def test_a_pass_that_failed_loses_the_recurrent_states_until_a_snapshot_or_0(tmp_path, run_faulty):
    seed, shape, _ = qwen36.FAMILY.random["seed2"]
    install = checkpoint.write_and_install(tmp_path, shape, seed, "qwen36")
    at, *said = run_faulty(SCRIPT, install, FAULT_EIO=90).splitlines()
    assert [line.split(";")[0] for line in said] == [
        "a pass that failed has left the recurrent states half way",
        "the recurrent states were lost in a pass that failed",
        f"cannot rewind from position {at} to {at}: this model has recurrent states, "
        "which only lead forward",
    ]
