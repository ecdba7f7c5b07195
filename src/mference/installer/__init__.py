"""Installing a checkpoint: a source is repacked once into a `.gturbo` directory.

`install` does it, `repair` fetches damaged files again, `discard_partial` forgets an unfinished
install, `list_installs` finds what lies in a directory, `remove_install` deletes an install.
Sources are the Hugging Face hub or a mirror of it, a folder, an http(s) address below which the
checkpoint's files lie, or the checkpoint that this package carries.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal, overload

from mference.errors import InstallError
from mference.families import PinnedEntry, check_runnable, entry_by_model_id, pinned_entry
from mference.installer.http_source import MAX_CONNECTIONS, HttpSource
from mference.installer.hub_cache import checkpoint_folder
from mference.installer.hub_source import HubSource
from mference.installer.installer import carry_out, look_ahead
from mference.installer.listing import Listed, list_installs
from mference.installer.paths import default_output, planned_paths, prepared_paths
from mference.installer.removal import Removal, remove_install
from mference.installer.repairing import RepairReport, carry_out_repair, read_repairable
from mference.installer.run import (
    DEFAULT_CONNECTIONS,
    InstallPlan,
    InstallReport,
    Limits,
    Progress,
    Run,
)
from mference.installer.source import DEMO_CHECKPOINT, FolderSource, Source
from mference.installer.state import discard_partial

__all__ = [
    "DEFAULT_CONNECTIONS",
    "MAX_CONNECTIONS",
    "FolderSource",
    "HttpSource",
    "HubSource",
    "InstallPlan",
    "InstallReport",
    "Limits",
    "Listed",
    "Progress",
    "Removal",
    "RepairReport",
    "Source",
    "default_output",
    "discard_partial",
    "install",
    "list_installs",
    "open_source",
    "remove_install",
    "repair",
]


@overload
def install(
    source: str | Path | None = None,
    output: str | Path | None = None,
    *,
    entry: str = "gemma4",
    base_url: str | None = None,
    overwrite: bool = False,
    resume: bool = False,
    dry_run: Literal[False] = False,
    allow_unpinned: bool = False,
    connections: int = DEFAULT_CONNECTIONS,
    progress: Callable[[Progress], None] | None = None,
) -> InstallReport: ...
@overload
def install(
    source: str | Path | None = None,
    output: str | Path | None = None,
    *,
    entry: str = "gemma4",
    base_url: str | None = None,
    overwrite: bool = False,
    resume: bool = False,
    dry_run: Literal[True],
    allow_unpinned: bool = False,
    connections: int = DEFAULT_CONNECTIONS,
    progress: Callable[[Progress], None] | None = None,
) -> InstallPlan: ...
def install(
    source: str | Path | None = None,
    output: str | Path | None = None,
    *,
    entry: str = "gemma4",
    base_url: str | None = None,
    overwrite: bool = False,
    resume: bool = False,
    dry_run: bool = False,
    allow_unpinned: bool = False,
    connections: int = DEFAULT_CONNECTIONS,
    progress: Callable[[Progress], None] | None = None,
) -> InstallReport | InstallPlan:
    """Install a checkpoint into a `.gturbo` directory.

    `source` is a folder or an http(s) address; a folder may be a repository in the hub's cache,
    such as `~/.cache/huggingface/hub/models--OWNER--NAME`. None stands for the entry's own source:
    the checkpoint in the package for `demo`, else its repository on the Hugging Face hub, or on the
    mirror that `base_url` or `HF_ENDPOINT` names. `output` is the directory to create, by default
    `default_output`. `overwrite` replaces an existing install at the end, in one step; a directory
    that holds something else is refused.

    `resume` continues an interrupted install: what was copied is digested again, only what is
    missing or damaged is read from the source, and the result is that of an uninterrupted install.
    `dry_run` reads metadata, plans, looks at the disk, and returns an `InstallPlan`; it writes
    nothing.

    `connections` ranges are read at the same time, 1 to 16; fewer go on if the server will not
    serve as many. The install is the same whatever their number.

    A source that is not the entry's pinned one is refused unless `allow_unpinned`; its install
    carries no pinned model id. `progress` is called from this thread, up to thousands of times.

    Raises `InstallError` and the classes below it (`StateMissing` if there is nothing to resume),
    and `UnsupportedModel` for a family without code. An interrupted or failed copy is kept; the
    exception's notes say where and what to do.
    """
    chosen = pinned_entry(entry)
    check_runnable(chosen.family, f"the model '{entry}'")
    opened = open_source(source, chosen, base_url)
    try:
        place = output if output is not None else default_output(entry)
        run = Run(
            opened,
            chosen,
            planned_paths(place) if dry_run else prepared_paths(place),
            overwrite=overwrite,
            resume=resume,
            allow_unpinned=allow_unpinned,
            limits=Limits(connections=connections),
            report=progress or (lambda _: None),
        )
        return look_ahead(run) if dry_run else carry_out(run)
    finally:
        opened.close()


def repair(
    path: str | Path,
    source: str | Path | None = None,
    *,
    entry: str = "demo",
    base_url: str | None = None,
    connections: int = DEFAULT_CONNECTIONS,
    progress: Callable[[Progress], None] | None = None,
) -> RepairReport:
    """Hash every file of an install, and fetch those again that are damaged or missing.

    `source` and `base_url` are as for `install`; they must lead to the checkpoint that the install
    was made of, which the hashes of its manifest decide. Of an unpinned install, `entry` names the
    model that it was installed as. An interrupted repair goes on when it is called again.

    Raises `InstallError` and the classes below it, `UnsupportedModel`, and `StoreError` if there
    is no manifest left to repair by.
    """
    paths = prepared_paths(path)
    _, manifest = read_repairable(paths.final)
    pinned = entry_by_model_id(manifest.model_id) or pinned_entry(entry)
    check_runnable(pinned.family, f"the model '{pinned.name}'")
    opened = open_source(source, pinned, base_url)
    try:
        return carry_out_repair(
            Run(
                opened,
                pinned,
                paths,
                allow_unpinned=True,
                limits=Limits(connections=connections),
                report=progress or (lambda _: None),
            )
        )
    finally:
        opened.close()


def open_source(
    source: str | Path | None, entry: PinnedEntry, base_url: str | None = None
) -> Source:
    """The source that `install` reads for these arguments.

    Raises `InstallError` if there is none or two, `SourceMismatch` if the folder does not exist or
    is a repository in the hub's cache without the pinned revision.
    """
    if source is None:
        if entry.embedded and base_url is None:
            return FolderSource(DEMO_CHECKPOINT)
        return HubSource(entry.repo, entry.revision, base_url=base_url)
    if base_url is not None:
        raise InstallError("give a source or a base address of the hub, not both")
    if source == "":
        raise InstallError("the source is empty; name a folder or an http(s) address")
    if isinstance(source, str) and ("://" in source or re.match("https?:", source, re.IGNORECASE)):
        return HttpSource(source, commit=entry.revision)
    return FolderSource(checkpoint_folder(source, entry.revision))
