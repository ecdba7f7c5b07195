"""Whole installs and their state on disk against the conformance cases.

Left to the task that brings the feature: attach_mtp.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mference import errors
from mference.families.pins import ENTRIES
from mference.installer import (
    FolderSource,
    Limits,
    copying,
    discard_partial,
    installer,
    preparation,
    sidecars,
)
from mference.installer.installer import carry_out, look_ahead
from mference.installer.journal import decode_journal, encode_journal, read_journal
from mference.installer.lock import InstallLock
from mference.installer.paths import prepared_paths
from mference.installer.promotion import exchange
from mference.installer.run import Run
from mference.installer.sidecars import SIDECAR_CAPS
from mference.installer.source import Sink
from mference.installer.state import check_start
from mference.installer.transfer import copy_range
from mference.store import writing
from tests.conformance.install_labels import outcome
from tests.conformance.loader import Case, cases, edited
from tests.installer.server import serve
from tests.installer.toys import toy_entry, write_source


@pytest.mark.parametrize("case", cases("install", "checkpoint"))
def test_checkpoint(case: Case):
    edits = [e for e in case.given["edits"] if e["op"] in ("set", "drop")]
    text = json.dumps(edited(case.shared["checkpoint"], edits))
    if any(e["op"] == "reencode" for e in case.given["edits"]):
        text = text.replace("/", "\\/")
    label, journal = outcome(lambda: decode_journal(text.encode()))
    assert label == case.expect.get("error")
    if label is None:
        assert decode_journal(encode_journal(journal)) == journal


def arrange(path: Path, kind: str, other: Path) -> None:
    if kind == "directory":
        path.mkdir()
    elif kind == "file":
        path.touch()
    elif kind == "symlink":
        path.symlink_to(other)


@pytest.mark.parametrize("case", cases("install", "start_state"))
def test_start_state(case: Case, tmp_path: Path):
    paths = prepared_paths(tmp_path / "x.gturbo")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    held = None
    for name, kind in case.given["disk"].items():
        if kind == "held":
            held = InstallLock(paths.lock)
        else:
            arrange(getattr(paths, name), kind, elsewhere)

    def act() -> None:
        with InstallLock(paths.lock):
            check_start(paths, **case.given["options"])

    label, _ = outcome(act)
    if held:
        held.close()
    assert (label or "proceeds") == case.expect["outcome"]


HOLDER = """
import sys, time
from pathlib import Path
from mference.installer.lock import InstallLock
lock = InstallLock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("case", cases("install", "lock"))
def test_lock(case: Case, tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    held: dict[str, InstallLock] = {}
    child: subprocess.Popen[str] | None = None

    def lock_path(step: str) -> Path:
        words = step.split()
        folder = "link" if "symlinked parent" in step else "real"
        name = words[-1] if words[-1].endswith(".gturbo") else "x.gturbo"
        return prepared_paths(tmp_path / folder / name).lock

    def act(step: str) -> None:
        nonlocal child
        who, what = step.split()[:2]
        if step == "child acquire":
            child = subprocess.Popen(
                [sys.executable, "-c", HOLDER, str(lock_path(step))],
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
            assert child.stdout and child.stdout.readline() == "held\n"
        elif step == "kill child":
            assert child and child.stdout
            child.send_signal(signal.SIGKILL)
            child.wait()
            child.stdout.close()
        elif step == "replace lock file":
            lock_path(step).rename(tmp_path / "moved")
            lock_path(step).touch()
        elif what in ("acquire", "open"):
            held[who] = InstallLock(lock_path(step))
        elif what == "release":
            held.pop(who).close()
        elif what == "verify":
            held[who].verify()
        else:
            pytest.fail(f"step '{step}' is not covered")

    try:
        results = [outcome(lambda s=step: act(s))[0] or "ok" for step in case.given["steps"]]
    finally:
        for lock in held.values():
            lock.close()
    assert results == case.expect["results"]


@pytest.mark.parametrize("case", cases("install", "discard"))
def test_discard(case: Case, tmp_path: Path):
    paths = prepared_paths(tmp_path / "x.gturbo")
    places = {
        "partial": paths.partial,
        "checkpoint": paths.checkpoint,
        "final": paths.final,
        "other file": tmp_path / "other file",
    }
    for name in case.given["present"]:
        places[name].touch() if name in ("checkpoint", "other file") else places[name].mkdir()
    label, _ = outcome(lambda: discard_partial(paths.final))
    assert label == case.expect["error"]
    assert [n for n, p in places.items() if p.exists()] == case.expect["remaining"]


def toy_run(tmp_path: Path, **options: Any) -> Run:
    source = FolderSource(write_source(tmp_path / "source"))
    entry = ENTRIES["demo"]
    paths = prepared_paths(tmp_path / "x.gturbo")
    return Run(source, entry, paths, allow_unpinned=True, **options)


@pytest.mark.parametrize("case", cases("install", "promotion"))
def test_promotion(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = toy_run(tmp_path, overwrite=True)
    final: Path = run.paths.final
    if case.given["final"] == "directory":
        final.mkdir()
        (final / "old").touch()
        (final / "manifest.json").write_text('{"magic": "GTURBO"}')
    swaps = []
    if not case.given.get("swap_supported", True):

        def unsupported(*_: object) -> None:
            raise errors.PromotionUnsupported("no swap here")

        monkeypatch.setattr("mference.installer.promotion.exchange", unsupported)
    else:

        def counted(*args: Path) -> None:
            swaps.append(args)
            exchange(*args)

        monkeypatch.setattr("mference.installer.promotion.exchange", counted)
    label, _ = outcome(lambda: carry_out(run))
    assert label == case.expect.get("error")
    found = {
        "method": "swap" if swaps else "rename",
        "checkpoint_after": "kept" if run.paths.checkpoint.exists() else "absent",
        "partial_after": "kept" if run.paths.partial.exists() else "absent",
        "final_after": "old copy intact" if (final / "old").exists() else "new copy",
        "error": label,
    }
    assert {k: found[k] for k in case.expect} == case.expect


@pytest.mark.parametrize("case", cases("install", "write_order"))
def test_write_order(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = toy_run(tmp_path)
    order: list[str] = []

    def spy(function: Any, name: Any):
        def act(*args: Any, **kwargs: Any) -> Any:
            order.append(name(*args))
            return function(*args, **kwargs)

        return act

    def relative(path: Path, *_: Any) -> str:
        inside = run.paths.partial in path.parents
        return path.relative_to(run.paths.partial).as_posix() if inside else ""

    monkeypatch.setattr(
        copying, "copy_range", spy(copying.copy_range, lambda *_: "model_weights.bin")
    )
    for name in ("write_chunks", "write_durably", "write_atomically"):
        monkeypatch.setattr(installer, name, spy(getattr(writing, name), relative))
    monkeypatch.setattr(sidecars, "write_durably", spy(writing.write_durably, relative))
    monkeypatch.setattr(
        sidecars,
        "copy_sidecar",
        spy(sidecars.copy_sidecar, lambda _run, name, _path: f"tokenizer/{name}"),
    )
    monkeypatch.setattr(installer, "promote", spy(installer.promote, lambda *_: "promotion"))
    carry_out(run)
    wanted = case.expect["order"]
    assert list(dict.fromkeys(name for name in order if name in wanted)) == wanted


@pytest.mark.parametrize("case", cases("install", "sidecar"))
def test_sidecar(case: Case, tmp_path: Path):
    given = case.given
    folder = write_source(tmp_path / "source")
    name = given["file"]
    size = given.get("size")
    if size is not None:
        with (folder / name).open("wb") as file:
            file.truncate(size)
    with serve(folder) as server:
        if "status" in given:
            server.statuses[name] = given["status"]
        source = server.source()
        run = Run(
            source,
            ENTRIES["demo"],
            prepared_paths(tmp_path / "x.gturbo"),
            allow_unpinned=True,
        )
        label, _ = outcome(lambda: carry_out(run))
        source.close()
    stored = (run.paths.final / "tokenizer" / name).exists()
    result = "fails" if label else "stored" if stored else "skipped"
    assert result == case.expect["result"]
    assert name in SIDECAR_CAPS


@pytest.mark.parametrize("case", cases("install", "source_pin"))
def test_source_pin(case: Case, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    given = case.given
    folder = write_source(tmp_path / "source")
    index = (folder / "model.safetensors.index.json").read_bytes()
    known = given.get("hash_known", True)
    entry = toy_entry(hashlib.sha256(index).hexdigest() if known else "0" * 64)
    with serve(folder) as server:
        if "index_commit" in given:
            server.commits = {name.name: given["index_commit"] for name in folder.iterdir()}
            shard = next(name for name in server.commits if name.endswith(".safetensors"))
            server.commits[shard] = given["shard_commit"]
        server.accept_ranges = given.get("accept_ranges", "bytes") is not None
        source = server.source()
        run = Run(
            source,
            entry,
            prepared_paths(tmp_path / "x.gturbo"),
            allow_unpinned=given.get("repo_known", False) and not given.get("pinned", True),
        )
        label, _ = outcome(lambda: carry_out(run))
        source.close()
    warned = "_with_warning" if caplog.records else ""
    label = {"SourceMismatch": "source_rejected"}.get(label or "", label)
    assert (label or f"accepted{warned}") == case.expect["outcome"]


@pytest.mark.parametrize("case", cases("install", "retry_run"))
def test_retry_run(case: Case, tmp_path: Path):
    given = case.given
    folder = write_source(tmp_path / "source")
    paths = prepared_paths(tmp_path / "x.gturbo")
    with serve(folder) as server:
        server.failures = list(given.get("first_failures", []))
        target = None
        if given.get("on") == "index HEAD":
            target = server.fail_on = ("HEAD", "model.safetensors.index.json")
        if "missing" in given:
            (folder / given["missing"]).unlink()
            target = ("HEAD", given["missing"])
        source = server.source(given.get("attempts", 4))
        label, _ = outcome(
            lambda: carry_out(Run(source, ENTRIES["demo"], paths, allow_unpinned=True))
        )
        source.close()
        repeated = (
            sum(a == b for a, b in zip(server.requests, server.requests[1:], strict=False))
            if target
            else 0
        )
        truncated = sum(f == "truncated body" for f in given.get("first_failures", []))
    expect = case.expect
    assert (label is None) == expect["installed"]
    assert repeated + truncated == expect["retries"]
    if "requests" in expect:
        assert server.requests.count(target) == expect["requests"]
    if "work_files_left" in expect:
        work = (paths.partial, paths.checkpoint, paths.staging, paths.metadata)
        assert [p.name for p in work if p.exists()] == expect["work_files_left"]


class PayloadCounter(FolderSource):
    """A folder that counts the tensor bytes read from it."""

    payload = 0

    def read(self, name: str, offset: int, length: int, size: int, sink: Sink) -> None:
        if name.endswith(".safetensors") and offset > 8:
            self.payload += length
        super().read(name, offset, length, size, sink)


@pytest.mark.parametrize("case", cases("install", "failure_cleanup"))
def test_failure_cleanup(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    given = case.given
    run = toy_run(tmp_path, limits=Limits(chunk=4096, connections=1))
    found: dict[str, Any] = {}
    if given.get("dry_run"):
        source = run.source = PayloadCounter(tmp_path / "source")
        look_ahead(run)
        found["downloaded_payload"] = source.payload
    else:
        if given["resumed"]:
            failing_at("copy", 1, monkeypatch)
            with pytest.raises(errors.CheckpointError):
                carry_out(run)
            run.resume = True
        allowed = 2 if "two ranges" in given["fails_at"] else 0
        kind = failing_at(given["fails_at"], allowed, monkeypatch)
        with pytest.raises(kind):
            carry_out(run)
    found |= {
        name: "kept" if getattr(run.paths, name).exists() else "absent"
        for name in ("partial", "checkpoint", "final")
    }
    if run.paths.checkpoint.exists():
        found["committed"] = len(read_journal(run.paths.checkpoint).completed)
    assert {k: found[k] for k in case.expect} == case.expect


def failing_at(place: str, allowed: int, monkeypatch: pytest.MonkeyPatch) -> type[BaseException]:
    """Let installs fail there, after that many ranges; the error."""
    kind = KeyboardInterrupt if "cancel" in place else errors.CheckpointError
    copied = []

    def failing(*args: Any, **kwargs: Any) -> str:
        if len(copied) == allowed:
            raise kind("stop")
        copied.append(1)
        return copy_range(*args, **kwargs)

    if place in ("metadata", "planning", "plan"):
        name = "read_snapshot" if place == "metadata" else "plan_repack"
        monkeypatch.setattr(preparation, name, failing)
    else:
        monkeypatch.setattr(copying, "copy_range", failing)
    return kind
