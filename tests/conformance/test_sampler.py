"""Conformance of the sampler: settings, truncation, penalty, softcap, draws."""

import numpy as np
import pytest

from mference.errors import ConfigError
from mference.session.config import GenerationConfig
from mference.session.sampling import Sampler, candidates, penalized, softcapped, softmax
from tests.conformance.loader import cases


def logs(probabilities):
    with np.errstate(divide="ignore"):
        return np.log(np.array(probabilities)).astype(np.float32)


def close(case, actual, expected):
    tolerance = case.expect.get("tolerance", 0)
    np.testing.assert_allclose(
        actual, expected, rtol=case.expect.get("relative_tolerance", tolerance),
        atol=case.expect.get("absolute_tolerance", tolerance),
    )  # fmt: skip


@pytest.mark.parametrize("case", cases("sampler", "config_check"))
def test_config_check(case):
    error = None
    try:
        GenerationConfig(**case.given["config"])
    except ConfigError:
        error = "invalid_config"
    assert error == case.expect["error"]


@pytest.mark.parametrize("case", cases("sampler", "pure_greedy"))
def test_pure_greedy(case):
    assert GenerationConfig(**case.given).pure_greedy == case.expect["eligible"]


@pytest.mark.parametrize("case", cases("sampler", "path"))
def test_path(case):
    settings = {key: case.given[key] for key in ("temperature", "repetition_penalty")}
    path = "greedy" if GenerationConfig(**settings).greedy else "sampled"
    assert path == case.expect["path"]


@pytest.mark.parametrize("case", cases("sampler", "greedy"))
def test_greedy(case):
    sampler = Sampler(GenerationConfig(temperature=0))
    assert sampler.sample(logs(case.given["probabilities"]), 0) == case.expect["token"]


@pytest.mark.parametrize("case", cases("sampler", "candidates"))
def test_candidates(case):
    given = case.given
    rounded = np.array(given["probabilities"], np.float16).astype(np.float32)
    found = candidates(
        rounded, top_k=given["top_k"], top_p=given["top_p"], temperature=given["temperature"]
    )
    assert found.tokens.tolist() == case.expect["tokens"]
    close(case, found.weights, case.expect["weights"])


@pytest.mark.parametrize("case", cases("sampler", "penalty"))
def test_penalty(case):
    cap = case.given["softcap"]
    logits = softcapped(np.array(case.given["logits"], np.float32), cap)
    effective = penalized(logits, case.given["history"], case.given["penalty"], cap)
    close(case, effective, case.expect["effective_logits"])


@pytest.mark.parametrize("case", cases("sampler", "softcap_softmax"))
def test_softcap_softmax(case):
    logits = np.array(case.given["logits"], np.float32)
    close(case, softmax(softcapped(logits, case.given["softcap"])), case.expect["probabilities"])


def spread(vocabulary):
    """Logits without order or gaps, some of them equal."""
    return np.round(np.random.default_rng(5).normal(size=vocabulary) * 3, 1).astype(np.float32)


def drawn(logits, config, positions=range(1)):
    sampler = Sampler(GenerationConfig(**config))
    return [sampler.sample(logits, position) for position in positions]


def seeds_of(given):
    seeds = given.get("seeds", given.get("seed"))
    if isinstance(seeds, str):
        first, last = map(int, seeds.split(".."))
        return range(first, last + 1)
    return range(seeds) if "seeds" in given else [seeds]


def in_candidates(given):
    config = {key: given.get(key) for key in ("top_k", "top_p")}
    logits = spread(64)
    best = np.argsort(-logits, kind="stable")
    if given.get("top_p"):
        logits[best[:2]] = 40
        config["top_k"] = 64
    allowed = best[: given.get("top_k", 2)]
    return all(
        drawn(logits, {**config, "seed": seed, "temperature": 1.0})[0] in allowed
        for seed in seeds_of(given)
    )


def not_constant(given):
    return len(set(drawn(np.zeros(64, np.float32), {"seed": given["seed"]}, range(16)))) > 1


def in_range(given):
    config = {"top_k": None, "top_p": None, "temperature": given["temperature"]}
    logits = spread(given["vocab"])
    return all(
        0 <= drawn(logits, {**config, "seed": seed})[0] < given["vocab"] for seed in seeds_of(given)
    )


def paths_equal(given):
    """A vocabulary large enough for the short way to the top 64 draws as a small one does."""
    small = spread(4000)
    large = np.concatenate([small, np.full(60_000, -50, np.float32)])
    return all(
        drawn(small, config, range(32)) == drawn(large, config, range(32))
        for temperature in given["temperatures"]
        for config in [
            {
                "seed": 9,
                "temperature": temperature,
                "top_k": given["top_k"],
                "top_p": given["top_p"],
            }
        ]
    )


def frequency_below(given):
    if "penalty" in given:
        logits = np.full(64, 300, np.float32)
        logits[0] = 400
        logits = softcapped(logits, given["softcap"])
    else:
        logits = np.zeros(given["vocab"], np.float32)
        logits[0] = 8
    config = GenerationConfig(
        seed=3, temperature=given.get("temperature", 1.0), top_k=None, top_p=None,
        repetition_penalty=given.get("penalty", 1.0),
    )  # fmt: skip
    sampler = Sampler(config, given.get("softcap", 0.0))
    sampler.observe([0])
    hits = sum(sampler.sample(logits, position) == 0 for position in range(given["draws"]))
    return hits < given["share"] * given["draws"]


def equal(given):
    logits = spread(64)
    return (
        len({drawn(logits, {"seed": s, "temperature": 1.0}, [p])[0] for s, p in given["draws"]})
        == 1
    )


PROPERTIES = {
    f.__name__: f
    for f in (in_candidates, not_constant, in_range, paths_equal, frequency_below, equal)
}


@pytest.mark.parametrize("case", cases("sampler", "seed_property"))
def test_seed_property(case):
    assert PROPERTIES[case.expect["property"]](case.given)
