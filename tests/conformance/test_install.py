"""The installer against the conformance cases, as far as the pieces exist.

Left to the tasks that bring the feature: resume, event_order, attach_mtp.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from mference import errors
from mference.families.pins import ENTRIES
from mference.installer import FolderSource, Limits, discard_partial, installer
from mference.installer import http_rules as rules
from mference.installer.http_source import HttpSource
from mference.installer.installer import SIDECAR_CAPS, Run, carry_out, check_space, required_space
from mference.installer.journal import decode_journal, encode_journal, read_journal
from mference.installer.lock import InstallLock
from mference.installer.paths import (
    check_remote_name,
    check_repo_id,
    file_url,
    hub_base,
    is_inside,
    prepared_paths,
    sibling_paths,
)
from mference.installer.plan import (
    Copy,
    RangeDigest,
    RangePlan,
    check_destinations,
    plan_ranges,
)
from mference.installer.promotion import exchange
from mference.installer.state import check_start
from mference.installer.transfer import copy_range
from mference.installer.transforms import IDENTITY, UNPACK_2_TO_4, Transform, repeat_bf16
from mference.store import writing
from tests.conformance.loader import Case, cases, edited
from tests.installer.server import serve
from tests.installer.toys import toy_entry, write_source

LABELS: dict[str, type[Exception]] = {
    "configuration_error": errors.InstallError,
    "busy": errors.Locked,
    "path_unsafe": errors.UnsafePath,
    "state_missing": errors.StateMissing,
    "state_corrupt": errors.StateCorrupt,
    "state_incompatible": errors.StateIncompatible,
    "promotion_unsupported": errors.PromotionUnsupported,
    "http_status": errors.HttpStatusError,
    "body_exceeded": errors.BodyExceeded,
    "body_truncated": errors.BodyTruncated,
    "redirect_rejected": errors.RedirectRejected,
    "retry_delay_exceeded": errors.RetryDelayExceeded,
}
PROTOCOL = (errors.ProtocolError, errors.RangeError)


def outcome(act) -> tuple[str | None, Any]:
    """The label of the error that `act` raises (None: none), and what it returns."""
    try:
        return None, act()
    except errors.InstallError as exc:
        if type(exc) in PROTOCOL:
            return "protocol_invalid", exc
        labels = [label for label, kind in LABELS.items() if type(exc) is kind]
        return (labels or [type(exc).__name__])[0], exc


def accepted(act) -> bool:
    return outcome(act)[0] is None


def transform(given: Any) -> Transform:
    if given in (None, "identity"):
        return IDENTITY
    if given == "unpack2to4":
        return UNPACK_2_TO_4
    return repeat_bf16(given["repeat"], negate=given["negate"])


def copies(given: dict) -> list[Copy]:
    return [
        Copy(c["shard"], c["src"], c["size"], c["file"], c["dst"], transform(c.get("transform")))
        for c in given["copies"]
    ]


@pytest.mark.parametrize("case", cases("install", "coalesce"))
def test_coalesce(case: Case):
    label, ranges = outcome(lambda: plan_ranges(copies(case.given), case.given["chunk"]))
    assert label == case.expect.get("error")
    if label is None:
        found = [
            {
                "id": r.id,
                "shard": r.shard,
                "src": r.offset,
                "size": r.size,
                "parts": [
                    {
                        "file": p.path,
                        "src": p.source_offset,
                        "dst": p.destination_offset,
                        "size": p.size,
                    }
                    for p in r.parts
                ],
            }
            for r in ranges
        ]
        assert found == case.expect["ranges"]


@pytest.mark.parametrize("case", cases("install", "destinations"))
def test_destinations(case: Case):
    assert accepted(lambda: check_destinations(copies(case.given))) == case.expect["accepted"]


@pytest.mark.parametrize("case", cases("install", "inside_root"))
def test_inside_root(case: Case):
    assert is_inside(case.given["root"], case.given["path"]) == case.expect["accepted"]


@pytest.mark.parametrize("case", cases("install", "fingerprint"))
def test_fingerprint(case: Case):
    given = case.given
    ranges = plan_ranges(copies(given), given["chunk"])
    plan = RangePlan(given["chunk"], ranges, dict(given["outputs"]), given["resident_index_sha256"])
    assert plan.fingerprint() == case.expect["sha256"]


@pytest.mark.parametrize("case", cases("install", "range_digest"))
def test_range_digest(case: Case):
    files = {name: bytes.fromhex(text) for name, text in case.given["files"].items()}
    (r,) = plan_ranges(copies(case.given), case.given["chunk"])
    digest = RangeDigest(r)
    for part in r.parts:
        digest.start(part)
        digest.update(files[part.path][part.destination_offset : part.destination_end])
    assert (r.id, digest.hexdigest()) == (case.expect["id"], case.expect["sha256"])


@pytest.mark.parametrize("case", cases("install", "transform"))
def test_transform(case: Case):
    chosen = transform(case.given["transform"])
    assert chosen.apply(bytes.fromhex(case.given["source"])).hex() == case.expect["output"]


@pytest.mark.parametrize("case", cases("install", "scratch"))
def test_scratch(case: Case):
    chosen = transform(case.given["transform"])
    assert accepted(lambda: chosen.tile(case.given["scratch"])) == case.expect["accepted"]


@pytest.mark.parametrize("case", cases("install", "option_bounds"))
def test_option_bounds(case: Case):
    given = case.given

    def act() -> None:
        if "retry_attempts" in given:
            rules.RetryPolicy(attempts=given["retry_attempts"])
        names = {"write_tile": "scratch", "range_chunk": "chunk"}
        Limits(**{names[key]: value for key, value in given.items() if key in names})

    try:
        act()
        ok = True
    except (ValueError, errors.InstallError):
        ok = False
    assert ok == case.expect["accepted"]


@pytest.mark.parametrize("case", cases("install", "disk"))
def test_disk(case: Case):
    given = case.given
    label, required = outcome(
        lambda: required_space(
            given.get("output", given.get("bytes")),
            given.get("reused_destination", 0),
            given.get("chunk", 0),
            given["reserve"],
        )
    )
    assert label == case.expect.get("error")
    if "required" in case.expect:
        assert required == case.expect["required"]
    if "ok" in case.expect:
        available = given["available"]
        assert max(0, required - available) == case.expect["shortfall"]
        try:
            check_space(required, available, Path())
            ok = True
        except errors.NoSpace:
            ok = False
        assert ok == case.expect["ok"]


@pytest.mark.parametrize("case", cases("install", "paths"))
def test_paths(case: Case):
    paths = sibling_paths(case.given["output"])
    for name, value in case.expect.items():
        assert str(getattr(paths, name)) == value


@pytest.mark.parametrize("case", cases("install", "repo_id"))
def test_repo_id(case: Case):
    assert accepted(lambda: check_repo_id(case.given["repo"])) == case.expect["accepted"]


@pytest.mark.parametrize("case", cases("install", "remote_name"))
def test_remote_name(case: Case):
    assert accepted(lambda: check_remote_name(case.given["name"])) == case.expect["accepted"]


@pytest.mark.parametrize("case", cases("install", "url"))
def test_url(case: Case):
    given = case.given
    base = hub_base(given["base"], given["repo"], given["requested"], given["commit"])
    assert file_url(base, given["file"]) == case.expect["url"]


@pytest.mark.parametrize("case", cases("install", "strong_etag"))
def test_strong_etag(case: Case):
    assert rules.strong_etag(case.given["value"]) == case.expect["normalized"]


@pytest.mark.parametrize("case", cases("install", "metadata_response"))
def test_metadata_response(case: Case):
    headers = dict(case.given["headers"])
    status = headers.pop("status")
    label, found = outcome(
        lambda: rules.read_metadata(status, headers, case.given["pinned_commit"])
    )
    assert label == case.expect.get("error")
    for key in ("size", "commit", "ranges"):
        if key in case.expect:
            assert getattr(found, key) == case.expect[key]


@pytest.mark.parametrize("case", cases("install", "redirect"))
def test_redirect(case: Case):
    given, expect = case.given, case.expect

    def follow() -> list[bool]:
        url, authorized, seen = given["origin"], given["authorization"], []
        for hop in given["hops"]:
            step = rules.next_hop(given["kind"], url, hop, len(seen), given["limit"])
            if step is None:
                break
            url, authorized = step[0], authorized and step[1]
            seen.append(authorized)
        return seen

    label, seen = outcome(follow)
    assert label == expect.get("error")
    if "followed" in expect:
        assert len(seen) == expect["followed"]
    if "authorization" in expect:
        assert seen == expect["authorization"]


FAILURES: dict[str, Exception] = {
    "timed out": errors.Unreachable(""),
    "offline": errors.Unreachable(""),
    "cannot connect": errors.Unreachable(""),
    "connection lost": errors.Unreachable(""),
    "DNS failure": errors.Unreachable(""),
    "resource unavailable": errors.Unreachable(""),
    "body shorter than announced": errors.BodyTruncated(""),
    "truncated body": errors.BodyTruncated(""),
    "redirect refused": errors.RedirectRejected(""),
    "wrong Content-Range": errors.RangeError(""),
}


def failure(given: str | int) -> Exception:
    return errors.HttpStatusError("", given) if isinstance(given, int) else FAILURES[given]


@pytest.mark.parametrize("case", cases("install", "retry_status"))
def test_retry_status(case: Case):
    given = case.given
    error = failure(given["status"] if "status" in given else given["failure"])
    assert rules.is_retryable(error) == case.expect["retry"]


@pytest.mark.parametrize("case", cases("install", "backoff"))
def test_backoff(case: Case):
    given = case.given
    policy = rules.RetryPolicy(
        given["policy"]["attempts"], given["policy"]["base"], given["policy"]["max"]
    )
    failures = iter(given["failures"])
    cancelled = "cancelled while sleeping" in given["failures"]
    sleeps: list[int] = []

    def request() -> str:
        pending = next(failures, None)
        if pending is None:
            return "success"
        raise failure(pending)

    def sleep(ns: int) -> None:
        if cancelled:
            raise KeyboardInterrupt
        sleeps.append(ns)

    try:
        result = rules.with_retries(
            request, policy, sleep_ns=sleep, jitter_ns=lambda: given["jitter_ns"], now=lambda: 0.0
        )
    except errors.HttpError:
        result = "error"
    except KeyboardInterrupt:
        result = "cancelled"
    assert (sleeps, result) == (case.expect["sleeps_ns"], case.expect["result"])


@pytest.mark.parametrize("case", cases("install", "retry_after"))
def test_retry_after(case: Case):
    given = case.given
    label, delay = outcome(
        lambda: rules.retry_delay_ns(
            given["header"], given["local_delay_ns"], given["cap_ns"], given["now_epoch"]
        )
    )
    assert label == case.expect.get("error")
    if label is None:
        assert delay == case.expect["delay_ns"]


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
        installer, "copy_range", spy(installer.copy_range, lambda *_: "model_weights.bin")
    )
    for name in ("write_durably", "write_atomically"):
        monkeypatch.setattr(installer, name, spy(getattr(writing, name), relative))
    monkeypatch.setattr(
        installer,
        "copy_sidecar",
        spy(installer.copy_sidecar, lambda _run, name, _path: f"tokenizer/{name}"),
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


@pytest.mark.parametrize("case", cases("install", "range_response"))
def test_range_response(case: Case, tmp_path: Path):
    request, answer = case.given["request"], dict(case.given["response"])
    body = b"x" * answer.pop("body_bytes")
    status = answer.pop("status")

    def handle(http: httpx.Request) -> httpx.Response:
        if http.method == "HEAD":
            headers = {"Content-Length": str(request["total"]), "Accept-Ranges": "bytes"}
            if request["xet"]:
                headers["X-Xet-Hash"] = request["xet"]
            return httpx.Response(200, headers=headers)
        first, last = request["offset"], request["offset"] + request["length"] - 1
        assert http.headers["Range"] == f"bytes={first}-{last}"
        assert http.headers["Accept-Encoding"] == "identity"
        return httpx.Response(status, headers=answer, stream=httpx.ByteStream(body))

    client = httpx.Client(transport=httpx.MockTransport(handle))
    policy = rules.RetryPolicy(attempts=1)
    source = HttpSource("https://hub.test", commit="c" * 40, policy=policy, client=client)
    staging = tmp_path / "staging"
    assert source.size("f", ranged=True) == request["total"]

    def act() -> int:
        with source.open_range(
            "f", request["offset"], request["length"], request["total"], staging
        ) as (descriptor, start):
            return os.fstat(descriptor).st_size - start

    label, result = outcome(act)
    source.close()
    assert label == case.expect.get("error")
    assert not staging.exists()
    if label is None and "written" in case.expect:
        assert result == case.expect["written"]
    if "retryable" in case.expect:
        assert rules.is_retryable(result) == case.expect["retryable"]


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


@pytest.mark.parametrize("case", cases("install", "failure_cleanup"))
def test_failure_cleanup(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    given = case.given
    if given.get("dry_run") or given["resumed"]:
        pytest.skip("dry run and resume are later tasks")
    run = toy_run(tmp_path, limits=Limits(chunk=4096))
    allowed = 2 if "two ranges" in given["fails_at"] else 0
    failure_kind = KeyboardInterrupt if "cancel" in given["fails_at"] else errors.CheckpointError
    copied = []

    def failing(*args: Any, **kwargs: Any) -> str:
        if len(copied) == allowed:
            raise failure_kind("stop")
        copied.append(1)
        return copy_range(*args, **kwargs)

    if given["fails_at"] in ("metadata", "planning", "plan"):
        monkeypatch.setattr(installer, "plan_repack", failing)
        allowed = 0
    else:
        monkeypatch.setattr(installer, "copy_range", failing)
    with pytest.raises(failure_kind):
        carry_out(run)
    found: dict[str, Any] = {
        name: "kept" if getattr(run.paths, name).exists() else "absent"
        for name in ("partial", "checkpoint", "final")
    }
    if run.paths.checkpoint.exists():
        found["committed"] = len(read_journal(run.paths.checkpoint).completed)
    assert {k: found[k] for k in case.expect} == case.expect
