"""What `list_installs` finds, and that it reads nothing large for it."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from mference import errors
from mference.families import ENTRIES
from mference.installer import Listed, list_installs, remove_install
from mference.installer.lock import InstallLock
from mference.store import verify_install
from tests.installer.leftovers import interrupt_install
from tests.store.toys import write_toy


def states(place: Path) -> list[tuple[str, str]]:
    return [(listed.path.name, listed.state) for listed in list_installs(place)]


def test_an_install_is_listed_with_model_size_and_time_of_verification(demo_install: Path):
    (listed,) = list_installs(demo_install.parent)
    receipt = json.loads((demo_install / "verified-install.json").read_bytes())
    assert listed == Listed(
        demo_install,
        "complete",
        size=listed.size,
        model="demo",
        pinned=True,
        verified=receipt["verificationTimestamp"],
    )
    apparent = sum(p.stat().st_size for p in demo_install.rglob("*") if p.is_file())
    assert 0.5 * apparent < listed.size < 1.2 * apparent  # holes and blocks
    assert list_installs(demo_install) == (listed,)


def test_installs_of_no_pinned_model_go_by_their_model_id(tmp_path: Path):
    write_toy(tmp_path / "a")
    (listed,) = list_installs(tmp_path)
    assert (listed.path, listed.model, listed.pinned) == (tmp_path / "a", "unknown/snapshot", False)


def test_a_moved_install_was_not_verified_in_its_place(tmp_path: Path):
    write_toy(tmp_path / "a.gturbo").rename(tmp_path / "b.gturbo")
    assert list_installs(tmp_path)[0].verified is None
    receipt = verify_install(tmp_path / "b.gturbo").receipt
    assert list_installs(tmp_path)[0].verified == receipt.timestamp


def test_what_is_broken_is_listed_and_hides_nothing(tmp_path: Path):
    for name in "abcde":
        write_toy(tmp_path / f"{name}.gturbo")
    (tmp_path / "a.gturbo/manifest.json").write_text("{")
    (tmp_path / "b.gturbo/manifest.json").unlink()
    (tmp_path / "c.gturbo/model_weights.bin").unlink()
    (tmp_path / "d.gturbo/packed_experts/layer_00.bin").write_bytes(b"")
    (tmp_path / "e.gturbo/verified-install.json").write_text("{")
    listed = list_installs(tmp_path)
    assert [one.state for one in listed] == ["damaged"] * 4 + ["complete"]
    for one, reason in zip(
        listed,
        (
            f"{tmp_path / 'a.gturbo'}: manifest.json is not valid JSON",
            "has no manifest.json",
            "model_weights.bin is missing",
            "layer_00.bin has 0 bytes, the manifest says 32768",
        ),
        strict=False,
    ):
        assert reason in (one.problem or "")
    assert [one.model for one in listed] == [None, None, *["unknown/snapshot"] * 3]
    assert (listed[4].verified, listed[4].problem) == (None, None)


def test_no_large_file_is_read(tmp_path: Path):
    root = write_toy(tmp_path / "a.gturbo")
    weights = 1 << 40  # bytes; reading them would take minutes
    os.truncate(root / "model_weights.bin", weights)
    manifest = json.loads((root / "manifest.json").read_bytes())
    manifest["files"]["model_weights.bin"]["size"] = weights
    (root / "manifest.json").write_text(json.dumps(manifest))
    (listed,) = list_installs(tmp_path)
    assert listed.state == "complete"
    assert listed.size < 1 << 20  # what the disk holds of it


def test_an_unfinished_install_tells_how_much_is_copied(tmp_path: Path):
    interrupt_install(tmp_path / "a.gturbo")
    (listed,) = list_installs(tmp_path)
    assert (listed.state, listed.model, listed.pinned) == ("unfinished", "demo", True)
    journal = json.loads((tmp_path / "a.gturbo.resume.json").read_bytes())
    assert listed.total == journal["totalSourceBytes"]
    assert listed.copied == sum(done["sourceBytes"] for done in journal["completedRanges"])
    assert 0 < listed.copied < listed.total
    assert list_installs(tmp_path / "a.gturbo.partial") == ()


def test_an_install_and_an_unfinished_one_that_was_to_replace_it_are_both_listed(
    demo_install: Path, tmp_path: Path
):
    shutil.copytree(demo_install, tmp_path / "a.gturbo")
    interrupt_install(tmp_path / "a.gturbo", overwrite=True)
    assert states(tmp_path) == [("a.gturbo", "complete"), ("a.gturbo", "unfinished")]


def test_saved_state_that_cannot_be_read_is_no_reason_to_fail(tmp_path: Path):
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.gturbo.partial").mkdir()
    (tmp_path / "a.gturbo.resume.json").write_text("{")
    (tmp_path / "b.gturbo.resume.json").mkdir()
    listed = list_installs(tmp_path)
    assert [one.state for one in listed] == ["unfinished"] * 3
    assert "discard-partial" in (listed[0].problem or "")
    assert [(one.copied, one.total) for one in listed] == [(None, None)] * 3


def test_a_running_install_is_said_to_run_from_its_lock_on(tmp_path: Path):
    write_toy(tmp_path / "a.gturbo")
    (before,) = list_installs(tmp_path)
    with InstallLock(tmp_path / "a.gturbo.install.lock"), InstallLock(tmp_path / "b.install.lock"):
        running, begun = list_installs(tmp_path)
        assert running == replace(before, running=True)
        assert begun == Listed(tmp_path / "b", "unfinished", running=True)
    assert list_installs(tmp_path) == (before,)


def test_looking_does_not_keep_a_lock(tmp_path: Path):
    write_toy(tmp_path / "a.gturbo")
    InstallLock(tmp_path / "a.gturbo.install.lock").close()
    list_installs(tmp_path)
    InstallLock(tmp_path / "a.gturbo.install.lock").close()


def test_other_directories_and_files_are_no_installs(tmp_path: Path):
    for name in ("empty.gturbo", "film.mkv.partial", "site", "project"):
        (tmp_path / name).mkdir()
    (tmp_path / "site/manifest.json").write_text('{"name": "a page"}')
    (tmp_path / "project/model_weights.bin").write_bytes(b"mine")
    (tmp_path / "project/notes.txt").write_text("mine")
    (tmp_path / "work.resume.json").write_text("{}")
    (tmp_path / "a.gturbo").write_text("a file")
    os.mkfifo(tmp_path / "b.gturbo.resume.json")
    os.mkfifo(tmp_path / "b.gturbo.install.lock")
    assert list_installs(tmp_path) == ()


def test_a_name_that_is_not_utf_8_is_listed_as_what_it_is(tmp_path: Path):
    root = write_toy(tmp_path / "a.gturbo")
    os.rename(root, os.fsencode(tmp_path) + b"/\xff.gturbo")  # noqa: PTH104 - a name in bytes
    (listed,) = list_installs(tmp_path)
    assert listed.state == "damaged"
    assert "not UTF-8" in (listed.problem or "")


def test_a_directory_that_cannot_be_read_is_named(tmp_path: Path):
    with pytest.raises(errors.InstallError, match=r"cannot list .*nowhere: No such file"):
        list_installs(tmp_path / "nowhere")
    with pytest.raises(errors.InstallError, match="no usable path"):
        list_installs("a\0b")


def test_what_an_interrupted_removal_left_is_listed(tmp_path: Path):
    write_toy(tmp_path / "a.gturbo").rename(tmp_path / "a.gturbo.removing")
    (listed,) = list_installs(tmp_path)
    assert (listed.path, listed.state) == (tmp_path / "a.gturbo", "removing")
    assert listed.size > 0
    assert remove_install(tmp_path / "a.gturbo") is not None
    assert list(tmp_path.iterdir()) == []


def test_the_pinned_models_are_told_apart_by_their_source(tmp_path: Path):
    root = write_toy(tmp_path / "a.gturbo")
    manifest = json.loads((root / "manifest.json").read_bytes())
    manifest["modelID"] = ENTRIES["demo"].model_id  # of another source index
    (root / "manifest.json").write_text(json.dumps(manifest))
    (listed,) = list_installs(tmp_path)
    assert (listed.model, listed.pinned) == (ENTRIES["demo"].model_id, False)
