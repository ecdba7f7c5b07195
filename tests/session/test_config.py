import math

import pytest

from mference.errors import ConfigError
from mference.session.config import GenerationConfig


def test_the_defaults_are_those_of_the_command_line():
    config = GenerationConfig()
    assert (config.max_new, config.temperature, config.top_k, config.top_p) == (1024, 0.2, 64, 0.95)
    assert (config.repetition_penalty, config.seed, config.stop) == (1.0, None, ())


def test_stops_may_be_one_text_or_several():
    assert GenerationConfig(stop="END").stop == ("END",)
    assert GenerationConfig(stop=["a", "b"]).stop == ("a", "b")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("max_new", 0), ("max_new", 1.5), ("max_new", True), ("temperature", -1),
        ("temperature", math.nan), ("temperature", math.inf), ("temperature", "hot"),
        ("top_k", 0), ("top_k", 257), ("top_k", 2.0), ("top_p", 0), ("top_p", 1.01),
        ("top_p", math.nan), ("repetition_penalty", 0), ("repetition_penalty", math.inf),
        ("seed", -1), ("seed", 1 << 64), ("seed", 1.0), ("stop", 3), ("stop", [3]),
        ("temperature", 10**400), ("top_p", 10**400), ("repetition_penalty", -(10**400)),
    ],
)  # fmt: skip
def test_a_setting_out_of_range_is_named(setting, value):
    with pytest.raises(ConfigError, match=setting):
        GenerationConfig(**{setting: value})


def test_the_largest_seed_and_top_k_are_allowed():
    GenerationConfig(seed=(1 << 64) - 1, top_k=256, top_p=1, temperature=1e9)


def test_top_p_needs_top_k_only_when_it_would_be_used():
    with pytest.raises(ConfigError, match="needs top_k"):
        GenerationConfig(top_k=None)
    GenerationConfig(top_k=None, temperature=0)
    GenerationConfig(top_k=None, top_p=1.0)
    GenerationConfig(top_k=None, top_p=None)
