"""The sequence of an install, from the lock to the moment the directory appears."""

import errno
import os
import shutil
import time
from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryDirectory

from mference.errors import CheckpointError, InstallError, NoSpace, StateError
from mference.families import FAMILIES
from mference.installer.journal import CompletedRange, Journal, write_journal
from mference.installer.lock import InstallLock
from mference.installer.paths import InstallPaths
from mference.installer.plan import RangePlan
from mference.installer.preparation import Preparation, prepare
from mference.installer.promotion import promote
from mference.installer.resume import check_same, saved_journal, still_valid
from mference.installer.run import InstallPlan, InstallReport, Progress, Run
from mference.installer.sidecars import write_sidecars
from mference.installer.snapshot import CONFIG_NAME, INDEX_NAME, Snapshot
from mference.installer.space import check_space, free_space, required_space
from mference.installer.state import HOW_TO_DISCARD, HOW_TO_RESUME, check_start, remove_partial
from mference.installer.transfer import copy_range
from mference.store.directory import (
    EXPERTS,
    LAYOUT,
    MANIFEST,
    RECEIPT,
    TOKENIZER,
    WEIGHTS,
    sha256_file,
)
from mference.store.layout import Layout, layout_chunks
from mference.store.manifest import FileRecord, Manifest, check_manifest, encode_manifest
from mference.store.receipt import TOOL_INSTALL, encode_receipt, new_receipt
from mference.store.writing import sync_directory, write_atomically, write_chunks, write_durably


def carry_out(run: Run) -> InstallReport:
    """Install under the lock of the output path.

    A failure before the checkpoint exists removes the partial directory; after that, partial and
    checkpoint stay. The final path holds the old install or the new one, never a part. Raises the
    `InstallError` branch and `UnsupportedModel`.
    """
    began = time.monotonic()
    paths = run.paths
    with InstallLock(paths.lock):
        check_start(paths, overwrite=run.overwrite, resume=run.resume)
        try:
            saved = saved_journal(run) if run.resume else None
            snapshot, manifest, reused = _build(run, saved)
            promote(paths.partial, paths.final)
            paths.checkpoint.unlink()
            sync_directory(paths.final.parent)
        except BaseException as exc:
            failure = _named(exc) if isinstance(exc, OSError) else exc
            if not paths.checkpoint.exists():
                remove_partial(paths)
            elif not isinstance(exc, StateError):
                failure.add_note(
                    f"What was copied is kept in {paths.partial}. {HOW_TO_RESUME} {HOW_TO_DISCARD}"
                )
            if failure is exc:
                raise
            raise failure from exc
    return InstallReport(
        path=paths.final,
        entry=snapshot.entry,
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
    check_start(run.paths, overwrite=run.overwrite, resume=run.resume)
    saved = saved_journal(run) if run.resume else None
    run.report(Progress("plan", 0, 0))
    with TemporaryDirectory(prefix="mference-") as folder:
        prepared = prepare(run, Path(folder) / run.paths.staging.name)
    if saved:
        check_same(saved, prepared.journal)
        saved = still_valid(saved, prepared, run)
    required = _required(run, prepared, saved or prepared.journal)
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


def _named(error: OSError) -> InstallError:
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpace(f"{error.strerror}{where}: free some space, then install again")
    return InstallError(f"the install failed: {error.strerror}{where}")


def _build(run: Run, saved: Journal | None) -> tuple[Snapshot, Manifest, int]:
    """Everything inside the partial directory; with it the bytes reused of saved state."""
    paths = run.paths
    if saved:
        paths.staging.unlink(missing_ok=True)
    else:
        paths.partial.mkdir()
    run.report(Progress("plan", 0, 0))
    prepared = prepare(run, paths.staging)
    valid = None
    if saved:
        check_same(saved, prepared.journal)
        valid = still_valid(saved, prepared, run)
        _clear(paths.partial, keep=prepared.plan.outputs if valid else ())
    journal = valid or prepared.journal
    where = paths.final.parent
    check_space(_required(run, prepared, journal), free_space(where), where)
    _create_folders(paths, prepared.snapshot)
    if not valid:
        _create_outputs(paths.partial, prepared)
        write_journal(paths.checkpoint, journal)
    _copy_ranges(run, prepared.plan, journal)
    files = _hash_outputs(run, prepared.plan)
    files[LAYOUT] = _write_layout(paths.partial, prepared.repack.layout)
    files |= write_sidecars(run, prepared.snapshot)
    shutil.rmtree(paths.metadata)
    manifest = _new_manifest(prepared, files)
    _write_manifest(paths, prepared.snapshot, manifest)
    return prepared.snapshot, manifest, journal.destination_bytes


def _required(run: Run, prepared: Preparation, journal: Journal) -> int:
    return required_space(
        prepared.output_bytes,
        journal.destination_bytes,
        prepared.plan.chunk,
        run.entry.reserve_bytes,
    )


def _clear(partial: Path, keep: Collection[str]) -> None:
    for folder, _, names in os.walk(partial):
        for path in (Path(folder) / name for name in names):
            if path.relative_to(partial).as_posix() not in keep:
                path.unlink()


def _create_folders(paths: InstallPaths, snapshot: Snapshot) -> None:
    for folder in (paths.partial / EXPERTS, paths.partial / TOKENIZER, paths.metadata):
        folder.mkdir(exist_ok=True)
    write_durably(paths.metadata / INDEX_NAME, snapshot.index)
    write_durably(paths.metadata / CONFIG_NAME, snapshot.config)


def _create_outputs(partial: Path, prepared: Preparation) -> None:
    for name, size in prepared.plan.outputs.items():
        with (partial / name).open("xb") as file:
            if name == WEIGHTS:
                file.write(prepared.index)
                file.flush()
            os.ftruncate(file.fileno(), size)
            os.fsync(file.fileno())
    sync_directory(partial / EXPERTS)
    sync_directory(partial)


def _copy_ranges(run: Run, plan: RangePlan, journal: Journal) -> None:
    copied = {range_.id for range_ in journal.completed}
    total = sum(part.size for r in plan.ranges for part in r.parts)
    done = sum(part.size for r in plan.ranges if r.id in copied for part in r.parts)

    def advance(count: int) -> None:
        nonlocal done
        done += count
        run.report(Progress("copy", done, total))

    for r in plan.ranges:
        if r.id in copied:
            continue
        size = run.source.size(r.shard, ranged=True)
        if size is None:
            raise CheckpointError(f"{r.shard} disappeared from the source", "missing_file")
        digest = copy_range(
            run.source,
            r,
            size,
            run.paths.partial,
            run.paths.staging,
            scratch=run.limits.scratch,
            progress=advance,
        )
        journal = journal.with_range(CompletedRange(r.id, digest, r.size, r.output_size))
        write_journal(run.paths.checkpoint, journal)


def _hash_outputs(run: Run, plan: RangePlan) -> dict[str, FileRecord]:
    total = sum(plan.outputs.values())
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        run.report(Progress("verify", done, total))

    return {
        name: FileRecord(size, sha256_file(run.paths.partial / name, progress=advance))
        for name, size in plan.outputs.items()
    }


def _write_layout(partial: Path, layout: Layout) -> FileRecord:
    return FileRecord(*write_chunks(partial / LAYOUT, layout_chunks(layout)))


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
