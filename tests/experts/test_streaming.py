"""Reads of experts: what happens when they fail, and that a model survives it."""

import os
import shutil

import numpy as np
import pytest

import mference
from mference.errors import ExpertFillError, IntegrityError, MissingFile
from tests.models import open_core

TOKENS = [2, 105, 685, 107, 656, 648, 640, 716, 1192, 683, 715, 523, 106, 107, 105, 686, 107]


@pytest.fixture
def copy(demo_install, tmp_path):
    target = tmp_path / "copy.gturbo"
    shutil.copytree(demo_install, target)
    return target


def layer_file(install, layer):
    return install / "packed_experts" / f"layer_{layer:02d}.bin"


def test_a_layer_file_cut_short_while_open_is_an_expert_fill_error(copy):
    core = open_core(copy, slots=8)
    whole = [core.logits([t]) for t in TOKENS]
    core.rewind(0)
    path = layer_file(copy, 3)
    content = path.read_bytes()
    os.truncate(path, 0)
    with pytest.raises(ExpertFillError, match=r"layer_03\.bin.*mference verify"):
        for token in TOKENS:
            core.logits([token])

    # The position stays at the last whole step, and the step can be taken again.
    path.write_bytes(content)
    position = core.position
    again = [core.logits([t]) for t in TOKENS[position:]]
    assert np.array_equal(again, whole[position:])


def test_a_failed_read_in_prefill_leaves_the_model_usable(copy):
    core = open_core(copy, slots=8)
    want = core.logits(TOKENS)
    core.rewind(0)
    path = layer_file(copy, 5)
    content = path.read_bytes()
    os.truncate(path, len(content) // 2)
    with pytest.raises(ExpertFillError):
        core.logits(TOKENS)
    assert core.position == 0
    path.write_bytes(content)
    assert np.array_equal(core.logits(TOKENS), want)


def test_a_flipped_byte_is_found_on_first_touch_of_the_layer(copy):
    with layer_file(copy, 2).open("r+b") as file:
        file.seek(1000)
        byte = file.read(1)
        file.seek(1000)
        file.write(bytes([byte[0] ^ 1]))
    with mference.load(copy) as model, pytest.raises(IntegrityError, match=r"layer_02\.bin"):
        model.generate("A dog is", max_new=4, temperature=0)


def test_a_layer_file_that_vanished_is_named(copy):
    with mference.load(copy) as model:
        layer_file(copy, 4).unlink()
        with pytest.raises((MissingFile, ExpertFillError), match=r"layer_04\.bin"):
            model.generate("A dog is", max_new=4, temperature=0)


def test_more_slots_find_more_experts(demo_install):
    rates = []
    for slots in (8, 16, 32, 64):
        with mference.load(demo_install, slots=slots) as model:
            model.generate("<bos><bos>", max_new=60, temperature=0)
            model.chat([{"role": "user", "content": "What is a violin?"}], temperature=0)
            rates.append(model.report().hit_rate)
    assert rates == sorted(rates)
    assert rates[-1] > rates[0]


def test_a_slot_for_each_expert_reads_each_at_most_once(demo_install):
    with mference.load(demo_install, slots=64) as model:
        for question in ("What is a dog?", "What is a cat?", "What is a dog?"):
            model.chat([{"role": "user", "content": question}], temperature=0)
        report = model.report()
    assert report.misses <= 6 * 64
    assert report.evictions == 0
