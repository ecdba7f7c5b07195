"""Installing onto real file systems that are full, out of files, or read-only."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mference import errors
from mference.families import ENTRIES
from mference.installer import FolderSource, Limits, Progress, discard_partial
from mference.installer.installer import carry_out
from mference.installer.paths import prepared_paths
from mference.installer.run import Run
from tests.installer.contents import contents, names_in
from tests.installer.toys import write_source

ROOM = 20 << 20
LEFT = ["x.gturbo", "x.gturbo.install.lock"]
Mount = Callable[..., Path]


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """Mounts a file system in memory with the options given, or gives it other options."""
    place = tmp_path / "disk"
    place.mkdir()

    def call(options: str, *, again: bool = False) -> Path:
        options = f"remount,{options}" if again else options
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"cannot mount a file system: {done.stderr.strip()}")
        return place

    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root may mount a file system, on Linux")
    yield call
    subprocess.run(["umount", str(place)], check=False, capture_output=True)


@pytest.fixture
def quiet(tmp_path: Path) -> dict[str, bytes]:
    """What the toy's install is where there is room."""
    write_source(tmp_path / "source")
    return contents(carry_out(toy_run(tmp_path, tmp_path)).path)


def toy_run(tmp_path: Path, folder: Path, **how: object) -> Run:
    return Run(
        FolderSource(tmp_path / "source"),
        ENTRIES["demo"],
        prepared_paths(folder / "x.gturbo"),
        allow_unpinned=True,
        limits=Limits(chunk=4096, gather=0),
        **how,
    )


def fill(folder: Path) -> Path:
    """Another program's file, which takes all the room that is left."""
    path = folder / "of another program"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    return path


def test_a_disk_that_fills_up_in_mid_copy_is_named_and_the_copy_goes_on_later(
    mount: Mount, quiet: dict[str, bytes], tmp_path: Path
):
    disk = mount(f"size={ROOM}")
    fillers = []

    def report(step: Progress) -> None:
        if step.phase == "copy" and not fillers:
            fillers.append(fill(disk))

    with pytest.raises(errors.NoSpace) as caught:
        carry_out(toy_run(tmp_path, disk, report=report))
    assert "--resume" in caught.value.__notes__[0]
    with pytest.raises(errors.NoSpace):
        carry_out(toy_run(tmp_path, disk, resume=True))
    fillers[0].unlink()
    carry_out(toy_run(tmp_path, disk, resume=True))
    assert contents(disk / "x.gturbo") == quiet
    assert names_in(disk) == LEFT


@pytest.mark.parametrize("files", range(4, 12))
def test_a_disk_without_room_for_another_file_is_named_and_left_as_it_was(
    mount: Mount, quiet: dict[str, bytes], tmp_path: Path, files: int
):
    disk = mount(f"size={ROOM},nr_inodes={files}")
    with pytest.raises(errors.InstallError, match="space") as caught:
        carry_out(toy_run(tmp_path, disk))
    saved = (disk / "x.gturbo.resume.json").exists()
    assert saved == hasattr(caught.value, "__notes__")
    if not saved:
        assert names_in(disk) == ["x.gturbo.install.lock"]
    mount("nr_inodes=100", again=True)
    carry_out(toy_run(tmp_path, disk, resume=saved))
    assert contents(disk / "x.gturbo") == quiet
    assert names_in(disk) == LEFT


def test_a_disk_that_becomes_read_only_keeps_what_was_copied(
    mount: Mount, quiet: dict[str, bytes], tmp_path: Path
):
    disk = mount(f"size={ROOM}")

    def report(step: Progress) -> None:
        if step.phase == "copy" and step.done > 20_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        carry_out(toy_run(tmp_path, disk, report=report))
    before = names_in(disk)
    mount("ro", again=True)
    for resume in (False, True):
        with pytest.raises(errors.InstallError, match="Read-only file system"):
            carry_out(toy_run(tmp_path, disk, resume=resume))
    with pytest.raises(errors.InstallError, match="Read-only file system"):
        discard_partial(disk / "x.gturbo")
    assert names_in(disk) == before
    mount("rw", again=True)
    carry_out(toy_run(tmp_path, disk, resume=True))
    assert contents(disk / "x.gturbo") == quiet


def test_an_old_install_on_a_full_disk_is_not_touched(
    mount: Mount, quiet: dict[str, bytes], tmp_path: Path
):
    disk = mount(f"size={ROOM}")
    carry_out(toy_run(tmp_path, disk))
    filler = fill(disk)
    with pytest.raises(errors.NoSpace):
        carry_out(toy_run(tmp_path, disk, overwrite=True))
    assert contents(disk / "x.gturbo") == quiet
    filler.unlink()
    (tmp_path / "source" / "tokenizer.json").write_text('{"a": "newer one"}')
    carry_out(toy_run(tmp_path, disk, overwrite=True))
    assert contents(disk / "x.gturbo") != quiet
    shutil.rmtree(disk / "x.gturbo")
