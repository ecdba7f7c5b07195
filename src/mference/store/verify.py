"""`verify_install`: every file of an install against its manifest, and a new receipt."""

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mference.errors import (
    Damage,
    IntegrityError,
    LayoutError,
    ManifestError,
    MissingFile,
    ReceiptInvalid,
    StoreError,
)
from mference.jsontext import is_unicode
from mference.store.directory import (
    EXPERTS,
    LAYOUT,
    MANIFEST,
    PAGE,
    RECEIPT,
    REINSTALL,
    TOKENIZER,
    VERIFIER_CAP,
    read_capped,
    standardized,
)
from mference.store.integrity import check_hash, check_layout, check_placement, check_size
from mference.store.layout import decode_layout
from mference.store.manifest import Manifest, decode_manifest
from mference.store.opening import read_manifest_bytes
from mference.store.receipt import (
    TOOL_INSTALL,
    TOOL_VERIFY,
    Receipt,
    check_receipt_files,
    check_receipt_place,
    encode_receipt,
    new_receipt,
    read_receipt,
)
from mference.store.writing import write_atomically

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class VerifyReport:
    """A successful verification: what was read, and what was found besides.

    `unexpected` are paths outside `tokenizer/` that the manifest does not list.
    """

    path: Path
    files: int
    bytes: int
    unexpected: tuple[str, ...]
    receipt: Receipt


def verify_install(path: str | Path, progress: Progress | None = None) -> VerifyReport:
    """Verify every file of an install by size and SHA-256 and write a new receipt.

    `progress` is called with a file's name, the bytes hashed so far and the bytes to hash. On any
    failure the old receipt stays as it is. Raises the `StoreError` branch: `PartialInstall`,
    `ManifestError`, `LayoutError`; and for damaged files `MissingFile` or `IntegrityError`, as
    the first of them is, with all of them in its message and in its `damaged`.
    """
    directory = Path(path)
    if not is_unicode(place := standardized(directory)):
        raise StoreError(f"{place!r}: a receipt cannot name a path that is not UTF-8; rename it")
    data = read_manifest_bytes(directory, VERIFIER_CAP)
    manifest = decode_manifest(data, cap=VERIFIER_CAP)
    _check_structure(directory, manifest)
    if damaged := _damaged(directory, manifest, progress):
        raise _damage_error(directory, damaged, len(manifest.files))
    total = sum(record.size for record in manifest.files.values())
    unsourced = new_receipt(directory, data, manifest, TOOL_VERIFY, None)
    source = _carried_source(directory, manifest, unsourced)
    receipt = new_receipt(directory, data, manifest, TOOL_VERIFY, source)
    try:
        write_atomically(directory / RECEIPT, encode_receipt(receipt))
    except OSError as exc:
        raise StoreError(
            f"every file of {directory} is as the manifest says, but {RECEIPT} cannot be written: "
            f"{exc.strerror}. Full hashing needs no receipt."
        ) from exc
    return VerifyReport(
        directory, len(manifest.files), total, _unexpected(directory, manifest), receipt
    )


def find_damage(path: str | Path, progress: Progress | None = None) -> tuple[Damage, ...]:
    """The files that an install's manifest lists and that are not as it says, by name.

    Files of the right size are hashed; `progress` is as for `verify_install`. Nothing is written.
    Raises `PartialInstall`, `ManifestError` and `StoreError` if the manifest cannot be read.
    """
    directory = Path(path)
    data = read_manifest_bytes(directory, VERIFIER_CAP)
    return _damaged(directory, decode_manifest(data, cap=VERIFIER_CAP), progress)


def _damaged(directory: Path, manifest: Manifest, progress: Progress | None) -> tuple[Damage, ...]:
    """The damaged files by name. What is seen from the size alone is not hashed."""
    found: dict[str, Damage] = {}
    for name, record in manifest.files.items():
        with _collected(found):
            check_size(directory, name, record.size)
    names = sorted(manifest.files.keys() - found.keys())
    total = sum(manifest.files[name].size for name in names)
    done = 0
    for name in names:

        def advance(count: int, name: str = name) -> None:
            nonlocal done
            done += count
            if progress:
                progress(name, done, total)

        end = done + manifest.files[name].size
        with _collected(found):
            check_hash(directory, manifest, name, advance)
        done = end  # a file that could not be read to its end is done with, too
    return tuple(found[name] for name in sorted(found))


@contextmanager
def _collected(found: dict[str, Damage]) -> Iterator[None]:
    """Keep the damage that an error inside is about, instead of the error."""
    try:
        yield
    except StoreError as error:
        if not error.damaged:
            raise
        found |= {damage.name: damage for damage in error.damaged}


def _damage_error(directory: Path, damaged: tuple[Damage, ...], files: int) -> StoreError:
    listed = "; ".join(f"{damage.name} {damage.detail}" for damage in damaged)
    command = f"mference install --repair --output {shlex.quote(str(directory))}"
    advice = f"To fetch these again: {command}"
    if all(damage.problem == "unreadable" for damage in damaged):
        advice = "Check the permissions and the disk."
    message = f"{directory} is damaged in {len(damaged)} of its {files} files: {listed}. {advice}"
    match damaged[0].problem:
        case "missing":
            error: StoreError = MissingFile(message, damaged[0].name)
        case "size" | "hash":
            error = IntegrityError(message)
        case "unreadable":
            error = StoreError(message)
    error.damaged = damaged
    return error


def _check_structure(directory: Path, manifest: Manifest) -> None:
    """Check what the layout says, unless it is a damaged file itself, which is found later."""
    manifest.record(LAYOUT)
    found: dict[str, Damage] = {}
    with _collected(found):
        check_hash(directory, manifest, LAYOUT)
    if found:
        return
    try:
        _check_layout(directory, manifest)
    except StoreError as error:
        error.add_note(
            f"{LAYOUT} is the file that the manifest lists, so fetching it again does not help."
        )
        raise


def _check_layout(directory: Path, manifest: Manifest) -> None:
    data = read_capped(directory / LAYOUT, VERIFIER_CAP, LayoutError)
    layout = decode_layout(data, cap=VERIFIER_CAP)
    check_layout(manifest, layout)
    if layout.expert_stride % PAGE:
        raise ManifestError(f"{MANIFEST}: expertStride {layout.expert_stride} is not page aligned")
    wanted = manifest.experts_per_layer * layout.expert_stride
    for layer in layout.layers:
        name = f"{EXPERTS}/{layer.file}"
        if layer.experts and manifest.record(name).size != wanted:
            raise LayoutError(f"{name} must have {wanted} bytes. {REINSTALL}")
    check_placement(manifest, layout)


def _unexpected(directory: Path, manifest: Manifest) -> tuple[str, ...]:
    known = {*manifest.files, MANIFEST, RECEIPT}
    found = []
    for folder, _, names in os.walk(directory):
        for file in names:
            name = (Path(folder) / file).relative_to(directory).as_posix()
            if file != ".DS_Store" and name not in known and not name.startswith(f"{TOKENIZER}/"):
                found.append(name)
    return tuple(sorted(found))


def _carried_source(
    directory: Path, manifest: Manifest, verified: Receipt
) -> tuple[str, str] | None:
    """The source identity of the old receipt, if that receipt is about exactly this install."""
    try:
        old = read_receipt(directory, cap=VERIFIER_CAP)
        check_receipt_place(old, directory, verified.manifest_sha256)
        check_receipt_files(old, manifest, verified.files[MANIFEST])
    except ReceiptInvalid:
        return None
    if old.tool not in (TOOL_INSTALL, TOOL_VERIFY):
        return None
    if not old.source_repo or not old.source_revision:
        return None
    return old.source_repo, old.source_revision
