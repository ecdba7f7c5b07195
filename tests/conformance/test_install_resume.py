"""Resumed installs and their order of work against the conformance cases."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mference.installer import Limits, copying, installer, outputs, preparation, sidecars
from mference.installer.hub_source import hub_base
from mference.installer.installer import carry_out
from mference.installer.paths import prepared_paths
from mference.installer.plan import Range
from mference.installer.run import Run
from mference.installer.transfer import copy_range
from mference.store import verify_install
from tests.conformance.install_labels import outcome
from tests.conformance.loader import Case, cases
from tests.installer.server import RangeServer, serve
from tests.installer.toys import toy_entry, write_source

KEYS = {
    "repo": "repoID",
    "revision": "requestedRevision",
    "commit": "resolvedCommit",
    "index_hash": "sourceIndexSHA256",
    "fingerprint": "planFingerprint",
}


class Work:
    """An install of a pinned toy in small ranges, interrupted after some of them."""

    def __init__(self, tmp_path: Path, server: RangeServer, patch: pytest.MonkeyPatch) -> None:
        index = (server.folder / "model.safetensors.index.json").read_bytes()
        entry = toy_entry(hashlib.sha256(index).hexdigest())
        paths = prepared_paths(tmp_path / "x.gturbo")
        self.server, self.patch = server, patch
        self.run = Run(server.source(), entry, paths, limits=Limits(chunk=4096, connections=1))
        self.copied: list[Range] = []

    def interrupted(self, ranges: int) -> None:
        def copy(source: Any, r: Range, *args: Any, **options: Any) -> str:
            if len(self.copied) == ranges:
                raise KeyboardInterrupt
            self.copied.append(r)
            return copy_range(source, r, *args, **options)

        self.patch.setattr(copying, "copy_range", copy)
        with pytest.raises(KeyboardInterrupt):
            carry_out(self.run)
        self.run.source.close()

    def resumed(self) -> tuple[str | None, list[str]]:
        """The label of the error, and the ranges that were copied."""
        again: list[str] = []
        spied(self.patch, copying, "copy_range", lambda _, r, *__, **___: again.append(r.id))
        self.server.requests.clear()
        self.run.source, self.run.resume = self.server.source(), True
        label, _ = outcome(lambda: carry_out(self.run))
        self.run.source.close()
        return label, again

    def edit_state(self, given: dict[str, Any]) -> None:
        path = self.run.paths.checkpoint
        state = json.loads(path.read_text())
        for name, key in KEYS.items():
            if given[name] == "other":
                state[key] = "other/other" if name == "repo" else "e" * len(state[key])
        if given["total"] == "other":
            state["totalSourceBytes"] += 1
        for done, digest in zip(state["completedRanges"], given["digests"], strict=True):
            if digest == "wrong size":
                done["destinationBytes"] += 1
            elif digest == "unknown id":
                done["id"] = "range-99999999"
        path.write_text(json.dumps(state))

    def damage(self, outputs: str, digests: list[str]) -> None:
        partial = self.run.paths.partial
        weights = partial / "model_weights.bin"
        for r, digest in zip(self.copied, digests, strict=True):
            if digest == "differs":
                flip(partial / r.parts[0].path, r.parts[0].destination_offset)
        if outputs == "missing":
            weights.unlink()
        elif outputs == "wrong size":
            weights.write_bytes(weights.read_bytes() + b"x")
        elif outputs == "index differs":
            flip(weights, 0)
        else:
            assert outputs == "match"


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def spied(patch: pytest.MonkeyPatch, module: Any, name: str, note: Callable[..., Any]) -> None:
    """Let `note` see the arguments of every call of a module's function."""
    function = copy_range if name == "copy_range" else getattr(module, name)

    def act(*args: Any, **options: Any) -> Any:
        note(*args, **options)
        return function(*args, **options)

    patch.setattr(module, name, act)


@pytest.mark.parametrize("case", cases("install", "resume"))
def test_resume(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    given, expect = case.given, case.expect
    if "saved_commit" in given:
        base = hub_base("https://hub.test", "o/n", given["requested"], given["saved_commit"])
        assert base.rpartition("/resolve/")[2] == expect["url_revision"]
        return
    with serve(write_source(tmp_path / "source")) as server:
        work = Work(tmp_path, server, monkeypatch)
        work.interrupted(len(given["digests"]))
        work.edit_state(given)
        work.damage(given["outputs"], given["digests"])
        rebuilt: list[str] = []
        spied(monkeypatch, outputs, "_create_files", lambda *_: rebuilt.append("rebuild"))
        label, again = work.resumed()
        requests = len(server.requests)
    assert label == expect.get("error")
    if "requests" in expect:
        assert requests == expect["requests"]
    if label is None:
        first = {r.id for r in work.copied}
        assert [*rebuilt, "continue"][0] == expect["outcome"]
        assert len(first - set(again)) == expect["reused"]
        verify_install(work.run.paths.final)
    else:
        assert work.run.paths.partial.exists()
        assert work.run.paths.checkpoint.exists()


@pytest.mark.parametrize("case", cases("install", "event_order"))
def test_event_order(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    order: list[str] = []
    with serve(write_source(tmp_path / "source")) as server:
        work = Work(tmp_path, server, monkeypatch)
        if case.given["resume"]:
            work.interrupted(2)
        for module, name, event in (
            (preparation, "read_snapshot", "metadata"),
            (preparation, "plan_repack", "planning"),
            (outputs, "check_space", "disk"),
            (outputs, "_create_files", "reserve"),
            (installer, "_write_layout", "hash layout"),
            (sidecars, "copy_sidecar", "hash tokenizer files"),
            (installer, "promote", "finalize"),
            (copying, "copy_range", "copy"),
        ):
            spied(monkeypatch, module, name, lambda *_, e=event, **__: order.append(e))
        spied(
            monkeypatch, copying, "file_blocks",
            lambda path, **_: order.append(
                f"hash {'layer files' if 'layer' in path.name else path.name}"
            ),
        )  # fmt: skip
        work.run.source, work.run.resume = server.source(), case.given["resume"]
        carry_out(work.run)
        work.run.source.close()
    assert list(dict.fromkeys(order)) == case.expect["order"]
