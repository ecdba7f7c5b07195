"""The checkpoint of a running install: which source it is, and which ranges are on the disk."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from mference.errors import StateCorrupt
from mference.installer.advice import HOW_TO_DISCARD
from mference.jsontext import Fields, compact, parse
from mference.store.writing import write_atomically

SCHEMA = 1
CAP = 8 << 20
_U64_MAX = 2**64 - 1


@dataclass(frozen=True)
class CompletedRange:
    """A range whose bytes are on the disk, with the digest of what was written."""

    id: str
    digest: str
    source_bytes: int
    destination_bytes: int


@dataclass(frozen=True)
class Journal:
    """The contents of `<output>.resume.json`; hashes are hex, sizes in bytes.

    `promoted` is the inode of the partial directory once it is complete and about to be put in
    its place, by which it is known there; None before.
    """

    repo: str
    revision: str
    commit: str
    index_sha256: str
    fingerprint: str
    total_source_bytes: int
    completed: tuple[CompletedRange, ...] = ()
    promoted: int | None = None

    @property
    def source_bytes(self) -> int:
        """Source bytes of the completed ranges."""
        return sum(done.source_bytes for done in self.completed)

    @property
    def destination_bytes(self) -> int:
        """Bytes that the completed ranges wrote."""
        return sum(done.destination_bytes for done in self.completed)

    def with_ranges(self, done: Iterable[CompletedRange]) -> "Journal":
        """This journal with more completed ranges."""
        return replace(self, completed=tuple(sorted((*self.completed, *done), key=lambda c: c.id)))


def encode_journal(journal: Journal) -> bytes:
    """The journal's JSON text."""
    return compact(
        {
            "schema": SCHEMA,
            "repoID": journal.repo,
            "requestedRevision": journal.revision,
            "resolvedCommit": journal.commit,
            "sourceIndexSHA256": journal.index_sha256,
            "planFingerprint": journal.fingerprint,
            "totalSourceBytes": journal.total_source_bytes,
            "completedRanges": [
                {
                    "id": done.id,
                    "destinationDigest": done.digest,
                    "sourceBytes": done.source_bytes,
                    "destinationBytes": done.destination_bytes,
                }
                for done in journal.completed
            ],
            **({} if journal.promoted is None else {"promotedInode": journal.promoted}),
        }
    ).encode()


def decode_journal(data: bytes) -> Journal:
    """Read a journal's JSON text. Raises `StateCorrupt` for anything it does not allow."""
    if len(data) > CAP:
        raise _corrupt(f"larger than {CAP} bytes")
    top = parse(data, "the saved state", _corrupt)
    if top.integer("schema") != SCHEMA:
        top.fail("it was written by another version")
    journal = Journal(
        repo=_text(top, "repoID"),
        revision=_text(top, "requestedRevision"),
        commit=_text(top, "resolvedCommit", 40),
        index_sha256=_text(top, "sourceIndexSHA256", 64),
        fingerprint=_text(top, "planFingerprint", 64),
        total_source_bytes=top.integer("totalSourceBytes", 1, _U64_MAX),
        completed=tuple(
            CompletedRange(
                _text(done, "id"),
                _text(done, "destinationDigest", 64),
                done.integer("sourceBytes", 1, _U64_MAX),
                done.integer("destinationBytes", 1, _U64_MAX),
            )
            for done in top.objects("completedRanges")
        ),
        promoted=(top.integer("promotedInode", 0, _U64_MAX) if "promotedInode" in top else None),
    )
    _check(journal, top)
    return journal


def write_journal(path: Path, journal: Journal) -> None:
    """Replace the journal's file atomically and durably. Raises `OSError`."""
    write_atomically(path, encode_journal(journal))


def read_journal(path: Path) -> Journal:
    """Read the journal's file. Raises `StateCorrupt`."""
    with path.open("rb") as file:
        return decode_journal(file.read(CAP + 1))


def _check(journal: Journal, top: Fields) -> None:
    ids = [done.id for done in journal.completed]
    if ids != sorted(set(ids)):
        top.fail("its ranges are not sorted, or one is listed twice")
    if journal.destination_bytes > _U64_MAX:
        top.fail("its destination sizes overflow")
    if journal.source_bytes > journal.total_source_bytes:
        top.fail("its ranges are larger than the whole source")


def _text(fields: Fields, key: str, length: int | None = None) -> str:
    value = fields.text(key)
    if not value or (length is not None and len(value) != length):
        fields.fail(f"'{key}' must have {length or 'some'} characters")
    return value


def _corrupt(message: str) -> StateCorrupt:
    return StateCorrupt(f"{message}. {HOW_TO_DISCARD}")
