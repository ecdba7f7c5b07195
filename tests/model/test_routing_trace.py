"""Routing traces: what is recorded, and that a replay agrees with the cache that ran."""

import numpy as np
import pytest

import mference
from mference.errors import ConfigError, TraceError
from mference.inspect import RoutingTrace

QUESTION = [{"role": "user", "content": "What is a lighthouse?"}]


def trace_of(install, **settings):
    with mference.load(install, **settings) as model, model.trace_routing() as trace:
        reply = model.chat(QUESTION, temperature=0)
    return trace, reply.completion


def test_a_trace_has_a_row_for_every_computed_token(demo_install):
    trace, completion = trace_of(demo_install)
    arch = mference.load(demo_install).install.manifest.arch
    tokens = completion.prompt_tokens + completion.completion_tokens - 1
    shape = (tokens, arch["numLayers"], arch["topKExperts"])
    assert trace.experts.shape == shape
    assert trace.experts.dtype == np.int16
    assert trace.experts.min() >= 0
    assert trace.experts.max() < trace.num_experts == arch["numExperts"]
    flat = trace.experts.reshape(-1, arch["topKExperts"])
    assert all(len(set(row)) == len(row) for row in flat.tolist())
    assert len(np.unique(trace.experts)) > arch["topKExperts"]


def test_prefill_and_decode_trace_the_same_choices(demo_install):
    whole, _ = trace_of(demo_install, prefill_chunk=128)
    chunked, _ = trace_of(demo_install, prefill_chunk=32)
    assert np.array_equal(whole.experts, chunked.experts)


def test_a_replay_counts_what_the_cache_counted(demo_install):
    with mference.load(demo_install, slots=16) as model:
        before = model.report()
        with model.trace_routing() as trace:
            model.generate("A", max_new=40, temperature=0)
        # The prompt passes in a chunk, which asks for each of its experts once: only the decoded
        # rows can be compared, and they start with the slots that the prompt has filled.
        counted = model.report().since(before)
    replayed = trace.replay(16)
    assert replayed.hits + replayed.misses == trace.experts.size
    assert abs(replayed.hit_rate - counted.hit_rate) < 0.05


def test_more_slots_and_all_experts():
    rng = np.random.default_rng(3)
    ids = np.stack([rng.permutation(32)[:4] for _ in range(200)]).astype(np.int16)
    trace = RoutingTrace(32, ids.reshape(100, 2, 4))
    rates = [trace.replay(slots).hit_rate for slots in (4, 8, 16, 32)]
    assert rates == sorted(rates)
    assert trace.replay(32).misses == 64  # each expert of both layers once
    assert trace.replay(4, "lru").misses == trace.replay(4, "lfu").misses
    with pytest.raises(ConfigError, match="needs 4"):
        trace.replay(3)


def test_layers_without_a_router_ask_for_nothing():
    ids = np.array([[[-1, -1], [0, 1]], [[-1, -1], [1, 0]]], np.int16)
    replay = RoutingTrace(4, ids).replay(2)
    assert (replay.hits, replay.misses) == (2, 2)


def test_a_trace_survives_the_disk(tmp_path, demo_install):
    trace, _ = trace_of(demo_install)
    trace.save(tmp_path / "routing.npz")
    again = RoutingTrace.load(tmp_path / "routing.npz")
    assert np.array_equal(again.experts, trace.experts)
    assert again.num_experts == trace.num_experts


def test_files_that_are_no_trace(tmp_path):
    with pytest.raises(TraceError, match="cannot read"):
        RoutingTrace.load(tmp_path / "missing.npz")
    (tmp_path / "text.npz").write_text("not a trace")
    with pytest.raises(TraceError, match="no routing trace"):
        RoutingTrace.load(tmp_path / "text.npz")
    np.savez(tmp_path / "other.npz", weights=np.zeros(3))
    with pytest.raises(TraceError, match="no routing trace"):
        RoutingTrace.load(tmp_path / "other.npz")
    with pytest.raises(TraceError, match="cannot write"):
        RoutingTrace(4).save(tmp_path / "no" / "such" / "folder.npz")


def test_an_ended_pass_leaves_no_rows(demo_model):
    with demo_model.trace_routing() as trace, pytest.raises(mference.MferenceError):
        demo_model.generate("word " * 5000, max_new=1)
    assert trace.experts.shape[0] == 0
    with demo_model.trace_routing() as trace:
        demo_model.generate("A", max_new=3, temperature=0)
    assert trace.experts.shape[0] > 0
