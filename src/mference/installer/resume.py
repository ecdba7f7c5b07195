"""Whether saved state is of the install that is asked for, and how much of it still holds."""

import stat
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from mference.errors import StateCorrupt, StateIncompatible
from mference.installer.advice import HOW_TO_DISCARD
from mference.installer.journal import CompletedRange, Journal, read_journal
from mference.installer.plan import Range
from mference.installer.preparation import UNPINNED_REVISION, Preparation
from mference.installer.run import Progress, Run
from mference.installer.transfer import digested_bytes
from mference.store.directory import EXPERTS, WEIGHTS

_MEANINGS = {
    "repo": "the repository",
    "revision": "the revision",
    "commit": "the commit",
    "index_sha256": "the index's hash",
    "fingerprint": "the plan of the copy",
    "total_source_bytes": "the number of bytes to copy",
}


def saved_journal(run: Run) -> Journal:
    """The saved state of the run's output, if it is of this model and source.

    Nothing is asked of the source. Raises `StateCorrupt` and `StateIncompatible`.
    """
    journal = read_journal(run.paths.checkpoint)
    wanted = [(run.entry.repo, run.entry.revision)]
    if run.allow_unpinned:
        wanted.append((run.source.identity, UNPINNED_REVISION))
    if (journal.repo, journal.revision) not in wanted:
        raise StateIncompatible(
            f"the unfinished install is of {journal.repo} at revision {journal.revision}, not of "
            f"{' or '.join(f'{repo} at {revision}' for repo, revision in wanted)}. Resume it as "
            f"that. {HOW_TO_DISCARD}"
        )
    return journal


def check_same(journal: Journal, fresh: Journal) -> None:
    """Check that saved state is of the source and the plan at hand.

    Raises `StateIncompatible`, naming the first difference.
    """
    if difference := first_difference(journal, fresh):
        raise StateIncompatible(
            f"{difference} is not that of the unfinished install, which cannot be continued. "
            f"{HOW_TO_DISCARD}"
        )


def first_difference(journal: Journal, fresh: Journal) -> str | None:
    """What of the source or the plan differs between saved state and what is at hand, if any."""
    for field, meaning in _MEANINGS.items():
        if getattr(journal, field) != getattr(fresh, field):
            return meaning
    return None


def still_valid(journal: Journal, prepared: Preparation, run: Run) -> Journal | None:
    """The saved state without the ranges whose bytes are no longer those that were written.

    None if an output file is missing, has another size or another index region: nothing of it
    can be used. Reads every recorded range back. Raises `StateCorrupt` and `OSError`.
    """
    if not _outputs_fit(run.paths.partial, prepared):
        return None
    ranges = {r.id: r for r in prepared.plan.ranges}
    for done in journal.completed:
        _check_recorded(done, ranges.get(done.id))
    count = _counter(run, journal.destination_bytes)
    kept = tuple(
        done for done in journal.completed if _digest(ranges[done.id], run, count) == done.digest
    )
    return replace(journal, completed=kept)


def _check_recorded(done: CompletedRange, planned: Range | None) -> None:
    if planned is None:
        raise StateCorrupt(f"the saved state lists an unknown range {done.id}. {HOW_TO_DISCARD}")
    if (done.source_bytes, done.destination_bytes) != (planned.size, planned.output_size):
        raise StateCorrupt(f"the saved state gives {done.id} other sizes. {HOW_TO_DISCARD}")


def _outputs_fit(root: Path, prepared: Preparation) -> bool:
    if (root / EXPERTS).is_symlink():
        return False
    for name, size in prepared.plan.outputs.items():
        try:
            found = (root / name).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        # Another name of the file would be written through.
        if not stat.S_ISREG(found.st_mode) or found.st_size != size or found.st_nlink != 1:
            return False
    if WEIGHTS not in prepared.plan.outputs:
        return True
    with (root / WEIGHTS).open("rb") as file:
        return file.read(len(prepared.index)) == prepared.index


def _digest(r: Range, run: Run, progress: Callable[[int], None]) -> str:
    digest = sha256()
    for data in digested_bytes(r, run.paths.partial, run.limits.scratch, progress):
        digest.update(data)
    return digest.hexdigest()


def _counter(run: Run, total: int) -> Callable[[int], None]:
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        run.report(Progress("check", done, total))

    return advance
