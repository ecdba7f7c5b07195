"""The sequence of an install, from the lock to the moment the directory appears."""

import errno
import logging
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Literal

from mference.errors import CheckpointError, InstallError, NoSpace
from mference.families import FAMILIES, PinnedEntry
from mference.families.pins import REQUIRED_SIDECARS
from mference.installer.journal import CompletedRange, Journal, write_journal
from mference.installer.lock import InstallLock
from mference.installer.paths import InstallPaths, is_inside
from mference.installer.plan import MAX_CHUNK, RangePlan, check_destinations, plan_ranges
from mference.installer.promotion import promote
from mference.installer.repack import Repack, plan_repack
from mference.installer.snapshot import CONFIG_NAME, INDEX_NAME, Snapshot, read_snapshot
from mference.installer.source import Source, blocks
from mference.installer.state import HOW_TO_DISCARD, check_start, remove_partial
from mference.installer.transfer import DEFAULT_SCRATCH, MAX_SCRATCH, copy_range
from mference.store.directory import (
    EXPERTS,
    LAYOUT,
    MANIFEST,
    RECEIPT,
    TOKENIZER,
    WEIGHTS,
    sha256_file,
)
from mference.store.layout import check_written_layout, encode_layout
from mference.store.manifest import FileRecord, Manifest, check_manifest, encode_manifest
from mference.store.receipt import TOOL_INSTALL, encode_receipt, new_receipt
from mference.store.resident import encode_index
from mference.store.writing import sync_directory, write_atomically, write_durably

SIDECAR_CAPS = {
    "config.json": 1 << 20,
    "tokenizer.json": 64 << 20,
    "tokenizer_config.json": 4 << 20,
    "special_tokens_map.json": 1 << 20,
    "chat_template.jinja": 4 << 20,
    "chat_template.json": 4 << 20,
}


@dataclass(frozen=True)
class Progress:
    """How far an install is: bytes done of bytes in all, within one phase.

    `plan` reads metadata (no bytes), `copy` counts source bytes, `verify` counts bytes hashed.
    """

    phase: Literal["plan", "copy", "verify"]
    done: int
    total: int


@dataclass(frozen=True)
class InstallReport:
    """A finished install: where, of what, how large (bytes, files), how long it took (seconds)."""

    path: Path
    entry: PinnedEntry | None
    model_id: str
    source: str
    files: int
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Limits:
    """Bytes read from a source at once, and bytes held in memory at once."""

    chunk: int = MAX_CHUNK
    scratch: int = DEFAULT_SCRATCH

    def __post_init__(self) -> None:
        if not 1 <= self.chunk <= MAX_CHUNK:
            raise InstallError(f"the range chunk must be 1 to {MAX_CHUNK} bytes, not {self.chunk}")
        if not 1 <= self.scratch <= MAX_SCRATCH:
            raise InstallError(f"the write tile must be 1 to {MAX_SCRATCH} bytes")


@dataclass
class Run:
    """What one install needs from beginning to end."""

    source: Source
    entry: PinnedEntry
    paths: InstallPaths
    overwrite: bool = False
    allow_unpinned: bool = False
    report: Callable[[Progress], None] = lambda _: None
    limits: Limits = field(default_factory=Limits)


def carry_out(run: Run) -> InstallReport:
    """Install under the lock of the output path.

    A failure before the checkpoint exists removes the partial directory; after that, partial and
    checkpoint stay. The final path holds the old install or the new one, never a part. Raises the
    `InstallError` branch and `UnsupportedModel`.
    """
    began = time.monotonic()
    paths = run.paths
    with InstallLock(paths.lock):
        check_start(paths, overwrite=run.overwrite)
        paths.partial.mkdir()
        try:
            snapshot, manifest = _build(run)
            promote(paths.partial, paths.final)
            paths.checkpoint.unlink()
            sync_directory(paths.final.parent)
        except BaseException as exc:
            failure = _named(exc) if isinstance(exc, OSError) else exc
            if paths.checkpoint.exists():
                failure.add_note(f"What was copied is kept in {paths.partial}. {HOW_TO_DISCARD}")
            else:
                remove_partial(paths)
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
        seconds=time.monotonic() - began,
    )


def _named(error: OSError) -> InstallError:
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpace(f"{error.strerror}{where}: free some space, then install again")
    return InstallError(f"the install failed: {error.strerror}{where}")


def required_space(output: int, reused: int, chunk: int, reserve: int) -> int:
    """Bytes that must be free: what is still to be written, one chunk, and the reserve.

    Raises `InstallError` if the sum is no 64-bit size.
    """
    need = output - reused + chunk + reserve
    if need >= 2**64 or reused > output:
        raise InstallError(f"{output} bytes of output are no possible size")
    return need


def check_space(required: int, available: int, where: Path) -> None:
    """Raise `NoSpace`, with the shortfall, if fewer bytes are available than required."""
    if available < required:
        raise NoSpace(
            f"{where} has {available} bytes free, the install needs {required}: "
            f"{required - available} more. Free some space, or choose another output."
        )


def _build(run: Run) -> tuple[Snapshot, Manifest]:
    paths, partial = run.paths, run.paths.partial
    run.report(Progress("plan", 0, 0))
    snapshot = read_snapshot(
        run.source, run.entry, allow_unpinned=run.allow_unpinned, staging=paths.staging
    )
    if snapshot.entry is None:
        logging.getLogger("mference").warning(
            "%s is no pinned source; nobody vouches for it.", run.source.description
        )
    family = FAMILIES[snapshot.arch.family]
    repack = plan_repack(
        family, snapshot.rules, snapshot.arch, snapshot.quantization, snapshot.tensors
    )
    _check_dense_layers(snapshot, repack)
    for name in run.entry.sidecars:  # before the weights, which may take hours
        sidecar_size(run.source, name)
    plan = _plan_ranges(run, repack)
    need = required_space(sum(plan.outputs.values()), 0, plan.chunk, run.entry.reserve_bytes)
    check_space(need, shutil.disk_usage(paths.final.parent).free, paths.final.parent)
    _create_outputs(paths, snapshot, repack)
    journal = Journal(
        repo=snapshot.repo,
        revision=snapshot.commit,
        commit=snapshot.commit,
        index_sha256=snapshot.index_sha256,
        fingerprint=plan.fingerprint(),
        total_source_bytes=plan.source_bytes,
    )
    write_journal(paths.checkpoint, journal)
    _copy_ranges(run, plan, journal)
    files = _hash_outputs(run, plan)
    files[LAYOUT] = _write_layout(partial, repack)
    files |= _write_sidecars(run, snapshot)
    shutil.rmtree(paths.metadata)
    manifest = Manifest(
        model_id=snapshot.model_id,
        arch=snapshot.arch,
        files=files,
        experts_per_layer=repack.layout.experts_per_layer,
        num_layers=repack.layout.num_layers,
        expert_stride=repack.layout.expert_stride,
        quant=repack.quant,
        source_hash=f"sha256:{snapshot.index_sha256}",
        overrides_honored=len(snapshot.quantization.overrides),
        arch_keys=frozenset(snapshot.arch.written(family.extension_keys)),
    )
    check_manifest(manifest, snapshot.arch)
    _write_manifest(paths, snapshot, manifest)
    return snapshot, manifest


def _check_dense_layers(snapshot: Snapshot, repack: Repack) -> None:
    dense = snapshot.arch.integer("numDenseLayers")
    for layer in repack.layout.layers:
        if not layer.experts and layer.layer >= dense:
            raise CheckpointError(
                f"the source has no experts for layer {layer.layer}", "configuration_error"
            )


def _plan_ranges(run: Run, repack: Repack) -> RangePlan:
    check_destinations(repack.copies)
    root = str(run.paths.partial)
    for path in repack.outputs:
        if not is_inside(root, f"{root}/{path}"):
            raise InstallError(f"{path!r} would be written outside {root}")
    return RangePlan(
        chunk=run.limits.chunk,
        ranges=plan_ranges(repack.copies, run.limits.chunk),
        outputs=repack.outputs,
        index_sha256=sha256(encode_index(repack.index)).hexdigest(),
    )


def _create_outputs(paths: InstallPaths, snapshot: Snapshot, repack: Repack) -> None:
    partial = paths.partial
    for folder in (partial / EXPERTS, partial / TOKENIZER, paths.metadata):
        folder.mkdir()
    write_durably(paths.metadata / INDEX_NAME, snapshot.index)
    write_durably(paths.metadata / CONFIG_NAME, snapshot.config)
    for name, size in repack.outputs.items():
        with (partial / name).open("xb") as file:
            if name == WEIGHTS:
                file.write(encode_index(repack.index))
                file.flush()
            os.ftruncate(file.fileno(), size)
            os.fsync(file.fileno())
    sync_directory(partial / EXPERTS)
    sync_directory(partial)


def _copy_ranges(run: Run, plan: RangePlan, journal: Journal) -> None:
    total = sum(part.size for r in plan.ranges for part in r.parts)
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        run.report(Progress("copy", done, total))

    for r in plan.ranges:
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


def _write_layout(partial: Path, repack: Repack) -> FileRecord:
    layout = repack.layout
    data = encode_layout(layout)
    check_written_layout(data, layout.num_layers, layout.experts_per_layer, layout.expert_stride)
    write_durably(partial / LAYOUT, data)
    return FileRecord(len(data), sha256(data).hexdigest())


def _write_sidecars(run: Run, snapshot: Snapshot) -> dict[str, FileRecord]:
    files = {}
    for name in run.entry.sidecars:
        path = run.paths.partial / TOKENIZER / name
        if name == CONFIG_NAME:
            write_durably(path, snapshot.config)
            record = FileRecord(len(snapshot.config), sha256(snapshot.config).hexdigest())
        else:
            found = copy_sidecar(run, name, path)
            if found is None:
                continue
            record = found
        files[f"{TOKENIZER}/{name}"] = record
    sync_directory(run.paths.partial / TOKENIZER)
    return files


def sidecar_size(source: Source, name: str) -> int | None:
    """Bytes of a tokenizer file; None if the source has none and it is optional.

    Raises `CheckpointError` as `copy_sidecar` does.
    """
    size = source.size(name)
    if size is None and name in REQUIRED_SIDECARS:
        raise CheckpointError(f"{source.description} has no {name}", "missing_file")
    if size is not None and size > SIDECAR_CAPS[name]:
        raise CheckpointError(f"{name} has {size} bytes: too large", "too_large")
    return size


def copy_sidecar(run: Run, name: str, path: Path) -> FileRecord | None:
    """Copy a tokenizer file to `path`; None if the source has none and it is optional.

    Raises `CheckpointError` if a required file is missing (`missing_file`) or one is too large
    (`too_large`).
    """
    size = sidecar_size(run.source, name)
    if size is None:
        return None
    digest = sha256()
    with path.open("xb") as file:
        if size:
            with run.source.open_range(name, 0, size, size, run.paths.staging) as (fd, start):
                for data in blocks(fd, start, size, run.limits.scratch, name):
                    digest.update(data)
                    file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return FileRecord(size, digest.hexdigest())


def _write_manifest(paths: InstallPaths, snapshot: Snapshot, manifest: Manifest) -> None:
    data = encode_manifest(manifest)
    write_atomically(paths.partial / MANIFEST, data)
    source = (snapshot.entry.repo, snapshot.entry.revision) if snapshot.entry else None
    receipt = new_receipt(paths.final, data, manifest, TOOL_INSTALL, source)
    write_durably(paths.partial / RECEIPT, encode_receipt(receipt))
    sync_directory(paths.partial)
