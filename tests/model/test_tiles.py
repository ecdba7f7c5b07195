"""A prefill chunk's routed work: grouped by expert, in tiles, each expert asked for once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mference._core import planning
from mference.errors import DeviceError
from tests.models import open_core

chunks = st.integers(1, 12).flatmap(
    lambda experts: st.integers(1, min(4, experts)).flatmap(
        lambda k: st.tuples(
            st.just(experts),
            st.lists(
                st.permutations(range(experts)).map(lambda order: order[:k]),
                min_size=1,
                max_size=20,
            ),
        )
    )
)


@given(chunk=chunks, tile=st.integers(1, 16))
def test_every_pair_is_in_its_experts_group_and_every_group_in_one_tile(chunk, tile):
    experts, rows = chunk
    ids = np.array(rows, np.int32)
    pairs, groups, tiles = planning.tile_chunk(ids, *ids.shape, experts, tile)
    flat = ids.ravel()
    assert pairs == sorted(range(flat.size), key=lambda p: (flat[p], p))
    assert [expert for expert, _, _ in groups] == np.unique(flat).tolist()
    for expert, first, count in groups:
        assert (flat[pairs[first : first + count]] == expert).all()
    covered = []
    for first_group, count, first_pair, number in tiles:
        members = groups[first_group : first_group + count]
        assert 1 <= len(members) <= tile
        assert first_pair == members[0][1]
        assert number == sum(count for _, _, count in members)
        covered += members
    assert covered == groups


@given(tokens=st.integers(0, 500), chunk=st.integers(1, 130))
def test_chunks_cover_a_prompt_and_only_the_last_is_short(tokens, chunk):
    spans = planning.chunk_spans(tokens, chunk)
    assert [n for first, count in spans for n in range(first, first + count)] == [*range(tokens)]
    assert all(count == chunk for _, count in spans[:-1])


@pytest.mark.parametrize("choice", [-1, 4, 2**31 - 1])
def test_a_choice_of_no_expert_is_refused(choice):
    with pytest.raises(DeviceError, match=f"chose expert {choice} of 4"):
        planning.tile_chunk([0, choice], 1, 2, 4, 8)


@pytest.mark.parametrize("slots", [8, 16, 24, "resident"])
def test_prefill_asks_for_each_expert_once_a_chunk(demo_install, slots):
    chunk = 64
    core = open_core(demo_install, slots=slots, chunk=chunk)
    tokens = np.random.default_rng(3).integers(200, 8000, 3 * chunk)
    core.record_routing(True)
    core.forward(tokens)
    routing = core.routing()  # [tokens, layers, top_k]
    layers = routing.shape[1]
    asked = sum(
        np.unique(routing[start : start + chunk, layer]).size
        for start in range(0, len(tokens), chunk)
        for layer in range(layers)
    )
    counted = core.counters()
    assert counted["hits"] + counted["misses"] == asked
    assert asked < routing.size  # rows share experts, or this says nothing
