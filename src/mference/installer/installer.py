"""The sequence of an install, from the lock to the moment the directory appears."""

import time
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from mference.errors import StateError
from mference.families import FAMILIES, PinnedEntry, entry_by_model_id
from mference.installer.advice import HOW_TO_DISCARD, HOW_TO_RESUME
from mference.installer.journal import Journal, write_journal
from mference.installer.lock import InstallLock
from mference.installer.outputs import make_outputs, space_needed
from mference.installer.paths import InstallPaths
from mference.installer.preparation import Preparation, prepare
from mference.installer.promotion import promote
from mference.installer.recovery import recover
from mference.installer.resume import check_same, saved_journal, still_valid
from mference.installer.run import InstallPlan, InstallReport, Progress, Run
from mference.installer.sidecars import write_sidecars
from mference.installer.snapshot import Snapshot
from mference.installer.space import check_space, free_space, named
from mference.installer.state import check_final, check_start, remove_partial
from mference.store.directory import EXPERTS, LAYOUT, MANIFEST, RECEIPT
from mference.store.layout import Layout, layout_chunks
from mference.store.manifest import (
    FileRecord,
    Manifest,
    check_manifest,
    decode_manifest,
    encode_manifest,
)
from mference.store.opening import read_manifest_bytes
from mference.store.receipt import TOOL_INSTALL, encode_receipt, new_receipt
from mference.store.writing import sync_directory, write_atomically, write_chunks, write_durably


def carry_out(run: Run) -> InstallReport:
    """Install under the lock of the output path.

    A failure before the checkpoint exists removes the partial directory; after that, partial and
    checkpoint stay. The final path holds the old install or the new one, never a part. Raises the
    `InstallError` branch and `UnsupportedModel`.
    """
    began = time.monotonic()
    with InstallLock(run.paths.lock):
        try:
            if recover(run.paths) and run.resume:
                return _finished_before(run, began)
            check_start(run.paths, overwrite=run.overwrite, resume=run.resume)
            snapshot, manifest, reused = _install(run)
        except OSError as exc:
            raise named(exc) from exc
    return _report(run, snapshot.entry, manifest, reused, began)


def _install(run: Run) -> tuple[Snapshot, Manifest, int]:
    paths = run.paths
    try:
        saved = saved_journal(run) if run.resume else None
        built = _build(run, saved)
        check_final(paths, overwrite=run.overwrite)  # hours may have passed
        promote(paths.partial, paths.final)
        remove_partial(paths)
        sync_directory(paths.final.parent)
        return built
    except BaseException as exc:
        failure = named(exc) if isinstance(exc, OSError) else exc
        if not paths.checkpoint.exists():
            with suppress(OSError):  # the next command removes it as well
                remove_partial(paths)
        elif paths.partial.exists() and not isinstance(exc, StateError):
            failure.add_note(
                f"What was copied is kept in {paths.partial}. {HOW_TO_RESUME} {HOW_TO_DISCARD}"
            )
        if failure is exc:
            raise
        raise failure from exc


def _finished_before(run: Run, began: float) -> InstallReport:
    """The report of an install that was killed when all but its traces was done."""
    manifest = decode_manifest(read_manifest_bytes(run.paths.final))
    reused = sum(record.size for record in manifest.files.values())
    return _report(run, entry_by_model_id(manifest.model_id), manifest, reused, began)


def _report(
    run: Run, entry: PinnedEntry | None, manifest: Manifest, reused: int, began: float
) -> InstallReport:
    return InstallReport(
        path=run.paths.final,
        entry=entry,
        model_id=manifest.model_id,
        source=run.source.description,
        files=len(manifest.files),
        bytes=sum(record.size for record in manifest.files.values()),
        reused=reused,
        seconds=time.monotonic() - began,
    )


def look_ahead(run: Run) -> InstallPlan:
    """What `carry_out` would do, from metadata alone; nothing is locked, written or kept.

    Raises what `carry_out` raises before it writes, `NoSpace` included.
    """
    # A look creates nothing, and a lock that nobody ever took is not held now.
    with InstallLock(run.paths.lock) if run.paths.lock.exists() else nullcontext():
        check_start(run.paths, overwrite=run.overwrite, resume=run.resume)
        saved = saved_journal(run) if run.resume else None
        run.report(Progress("plan", 0, 0))
        prepared = prepare(run)
        if saved:
            check_same(saved, prepared.journal)
            saved = still_valid(saved, prepared, run)
    required = space_needed(run, prepared, saved)
    free = free_space(run.paths.final.parent)
    check_space(required, free, run.paths.final.parent)
    return InstallPlan(
        path=run.paths.final,
        entry=prepared.snapshot.entry,
        model_id=prepared.snapshot.model_id,
        source=run.source.description,
        download=prepared.download_bytes - (saved.source_bytes if saved else 0),
        installed=prepared.installed_bytes,
        required=required,
        free=free,
    )


def _build(run: Run, saved: Journal | None) -> tuple[Snapshot, Manifest, int]:
    """Everything inside the partial directory; with it the bytes reused of saved state."""
    paths = run.paths
    run.report(Progress("plan", 0, 0))
    prepared = prepare(run)
    if saved:
        check_same(saved, prepared.journal)
    journal, files, reused = make_outputs(run, prepared, saved)
    files[LAYOUT] = _write_layout(paths.partial, prepared.repack.layout)
    files |= write_sidecars(run, prepared.snapshot)
    manifest = _new_manifest(prepared, files)
    _write_manifest(paths, prepared.snapshot, manifest)
    write_journal(paths.checkpoint, replace(journal, promoted=paths.partial.stat().st_ino))
    return prepared.snapshot, manifest, reused


def _write_layout(partial: Path, layout: Layout) -> FileRecord:
    record = FileRecord(*write_chunks(partial / LAYOUT, layout_chunks(layout)))
    sync_directory(partial / EXPERTS)
    return record


def _new_manifest(prepared: Preparation, files: dict[str, FileRecord]) -> Manifest:
    snapshot, repack = prepared.snapshot, prepared.repack
    family = FAMILIES[snapshot.arch.family]
    manifest = Manifest(
        model_id=snapshot.model_id,
        arch=snapshot.arch,
        files=files,
        experts_per_layer=repack.layout.experts_per_layer,
        num_layers=repack.layout.num_layers,
        expert_stride=repack.layout.expert_stride,
        quant=repack.quant,
        source_hash=f"sha256:{snapshot.index_sha256}",
        flash_head=snapshot.flash_head,
        overrides_honored=len(snapshot.quantization.overrides),
        arch_keys=frozenset(snapshot.arch.written(family.extension_keys)),
    )
    check_manifest(manifest, snapshot.arch)
    return manifest


def _write_manifest(paths: InstallPaths, snapshot: Snapshot, manifest: Manifest) -> None:
    data = encode_manifest(manifest)
    write_atomically(paths.partial / MANIFEST, data)
    source = (snapshot.entry.repo, snapshot.entry.revision) if snapshot.entry else None
    receipt = new_receipt(paths.final, data, manifest, TOOL_INSTALL, source)
    write_durably(paths.partial / RECEIPT, encode_receipt(receipt))
    sync_directory(paths.partial)
