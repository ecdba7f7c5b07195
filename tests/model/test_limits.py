"""The core refuses sizes that would overflow or never end, whoever hands them over."""

from pathlib import Path

import pytest

from mference import _core
from mference.errors import DeviceError
from tests.models import core_arguments, open_core
from tests.oracles import checkpoint, qwen36


@pytest.fixture(scope="module")
def arguments(demo_install):
    return core_arguments(demo_install)


def test_a_context_too_large_for_the_machine_is_refused_with_its_size(demo_install):
    with pytest.raises(DeviceError, match=r"context of 1000000000 tokens need \d+.*smaller"):
        open_core(demo_install, context=1_000_000_000)


def test_a_large_context_costs_nothing_until_it_is_used(demo_install):
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * 4096

    before = resident()
    core = open_core(demo_install, context=1_000_000)
    core.greedy([2, 105])
    assert core.counters()["state_bytes"] > 500e6
    assert resident() - before < 100e6


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"context": 0}, "context is 0"),
        ({"context": 10**9}, r"\d{12} bytes.*context of 1000000000 tokens.*smaller"),
        ({"context": 2**31 - 1}, "context is 2147483647"),
        ({"chunk": 0}, "chunk is 0"),
        ({"chunk": 5000}, "chunk is 5000"),
        ({"readers": 0}, "readers is 0"),
        ({"readers": 10**6}, "readers is 1000000"),
        ({"slots": -1}, "slots is -1"),
        ({"slots": 7}, "at least 8 expert slots"),
        ({"expert_stride": 0}, "0 bytes"),
        ({"expert_stride": 2**60}, "not possible"),
        ({"expert_stride": 2**40}, r"cannot reserve 17592186044416 bytes.*16 expert slots"),
        ({"expert_files": ["one"]}, "layer files is 1"),
        ({"expert_offsets": [[0]] * 6}, "layer's experts is 1"),
        ({"expert_offsets": [[2**64 - 4096] * 64] * 6}, "offset 18446744073709547520"),
    ],
    ids=str,
)
def test_sizes_out_of_range_are_refused(arguments, changed, says):
    with pytest.raises(DeviceError, match=says):
        _core.Model(**arguments | changed).greedy([2])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("numLayers", 2**31 - 1),
        ("hiddenSize", -256),
        ("moeIntermediateSize", 2**30),
        ("numExperts", 40_000),
        ("topKExperts", 65),
        ("numHeads", 2**20),
        ("headDim", 2**20),
        ("slidingWindow", 2**31 - 1),
        ("vocabSize", 0),
        ("partialRotaryFactor", float("nan")),
        ("ropeTheta", float("inf")),
        ("fullAttentionLayerMask", (0,)),
        ("fullAttentionLayerMask", (2,) * 6),
    ],
)
def test_architecture_values_out_of_range_are_refused(arguments, key, value):
    with pytest.raises(DeviceError, match=key):
        _core.Model(**arguments | {"arch": arguments["arch"] | {key: value}})


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory):
    """Arguments of a model with recurrent layers."""
    root = tmp_path_factory.mktemp("hybrid")
    seed, shape, _ = qwen36.FAMILY.random["seed1"]
    return core_arguments(checkpoint.write_and_install(root, shape, seed, "qwen36"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("linearNumKHeads", 0),
        ("linearNumKHeads", 3),
        ("linearNumVHeads", 2**20),
        ("linearKeyHeadDim", 48),
        ("linearValueHeadDim", 288),
        ("linearConvKernelSize", 1),
        ("linearConvKernelSize", 9),
        ("fullAttentionLayerMask", (2, 2, 2, 0, 2)),
        ("hiddenActivation", "relu"),
    ],
)
def test_values_of_a_hybrid_out_of_range_are_refused(hybrid, key, value):
    with pytest.raises(DeviceError, match=key if key != "linearNumKHeads" else "linearNum.Heads"):
        _core.Model(**hybrid | {"arch": hybrid["arch"] | {key: value}})


def test_decays_of_another_length_are_refused(hybrid):
    tensors = dict(hybrid["tensors"])
    name = "language_model.model.layers.0.linear_attn.A_log"
    offset, size, *rest = tensors[name]
    tensors[name] = (offset, size - 2, *rest)
    with pytest.raises(DeviceError, match="A_log should hold 4 BF16 values and has 6 bytes"):
        _core.Model(**hybrid | {"tensors": tensors})


@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("offset", [2**64 - 8, 2**63, 4096])
def test_a_part_outside_its_expert_is_refused(arguments, part, offset):
    parts = list(arguments["expert_parts"])
    stride = arguments["expert_stride"]
    parts[part] = (offset if offset > stride else stride, *parts[part][1:])
    core = _core.Model(**arguments | {"expert_parts": parts})
    with pytest.raises(DeviceError, match="a part leaves the expert's blob"):
        core.greedy([2])


def test_a_cache_refuses_experts_and_slots_that_do_not_exist():
    cache = _core.ExpertCache(4, 8)
    for expert in (-1, 8):
        with pytest.raises(IndexError):
            cache.plan([0, expert])
    with pytest.raises(IndexError):
        cache.note_hits([3])
    with pytest.raises(IndexError):
        cache.land(cache.reserve([9], 0))
    foreign = _core.ExpertCache(64, 64).plan(list(range(40)))
    with pytest.raises(IndexError):
        cache.publish(foreign)
    with pytest.raises(ValueError, match="16 bits"):
        _core.ExpertCache(4, 40_000)
