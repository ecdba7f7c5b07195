"""Repairing an install: the files that are damaged are made again, and no other is touched."""

import time
from dataclasses import dataclass, replace
from pathlib import Path

from mference.errors import InstallError, SourceMismatch, StoreError, UnsafePath
from mference.installer.journal import read_journal
from mference.installer.lock import InstallLock
from mference.installer.outputs import make_outputs
from mference.installer.paths import InstallPaths, RepairPaths
from mference.installer.plan import plan_ranges
from mference.installer.preparation import Preparation, prepare
from mference.installer.recovery import recover
from mference.installer.resume import first_difference
from mference.installer.run import Progress, Run
from mference.installer.sidecars import copy_sidecar
from mference.installer.space import named
from mference.installer.state import check_kinds, remove_partial
from mference.store.directory import (
    EXPERTS,
    LAYOUT,
    RECEIPT,
    TOKENIZER,
    VERIFIER_CAP,
    sha256_file,
)
from mference.store.layout import layout_chunks
from mference.store.manifest import Manifest, decode_manifest
from mference.store.opening import read_manifest_bytes
from mference.store.receipt import TOOL_INSTALL, encode_receipt, new_receipt
from mference.store.verify import find_damage
from mference.store.writing import sync_directory, write_atomically, write_chunks


@dataclass(frozen=True)
class RepairReport:
    """A repaired install: which files were made again (none if all were good), and their bytes.

    The time, in seconds, is that of the check as well.
    """

    path: Path
    model_id: str
    source: str
    repaired: tuple[str, ...]
    bytes: int
    seconds: float


def carry_out_repair(run: Run) -> RepairReport:
    """Make the damaged and missing files of an install again, from the source it was made of.

    Every file is hashed first. New files are made beside the install, checked against its
    manifest, and only then put into their places, each in one step. An interrupted repair goes on
    when it is started again. Raises the `InstallError` branch, `UnsupportedModel`, and the
    `StoreError` branch for an install whose manifest cannot be read.
    """
    began = time.monotonic()
    final = run.paths.final
    run = replace(run, paths=RepairPaths(final))
    with InstallLock(run.paths.lock):
        check_kinds(run.paths)
        data, manifest = read_repairable(final)
        try:
            damaged = _damaged(run)
            recover(run.paths)
            if damaged:
                _check_folders(final)
                _make_again(run, manifest, damaged)
            remove_partial(run.paths)
            pinned = run.entry.model_id == manifest.model_id
            source = (run.entry.repo, run.entry.revision) if pinned else None
            receipt = new_receipt(final, data, manifest, TOOL_INSTALL, source)
            write_atomically(final / RECEIPT, encode_receipt(receipt))
        except OSError as exc:
            raise named(exc) from exc
    return RepairReport(
        path=final,
        model_id=manifest.model_id,
        source=run.source.description,
        repaired=tuple(sorted(damaged)),
        bytes=sum(manifest.files[name].size for name in damaged),
        seconds=time.monotonic() - began,
    )


def read_repairable(path: Path) -> tuple[bytes, Manifest]:
    """The manifest of an install, and its bytes.

    Raises `InstallError` if there is no install, and the `StoreError` branch if its manifest, by
    which damage is told, cannot be read.
    """
    if not path.is_dir():
        raise InstallError(f"there is no install at {path} that could be repaired")
    try:
        data = read_manifest_bytes(path, VERIFIER_CAP)
        return data, decode_manifest(data, cap=VERIFIER_CAP)
    except StoreError as error:
        error.add_note(
            "Without its manifest an install cannot be repaired. Install it anew with --overwrite."
        )
        raise


def _damaged(run: Run) -> set[str]:
    def report(_: str, done: int, total: int) -> None:
        run.report(Progress("check", done, total))

    return {damage.name for damage in find_damage(run.paths.final, report)}


def _check_folders(final: Path) -> None:
    for folder in (final / EXPERTS, final / TOKENIZER):
        if folder.is_symlink():
            raise UnsafePath(f"{folder} is a symlink, so nothing is put there. Remove it.")
        folder.mkdir(exist_ok=True)


def _made(paths: InstallPaths, manifest: Manifest, names: set[str]) -> set[str]:
    """Which of the new files are there and as the manifest says."""
    made = set()
    for name in names:
        new, record = paths.partial / name, manifest.files[name]
        if (
            new.is_file()
            and not new.is_symlink()
            and new.stat().st_size == record.size
            and sha256_file(new) == record.sha256.lower()
        ):
            made.add(name)
    return made


def _put_in_place(paths: InstallPaths, made: set[str]) -> None:
    """Move new files over the damaged ones."""
    for name in sorted(made):
        old = paths.final / name
        if old.is_dir() and not old.is_symlink():
            raise UnsafePath(f"{old} is a directory where a file should be. Remove it.")
        (paths.partial / name).replace(old)
        sync_directory(old.parent)


def _make_again(run: Run, manifest: Manifest, names: set[str]) -> None:
    """Fetch files by name and put them in place. Raises `SourceMismatch` if they are others."""
    paths = run.paths
    begun = paths.checkpoint.exists() and paths.partial.exists()
    saved = read_journal(paths.checkpoint) if begun else None
    made = _made(paths, manifest, names)
    if saved is None or made == names:
        _put_in_place(paths, made)
        names = names - made
    if not names:
        return
    run.report(Progress("plan", 0, 0))
    whole = prepare(run)
    if manifest.source_hash not in (None, f"sha256:{whole.snapshot.index_sha256}"):
        raise SourceMismatch(
            f"{run.source.description} is not what {paths.final} was made of: its index has "
            f"SHA-256 {whole.snapshot.index_sha256}. Name that source (--source)."
        )
    prepared = _only(whole, names)
    if saved and first_difference(saved, prepared.journal):
        # Some of what was begun is in place already, or other files are damaged now.
        _put_in_place(paths, made)
        names, saved = names - made, None
        prepared = _only(whole, names)
    if saved is None:
        remove_partial(paths)
    if prepared.plan.outputs:
        make_outputs(run, prepared, saved)
    else:
        for folder in (paths.partial, paths.partial / EXPERTS, paths.partial / TOKENIZER):
            folder.mkdir()
    if LAYOUT in names:
        write_chunks(paths.partial / LAYOUT, layout_chunks(prepared.repack.layout))
    for name in run.entry.sidecars:
        if f"{TOKENIZER}/{name}" in names:
            copy_sidecar(run, name, paths.partial / TOKENIZER / name)
    made = _made(paths, manifest, names)
    _put_in_place(paths, made)
    if others := names - made:
        remove_partial(paths)
        raise SourceMismatch(
            f"{run.source.description} gives other bytes for {', '.join(sorted(others))} than "
            f"{paths.final} was made of. Install it anew with --overwrite."
        )


def _only(prepared: Preparation, names: set[str]) -> Preparation:
    """The preparation of some of an install's files."""
    outputs = {path: size for path, size in prepared.plan.outputs.items() if path in names}
    copies = [copy for copy in prepared.repack.copies if copy.path in names]
    ranges = plan_ranges(copies, prepared.plan.chunk)
    plan = replace(prepared.plan, ranges=ranges, outputs=outputs)
    journal = replace(
        prepared.journal, fingerprint=plan.fingerprint(), total_source_bytes=plan.source_bytes
    )
    return replace(prepared, plan=plan, journal=journal)
