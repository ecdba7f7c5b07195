"""Interrupted installs that go on: nothing is fetched twice, and the result is the same."""

import json
import signal
import time
from pathlib import Path

import pytest

import mference as package
from mference import errors
from mference.families import ENTRIES
from mference.installer import FolderSource, Limits, Progress, install, space
from mference.installer.installer import carry_out, look_ahead
from mference.installer.journal import read_journal
from mference.installer.paths import prepared_paths
from mference.installer.run import Run
from mference.installer.source import DEMO_CHECKPOINT, Sink
from mference.store import verify_install
from tests.installer.command import mference, start_mference
from tests.installer.contents import contents
from tests.installer.hub import serve_hub
from tests.installer.toys import write_source

DEMO = ENTRIES["demo"]
METADATA = 6  # reads before the first range: index, config, and two of each of the two shards


class Reads(FolderSource):
    """A folder that notes which bytes are read, and is interrupted when told to be."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.ranges: list[tuple[str, int, int]] = []
        self.stop_after: int | None = None

    def read(self, name: str, offset: int, length: int, size: int, sink: Sink) -> None:
        if self.stop_after is not None and len(self.ranges) == self.stop_after:
            raise KeyboardInterrupt
        self.ranges.append((name, offset, length))
        super().read(name, offset, length, size, sink)

    def interrupt(self) -> None:
        """Later installs of the same test read on."""


@pytest.fixture
def source(tmp_path: Path) -> Reads:
    return Reads(write_source(tmp_path / "source", layers=2))


def toy_run(source: FolderSource, output: Path, **options: object) -> Run:
    limits = Limits(chunk=8192, connections=1, gather=0)
    return Run(source, DEMO, prepared_paths(output), allow_unpinned=True, limits=limits, **options)


def reads_of(source: Reads, output: Path) -> list[tuple[str, int, int]]:
    """All reads of an uninterrupted install."""
    carry_out(toy_run(source, output))
    reads, source.ranges = source.ranges, []
    return reads


def interrupt(source: Reads, run: Run, after: int) -> None:
    """An install that ends with Ctrl-C after that many reads."""
    source.stop_after = after
    with pytest.raises(KeyboardInterrupt):
        carry_out(run)
    source.stop_after, source.ranges = None, []


def test_an_install_interrupted_at_any_read_goes_on_to_the_same_result(source, tmp_path):
    whole = reads_of(source, tmp_path / "whole.gturbo")
    for after in range(METADATA, len(whole)):
        source.ranges, final = [], tmp_path / f"{after}.gturbo"
        run = toy_run(source, final)
        interrupt(source, run, after)
        assert not final.exists()
        copied = len(read_journal(run.paths.checkpoint).completed)
        run.resume = True
        report = carry_out(run)
        assert contents(final) == contents(tmp_path / "whole.gturbo")
        again = whole[:METADATA] + whole[METADATA + copied :]
        assert source.ranges == again
        assert (report.reused > 0) == (copied > 0)
        assert not run.paths.partial.exists()
        assert not run.paths.checkpoint.exists()


def wait_until_recorded(checkpoint: Path) -> None:
    """Wait until ranges that were copied are forced to the disk and recorded."""
    for _ in range(600):
        if json.loads(checkpoint.read_text())["completedRanges"]:
            return
        time.sleep(0.05)
    pytest.fail("no range was recorded")


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_process_stopped_in_mid_copy_is_continued_by_resume(kind, demo_install, tmp_path):
    (tmp_path / "hub").mkdir()
    with serve_hub(DEMO_CHECKPOINT, DEMO.repo, DEMO.revision, tmp_path / "hub") as hub:
        hub.hold_after = 2
        command = (
            "install", "--model", "demo", "--base-url", hub.endpoint, "--output", "x.gturbo",
            "--connections", "1",
        )  # fmt: skip
        process = start_mference(*command, cwd=tmp_path, **hub.environment)
        assert hub.reached.wait(60)
        if kind == signal.SIGKILL:
            wait_until_recorded(tmp_path / "x.gturbo.resume.json")
        process.send_signal(kind)
        _, said = process.communicate(timeout=30)
        hub.hold_after = None
        if kind != signal.SIGKILL:
            assert process.returncode == 128 + kind
            word = "interrupted" if kind == signal.SIGINT else "terminated"
            assert said.startswith(f"mference: {word}\n")
            assert "the same command and --resume" in said
        kept = json.loads((tmp_path / "x.gturbo.resume.json").read_text())["completedRanges"]
        assert len(kept) == 2
        hub.requests.clear()

        refused = mference(*command, cwd=tmp_path, **hub.environment)
        assert refused.returncode == 1
        assert "--resume" in refused.stderr
        assert hub.requests == []

        done = mference(*command, "--resume", "--json", cwd=tmp_path, **hub.environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["reused"] > 0
    assert contents(tmp_path / "x.gturbo") == contents(demo_install)
    shards = [name for name in hub.payload() if name.endswith(".safetensors")]
    names = [f"model-0000{i}-of-00004.safetensors" for i in range(1, 5)]
    copied = {done["id"] for done in kept}
    left = [name for i, name in enumerate(names) if f"range-{i:08d}" not in copied]
    assert sorted(shards) == sorted(2 * names + left)
    assert sorted(p.name for p in tmp_path.glob("x.gturbo*")) == [
        "x.gturbo",
        "x.gturbo.install.lock",
    ]


def test_a_damaged_range_is_copied_again_and_no_other(source, tmp_path):
    whole = reads_of(source, tmp_path / "whole.gturbo")
    run = toy_run(source, tmp_path / "x.gturbo")
    interrupt(source, run, len(whole) - 1)
    weights = run.paths.partial / "model_weights.bin"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    run.resume = True
    carry_out(run)
    assert contents(run.paths.final) == contents(tmp_path / "whole.gturbo")
    shards = [read for read in source.ranges if read[2] > 4096 and "safetensors" in read[0]]
    assert len(shards) == 1


def test_a_resumed_install_may_be_interrupted_again(source, tmp_path):
    reads_of(source, tmp_path / "whole.gturbo")
    run = toy_run(source, tmp_path / "x.gturbo")
    interrupt(source, run, METADATA + 1)
    run.resume = True
    interrupt(source, run, METADATA + 1)
    assert len(read_journal(run.paths.checkpoint).completed) == 2
    carry_out(run)
    assert contents(run.paths.final) == contents(tmp_path / "whole.gturbo")


def test_what_a_killed_install_left_over_is_not_in_the_way(source, tmp_path):
    whole = reads_of(source, tmp_path / "whole.gturbo")
    run = toy_run(source, tmp_path / "x.gturbo")
    interrupt(source, run, len(whole) - 1)
    for name in (".range.tmp", "manifest.json", "manifest.json.tmp", "verified-install.json"):
        (run.paths.partial / name).write_text("left over")
    (run.paths.partial / "tokenizer" / "chat_template.json").write_text("left over")
    run.resume = True
    carry_out(run)
    assert contents(run.paths.final) == contents(tmp_path / "whole.gturbo")
    assert verify_install(run.paths.final).unexpected == ()


def test_an_overwrite_can_be_resumed_and_keeps_the_old_install_until_then(source, tmp_path):
    whole = reads_of(source, tmp_path / "whole.gturbo")
    final = tmp_path / "x.gturbo"
    final.mkdir()
    (final / "model_weights.bin").write_text("of an old install")
    run = toy_run(source, final, overwrite=True)
    interrupt(source, run, len(whole) - 1)
    assert (final / "model_weights.bin").read_text() == "of an old install"
    run.resume = True
    carry_out(run)
    assert contents(final) == contents(tmp_path / "whole.gturbo")


def test_a_directory_that_appears_meanwhile_is_not_replaced(source, tmp_path):
    final = tmp_path / "x.gturbo"

    def plant(progress: Progress) -> None:
        if progress.phase == "verify" and not final.exists():
            final.mkdir()
            (final / "precious").write_text("mine")

    run = toy_run(source, final, report=plant)
    with pytest.raises(errors.InstallError, match="exists already"):
        carry_out(run)
    assert (final / "precious").read_text() == "mine"
    (final / "precious").unlink()
    final.rmdir()
    run.resume, run.report = True, lambda _: None
    assert carry_out(run).reused > 0


def test_a_folder_that_only_looks_like_an_install_is_not_overwritten(source, tmp_path):
    final = tmp_path / "app"
    final.mkdir()
    (final / "manifest.json").write_text('{"name": "my web app"}')
    with pytest.raises(errors.UnsafePath, match="no install"):
        carry_out(toy_run(source, final, overwrite=True))
    assert (final / "manifest.json").exists()


def test_resuming_before_the_first_range_needs_no_room_twice(source, tmp_path):
    fresh = look_ahead(toy_run(source, tmp_path / "x.gturbo"))
    source.ranges = []
    run = toy_run(source, tmp_path / "x.gturbo")
    interrupt(source, run, METADATA)
    assert read_journal(run.paths.checkpoint).completed == ()
    run.resume = True
    assert look_ahead(run).required < fresh.required


def test_another_folder_cannot_continue_an_unpinned_install(source, tmp_path):
    whole = reads_of(source, tmp_path / "whole.gturbo")
    run = toy_run(source, tmp_path / "x.gturbo")
    interrupt(source, run, len(whole) - 1)
    other = Reads(write_source(tmp_path / "other", layers=2))
    with pytest.raises(errors.StateIncompatible, match=r"of .*/source at revision unpinned"):
        carry_out(toy_run(other, tmp_path / "x.gturbo", resume=True))
    assert other.ranges == []
    run.resume = True
    carry_out(run)


def test_saved_state_of_another_model_names_both(source, tmp_path):
    whole = reads_of(source, tmp_path / "whole.gturbo")
    interrupt(source, toy_run(source, tmp_path / "x.gturbo"), len(whole) - 1)
    with pytest.raises(errors.StateIncompatible, match=rf"unpinned, not of {DEMO.repo} at"):
        install(output=tmp_path / "x.gturbo", entry="demo", resume=True)


def test_resuming_needs_room_for_the_missing_bytes_only(source, tmp_path, monkeypatch):
    whole = reads_of(source, tmp_path / "whole.gturbo")
    run = toy_run(source, tmp_path / "x.gturbo")
    fresh = look_ahead(run)
    source.ranges = []
    interrupt(source, run, len(whole) - 1)
    run.resume = True
    left = look_ahead(run)
    assert left.required < fresh.required
    assert left.download < fresh.download
    assert left.installed == fresh.installed
    usage = space.shutil.disk_usage(tmp_path)
    for free, fits in ((left.required - 1, False), (left.required, True)):
        monkeypatch.setattr(space.shutil, "disk_usage", lambda _, n=free: usage._replace(free=n))
        if fits:
            carry_out(run)
        else:
            with pytest.raises(errors.NoSpace, match="1 more"):
                carry_out(run)
    assert contents(run.paths.final) == contents(tmp_path / "whole.gturbo")


def test_progress_shows_the_check_and_goes_on_where_the_copy_stopped(source, tmp_path):
    run = toy_run(source, tmp_path / "x.gturbo")
    interrupt(source, run, METADATA + 3)
    seen: list[Progress] = []
    run.resume, run.report = True, seen.append
    carry_out(run)
    assert list(dict.fromkeys(p.phase for p in seen)) == ["plan", "check", "copy", "verify"]
    for phase in ("check", "copy"):
        steps = [p for p in seen if p.phase == phase]
        assert [p.done for p in steps] == sorted(p.done for p in steps)
        assert steps[-1].done == steps[-1].total
    assert next(p.done for p in seen if p.phase == "copy") > 3 * 4096


def test_a_dry_run_says_exactly_what_an_install_then_does(source, tmp_path):
    run = toy_run(source, tmp_path / "new" / "x.gturbo")
    (tmp_path / "new").rmdir()
    plan = package.install(
        tmp_path / "source", tmp_path / "new" / "x.gturbo", entry="demo", allow_unpinned=True,
        dry_run=True,
    )  # fmt: skip
    assert not (tmp_path / "new").exists()
    (tmp_path / "new").mkdir()
    report = carry_out(run)
    assert plan.installed == report.bytes
    assert plan.path == report.path
    metadata = ("config.json", "model.safetensors.index.json")
    copied = [r for r in source.ranges if r[0] not in metadata]
    headers = [r for r in copied if "safetensors" in r[0] and r[1] <= 8]
    assert plan.download == sum(r[2] for r in copied) - sum(r[2] for r in headers)


def test_a_dry_run_is_refused_where_the_install_would_be(source, tmp_path, monkeypatch):
    (tmp_path / "x.gturbo").mkdir()
    with pytest.raises(errors.InstallError, match="exists already"):
        look_ahead(toy_run(source, tmp_path / "x.gturbo"))
    with pytest.raises(errors.StateMissing):
        look_ahead(toy_run(source, tmp_path / "y.gturbo", resume=True))
    usage = space.shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(space.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(errors.NoSpace, match="1000 bytes free"):
        look_ahead(toy_run(source, tmp_path / "y.gturbo"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["source", "x.gturbo"]
