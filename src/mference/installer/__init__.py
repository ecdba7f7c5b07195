"""Installing a checkpoint: a source is repacked once into a `.gturbo` directory.

`install` does it, `discard_partial` forgets an unfinished one. Sources are the Hugging Face hub or
a mirror of it, a folder, an http(s) address below which the checkpoint's files lie, or the
checkpoint that this package carries.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal, overload

from mference.errors import InstallError
from mference.families import PinnedEntry, pinned_entry, source_rules
from mference.installer.http_source import MAX_CONNECTIONS, HttpSource
from mference.installer.hub_source import HubSource
from mference.installer.installer import carry_out, look_ahead
from mference.installer.paths import default_output, planned_paths, prepared_paths
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
    "Progress",
    "Source",
    "default_output",
    "discard_partial",
    "install",
    "open_source",
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

    `source` is a folder or an http(s) address. None stands for the entry's own source: the
    checkpoint in the package for `demo`, else its repository on the Hugging Face hub, or on the
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
    source_rules(chosen.family, f"the model '{entry}'")
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


def open_source(
    source: str | Path | None, entry: PinnedEntry, base_url: str | None = None
) -> Source:
    """The source that `install` reads for these arguments.

    Raises `InstallError` if there is none or two, `SourceMismatch` if the folder does not exist.
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
    return FolderSource(source)
