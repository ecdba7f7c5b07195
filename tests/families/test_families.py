"""The registry of families and pins, and Gemma's configuration."""

import json

import pytest

from mference.errors import CheckpointError, InstallError, UnsupportedModel
from mference.families import (
    ENTRIES,
    FAMILIES,
    check_runnable,
    entry_by_model_id,
    pinned_entry,
    supported_entries,
)
from mference.families.arch import CORE_FIELDS, EXTENSION_FIELDS, Arch
from mference.families.gemma4 import BASELINE, DEMO, read_arch
from mference.installer.source import DEMO_CHECKPOINT
from mference.memory import RUNGS
from tests.installer.toys import toy_config
from tests.store.toys import toy_arch


def test_every_pin_names_a_family_and_has_that_familys_kind_of_architecture():
    assert len(ENTRIES) == 7
    for name, entry in ENTRIES.items():
        assert entry.name == name
        assert entry.arch.family == entry.family
        assert (len(entry.revision), len(entry.index_sha256)) == (40, 64)
        assert entry_by_model_id(entry.model_id) is entry


def test_every_baseline_has_one_mask_value_a_layer():
    for family in FAMILIES.values():
        assert family.baseline.family == family.name
        assert len(family.baseline.layer_mask) == family.baseline["numLayers"]


def test_every_family_has_slots_for_metal_whatever_the_memory():
    for family in FAMILIES.values():
        least, slots = zip(*family.metal_slots, strict=True)
        assert list(least) == sorted(set(least), reverse=True)
        assert least[-1] == 0
        assert set(slots) <= set(RUNGS)


def test_every_pin_has_the_values_that_its_family_is_written_for():
    for entry in ENTRIES.values():
        fixed = FAMILIES[entry.family].fixed_arch
        assert {key: entry.arch[key] for key in fixed} == fixed


def test_what_runs_is_supported_and_the_rest_is_refused_by_name():
    assert [entry.name for entry in supported_entries()] == ["gemma4", "demo", "qwen36"]
    for family in FAMILIES.values():
        if not family.runnable:
            with pytest.raises(UnsupportedModel, match=f"family '{family.name}', which this"):
                check_runnable(family.name, f"the model '{family.name}'")
    with pytest.raises(InstallError, match="no model named 'gpt'"):
        pinned_entry("gpt")


def test_the_demos_architecture_is_that_of_its_config():
    assert read_arch(json.loads((DEMO_CHECKPOINT / "config.json").read_text())) == DEMO


def test_missing_rope_parameters_and_flags_take_their_defaults():
    config = toy_config()
    assert read_arch(config) == toy_arch()
    for key in ("tie_word_embeddings", "attention_k_eq_v"):
        del config["text_config"][key]
    arch = read_arch(config)
    assert (arch["tieWordEmbeddings"], arch["attentionKEqV"]) == (False, False)


def test_rope_parameters_are_read_by_attention_kind():
    config = toy_config()
    config["text_config"]["rope_parameters"] = {
        "full_attention": {"rope_theta": 5e5, "partial_rotary_factor": 0.5},
        "sliding_attention": {"rope_theta": 2e4},
    }
    arch = read_arch(config)
    found = (arch["ropeTheta"], arch["fullRopeTheta"], arch["partialRotaryFactor"])
    assert found == (2e4, 5e5, 0.5)


@pytest.mark.parametrize(
    ("key", "value"),
    [("hidden_size", None), ("head_dim", "64"), ("layer_types", []), ("sliding_window", 1.5)],
)
def test_a_config_that_cannot_be_read_is_refused(key: str, value):
    config = toy_config()
    config["text_config"][key] = value
    with pytest.raises(CheckpointError) as caught:
        read_arch(config)
    assert caught.value.reason == "config_invalid"


def test_an_arch_refuses_unknown_and_missing_keys():
    with pytest.raises(TypeError, match="hiddenSize"):
        Arch(headCount=3)


def test_an_arch_is_a_plain_mapping_with_defaults_and_can_be_a_key():
    assert len(BASELINE) == len(CORE_FIELDS) + len(EXTENSION_FIELDS)
    assert BASELINE["attentionScale"] == 1.0
    assert {BASELINE: 1}[Arch(**dict(BASELINE))] == 1
