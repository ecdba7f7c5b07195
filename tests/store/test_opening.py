"""Opening an install: what the runtime gets, and each refusal by its own class."""

import errno
import hashlib
import json
import os
import shutil
import threading
from pathlib import Path

import pytest

from mference import errors
from mference.families import ENTRIES
from mference.store import Install, integrity, open_install, verify_install
from tests.store.toys import write_toy


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    return write_toy(tmp_path / "toy.gturbo", layers=2)


def opened(root: Path, **options) -> Install:
    return open_install(root, allow_unpinned=True, warn=lambda _: None, **options)


def edit_manifest(root: Path, **changes) -> None:
    path = root / "manifest.json"
    manifest = json.loads(path.read_bytes())
    for key, value in changes.items():
        node, keys = manifest, key.split("__")
        for part in keys[:-1]:
            node = node[part]
        node[keys[-1]] = value
    path.write_text(json.dumps(manifest))


def replace_file(root: Path, name: str, data: bytes) -> None:
    """Put other bytes into an install in such a way that the manifest vouches for them."""
    (root / name).write_bytes(data)
    path = root / "manifest.json"
    manifest = json.loads(path.read_bytes())
    manifest["files"][name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    path.write_text(json.dumps(manifest))


def edit_layout(root: Path, change) -> None:
    layout = json.loads((root / "packed_experts/layout.json").read_bytes())
    change(layout)
    replace_file(root, "packed_experts/layout.json", json.dumps(layout).encode())


def test_an_opened_install_shows_where_everything_lies(toy: Path):
    install = opened(toy)
    assert install.entry is None
    assert install.family == "gemma4"
    assert install.manifest.arch["hiddenSize"] == 128
    assert install.index.tensors["language_model.model.norm.weight"].shape == (128,)
    assert install.layout.layers[1].experts[1].offset == 16384
    assert install.layout.layers[0].group_size() == 64
    assert install.layer_path(1) == toy / "packed_experts/layer_01.bin"
    assert install.tokenizer_dir == toy / "tokenizer"


def test_arch_values_are_plain_numbers(toy: Path):
    values = dict(opened(toy).manifest.arch)
    assert {type(v) for v in values.values()} == {int, float, bool, str, tuple}
    assert type(values["finalLogitSoftcap"]) is float


def test_a_directory_without_a_manifest_is_a_partial_install(tmp_path: Path):
    with pytest.raises(errors.PartialInstall, match="no finished install"):
        open_install(tmp_path)
    with pytest.raises(errors.PartialInstall, match=r"there is no directory .*nowhere\.gturbo"):
        open_install(tmp_path / "nowhere.gturbo")


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"magic": "GGUF"}, errors.NotGturbo),
        ({"versionMajor": 2}, errors.UnsupportedVersion),
        ({"flags__fast": True}, errors.UnknownFlag),
        ({"expertStride": 8192}, errors.StrideNotAligned),
        ({"numLayers": "2"}, errors.ManifestError),
        ({"files__../x": {"size": 1, "sha256": "0" * 64}}, errors.ManifestError),
        ({"arch__family": "qwen99"}, errors.ManifestError),
        ({"arch__fullAttentionLayerMask": [1]}, errors.ArchMismatch),
        ({"numLayers": 3}, errors.MissingFile),
        ({"expertsPerLayer": 3}, errors.LayoutError),
    ],
)
def test_a_bad_manifest_is_refused_by_its_own_class(toy: Path, change, kind):
    edit_manifest(toy, **change)
    with pytest.raises(errors.StoreError) as caught:
        opened(toy)
    assert type(caught.value) is kind


def test_an_unpinned_install_needs_permission_and_warns_once(toy: Path):
    with pytest.raises(errors.UnpinnedModel, match="unknown/snapshot"):
        open_install(toy)
    lines: list[str] = []
    assert open_install(toy, allow_unpinned=True, warn=lines.append).entry is None
    assert len(lines) == 1
    assert "matches no pinned model" in lines[0]


def test_a_pinned_id_with_another_architecture_is_refused_even_if_unpinned_is_allowed(toy: Path):
    edit_manifest(toy, modelID=ENTRIES["demo"].model_id)
    with pytest.raises(errors.ArchMismatch) as caught:
        opened(toy)
    assert caught.value.field == "hiddenSize"


def test_a_family_without_code_is_refused_by_name_with_what_is_supported(toy: Path):
    edit_manifest(toy, modelID="other", arch__family="deepseekV4Flash")
    with pytest.raises(errors.UnsupportedModel, match=r"deepseekV4Flash.*Supported: gemma4, demo"):
        opened(toy)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda d: d["layers"][0].update(file="../layer_00.bin"), "base name"),
        (lambda d: d["layers"][0]["experts"][0].update(offset=100), "not page aligned"),
        (lambda d: d["layers"][0]["experts"][1].update(offset=32768), "ends past"),
        (lambda d: d["layers"][0]["experts"][1].update(size=100), "not the stride"),
        (lambda d: d["layers"][0]["experts"][1]["tensors"]["up"].update(size=2**40), "ends past"),
        (lambda d: d["layers"][1]["experts"][0]["tensors"].pop("down_biases"), "down_biases"),
        (lambda d: d.update(expertStride=32768), "expertStride"),
        (lambda d: d["layers"].pop(), "layers"),
        (lambda d: d["layers"].reverse(), "layer 1 stands at position 0"),
        (lambda d: d["layers"][1].update(experts=[]), "layer 1 has no experts"),
    ],
)
def test_a_layout_that_leads_astray_is_refused(toy: Path, change, match):
    edit_layout(toy, change)
    with pytest.raises(errors.LayoutError, match=match):
        opened(toy)


def test_a_corrupt_index_is_refused_although_its_hash_fits(toy: Path):
    data = bytearray((toy / "model_weights.bin").read_bytes())
    data[16:24] = (2**60).to_bytes(8, "little")
    replace_file(toy, "model_weights.bin", bytes(data))
    with pytest.raises(errors.IndexCorrupt, match="entries do not fit"):
        opened(toy)


def test_a_tensor_that_is_not_there_is_named(toy: Path):
    with pytest.raises(errors.TensorNotFound, match="nope"):
        opened(toy).index.tensors["nope"]


def test_a_file_that_the_disk_cannot_read_is_named(toy: Path, monkeypatch):
    def fail(*_: object, **__: object) -> str:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(integrity, "sha256_file", fail)
    with pytest.raises(errors.StoreError, match=r"cannot read .*model_weights\.bin"):
        opened(toy)


def test_a_damaged_tokenizer_is_found_at_once(toy: Path):
    (toy / "tokenizer/tokenizer_config.json").write_bytes(b"[]")
    with pytest.raises(errors.IntegrityError, match=r"tokenizer_config\.json is damaged"):
        opened(toy)


def test_a_damaged_layer_is_found_on_first_touch_and_stays_refused(toy: Path):
    path = toy / "packed_experts/layer_01.bin"
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    install = opened(toy)
    install.verify_layer(0)
    for _ in range(2):
        with pytest.raises(errors.IntegrityError, match=r"layer_01\.bin is damaged"):
            install.verify_layer(1)


def test_a_layer_is_hashed_once_however_many_threads_ask(toy: Path, monkeypatch):
    install = opened(toy)
    calls = []
    hasher = integrity.sha256_file
    monkeypatch.setattr(
        integrity, "sha256_file", lambda *a, **k: (calls.append(a), hasher(*a, **k))[1]
    )
    threads = [threading.Thread(target=install.verify_layer, args=(0,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1


def test_a_trusted_open_reads_no_layer_but_sees_a_changed_size(toy: Path, monkeypatch):
    install = opened(toy, policy="trusted-receipt")
    monkeypatch.setattr(integrity, "sha256_file", None)
    install.verify_layer(0)
    (toy / "packed_experts/layer_01.bin").write_bytes(b"")
    with pytest.raises(errors.ReceiptInvalid, match=r"layer_01\.bin"):
        install.verify_layer(1)


def test_moving_an_install_invalidates_its_receipt_but_not_the_install(toy: Path):
    moved = toy.with_name("moved.gturbo")
    shutil.move(toy, moved)
    opened(moved)
    with pytest.raises(errors.ReceiptInvalid, match="was written at"):
        opened(moved, policy="trusted-receipt")
    verify_install(moved)
    opened(moved, policy="trusted-receipt")


def test_verification_reports_progress_in_bytes(toy: Path):
    seen: list[tuple[str, int, int]] = []
    report = verify_install(toy, lambda *step: seen.append(step))
    assert seen[-1][1:] == (report.bytes, report.bytes)
    assert {name for name, _, _ in seen} == set(
        json.loads((toy / "manifest.json").read_bytes())["files"]
    )


def test_a_receipt_that_cannot_be_written_leaves_the_old_one(toy: Path, monkeypatch):
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = sorted((p, p.read_bytes()) for p in toy.rglob("*") if p.is_file())
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(errors.StoreError, match=r"as the manifest says.*No space left"):
        verify_install(toy)
    assert sorted((p, p.read_bytes()) for p in toy.rglob("*") if p.is_file()) == before
