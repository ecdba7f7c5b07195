"""Which installs lie in a directory, and how they are, without reading large files."""

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Literal

from mference.errors import InstallError, StateError, StoreError
from mference.families import ENTRIES
from mference.installer.journal import read_journal
from mference.installer.paths import SUFFIXES, InstallPaths
from mference.installer.space import allocated
from mference.jsontext import parse
from mference.store.directory import (
    EXPERTS,
    MANIFEST,
    MANIFEST_CAP,
    RECEIPT,
    TOKENIZER,
    WEIGHTS,
    read_capped,
)
from mference.store.manifest import MAGIC, FileRecord, Manifest, decode_manifest
from mference.store.opening import entry_of, read_manifest_bytes
from mference.store.receipt import check_receipt_files, check_receipt_place, read_receipt
from mference.store.verify import damage_error, wrong_sizes

_MARKS = {RECEIPT, WEIGHTS, EXPERTS}
_OWN = {*_MARKS, MANIFEST, TOKENIZER, f"{MANIFEST}.tmp", f"{RECEIPT}.tmp", ".DS_Store"}


@dataclass(frozen=True)
class Listed:
    """An install, or what one has left, at `path`.

    state: `complete` if every file is there and has its size, `damaged` if not; `unfinished` for
        an install that is being made or was cut short; `removing` for what an interrupted removal
        left.
    size: bytes on the disk.
    model: the pinned entry's name if it is `pinned`; else the model id, for an unfinished install
        the source; None if that cannot be read.
    verified: when the files were last hashed in this place, as the receipt says it.
    copied, total: bytes of the source, for an unfinished install whose saved state can be read.
    running: whether an install, or a removal, is at work there.
    problem: what is wrong, and what to do.
    """

    path: Path
    state: Literal["complete", "damaged", "unfinished", "removing"]
    size: int = 0
    model: str | None = None
    pinned: bool = False
    verified: str | None = None
    copied: int | None = None
    total: int | None = None
    running: bool = False
    problem: str | None = None


def list_installs(place: str | Path) -> tuple[Listed, ...]:
    """The installs in a directory, or the one that the directory is, by path.

    One that is damaged is listed as that. Raises `InstallError` if the directory itself cannot be
    read.
    """
    try:
        directory = Path(place).resolve()
        if not directory.name.endswith(SUFFIXES) and _may_be_install(directory):
            return _listed(InstallPaths(directory))
        names = {owner(name) for name in os.listdir(directory)}  # noqa: PTH208 - names alone
    except (OSError, RuntimeError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "no usable path"
        raise InstallError(f"cannot list {place}: {reason}") from None
    each = (_listed(InstallPaths(directory / name)) for name in sorted(names) if name)
    return tuple(found for group in each for found in group)


def found_at(paths: InstallPaths) -> tuple[Listed, ...]:
    """All that lies at one path and beside it; `running` is left to who does not hold the lock."""
    found = list(_installed(paths.final))
    if is_unfinished(paths):
        found.append(_unfinished(paths))
    if _mode(paths.removing, stat.S_ISDIR):
        found.append(Listed(paths.final, "removing", disk_usage(paths.removing)))
    return tuple(found)


def is_install(directory: Path) -> bool:
    """Whether a directory is an install, whole or damaged, and nothing else.

    Either its manifest says so, or it has an install's files and no other.
    """
    names = _names(directory)
    return _says_so(directory) or (names <= _OWN and not names.isdisjoint(_MARKS))


def is_unfinished(paths: InstallPaths) -> bool:
    """Whether an install of `paths.final` was begun, by this program, and did not finish."""
    there = (_mode(paths.partial, stat.S_ISDIR), _mode(paths.checkpoint, stat.S_ISREG))
    return all(there) or (any(there) and paths.final.suffix == ".gturbo")


def disk_usage(directory: Path) -> int:
    """Bytes that the files below a directory take on the disk; links are not followed."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):
                total += allocated((Path(folder) / name).lstat())
    return total


def _listed(paths: InstallPaths) -> tuple[Listed, ...]:
    found = found_at(paths)
    if not _is_locked(paths.lock):
        return found
    begun = found or (Listed(paths.final, "unfinished"),)
    return tuple(replace(one, running=True) for one in begun)


def _installed(directory: Path) -> Iterator[Listed]:
    if not _may_be_install(directory):
        return
    listed = Listed(directory, "complete", disk_usage(directory))
    try:
        data = read_manifest_bytes(directory)
        manifest = decode_manifest(data)
        entry = entry_of(manifest)
        listed = replace(
            listed, model=entry.name if entry else manifest.model_id, pinned=entry is not None
        )
        if damaged := wrong_sizes(directory, manifest):
            raise damage_error(directory, damaged, len(manifest.files))
        yield replace(listed, verified=_verified(directory, data, manifest))
    except StoreError as exc:
        yield replace(listed, state="damaged", problem=_about(directory, str(exc)))


def _verified(directory: Path, data: bytes, manifest: Manifest) -> str | None:
    own = FileRecord(len(data), sha256(data).hexdigest())
    try:
        receipt = read_receipt(directory)
        check_receipt_place(receipt, directory, own.sha256)
        check_receipt_files(receipt, manifest, own)
    except StoreError:
        return None
    return receipt.timestamp


def _unfinished(paths: InstallPaths) -> Listed:
    listed = Listed(paths.final, "unfinished", disk_usage(paths.partial))
    if not _mode(paths.checkpoint, stat.S_ISREG):
        return listed
    try:
        journal = read_journal(paths.checkpoint)
    except StateError as exc:
        return replace(listed, problem=_about(paths.final, str(exc)))
    except OSError as exc:
        return replace(listed, problem=f"cannot read {paths.checkpoint}: {exc.strerror}")
    source = (journal.repo, journal.revision)
    entry = next((e for e in ENTRIES.values() if (e.repo, e.revision) == source), None)
    return replace(
        listed,
        model=entry.name if entry else journal.repo,
        pinned=entry is not None,
        copied=journal.source_bytes,
        total=journal.total_source_bytes,
    )


def _about(path: Path, problem: str) -> str:
    return problem if str(path) in problem else f"{path}: {problem}"


def _may_be_install(directory: Path) -> bool:
    """As `is_install`, also for a damaged one, named as such, in which other files lie."""
    named = directory.suffix == ".gturbo" and not _names(directory).isdisjoint(_MARKS | {MANIFEST})
    return named or is_install(directory)


def _says_so(directory: Path) -> bool:
    try:
        data = read_capped(directory / MANIFEST, MANIFEST_CAP, StoreError)
        return parse(data, MANIFEST, StoreError).text("magic") == MAGIC
    except StoreError:
        return False


def _names(directory: Path) -> set[str]:
    try:
        return set(os.listdir(directory))  # noqa: PTH208 - names alone
    except OSError:
        return set()


def owner(name: str) -> str:
    """The name of the install that a file or directory of this name belongs to, or may be."""
    suffix = next((suffix for suffix in SUFFIXES if name.endswith(suffix)), "")
    return name.removesuffix(suffix)


def _mode(path: Path, accepts: Callable[[int], bool]) -> bool:
    try:
        return accepts(path.lstat().st_mode)
    except OSError:
        return False


def _is_locked(path: Path) -> bool:
    """Whether someone holds an install's lock; nothing is created.

    Shared, and for a moment only, so that two looks do not take each other for an install.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError as exc:
        return exc.errno in (errno.EAGAIN, errno.EACCES)
    finally:
        os.close(descriptor)
