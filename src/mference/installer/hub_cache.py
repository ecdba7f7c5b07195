"""A checkpoint that lies in the Hugging Face cache of this machine, found without the network."""

from pathlib import Path

from mference.errors import SourceMismatch
from mference.installer.snapshot import INDEX_NAME

_LISTED = 8


def checkpoint_folder(path: str | Path, revision: str) -> Path:
    """The folder with the checkpoint's files: `path` itself, or a snapshot in it.

    A repository in the cache (`.../hub/models--OWNER--NAME`) keeps each revision that was
    downloaded in `snapshots/REVISION`; there it is the one of `revision`. Any other path is
    returned as it is. Raises `SourceMismatch`, with the revisions that are there, if that one is
    not.
    """
    folder = Path(path)
    snapshots = folder / "snapshots"
    if (folder / INDEX_NAME).exists() or not snapshots.is_dir():
        return folder
    if (snapshots / revision).is_dir():
        return snapshots / revision
    found = sorted(entry.name for entry in snapshots.iterdir() if entry.is_dir())
    if not found:
        raise SourceMismatch(
            f"{folder} holds no revision of its repository. Download revision {revision} into it, "
            "or name another source (--source)."
        )
    more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    raise SourceMismatch(
        f"{folder} does not hold the pinned revision {revision}, but {', '.join(found[:_LISTED])}"
        f"{more}. Download the pinned one, or name the folder of another below {snapshots} and "
        "allow unpinned sources (--allow-unpinned)."
    )
