"""Installs whose files fit their hashes and still describe no model that can run."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

import mference
from mference import engine
from mference.errors import ArchMismatch, DeviceError, LayoutError

LAYOUT = "packed_experts/layout.json"


@pytest.fixture
def install(demo_install: Path, tmp_path: Path) -> Path:
    return shutil.copytree(demo_install, tmp_path / "odd.gturbo")


def edit_arch(install: Path, **values) -> None:
    manifest = json.loads((install / "manifest.json").read_bytes())
    manifest["modelID"] = "unknown/snapshot"
    manifest["arch"].update(values)
    (install / "manifest.json").write_text(json.dumps(manifest))


def edit_pieces(install: Path, layers, **pieces) -> None:
    """Changes pieces of every expert of some layers, and records the new layout's hash."""
    layout = json.loads((install / LAYOUT).read_bytes())
    for layer in layers:
        for expert in layout["layers"][layer]["experts"]:
            for name, values in pieces.items():
                expert["tensors"][name].update(values)
    data = json.dumps(layout).encode()
    (install / LAYOUT).write_bytes(data)
    manifest = json.loads((install / "manifest.json").read_bytes())
    manifest["files"][LAYOUT] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (install / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("key", "value"),
    [("numHeads", 0), ("topKExperts", 0), ("vocabSize", 2**40), ("moeIntermediateSize", 2**62)],
)
def test_a_dimension_that_no_model_has_is_refused(install, key, value):
    edit_arch(install, **{key: value})
    with pytest.raises(ArchMismatch, match=key):
        mference.load(install, allow_unpinned=True)


@pytest.mark.parametrize(
    ("key", "value"),
    [("hiddenActivation", "relu"), ("attentionKEqV", False), ("tieWordEmbeddings", False)],
)
def test_a_kind_of_model_that_the_forward_pass_does_not_compute_is_refused(install, key, value):
    edit_arch(install, **{key: value})
    with pytest.raises(ArchMismatch, match=f"{key} is {value}"):
        mference.load(install, allow_unpinned=True)


def test_a_layer_whose_experts_lie_differently_is_refused(install):
    edit_pieces(install, [1], gate={"offset": 9216}, up={"offset": 0})
    with pytest.raises(LayoutError, match="layer 1 lies differently"):
        mference.load(install)


@pytest.mark.parametrize("change", [{"bits": 2}, {"size": 0}, {"dtype": "F8"}])
def test_a_weight_whose_size_does_not_fit_its_shape_is_refused(install, change):
    edit_pieces(install, range(6), gate=change)
    with pytest.raises(LayoutError, match="are no 'gate'"):
        mference.load(install)


def test_memory_that_does_not_suffice_is_a_device_error(demo_install, monkeypatch):
    def exhausted(**_):
        raise MemoryError("std::bad_alloc")

    monkeypatch.setattr(engine._core, "Model", exhausted)
    with pytest.raises(DeviceError, match="not enough memory for a context of 4,096"):
        mference.load(demo_install)
