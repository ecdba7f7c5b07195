"""What may lie where an install writes: nothing is written through it or over it."""

import os
import shutil
from pathlib import Path

import pytest

from mference.errors import InstallError, StateCorrupt, UnsafePath
from mference.installer import Progress, install
from tests.installer.contents import contents
from tests.installer.place import Place, make_place

PARTIAL = ".partial"
FOLDERS = ["packed_experts", "tokenizer"]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return make_place(tmp_path)


def plant(path: Path, kind: str, victim: Path) -> None:
    """Put something at a path that no install puts there; symlinks lead to the victim."""
    if kind == "symlink":
        path.symlink_to(victim)
    elif kind == "dangling symlink":
        path.symlink_to(victim.with_name("created"))
    elif kind == "folder":
        path.mkdir()
        (path / "mine").write_text("mine")
    elif kind == "file":
        path.write_text("mine")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/full")


@pytest.mark.parametrize("kind", ["symlink", "dangling symlink", "file", "pipe", "device"])
def test_an_output_that_is_no_directory_is_left_alone(place: Place, kind):
    plant(place.output, kind, place.outside)
    for options in ({}, {"overwrite": True}, {"dry_run": True, "overwrite": True}):
        place.refused(UnsafePath, **options)


@pytest.mark.parametrize("suffix", [".install.lock", ".resume.json"])
@pytest.mark.parametrize("kind", ["symlink", "dangling symlink", "folder", "pipe", "device"])
def test_a_lock_or_a_checkpoint_that_is_no_file_is_left_alone(place: Place, suffix, kind):
    plant(place.sibling(suffix), kind, place.outside / "secret")
    place.refused(UnsafePath)
    place.refused(UnsafePath, resume=True)


@pytest.mark.parametrize("kind", ["symlink", "dangling symlink", "file", "pipe", "device"])
def test_a_partial_directory_that_is_none_is_left_alone(place: Place, kind):
    plant(place.sibling(PARTIAL), kind, place.outside)
    place.refused(UnsafePath)
    place.refused(UnsafePath, resume=True)


def test_a_partial_directory_of_somebody_else_is_left_alone(place: Place):
    plant(place.sibling(PARTIAL), "folder", place.outside)
    place.refused(StateCorrupt)
    place.refused(StateCorrupt, resume=True)


@pytest.mark.parametrize("kind", ["folder", "symlink"])
def test_a_folder_that_is_no_install_is_not_overwritten(place: Place, kind):
    place.output.mkdir()
    plant(place.output / "x", kind, place.outside)
    place.refused(UnsafePath, overwrite=True)


def test_overwriting_removes_symlinks_and_not_what_they_lead_to(place: Place):
    plain = contents(place.install().path)
    (place.output / "mine").symlink_to(place.outside)
    (place.output / "model_weights.bin").rename(place.outside / "weights")
    (place.output / "model_weights.bin").symlink_to(place.outside / "weights")
    shutil.move(place.output / "packed_experts", place.outside)
    (place.output / "packed_experts").symlink_to(place.outside / "packed_experts")
    before = place.everything("outside")
    assert contents(place.install(overwrite=True).path) == plain
    assert place.everything("outside") == before


def test_a_parent_that_is_a_symlink_is_followed_and_a_parent_that_is_a_file_refused(place: Place):
    place.output.parent.rmdir()
    place.output.parent.symlink_to(place.outside)
    assert place.install().path == place.outside / place.output.name
    place.output.parent.unlink()
    place.output.parent.write_text("mine")
    place.refused(InstallError)
    place.refused(InstallError, dry_run=True)
    deeper = place.output / "deeper" / "x.gturbo"
    for dry_run in (False, True):
        with pytest.raises(InstallError, match="cannot create the directory"):
            install(place.source, deeper, entry="demo", allow_unpinned=True, dry_run=dry_run)


@pytest.mark.parametrize("name", ["x" * 240, "é" * 120, "x" * 5000], ids=len)
def test_an_output_whose_siblings_would_have_too_long_names_is_refused(place: Place, name):
    for dry_run in (False, True):
        with pytest.raises(InstallError, match="too long"):
            install(place.source, place.output.with_name(name), entry="demo", dry_run=dry_run)
    assert list(place.output.parent.iterdir()) == []
    longest = place.output.with_name("x" * 239)
    assert install(place.source, longest, entry="demo", allow_unpinned=True).path == longest


def test_the_checkpoints_temporary_file_is_not_written_through(place: Place):
    plant(place.sibling(".resume.json.tmp"), "symlink", place.outside / "secret")
    before = place.everything("outside")
    place.install()
    assert place.everything("outside") == before


def interrupted(place: Place) -> tuple[Path, dict[str, bytes]]:
    """The partial directory of an install that Ctrl-C ended, and what a whole one contains."""
    whole = contents(place.install().path)
    shutil.rmtree(place.output)

    def stop(step: Progress) -> None:
        if step.phase == "copy" and step.done == step.total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        place.install(progress=stop)
    return place.sibling(PARTIAL), whole


def check_resumed(place: Place, whole: dict[str, bytes]) -> None:
    """Resume: nothing outside changes, and a whole install or a named error comes of it."""
    before = {**place.everything("outside"), **place.everything("source")}
    try:
        final = place.install(resume=True).path
    except InstallError:
        assert not place.output.exists()
    else:
        assert contents(final) == whole
        assert not any(path.is_symlink() for path in final.rglob("*"))
    assert {**place.everything("outside"), **place.everything("source")} == before


@pytest.mark.parametrize("kind", ["symlink", "dangling symlink", "folder", "pipe", "device"])
@pytest.mark.parametrize(
    "name",
    [
        "model_weights.bin",
        "packed_experts/layer_00.bin",
        "packed_experts/layout.json",
        "tokenizer/tokenizer.json",
        "tokenizer/config.json",
        "manifest.json",
        "manifest.json.tmp",
        "verified-install.json",
        ".range.tmp",
    ],
)
def test_a_file_planted_in_an_unfinished_install_is_not_written_through(place: Place, name, kind):
    partial, whole = interrupted(place)
    (partial / name).unlink(missing_ok=True)
    plant(partial / name, kind, place.outside / "secret")
    check_resumed(place, whole)


@pytest.mark.parametrize("name", ["model_weights.bin", "packed_experts/layer_00.bin"])
def test_a_file_moved_out_of_an_unfinished_install_is_not_written_through(place: Place, name):
    partial, whole = interrupted(place)
    (partial / name).rename(place.outside / "moved")
    (partial / name).symlink_to(place.outside / "moved")
    spoil(place.outside / "moved")
    check_resumed(place, whole)


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize(
    "kind",
    [
        "symlink",
        "dangling symlink",
        "file",
        "pipe",
        "device",
    ],
)
def test_a_folder_of_an_unfinished_install_that_is_none_is_not_written_through(
    place: Place, name, kind
):
    partial, whole = interrupted(place)
    shutil.rmtree(partial / name)
    plant(partial / name, kind, place.outside)
    check_resumed(place, whole)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_moved_out_of_an_unfinished_install_is_not_written_through(place: Place, name):
    partial, whole = interrupted(place)
    shutil.move(partial / name, place.outside / "moved")
    (partial / name).symlink_to(place.outside / "moved")
    for path in (place.outside / "moved").iterdir():
        spoil(path)
    check_resumed(place, whole)


def spoil(path: Path) -> None:
    """Change the last byte, so that a resumed install has to write it again."""
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def test_an_unfinished_install_that_became_a_symlink_is_left_alone(place: Place):
    partial, _ = interrupted(place)
    partial.rename(place.outside / "moved")
    partial.symlink_to(place.outside / "moved")
    place.refused(UnsafePath, resume=True)
    place.refused(UnsafePath)
