"""What an install is told at its beginning, and what it reports."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from mference.errors import InstallError
from mference.families import PinnedEntry
from mference.installer.http_source import MAX_CONNECTIONS
from mference.installer.paths import InstallPaths
from mference.installer.plan import MAX_CHUNK
from mference.installer.source import Source
from mference.installer.transfer import DEFAULT_SCRATCH, MAX_SCRATCH

DEFAULT_CONNECTIONS = 4


@dataclass(frozen=True)
class Progress:
    """How far an install is: bytes done of bytes in all, within one phase.

    `plan` reads metadata (no bytes), `check` re-reads what an interrupted install had copied,
    `copy` counts source bytes, `verify` counts bytes hashed: most files are while others are
    still copied, so it begins far from zero.
    """

    phase: Literal["plan", "check", "copy", "verify"]
    done: int
    total: int


@dataclass(frozen=True)
class InstallReport:
    """A finished install: where, of what, how large (bytes, files), how long it took (seconds).

    `reused` are the bytes of it that an interrupted install had copied already.
    """

    path: Path
    entry: PinnedEntry | None
    model_id: str
    source: str
    files: int
    bytes: int
    reused: int
    seconds: float


@dataclass(frozen=True)
class InstallPlan:
    """An install that could be made, all sizes in bytes.

    `download` are still to be read from the source, `installed` will lie in `path`, `required`
    must be free on its disk, and `free` are.
    """

    path: Path
    entry: PinnedEntry | None
    model_id: str
    source: str
    download: int
    installed: int
    required: int
    free: int


@dataclass(frozen=True)
class Limits:
    """Bytes of a range, bytes of it held in memory, and ranges read at the same time.

    What ranges wrote is gathered for `gather` seconds before it is forced to the disk and recorded
    together: at a high rate that is a file at once, and at a low one no more work that a power cut
    can undo.
    """

    chunk: int = MAX_CHUNK
    scratch: int = DEFAULT_SCRATCH
    connections: int = DEFAULT_CONNECTIONS
    gather: float = 2.0

    def __post_init__(self) -> None:
        if not 1 <= self.chunk <= MAX_CHUNK:
            raise InstallError(f"the range chunk must be 1 to {MAX_CHUNK} bytes, not {self.chunk}")
        if not 1 <= self.scratch <= MAX_SCRATCH:
            raise InstallError(f"the write tile must be 1 to {MAX_SCRATCH} bytes")
        if not 1 <= self.connections <= MAX_CONNECTIONS:
            raise InstallError(
                f"connections must be 1 to {MAX_CONNECTIONS}, not {self.connections}"
            )


@dataclass
class Run:
    """What one install needs from beginning to end."""

    source: Source
    entry: PinnedEntry
    paths: InstallPaths
    overwrite: bool = False
    resume: bool = False
    allow_unpinned: bool = False
    report: Callable[[Progress], None] = lambda _: None
    limits: Limits = field(default_factory=Limits)
