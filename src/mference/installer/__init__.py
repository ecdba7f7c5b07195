"""Installing a checkpoint: a source is repacked once into a `.gturbo` directory.

`install` does it, `discard_partial` forgets an unfinished one. Sources are a folder, an http(s)
address below which the checkpoint's files lie, or the checkpoint that this package carries.
"""

from collections.abc import Callable
from pathlib import Path

from mference.errors import InstallError
from mference.families import PinnedEntry, pinned_entry, source_rules
from mference.installer.http_source import HttpSource
from mference.installer.installer import InstallReport, Limits, Progress, Run, carry_out
from mference.installer.paths import default_output, prepared_paths
from mference.installer.source import DEMO_CHECKPOINT, FolderSource, Source
from mference.installer.state import discard_partial

__all__ = [
    "FolderSource",
    "HttpSource",
    "InstallReport",
    "Limits",
    "Progress",
    "Source",
    "default_output",
    "discard_partial",
    "install",
    "open_source",
]


def install(
    source: str | Path | None = None,
    output: str | Path | None = None,
    *,
    entry: str = "gemma4",
    overwrite: bool = False,
    allow_unpinned: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> InstallReport:
    """Install a checkpoint into a `.gturbo` directory.

    `source` is a folder, an http(s) base address, or None for an entry whose checkpoint the
    package carries (`demo`). `output` is the directory to create, by default `default_output`.
    `overwrite` replaces an existing install at the end, in one step. A source that is not the
    entry's pinned one is refused unless `allow_unpinned`; its install carries no pinned model id.
    `progress` is called from this thread, up to thousands of times.

    Raises `InstallError` and the classes below it, and `UnsupportedModel` for a family without
    code. An interrupted or failed copy is kept; the exception's notes say where and what to do.
    """
    chosen = pinned_entry(entry)
    source_rules(chosen.family, f"the model '{entry}'")
    opened = open_source(source, chosen)
    try:
        paths = prepared_paths(output if output is not None else default_output(entry))
        run = Run(opened, chosen, paths, overwrite, allow_unpinned, progress or (lambda _: None))
        return carry_out(run)
    finally:
        opened.close()


def open_source(source: str | Path | None, entry: PinnedEntry) -> Source:
    """The source that `install` reads for this argument.

    Raises `InstallError` if there is none, `SourceMismatch` if the folder does not exist.
    """
    if source is None:
        if not entry.embedded:
            raise InstallError(
                f"'{entry.name}' needs a source: a folder that holds {entry.repo} at revision "
                f"{entry.revision}, or an http(s) address below which its files lie."
            )
        return FolderSource(DEMO_CHECKPOINT)
    if isinstance(source, str) and "://" in source:
        return HttpSource(source, commit=entry.revision)
    return FolderSource(source)
