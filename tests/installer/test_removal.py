"""Removing installs: what goes, what stays, and what is refused."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mference
from mference import errors
from mference.installer import discard_partial, install, remove_install
from mference.installer.lock import InstallLock
from tests.installer.leftovers import interrupt_install
from tests.store.toys import write_toy

DIES = """
import os, shutil, sys
shutil.rmtree = lambda path: os._exit(9)
from mference.installer import remove_install
remove_install(sys.argv[1])
"""


def names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def test_an_install_is_removed_with_its_lock_and_nothing_else(tmp_path: Path):
    install(output=tmp_path / "a.gturbo", entry="demo")
    write_toy(tmp_path / "a.gturbo2")
    (tmp_path / "a.gturbo.txt").write_text("mine")
    removal = remove_install(tmp_path / "a.gturbo")
    assert removal is not None
    assert [(one.state, one.model) for one in removal.found] == [("complete", "demo")]
    assert removal.size > 10_000_000
    assert removal.others == ()
    assert names(tmp_path) == ["a.gturbo.txt", "a.gturbo2"]


@pytest.mark.parametrize("lost", ["manifest.json", "model_weights.bin", "packed_experts"])
def test_a_damaged_install_is_removed_as_well(tmp_path: Path, lost: str):
    root = write_toy(tmp_path / "a.gturbo")
    if (root / lost).is_dir():
        shutil.rmtree(root / lost)
    else:
        (root / lost).write_text("{")
    assert remove_install(root) is not None
    assert names(tmp_path) == []


def test_what_an_unfinished_install_left_is_removed(tmp_path: Path):
    interrupt_install(tmp_path / "a.gturbo")
    removal = remove_install(tmp_path / "a.gturbo")
    assert removal is not None
    assert [one.state for one in removal.found] == ["unfinished"]
    assert names(tmp_path) == []


def test_an_install_goes_together_with_the_unfinished_one_that_was_to_replace_it(tmp_path: Path):
    install(output=tmp_path / "a.gturbo", entry="demo")
    interrupt_install(tmp_path / "a.gturbo", overwrite=True)
    removal = remove_install(tmp_path / "a.gturbo")
    assert removal is not None
    assert [one.state for one in removal.found] == ["complete", "unfinished"]
    assert names(tmp_path) == []
    with pytest.raises(errors.StateMissing):
        discard_partial(tmp_path / "a.gturbo")


@pytest.mark.parametrize("left", ["a.gturbo.partial", "a.gturbo.resume.json"])
def test_half_of_what_an_unfinished_install_left_is_removed(tmp_path: Path, left: str):
    interrupt_install(tmp_path / "a.gturbo")
    for path in (tmp_path / "a.gturbo.partial", tmp_path / "a.gturbo.resume.json"):
        if path.name != left:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert remove_install(tmp_path / "a.gturbo") is not None
    assert names(tmp_path) == []


def test_a_no_leaves_everything_as_it_was(tmp_path: Path):
    root = write_toy(tmp_path / "a.gturbo")
    (root / "notes.txt").write_text("mine")
    asked = []
    assert remove_install(root, lambda removal: asked.append(removal)) is None
    assert asked[0].others == ("notes.txt",)
    assert not asked[0].found[0].running
    assert names(tmp_path) == ["a.gturbo"]


def test_the_lock_is_held_while_the_question_is_open(tmp_path: Path):
    root = write_toy(tmp_path / "a.gturbo")

    def answer(_: object) -> bool:
        with pytest.raises(errors.Locked):
            install(output=root, entry="demo", overwrite=True)
        return True

    assert remove_install(root, answer) is not None
    assert names(tmp_path) == []


def test_a_running_install_is_not_touched(tmp_path: Path):
    root = write_toy(tmp_path / "a.gturbo")
    with InstallLock(tmp_path / "a.gturbo.install.lock"), pytest.raises(errors.Locked):
        remove_install(root)
    assert (root / "manifest.json").exists()
    assert (tmp_path / "a.gturbo.install.lock").exists()


@pytest.mark.parametrize("link", ["a.gturbo", "a.gturbo.partial", "a.gturbo.removing"])
def test_symlinks_are_refused_and_not_followed(tmp_path: Path, link: str):
    real = write_toy(tmp_path / "real")
    if link != "a.gturbo":
        write_toy(tmp_path / "a.gturbo")
    (tmp_path / link).symlink_to(real)
    before = names(tmp_path)
    with pytest.raises(errors.UnsafePath, match="is a symlink"):
        remove_install(tmp_path / "a.gturbo")
    assert names(tmp_path) == before
    assert (real / "manifest.json").exists()


def test_a_link_inside_an_install_is_removed_and_its_target_stays(tmp_path: Path):
    root = write_toy(tmp_path / "a.gturbo")
    (tmp_path / "weights").mkdir()
    (root / "model_weights.bin").rename(tmp_path / "weights/w.bin")
    (root / "model_weights.bin").symlink_to(tmp_path / "weights/w.bin")
    (root / "more").symlink_to(tmp_path / "weights")
    remove_install(root)
    assert names(tmp_path) == ["weights"]
    assert (tmp_path / "weights/w.bin").stat().st_size > 0


def test_what_is_no_install_is_refused_and_no_lock_is_left(tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "empty.gturbo").mkdir()
    (tmp_path / "site").mkdir()
    (tmp_path / "site/manifest.json").write_text('{"name": "a page"}')
    project = write_toy(tmp_path / "project.gturbo")
    (project / "manifest.json").write_text("{")
    (project / "thesis.tex").write_text("mine")
    before = names(tmp_path)
    for name in before:
        with pytest.raises(errors.UnsafePath):
            remove_install(tmp_path / name)
    for name in ("nowhere", "nowhere/a.gturbo"):
        with pytest.raises(errors.InstallError, match="no install at"):
            remove_install(tmp_path / name)
    with pytest.raises(errors.InstallError, match="no usable"):
        remove_install(".")
    assert names(tmp_path) == before
    assert (project / "thesis.tex").exists()


def test_a_work_file_s_name_is_answered_with_the_install_s(tmp_path: Path):
    interrupt_install(tmp_path / "a.gturbo")
    with pytest.raises(errors.UnsafePath, match=r"mference remove .*/a\.gturbo$"):
        remove_install(tmp_path / "a.gturbo.partial")
    assert (tmp_path / "a.gturbo.partial").exists()


def test_a_removal_that_was_killed_leaves_no_install_and_can_be_finished(tmp_path: Path):
    root = write_toy(tmp_path / "a.gturbo")
    killed = subprocess.run([sys.executable, "-c", DIES, root], check=False, timeout=60)
    assert killed.returncode == 9
    assert names(tmp_path) == ["a.gturbo.install.lock", "a.gturbo.removing"]
    with pytest.raises(errors.PartialInstall):
        mference.verify(tmp_path / "a.gturbo.removing")
    write_toy(root)  # a new one may be there meanwhile
    removal = remove_install(root)
    assert removal is not None
    assert [one.state for one in removal.found] == ["complete", "removing"]
    assert names(tmp_path) == []


def test_a_refusal_of_the_system_is_named_and_says_where_the_rest_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    root = write_toy(tmp_path / "a.gturbo")

    def refuse(path: Path) -> None:
        raise PermissionError(13, os.strerror(13), str(path))

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", refuse)
        with pytest.raises(errors.InstallError, match="Permission denied") as caught:
            remove_install(root)
    assert "a.gturbo.removing. Removing again goes on." in caught.value.__notes__[0]
    remove_install(root)
    assert names(tmp_path) == []


def test_a_model_that_has_answered_goes_on_after_its_install_is_removed(
    demo_install: Path, tmp_path: Path
):
    root = Path(shutil.copytree(demo_install, tmp_path / "a.gturbo"))
    with mference.load(root, slots=8) as model:
        first = model.generate("A lighthouse is", max_new=12, temperature=0)
        remove_install(root)
        misses = model.report().misses
        assert model.generate("A lighthouse is", max_new=12, temperature=0).text == first.text
        assert model.report().misses > misses  # experts were read from the deleted files
    assert not root.exists()
