"""Installing for real: from the package, a folder and a server, and what failures leave."""

import errno
import hashlib
import json
import os
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import mference.installer as public
from mference import errors
from mference.families import ENTRIES
from mference.installer import (
    FolderSource,
    InstallReport,
    Progress,
    default_output,
    discard_partial,
    install,
    space,
    transfer,
)
from mference.installer.installer import carry_out
from mference.installer.lock import InstallLock
from mference.installer.paths import prepared_paths
from mference.installer.run import Limits, Run
from mference.installer.safetensors import read_header
from mference.installer.source import DEMO_CHECKPOINT
from mference.store import completeness, open_install, verify_install
from tests.installer.contents import contents
from tests.installer.server import serve
from tests.installer.toys import write_source


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> InstallReport:
    return install(output=tmp_path_factory.mktemp("demo") / "demo.gturbo", entry="demo")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_source(tmp_path / "source")


def test_the_demo_installs_from_the_package_and_opens_both_ways(demo: InstallReport):
    for policy in ("full-sha256", "trusted-receipt"):
        opened = open_install(demo.path, policy=policy)
        assert opened.entry is ENTRIES["demo"]
        assert opened.manifest.arch == ENTRIES["demo"].arch
        for layer in range(6):
            opened.verify_layer(layer)
    assert completeness(demo.path, ENTRIES["demo"]) == "complete"
    assert sorted(p.name for p in demo.path.parent.iterdir()) == [
        "demo.gturbo",
        "demo.gturbo.install.lock",
    ]


def test_the_demo_has_the_size_that_is_announced(demo: InstallReport):
    assert demo.bytes == ENTRIES["demo"].installed_bytes


def test_a_fresh_install_verifies_and_keeps_its_source(tmp_path: Path):
    report = verify_install(install(output=tmp_path / "demo.gturbo", entry="demo").path)
    assert report.unexpected == ()
    assert report.receipt.source_repo == ENTRIES["demo"].repo


def test_every_byte_of_the_demo_source_is_where_the_index_and_the_layout_say(demo: InstallReport):
    opened = open_install(demo.path)
    folder = FolderSource(DEMO_CHECKPOINT)
    weights = np.memmap(opened.weights_path, mode="r")
    seen = set()
    for shard in sorted(DEMO_CHECKPOINT.glob("*.safetensors")):
        data = np.memmap(shard, mode="r")
        for name, t in read_header(folder, shard.name).items():
            wanted = data[t.offset : t.offset + t.size]
            stem, _, part = name.rpartition(".")
            if ".experts." in name:
                layer, role = int(name.split(".")[3]), stem.split(".")[-1].split("_")[0]
                piece = role if part == "weight" else f"{role}_{part}"
                blob = np.memmap(opened.layer_path(layer), mode="r")
                parts = [
                    blob[e.offset + e.tensors[piece].offset :][: e.tensors[piece].size]
                    for e in opened.layout.layers[layer].experts
                ]
                assert np.array_equal(np.concatenate(parts), wanted)
                continue
            owner = opened.index.tensors[f"{stem}.weight" if part in ("scales", "biases") else name]
            offset, size = {
                "scales": (owner.scale_offset, owner.scale_size),
                "biases": (owner.bias_offset, owner.bias_size),
            }.get(part, (owner.offset, owner.size))
            assert size == t.size
            assert np.array_equal(weights[offset : offset + size], wanted)
            seen.add(owner.name)
    assert seen == set(opened.index.tensors)


def test_a_folder_and_a_server_give_the_same_bytes_as_the_package(
    demo, tmp_path: Path, monkeypatch
):
    folder = install(DEMO_CHECKPOINT, tmp_path / "folder.gturbo", entry="demo")
    with serve(DEMO_CHECKPOINT) as server:
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        http = install(server.base, tmp_path / "http.gturbo", entry="demo")
    assert contents(folder.path) == contents(http.path) == contents(demo.path)
    assert {method for method, _ in server.requests} == {"HEAD", "GET"}


def test_small_chunks_and_scratch_change_no_byte(source: Path, tmp_path: Path):
    results = []
    for i, limits in enumerate((Limits(), Limits(chunk=1000, scratch=7))):
        paths = prepared_paths(tmp_path / f"{i}.gturbo")
        run = Run(FolderSource(source), ENTRIES["demo"], paths, allow_unpinned=True, limits=limits)
        results.append(contents(carry_out(run).path))
    assert results[0] == results[1]


def test_progress_counts_bytes_up_to_the_total(source: Path, tmp_path: Path):
    seen: list[Progress] = []
    install(source, tmp_path / "x.gturbo", entry="demo", allow_unpinned=True, progress=seen.append)
    assert list(dict.fromkeys(p.phase for p in seen)) == ["plan", "copy", "verify"]
    for phase in ("copy", "verify"):
        steps = [p for p in seen if p.phase == phase]
        assert [p.done for p in steps] == sorted(p.done for p in steps)
        assert steps[-1].done == steps[-1].total > 0


def test_an_unpinned_source_needs_permission_and_carries_no_pinned_id(source, tmp_path, caplog):
    with pytest.raises(errors.SourceMismatch, match="not the pinned source"):
        install(source, tmp_path / "x.gturbo", entry="demo")
    assert list(tmp_path.glob("x.gturbo*")) == [tmp_path / "x.gturbo.install.lock"]
    report = install(source, tmp_path / "x.gturbo", entry="demo", allow_unpinned=True)
    assert (report.entry, report.model_id) == (None, "unknown/snapshot")
    assert len(caplog.records) == 1
    with pytest.raises(errors.UnpinnedModel):
        open_install(report.path)
    assert open_install(report.path, allow_unpinned=True, warn=lambda _: None).entry is None


def test_the_demo_checkpoint_is_recognised_when_another_entry_was_asked_for(tmp_path: Path):
    with pytest.raises(errors.SourceMismatch, match="It is the model 'demo'"):
        install(DEMO_CHECKPOINT, tmp_path / "x.gturbo")


def test_a_pinned_index_with_another_config_is_a_source_mismatch(tmp_path: Path):
    folder = tmp_path / "source"
    shutil.copytree(DEMO_CHECKPOINT, folder)
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["top_k_experts"] = 4
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(errors.SourceMismatch, match="topKExperts"):
        install(folder, tmp_path / "x.gturbo", entry="demo")


@pytest.mark.parametrize("name", ["qwen38", "deepseekv4flash", "inklingsmall", "maple"])
def test_a_pinned_model_without_code_is_refused_by_name(name: str, tmp_path: Path):
    with pytest.raises(errors.UnsupportedModel, match=f"'{name}'.*Supported: gemma4, demo, qwen36"):
        install(tmp_path, tmp_path / "x.gturbo", entry=name)


@pytest.mark.parametrize(
    ("model_type", "kind"),
    [("llama", errors.SourceMismatch), ("deepseek_v4", errors.UnsupportedModel)],
)
def test_a_source_of_another_architecture_is_refused_by_name(source, tmp_path, model_type, kind):
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "model_type": model_type}))
    with pytest.raises(kind, match="Supported: gemma4, demo"):
        install(source, tmp_path / "x.gturbo", allow_unpinned=True)


def test_an_unknown_entry_and_a_missing_folder_are_named(tmp_path: Path):
    with pytest.raises(errors.InstallError, match="Supported: gemma4, demo"):
        install(entry="gpt")
    with pytest.raises(errors.SourceMismatch, match="is not a folder"):
        install(tmp_path / "none", tmp_path / "x.gturbo")
    with pytest.raises(errors.InstallError, match="no usable output"):
        install(output="..", entry="demo")


def test_an_existing_install_is_kept_unless_overwritten(source: Path, tmp_path: Path):
    final = tmp_path / "x.gturbo"
    install(source, final, entry="demo", allow_unpinned=True)
    (final / "manifest.json").write_text("of a damaged install")
    with pytest.raises(errors.InstallError, match="exists already"):
        install(source, final, entry="demo", allow_unpinned=True)
    assert (final / "manifest.json").read_text() == "of a damaged install"
    install(source, final, entry="demo", allow_unpinned=True, overwrite=True)
    verify_install(final)
    assert not (tmp_path / "x.gturbo.partial").exists()


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_directory_that_is_no_install_is_never_overwritten(tmp_path: Path, dry_run: bool):
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "thesis.txt").write_text("three years")
    with pytest.raises(errors.UnsafePath, match="not overwritten"):
        install(output=tmp_path / "documents", entry="demo", overwrite=True, dry_run=dry_run)
    assert (tmp_path / "documents" / "thesis.txt").read_text() == "three years"


def test_an_empty_directory_may_be_overwritten(source: Path, tmp_path: Path):
    (tmp_path / "x.gturbo").mkdir()
    install(source, tmp_path / "x.gturbo", entry="demo", allow_unpinned=True, overwrite=True)
    verify_install(tmp_path / "x.gturbo")


def test_a_lock_that_is_a_pipe_is_named(tmp_path: Path):
    os.mkfifo(tmp_path / "x.gturbo.install.lock")
    with pytest.raises(errors.UnsafePath, match="not a regular file"):
        install(output=tmp_path / "x.gturbo", entry="demo")


@pytest.mark.parametrize("dry_run", [True, False])
def test_an_output_that_no_receipt_can_name_is_refused(tmp_path: Path, dry_run: bool):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    with pytest.raises(errors.InstallError, match="UTF-8"):
        install(output=folder / "x.gturbo", entry="demo", dry_run=dry_run)


def test_an_output_below_a_symlink_to_itself_is_refused(tmp_path: Path):
    (tmp_path / "loop").symlink_to("loop")
    for dry_run in (True, False):
        with pytest.raises(errors.InstallError, match="loop"):
            install(output=tmp_path / "loop" / "x.gturbo", entry="demo", dry_run=dry_run)


def test_a_failed_overwrite_leaves_the_old_install(source: Path, tmp_path: Path):
    final = tmp_path / "x.gturbo"
    install(source, final, entry="demo", allow_unpinned=True)
    before = contents(final)
    (source / "tokenizer.json").unlink()
    with pytest.raises(errors.CheckpointError, match=r"tokenizer\.json"):
        install(source, final, entry="demo", allow_unpinned=True, overwrite=True)
    assert contents(final) == before


def test_a_failure_before_the_checkpoint_leaves_only_the_lock(source: Path, tmp_path: Path):
    (source / "config.json").write_text("{}")
    with pytest.raises(errors.CheckpointError):
        install(source, tmp_path / "x.gturbo", entry="demo", allow_unpinned=True)
    assert [p.name for p in tmp_path.glob("x.gturbo*")] == ["x.gturbo.install.lock"]


def test_a_missing_tokenizer_is_noticed_before_anything_is_copied(source: Path, tmp_path: Path):
    (source / "tokenizer.json").unlink()
    with pytest.raises(errors.CheckpointError, match=r"tokenizer\.json"):
        install(source, tmp_path / "x.gturbo", entry="demo", allow_unpinned=True)
    assert [p.name for p in tmp_path.glob("x.gturbo*")] == ["x.gturbo.install.lock"]


def test_an_interrupted_install_is_kept_and_the_next_run_says_how_to_go_on(source, tmp_path):
    final = tmp_path / "x.gturbo"

    def interrupt(step: Progress) -> None:
        if step.phase == "copy":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        install(source, final, entry="demo", allow_unpinned=True, progress=interrupt)
    assert "--resume" in caught.value.__notes__[0]
    assert "discard_partial" in caught.value.__notes__[0]
    assert not final.exists()
    with pytest.raises(errors.StateIncompatible, match=r"dealt with first.*resume=True.*discard_"):
        install(source, final, entry="demo", allow_unpinned=True)
    discard_partial(final)
    with pytest.raises(errors.StateMissing):
        discard_partial(final)
    install(source, final, entry="demo", allow_unpinned=True)


def test_half_of_a_saved_state_is_corrupt(source: Path, tmp_path: Path):
    (tmp_path / "x.gturbo.partial").mkdir()
    with pytest.raises(errors.StateCorrupt, match="without"):
        install(source, tmp_path / "x.gturbo", entry="demo")


def test_a_second_install_of_one_path_is_locked_out(source: Path, tmp_path: Path):
    paths = prepared_paths(tmp_path / "x.gturbo")
    with InstallLock(paths.lock), pytest.raises(errors.Locked, match=r"x\.gturbo"):
        install(source, paths.final, entry="demo")


def test_a_symlink_at_the_output_is_not_followed(source: Path, tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "x.gturbo").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(errors.UnsafePath):
        install(source, tmp_path / "x.gturbo", entry="demo", overwrite=True)


def test_a_full_disk_is_noticed_before_anything_is_written(source, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(space.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(errors.NoSpace, match="1000 bytes free"):
        install(source, tmp_path / "x.gturbo", entry="demo", allow_unpinned=True)
    assert [p.name for p in tmp_path.glob("x.gturbo*")] == ["x.gturbo.install.lock"]


@pytest.mark.parametrize(
    ("code", "kind"), [(errno.ENOSPC, errors.NoSpace), (errno.EIO, errors.InstallError)]
)
def test_a_write_that_fails_is_named_and_what_was_copied_is_kept(
    source, tmp_path, monkeypatch, code, kind
):
    def fail(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(transfer.os, "pwrite", fail)
    with pytest.raises(errors.InstallError, match=os.strerror(code)) as caught:
        install(source, tmp_path / "x.gturbo", entry="demo", allow_unpinned=True)
    assert type(caught.value) is kind
    assert "discard_partial" in caught.value.__notes__[0]
    assert (tmp_path / "x.gturbo.resume.json").exists()
    assert not (tmp_path / "x.gturbo").exists()


def test_a_truncated_shard_is_refused(source: Path, tmp_path: Path):
    shard = next(source.glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(errors.CheckpointError):
        install(source, tmp_path / "x.gturbo", entry="demo", allow_unpinned=True)


def test_a_weight_map_that_leads_outside_is_refused(source: Path, tmp_path: Path):
    index = source / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"language_model.x": "../secret"}}))
    with pytest.raises(errors.CheckpointError) as caught:
        install(source, tmp_path / "x.gturbo", entry="demo", allow_unpinned=True)
    assert caught.value.reason == "unsafe_name"


def test_no_whole_tensor_is_ever_in_memory(tmp_path: Path):
    tracemalloc.start()
    try:
        install(output=tmp_path / "demo.gturbo", entry="demo")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Everything the format describes (layout, plan, JSON) is small; the weights are 13 MB.
    assert peak < 8 << 20


def test_the_default_output_is_below_the_home_that_the_user_names(monkeypatch, tmp_path: Path):
    monkeypatch.setenv("MFERENCE_HOME", str(tmp_path))
    assert default_output("demo") == tmp_path / "demo.gturbo"
    assert install(entry="demo").path == tmp_path / "demo.gturbo"


def test_an_empty_source_is_no_folder(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(DEMO_CHECKPOINT)
    with pytest.raises(errors.InstallError, match="source is empty"):
        install("", tmp_path / "x.gturbo", entry="demo")


def test_the_pinned_demo_index_is_the_one_in_the_package():
    index = (DEMO_CHECKPOINT / "model.safetensors.index.json").read_bytes()
    assert hashlib.sha256(index).hexdigest() == ENTRIES["demo"].index_sha256
    assert set(public.__all__) <= set(dir(public))
