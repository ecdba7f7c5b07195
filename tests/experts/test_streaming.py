"""Reads of experts: what happens when they fail, and that a model survives it."""

import os
import shutil

import numpy as np
import pytest

import mference
from mference._core import ExpertStreamer, cpu_device
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


@pytest.mark.parametrize("readers", [1, 256])
def test_few_and_many_readers_read_the_same(demo_install, readers):
    want = open_core(demo_install, slots=8).logits(TOKENS)
    assert np.array_equal(open_core(demo_install, slots=8, readers=readers).logits(TOKENS), want)


def test_one_failed_read_of_a_batch_keeps_the_others_and_can_be_repeated(tmp_path):
    path = tmp_path / "layer_00.bin"
    blobs = [bytes([i + 1]) * 4096 for i in range(12)]
    path.write_bytes(b"".join(blobs[:11]))
    layer = ExpertStreamer(
        device=cpu_device(1),
        path=str(path),
        offsets=[i * 4096 for i in range(12)],
        stride=4096,
        slots=8,
        readers=3,
    )
    with pytest.raises(ExpertFillError, match=r"4096 bytes at offset 45056 of .*layer_00\.bin"):
        layer.load([0, 11, 5])
    assert layer.owners()[:3] == [0, -1, 5]
    path.write_bytes(b"".join(blobs))
    plan = layer.load([11, 0, 5])
    assert [plan.hits, plan.misses] == [2, [0]]
    assert [layer.content(expert) for expert in (0, 11, 5)] == [blobs[0], blobs[11], blobs[5]]


def test_experts_that_do_not_fit_the_slots_are_not_placed(tmp_path):
    path = tmp_path / "layer_00.bin"
    path.write_bytes(bytes(4096))
    layer = ExpertStreamer(
        device=cpu_device(1), path=str(path), offsets=[0] * 9, stride=4096, slots=8, readers=1
    )
    assert layer.load(range(9)) is None
    assert layer.owners() == [-1] * 8


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
