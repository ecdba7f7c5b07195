"""`verified-install.json`: the record that every file of a directory once had its hash."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from mference.errors import MissingFile, ReceiptInvalid
from mference.jsontext import parse, pretty
from mference.store.directory import (
    MANIFEST,
    RECEIPT,
    RECEIPT_CAP,
    read_capped,
    standardized,
)
from mference.store.manifest import FileRecord, Manifest

SCHEMA = 1
TOOL_INSTALL = "MferenceRepack"
TOOL_VERIFY = "MferenceRepack verify-install"
_VERIFY = "Verify the install to write a new receipt, or open it with full hashing."


@dataclass(frozen=True)
class Receipt:
    """A verification that took place: when, by what, where, over which files.

    `files` are the manifest's files and `manifest.json` itself. `source_repo` and
    `source_revision` say where the model came from, where that is known.
    """

    manifest_sha256: str
    directory: str
    timestamp: str
    tool: str
    files: Mapping[str, FileRecord]
    source_repo: str | None = None
    source_revision: str | None = None


def new_receipt(
    directory: Path,
    manifest_bytes: bytes,
    manifest: Manifest,
    tool: str,
    source: tuple[str, str] | None,
) -> Receipt:
    """A receipt of now (UTC) for an install at `directory` whose files were just hashed."""
    own = FileRecord(len(manifest_bytes), sha256(manifest_bytes).hexdigest())
    return Receipt(
        manifest_sha256=own.sha256,
        directory=standardized(directory),
        timestamp=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        tool=tool,
        files={**manifest.files, MANIFEST: own},
        source_repo=source[0] if source else None,
        source_revision=source[1] if source else None,
    )


def encode_receipt(receipt: Receipt) -> bytes:
    """The bytes of `verified-install.json`."""
    document: dict[str, Any] = {
        "schemaVersion": SCHEMA,
        "manifestSha256": receipt.manifest_sha256,
        "modelDirectoryPath": receipt.directory,
        "verificationTimestamp": receipt.timestamp,
        "toolVersion": receipt.tool,
        "files": {n: {"size": r.size, "sha256": r.sha256} for n, r in receipt.files.items()},
    }
    if receipt.source_repo is not None:
        document["sourceRepoID"] = receipt.source_repo
    if receipt.source_revision is not None:
        document["sourceRevision"] = receipt.source_revision
    return pretty(document)


def read_receipt(directory: Path, *, cap: int = RECEIPT_CAP) -> Receipt:
    """Read the receipt of an install. Raises `ReceiptInvalid` if absent, oversized or malformed."""
    try:
        data = read_capped(directory / RECEIPT, cap, _invalid)
    except MissingFile:
        raise _invalid(f"{directory / RECEIPT} is missing") from None
    top = parse(data, RECEIPT, _invalid)
    schema = top.integer("schemaVersion")
    if schema != SCHEMA:
        top.fail(f"schemaVersion is {schema}, not {SCHEMA}")
    files = top.object("files")
    entries = {name: files.object(name) for name in files}
    return Receipt(
        manifest_sha256=top.text("manifestSha256").lower(),
        directory=top.text("modelDirectoryPath"),
        timestamp=top.text("verificationTimestamp"),
        tool=top.text("toolVersion"),
        files={
            name: FileRecord(entry.integer("size"), entry.text("sha256").lower())
            for name, entry in entries.items()
        },
        source_repo=top.text("sourceRepoID") if "sourceRepoID" in top else None,
        source_revision=top.text("sourceRevision") if "sourceRevision" in top else None,
    )


def check_receipt_place(receipt: Receipt, directory: Path, manifest_sha256: str) -> None:
    """Check that a receipt is about this manifest in this directory. Raises `ReceiptInvalid`."""
    if receipt.manifest_sha256 != manifest_sha256:
        raise _invalid(f"{RECEIPT} was written for another {MANIFEST}")
    here = standardized(directory)
    if receipt.directory != here:
        raise _invalid(f"{RECEIPT} was written at {receipt.directory}, the install is at {here}")


def check_receipt_files(receipt: Receipt, manifest: Manifest, own: FileRecord) -> None:
    """Check that a receipt covers the manifest's files and `manifest.json`, exactly.

    Raises `ReceiptInvalid` naming the first file that differs.
    """
    wanted = {**manifest.files, MANIFEST: own}
    for name in sorted(wanted.keys() | receipt.files.keys()):
        if receipt.files.get(name) != wanted.get(name):
            raise _invalid(f"{RECEIPT} and {MANIFEST} differ about '{name}'")


def _invalid(message: str) -> ReceiptInvalid:
    return ReceiptInvalid(f"{message}. {_VERIFY}")
