"""A damaged install is made whole again: damaged files are fetched, and no others."""

import json
import os
import shutil
from pathlib import Path

import pytest

import mference as package
from mference import errors
from mference.families import ENTRIES
from mference.installer import FolderSource, Limits, discard_partial
from mference.installer.lock import InstallLock
from mference.installer.paths import RepairPaths, prepared_paths
from mference.installer.repairing import carry_out_repair
from mference.installer.run import Run
from mference.installer.source import DEMO_CHECKPOINT, Sink
from mference.store import verify_install
from tests.installer.command import mference
from tests.installer.contents import contents
from tests.installer.toys import write_source

DEMO = ENTRIES["demo"]
HEADERS = 64 << 10  # bytes of a read that may still be one of metadata
LAYER, OTHER = "packed_experts/layer_02.bin", "packed_experts/layer_03.bin"


@pytest.fixture
def damaged(demo_install: Path, tmp_path: Path) -> Path:
    """A copy of the demo install, to be damaged by the test."""
    return shutil.copytree(demo_install, tmp_path / "x.gturbo")


def flip(path: Path, at: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def left_of(install: Path) -> list[str]:
    return sorted(p.name for p in install.parent.glob(f"{install.name}*"))


@pytest.mark.parametrize(
    "name",
    [
        "model_weights.bin",
        LAYER,
        "packed_experts/layout.json",
        "tokenizer/tokenizer.json",
        "tokenizer/config.json",
    ],
)
@pytest.mark.parametrize("how", ["flipped", "short", "missing"])
def test_each_kind_of_file_is_made_again(damaged, demo_install, name, how):
    if how == "flipped":
        flip(damaged / name)
    elif how == "short":
        (damaged / name).write_bytes(b"short")
    else:
        (damaged / name).unlink()
    untouched = (damaged / OTHER).stat()
    report = package.repair(damaged)
    assert report.repaired == (name,)
    assert report.bytes == (demo_install / name).stat().st_size
    assert contents(damaged) == contents(demo_install)
    assert (damaged / OTHER).stat().st_mtime_ns == untouched.st_mtime_ns
    assert left_of(damaged) == ["x.gturbo", "x.gturbo.install.lock"]
    verify_install(damaged)


def test_an_install_without_damage_is_left_alone_but_for_its_receipt(damaged, demo_install):
    (damaged / "verified-install.json").unlink()
    before = {p: p.stat().st_mtime_ns for p in damaged.rglob("*.bin")}
    report = package.repair(damaged)
    assert (report.repaired, report.bytes) == ((), 0)
    assert {p: p.stat().st_mtime_ns for p in damaged.rglob("*.bin")} == before
    assert contents(damaged) == contents(demo_install)
    package.load(damaged, verify="trusted-receipt").close()


class Reads(FolderSource):
    """The demo checkpoint, which notes what is read and stops when told to."""

    def __init__(self) -> None:
        super().__init__(DEMO_CHECKPOINT)
        self.bytes = 0
        self.stop_after: int | None = None

    def read(self, name: str, offset: int, length: int, size: int, sink: Sink) -> None:
        if length > HEADERS:
            self.bytes += length
            if self.stop_after is not None and self.bytes > self.stop_after:
                raise KeyboardInterrupt
        super().read(name, offset, length, size, sink)

    def interrupt(self) -> None:
        """A later repair of the same test reads on."""


def demo_run(source: FolderSource, install: Path) -> Run:
    paths = prepared_paths(install)
    return Run(source, DEMO, paths, limits=Limits(chunk=HEADERS * 2, connections=1, gather=0))


def test_only_the_bytes_of_the_damaged_file_are_fetched(damaged, demo_install):
    flip(damaged / LAYER)
    source = Reads()
    assert carry_out_repair(demo_run(source, damaged)).repaired == (LAYER,)
    assert 0 < source.bytes <= (damaged / LAYER).stat().st_size
    assert contents(damaged) == contents(demo_install)


def test_an_interrupted_repair_goes_on_where_it_stopped(damaged, demo_install):
    flip(damaged / LAYER)
    flip(damaged / OTHER)
    source = Reads()
    source.stop_after = 12 * HEADERS
    with pytest.raises(KeyboardInterrupt):
        carry_out_repair(demo_run(source, damaged))
    copied = source.bytes
    with pytest.raises(errors.IntegrityError):
        verify_install(damaged)
    source.stop_after, source.bytes = None, 0
    assert carry_out_repair(demo_run(source, damaged)).repaired == (LAYER, OTHER)
    assert source.bytes + copied < (damaged / LAYER).stat().st_size * 2 + 4 * HEADERS
    assert contents(damaged) == contents(demo_install)
    assert left_of(damaged) == ["x.gturbo", "x.gturbo.install.lock"]


def test_a_repair_of_two_files_fetches_nothing_twice(damaged, demo_install):
    flip(damaged / LAYER)
    flip(damaged / OTHER)
    source = Reads()
    source.stop_after = (damaged / LAYER).stat().st_size + 12 * HEADERS
    with pytest.raises(KeyboardInterrupt):
        carry_out_repair(demo_run(source, damaged))
    journal = json.loads((damaged.parent / "x.gturbo.repair.json").read_text())
    recorded = sum(done["sourceBytes"] for done in journal["completedRanges"])
    source.stop_after, source.bytes = None, 0
    carry_out_repair(demo_run(source, damaged))
    # Reads that may be of metadata are not counted.
    left = journal["totalSourceBytes"] - recorded
    assert left - 2 * HEADERS < source.bytes <= left
    assert contents(damaged) == contents(demo_install)


def test_a_checkpoint_of_a_repair_without_its_files_is_no_hindrance(damaged, demo_install):
    flip(damaged / LAYER)
    source = Reads()
    source.stop_after = 12 * HEADERS
    with pytest.raises(KeyboardInterrupt):
        carry_out_repair(demo_run(source, damaged))
    shutil.rmtree(RepairPaths(damaged).partial)
    source.stop_after = None
    assert carry_out_repair(demo_run(source, damaged)).repaired == (LAYER,)
    assert contents(damaged) == contents(demo_install)


def test_files_that_were_made_but_not_moved_are_not_fetched_again(damaged, demo_install):
    made = RepairPaths(damaged).partial / LAYER
    made.parent.mkdir(parents=True)
    (damaged / LAYER).rename(made)
    source = Reads()
    assert carry_out_repair(demo_run(source, damaged)).repaired == (LAYER,)
    assert source.bytes == 0
    assert contents(damaged) == contents(demo_install)


def test_what_an_interrupted_repair_left_can_be_discarded(damaged):
    flip(damaged / LAYER)
    source = Reads()
    source.stop_after = 0
    with pytest.raises(KeyboardInterrupt):
        carry_out_repair(demo_run(source, damaged))
    assert (damaged.parent / "x.gturbo.repair.json").exists()
    discard_partial(damaged)
    assert left_of(damaged) == ["x.gturbo", "x.gturbo.install.lock"]


def test_a_source_with_other_bytes_repairs_nothing(damaged, tmp_path):
    flip(damaged / LAYER)
    source = shutil.copytree(DEMO_CHECKPOINT, tmp_path / "source")
    for shard in source.glob("*.safetensors"):
        data = bytearray(shard.read_bytes())
        half = len(data) // 2
        data[half:] = bytes(255 - b for b in data[half:])
        shard.write_bytes(data)
    before = (damaged / LAYER).read_bytes()
    with pytest.raises(errors.SourceMismatch, match=f"gives other bytes for {LAYER}"):
        package.repair(damaged, source)
    assert (damaged / LAYER).read_bytes() == before
    assert left_of(damaged) == ["x.gturbo", "x.gturbo.install.lock"]


def test_another_checkpoint_is_refused_before_it_is_copied(damaged, tmp_path):
    flip(damaged / LAYER)
    with pytest.raises(errors.SourceMismatch, match=r"is not what .* was made of"):
        package.repair(damaged, write_source(tmp_path / "source"))


def test_an_unpinned_install_is_repaired_from_its_source(tmp_path):
    source = write_source(tmp_path / "source", layers=2)
    made = package.install(source, tmp_path / "x.gturbo", entry="demo", allow_unpinned=True)
    good = contents(made.path)
    flip(made.path / "packed_experts/layer_01.bin")
    assert package.repair(made.path, source).repaired == ("packed_experts/layer_01.bin",)
    assert contents(made.path) == good


@pytest.mark.parametrize("text", [None, "{", "{}"])
def test_without_a_manifest_nothing_can_be_repaired(damaged, text):
    (damaged / "manifest.json").unlink()
    if text is not None:
        (damaged / "manifest.json").write_text(text)
    with pytest.raises(errors.StoreError) as caught:
        package.repair(damaged)
    assert "Install it anew with --overwrite" in caught.value.__notes__[0]


def test_a_repair_waits_for_no_one_who_holds_the_lock(damaged):
    flip(damaged / LAYER)
    with (
        InstallLock(prepared_paths(damaged).lock),
        pytest.raises(errors.Locked, match=rf"process {os.getpid()} on "),
    ):
        package.repair(damaged)


def test_nothing_is_put_behind_a_symlink(damaged, tmp_path):
    elsewhere = (damaged / "packed_experts").rename(tmp_path / "elsewhere")
    (damaged / "packed_experts").symlink_to(elsewhere)
    flip(elsewhere / "layer_02.bin")
    before = (elsewhere / "layer_02.bin").read_bytes()
    with pytest.raises(errors.UnsafePath, match="is a symlink"):
        package.repair(damaged)
    assert (elsewhere / "layer_02.bin").read_bytes() == before


def test_the_command_says_what_it_did(damaged, demo_install, tmp_path):
    command = ("install", "--repair", "--output", damaged)
    whole = mference(*command, cwd=tmp_path)
    assert (whole.returncode, whole.stdout) == (0, "")
    assert whole.stderr.startswith("Nothing to repair")
    flip(damaged / LAYER)
    (damaged / OTHER).unlink()
    found = mference("verify", damaged, cwd=tmp_path)
    assert found.returncode == 1
    assert f"mference install --repair --output {damaged}" in found.stderr
    done = mference(*command, "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["repaired"] == [LAYER, OTHER]
    assert contents(damaged) == contents(demo_install)
    nothing = mference("install", "--repair", "--output", "none.gturbo", cwd=tmp_path)
    assert nothing.returncode == 1
    assert "no install" in nothing.stderr
    both = mference(*command, "--resume", cwd=tmp_path)
    assert both.returncode == 2
