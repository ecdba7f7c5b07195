import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mference.errors import DeviceError
from mference.session.config import GenerationConfig
from mference.session.sampling import (
    Sampler,
    candidates,
    draw,
    highest,
    penalized,
    softcapped,
    softmax,
)

LOGITS = hnp.arrays(
    np.float32,
    st.integers(1, 100),
    elements=st.floats(-30, 30, width=32).map(lambda x: np.float32(round(x, 1))),
)
TEMPERATURES = st.floats(0.01, 4)


def brute_force(probabilities, top_k, top_p, temperature):
    """Top-p, top-k and temperature over a full sort, one token at a time."""
    ranked = sorted(range(len(probabilities)), key=lambda i: (-probabilities[i], i))
    kept, mass = [], np.float64(0)
    for token in ranked:
        if top_p is not None and top_p < 1 and kept and mass >= top_p:
            break
        kept.append(token)
        mass += np.float64(probabilities[token])
    kept = kept[:top_k]
    best = float(probabilities[kept[0]])
    weights = np.array([(float(probabilities[t]) / best) ** (1 / temperature) for t in kept])
    return kept, weights / weights.sum()


@given(LOGITS, st.integers(1, 256), st.none() | st.floats(0.01, 1), TEMPERATURES)
@settings(deadline=None)
def test_candidates_are_those_of_a_full_sort(logits, top_k, top_p, temperature):
    probabilities = softmax(logits)
    found = candidates(probabilities, top_k=top_k, top_p=top_p, temperature=temperature)
    tokens, weights = brute_force(probabilities, top_k, top_p, temperature)
    assert found.tokens.tolist() == tokens
    np.testing.assert_allclose(found.weights, weights, rtol=1e-9)


@given(st.integers(0, 2**32 - 1), st.integers(1, 256), st.integers(4000, 20_000), st.booleans())
@settings(deadline=None, max_examples=50)
def test_the_short_way_to_the_highest_values_is_exact(seed, count, size, ties):
    values = np.random.default_rng(seed).normal(size=size).astype(np.float32)
    values = values.round(1) if ties else values
    expected = np.argsort(-values, kind="stable")[:count]
    assert highest(values, count).tolist() == expected.tolist()


@pytest.mark.parametrize("fill", [0.0, -np.inf])
def test_equal_values_in_a_large_vocabulary_are_ordered_by_id(fill):
    values = np.full(262_144, fill, np.float32)
    values[77_777] = 1
    assert highest(values, 64).tolist() == [77_777, *range(63)]


@given(LOGITS, st.integers(0, 2**64 - 1), st.integers(0, 1 << 20), TEMPERATURES)
@settings(deadline=None)
def test_a_seeded_draw_depends_on_seed_position_and_logits_alone(logits, seed, position, warmth):
    config = GenerationConfig(seed=seed, temperature=warmth)
    token = Sampler(config).sample(logits, position)
    used = Sampler(config)
    used.observe([1, 2])
    used.sample(logits, position + 1)
    assert used.sample(logits.copy(), position) == token
    assert token in brute_force(softmax(logits), 64, 0.95, warmth)[0]


def test_draws_follow_the_weights():
    weights = np.array([0.5, 0.0, 0.3, 0.2])
    counts = np.bincount([draw(weights, 11, p) for p in range(20_000)], minlength=4) / 20_000
    np.testing.assert_allclose(counts, weights, atol=0.015)
    assert counts[1] == 0


def test_neighbouring_seeds_and_positions_are_unrelated():
    weights = np.full(16, 1 / 16)
    table = np.array([[draw(weights, seed, p) for p in range(64)] for seed in range(64)])
    for a, b in (
        (table[:-1], table[1:]),
        (table[:, :-1], table[:, 1:]),
        (table[:-1, 1:], table[1:, :-1]),
    ):
        assert abs((a == b).mean() - 1 / 16) < 0.02


def test_a_draw_never_lands_on_a_weight_of_zero():
    weights = np.array([0.0, 1e-300, 0.0])
    assert {draw(weights, seed, 0) for seed in range(50)} == {1}


@pytest.mark.parametrize("temperature", [1e-320, 1e-6, 1e6, 1e308])
@pytest.mark.parametrize("top_k", [None, 64])
def test_extreme_temperatures_draw_a_token(temperature, top_k):
    logits = np.array([-np.inf, 3, 2, -30, 3], np.float32)
    config = GenerationConfig(temperature=temperature, top_k=top_k, top_p=None, seed=1)
    drawn = {Sampler(config).sample(logits, p) for p in range(40)}
    assert drawn <= {1, 2, 3, 4}
    if temperature < 1:
        assert drawn == {1, 4}


@given(LOGITS, st.lists(st.integers(-5, 400)), st.floats(0.1, 5), st.sampled_from([0.0, 10.0]))
@settings(deadline=None)
def test_the_penalty_counts_each_id_once_and_stays_inside_the_cap(logits, history, penalty, cap):
    logits = softcapped(logits, cap)
    before = logits.copy()
    effective = penalized(logits, history, penalty, cap)
    assert (logits == before).all()
    for token, value in enumerate(logits):
        if token not in history:
            assert effective[token] == value
            continue
        expected = value / penalty if value > 0 else value * penalty
        if cap:
            expected = min(max(expected, -0.9999 * cap), 0.9999 * cap)
        np.testing.assert_allclose(effective[token], expected, rtol=1e-5)


def test_greedy_takes_the_lowest_id_after_the_penalty():
    logits = np.array([1, 5, 5, 4], np.float32)
    sampler = Sampler(GenerationConfig(temperature=0, repetition_penalty=2.0))
    assert sampler.sample(logits, 0) == 1
    sampler.observe([1])
    assert sampler.sample(logits, 0) == 2
    sampler.observe([2])
    assert sampler.sample(logits, 0) == 3


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_not_finite_are_a_device_error(bad):
    logits = np.zeros(64, np.float32)
    logits[5] = bad
    for temperature in (0, 1.0):
        sampler = Sampler(GenerationConfig(temperature=temperature, repetition_penalty=1.1))
        with pytest.raises(DeviceError, match="position 7 are not finite"):
            sampler.sample(logits, 7)


def test_unseeded_samplers_differ():
    logits = np.zeros(4096, np.float32)
    config = GenerationConfig(temperature=1.0, top_k=None, top_p=None)
    assert len({Sampler(config).sample(logits, 0) for _ in range(20)}) > 1


@pytest.mark.parametrize("penalty", [5e-324, 1e-300, 1e300])
@pytest.mark.parametrize("temperature", [0, 1])
def test_an_extreme_penalty_overflows_nothing(penalty, temperature):
    config = GenerationConfig(temperature=temperature, repetition_penalty=penalty, seed=1)
    sampler = Sampler(config)
    sampler.observe((0, 1, 2))
    token = sampler.sample(np.array([1, 0, -1, 50], np.float32), 3)
    assert token == (0 if penalty < 1 else 3)
