"""Forecasts against the sizes of real files and the memory of real processes."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mference.errors import UnsupportedModel
from mference.families import FAMILIES, pinned_entry
from mference.memory import footprint_of, forecast_memory, installed_footprint
from mference.store import open_install
from mference.store.directory import page_rounded
from tests.oracles import checkpoint, qwen36
from tests.oracles.gemma4 import Shape

GEMMA = pinned_entry("gemma4").arch

# Fills every slot and every row of the context in a process of its own; prints its memory.
USE = """
import json, sys
import mference.cli
import numpy as np
from mference.chat.format import ChatFormat
from mference.engine import build_core
from mference.errors import StoreError, TemplateError
from mference.report import process_memory
from mference.store import open_install

path, slots, context, chunk = json.loads(sys.argv[1])
install = open_install(path, allow_unpinned=True, warn=lambda line: None)
try:
    text = ChatFormat.load(install.tokenizer_dir)
except (StoreError, TemplateError):
    pass
before = process_memory().own
core = build_core(install, slots=slots, context=context, chunk=chunk)
tokens = np.random.default_rng(1).integers(3, install.manifest.arch.integer("vocabSize"), context)
core.logits(tokens[:-1])
core.logits(tokens[-1:])
counters = core.counters()
print(json.dumps([process_memory().own, process_memory().own - before, counters["state_bytes"]]))
"""


def use(path: Path, *setting) -> tuple[int, int, int]:
    """Own memory, what the model added to it, and the bytes of its state."""
    arguments = [sys.executable, "-c", USE, json.dumps([str(path), *setting])]
    result = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=120)
    own, added, state = json.loads(result.stdout)
    return own, added, state


def huge_pages() -> bool:
    mode = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return mode.exists() and "[never]" not in mode.read_text("ascii")


@pytest.fixture(scope="module")
def wide_install(tmp_path_factory):
    """Experts of 442 kB, so that slots are most of the memory."""
    root = tmp_path_factory.mktemp("wide")
    shape = Shape(layers="sf", hidden=512, width=512, experts=24, top_k=4, vocabulary=2048)
    return checkpoint.write_and_install(root, shape, seed=1)


@pytest.fixture(scope="module")
def tiny_install(tmp_path_factory):
    root = tmp_path_factory.mktemp("tiny")
    return checkpoint.write_and_install(root, Shape(), seed=1)


@pytest.fixture(scope="module")
def hybrid_install(tmp_path_factory):
    """Qwen 3.6, whose shared expert is wider than the others."""
    root = tmp_path_factory.mktemp("hybrid")
    shape = qwen36.Shape(
        layers="llfl", hidden=192, width=128, shared_width=320, experts=24, top_k=4,
        vocabulary=2048, heads=6, head_dim=128, value_heads=8, value_dim=64, key_dim=32,
    )  # fmt: skip
    return checkpoint.write_and_install(root, shape, seed=1, entry="qwen36")


def opened(path: Path):
    return open_install(path, allow_unpinned=True, warn=lambda _line: None)


@pytest.mark.skipif(not huge_pages(), reason="slots are counted in huge pages, and there are none")
@pytest.mark.parametrize(
    ("which", "slots", "context", "chunk"),
    [
        ("demo_install", 8, 512, 32),
        ("demo_install", 16, 4096, 128),
        ("demo_install", 64, 4096, 1024),
        ("demo_install", "resident", 4096, 128),
        ("tiny_install", 8, 1024, 128),
        ("hybrid_install", 8, 1024, 128),
        ("hybrid_install", 24, 4096, 512),
        ("wide_install", 8, 512, 128),
        ("wide_install", 16, 512, 128),
        ("wide_install", 24, 2048, 512),
        ("wide_install", "resident", 2048, 32),
    ],
)
def test_the_forecast_is_what_a_process_then_holds(request, which, slots, context, chunk):
    path = request.getfixturevalue(which)
    install = opened(path)
    forecast = forecast_memory(
        install.manifest.arch, installed_footprint(install), slots, context=context, chunk=chunk
    )
    own, added, state = use(path, slots, context, chunk)
    layers = len(install.layout.layers)
    assert forecast.state == pytest.approx(state, abs=2 * 4096 * layers)
    assert forecast.own == pytest.approx(own, rel=0.1)
    # The rest is Python's, and would hide an error in what the model needs.
    assert forecast.model == pytest.approx(added, rel=0.2, abs=2e6)


INSTALLS = ("demo_install", "tiny_install", "wide_install", "hybrid_install")
SHARED = re.compile(r".*\.layers\.0\.mlp\.(shared_expert\.)?(gate|up|down)_proj\.weight")


@pytest.mark.parametrize("which", INSTALLS)
def test_sizes_from_the_architecture_are_those_of_the_install(request, which):
    install = opened(request.getfixturevalue(which))
    expected = footprint_of(install.manifest.arch)
    assert expected.common_bytes == install.index.resident_size
    assert page_rounded(expected.expert_bytes) == install.layout.expert_stride
    assert installed_footprint(install).expert_layers == expected.expert_layers
    shared = [t for name, t in install.index.tensors.items() if SHARED.fullmatch(name)]
    assert len(shared) == 3
    assert expected.shared_bytes == sum(t.size + t.scale_size + t.bias_size for t in shared)


def test_the_pinned_gemma_has_the_sizes_of_its_checkpoint():
    footprint = footprint_of(GEMMA)
    assert footprint.common_bytes == 1_353_689_148
    assert page_rounded(footprint.expert_bytes) == 3_358_720
    forecast = forecast_memory(GEMMA, footprint, 16, context=4096, chunk=128)
    assert forecast.state == 319_815_680
    assert forecast.slots == pytest.approx(1_612_185_600, rel=0.02)
    assert forecast.mapped == footprint.common_bytes


def test_the_pinned_qwen_has_the_sizes_of_its_checkpoint():
    arch = pinned_entry("qwen36").arch
    footprint = footprint_of(arch)
    assert footprint.common_bytes == 1_389_394_176
    assert footprint.common_bytes - footprint.token_bytes == 248_320 * 2048 * 9 // 16  # embedding


def test_resident_experts_are_mapped_and_not_owned():
    forecast = forecast_memory(GEMMA, footprint_of(GEMMA), "resident", context=4096, chunk=128)
    assert forecast.slots == 0
    assert forecast.experts == 12_897_484_800
    assert forecast.mapped == forecast.common + forecast.experts


@pytest.mark.parametrize(
    ("name", "expert", "layer_file_layers", "fixed", "per_token"),
    [
        ("qwen36", 1_769_472, 40, 64_389_120, 20_480),
        ("deepseekv4flash", 8_388_608, 43, None, None),
        ("inklingsmall", 14_155_776, 40, None, 28_672),
        ("maple", 983_040, 24, 18_874_368, 12_288),
    ],
)
def test_pinned_models_are_forecast_from_their_facts(
    name, expert, layer_file_layers, fixed, per_token
):
    arch = pinned_entry(name).arch
    footprint = footprint_of(arch)
    assert page_rounded(footprint.expert_bytes) == expert
    assert footprint.expert_layers == layer_file_layers
    assert footprint.token_bytes < footprint.common_bytes
    state_bytes = FAMILIES[arch.family].state_bytes
    first, second = state_bytes(arch, 8192, 128), state_bytes(arch, 8193, 128)
    if per_token is not None:
        assert second - first == per_token
    if fixed is not None:
        assert first - 8192 * per_token == fixed


def test_the_compressed_state_of_deepseek_is_small():
    arch = pinned_entry("deepseekv4flash").arch
    state_bytes = FAMILIES[arch.family].state_bytes
    assert state_bytes(arch, 4096, 128) == pytest.approx(38 * 2**20, rel=0.01)


def test_a_family_of_unknown_sizes_is_refused_by_name():
    with pytest.raises(UnsupportedModel, match="qwen38"):
        footprint_of(pinned_entry("qwen38").arch)
