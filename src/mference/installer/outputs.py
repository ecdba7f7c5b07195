"""The large files of an install: made at their full size, then filled range by range."""

import shutil
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from mference.installer.copying import copy_ranges
from mference.installer.journal import Journal, write_journal
from mference.installer.preparation import Preparation
from mference.installer.resume import still_valid
from mference.installer.run import Run
from mference.installer.source import BLOCK
from mference.installer.space import check_space, free_space, required_space, unallocated
from mference.store.directory import EXPERTS, TOKENIZER, WEIGHTS
from mference.store.manifest import FileRecord
from mference.store.writing import new_file, sync_directory, sync_file, take_room

if TYPE_CHECKING:
    from mference.installer.plan import Copy


def make_outputs(
    run: Run, prepared: Preparation, saved: Journal | None
) -> tuple[Journal, dict[str, FileRecord], int]:
    """Make the large files in the run's partial directory, going on from what is `saved`.

    The checkpoint exists once the files have their sizes, and the partial directory has its name
    once the checkpoint exists. The journal of everything, each file's size and hash, and how many
    of their bytes were there already. Raises the `InstallError` branch and `OSError`.
    """
    paths = run.paths
    valid = None
    if saved:
        valid = still_valid(saved, prepared, run)
        _clear(paths.partial, keep=prepared.plan.outputs if valid else ())
    journal = valid or prepared.journal
    where = paths.final.parent
    check_space(space_needed(run, prepared, valid), free_space(where), where)
    place = paths.partial if saved else paths.starting
    for folder in (place, place / EXPERTS, place / TOKENIZER):
        folder.mkdir(exist_ok=True)
    if not valid:
        _create_files(place, prepared)
        write_journal(paths.checkpoint, journal)
    if not saved:
        paths.starting.rename(paths.partial)
        sync_directory(where)
    if valid:
        _clear_gaps(paths.partial, prepared)
    journal, files = copy_ranges(run, prepared.plan, journal)
    return journal, files, (valid or prepared.journal).destination_bytes


def space_needed(run: Run, prepared: Preparation, valid: Journal | None) -> int:
    """Bytes that must be free to make what valid saved state lacks. Raises `InstallError`.

    Those that files of an unfinished install have taken already are not needed again.
    """
    taken = 0
    if valid:
        outputs = [run.paths.partial / path for path in prepared.plan.outputs]
        taken = max(valid.destination_bytes, prepared.output_bytes - unallocated(outputs))
    return required_space(
        prepared.output_bytes,
        taken,
        prepared.plan.chunk,
        run.entry.reserve_bytes,
    )


def _clear(folder: Path, keep: Collection[str], prefix: str = "") -> None:
    """Remove what is not to be kept; of folders those of an install stay, of symlinks none."""
    for path in folder.iterdir():
        name = prefix + path.name
        if path.is_symlink() or not path.is_dir():
            if name not in keep:
                path.unlink()
        elif name in (EXPERTS, TOKENIZER):
            _clear(path, keep, f"{name}/")
        else:
            shutil.rmtree(path)


def _clear_gaps(partial: Path, prepared: Preparation) -> None:
    """See that there are zeros where no range writes, which no digest covers."""
    parts: dict[str, list[Copy]] = {path: [] for path in prepared.plan.outputs}
    for r in prepared.plan.ranges:
        for part in r.parts:
            parts[part.path].append(part)
    for path, size in prepared.plan.outputs.items():
        at = len(prepared.index) if path == WEIGHTS else 0
        with (partial / path).open("r+b") as file:
            for part in sorted(parts[path], key=lambda p: p.destination_offset):
                _clear_gap(file, at, part.destination_offset)
                at = part.destination_end
            _clear_gap(file, at, size)
            file.flush()
            sync_file(file.fileno())


def _clear_gap(file: BinaryIO, start: int, end: int) -> None:
    while start < end:
        file.seek(start)
        count = min(BLOCK, end - start)
        if file.read(count).strip(b"\0"):
            file.seek(start)
            file.write(bytes(count))
        start += count


def _create_files(folder: Path, prepared: Preparation) -> None:
    for name, size in prepared.plan.outputs.items():
        with new_file(folder / name) as file:
            if name == WEIGHTS:
                file.write(prepared.index)
                file.flush()
            take_room(file.fileno(), size)
    sync_directory(folder / EXPERTS)
    sync_directory(folder)
