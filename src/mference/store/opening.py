"""Opening an install: the order of checks, and what the runtime gets from it."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Literal

from mference.errors import (
    LayoutError,
    ManifestError,
    MissingFile,
    PartialInstall,
    ReceiptInvalid,
    StoreError,
    UnpinnedModel,
)
from mference.families import PinnedEntry, check_runnable, entry_by_model_id
from mference.jsontext import is_unicode
from mference.store.directory import (
    EXPERTS,
    LAYOUT,
    LAYOUT_CAP,
    MANIFEST,
    MANIFEST_CAP,
    TOKENIZER,
    WEIGHTS,
    read_capped,
)
from mference.store.integrity import (
    LayerChecks,
    check_hash,
    check_layout,
    check_placement,
    check_trusted_sizes,
    file_size,
)
from mference.store.layout import Layout, decode_layout
from mference.store.manifest import FileRecord, Manifest, check_manifest, decode_manifest
from mference.store.receipt import (
    Receipt,
    check_receipt_files,
    check_receipt_place,
    read_receipt,
)
from mference.store.resident import ResidentIndex, read_index

Policy = Literal["full-sha256", "trusted-receipt"]
POLICIES: tuple[Policy, ...] = ("full-sha256", "trusted-receipt")


@dataclass(frozen=True)
class Install:
    """An opened `.gturbo` directory.

    `entry` is the pinned entry it is an install of, None for an unpinned one that was allowed.
    `index` places the resident tensors in `weights_path`; `layout` places the experts in the layer
    files. `manifest.arch` carries the architecture values by manifest key.
    """

    path: Path
    entry: PinnedEntry | None
    manifest: Manifest
    index: ResidentIndex
    layout: Layout
    policy: Policy
    _layers: LayerChecks = field(repr=False, compare=False)

    @property
    def family(self) -> str:
        """The model family, such as `gemma4`."""
        return self.manifest.arch.family

    @property
    def weights_path(self) -> Path:
        """The file of the resident tensors."""
        return self.path / WEIGHTS

    @property
    def tokenizer_dir(self) -> Path:
        """The directory of `tokenizer.json` and its companions."""
        return self.path / TOKENIZER

    def layer_path(self, layer: int) -> Path:
        """The file of a layer's experts; it does not exist for a layer without experts."""
        return self.path / EXPERTS / self.layout.layers[layer].file

    def verify_layer(self, layer: int) -> None:
        """Verify a layer file before its first use; thread safe, each layer at most once.

        `full-sha256` hashes the file, `trusted-receipt` compares its size; a layer without experts
        has no file and passes. Raises `MissingFile`, `IntegrityError`, `ReceiptInvalid`.
        """
        self._layers.verify(layer)


def open_install(
    path: str | Path,
    *,
    policy: Policy = "full-sha256",
    allow_unpinned: bool = False,
    warn: Callable[[str], None] | None = None,
) -> Install:
    """Open an install, checking it as the policy says.

    Both policies hash `model_weights.bin` and `layout.json` now. `full-sha256` also hashes the
    tokenizer's files, and a layer file when it is first used; `trusted-receipt` believes a receipt
    that fits and compares sizes.
    An install that matches no pinned entry is refused unless `allow_unpinned`; then `warn` (or
    the log) gets one line. Raises the `StoreError` branch, each condition its own class, and
    `UnsupportedModel` for a family this version cannot run.
    """
    if policy not in POLICIES:
        raise ValueError(f"policy must be one of {POLICIES}, not {policy!r}")
    directory = Path(path)
    data = read_manifest_bytes(directory)
    own = FileRecord(len(data), sha256(data).hexdigest())
    receipt = _trusted_receipt(directory, own) if policy == "trusted-receipt" else None
    manifest, entry = _accept_manifest(data, directory, allow_unpinned, warn)
    if receipt:
        check_receipt_files(receipt, manifest, own)
    check_hash(directory, manifest, WEIGHTS)
    check_hash(directory, manifest, LAYOUT)
    if receipt is None:
        _check_tokenizer(directory, manifest)
    index = read_index(directory / WEIGHTS)
    layout = decode_layout(read_capped(directory / LAYOUT, LAYOUT_CAP, LayoutError))
    _check_experts(directory, manifest, layout, trusted=receipt is not None)

    def check_layer(layer: int) -> None:
        name = f"{EXPERTS}/{layout.layers[layer].file}"
        if not layout.layers[layer].experts:
            return
        if receipt is None:
            check_hash(directory, manifest, name)
        elif file_size(directory, name) != manifest.record(name).size:
            raise ReceiptInvalid(f"{directory / name} changed its size. Verify the install.")

    checks = LayerChecks(len(layout.layers), check_layer)
    return Install(directory, entry, manifest, index, layout, policy, checks)


def read_manifest_bytes(directory: Path, cap: int = MANIFEST_CAP) -> bytes:
    """The bytes of `manifest.json`.

    Raises `PartialInstall` if it or the directory is absent, `ManifestError` if huge, `StoreError`
    for a path that is not UTF-8 (the tokenizer's library and the core take no other).
    """
    if "\0" in str(directory) or not is_unicode(str(directory)):
        raise StoreError(f"{str(directory)!r}: this path is not UTF-8 text; rename it")
    try:
        return read_capped(directory / MANIFEST, cap, ManifestError)
    except MissingFile:
        if not directory.exists():
            raise PartialInstall(
                f"there is no directory {directory}. Check the path, or install a model there: "
                f"'mference install --output {directory}' (see --help)."
            ) from None
        raise PartialInstall(
            f"{directory} has no {MANIFEST}: it is no finished install. Check the path, or "
            "install the model there."
        ) from None


def entry_of(manifest: Manifest) -> PinnedEntry | None:
    """The pinned entry that a manifest belongs to an install of, by model id and source hash."""
    entry = entry_by_model_id(manifest.model_id)
    if entry and manifest.source_hash in (None, f"sha256:{entry.index_sha256}"):
        return entry
    return None


def completeness(
    path: str | Path, entry: PinnedEntry | None = None
) -> Literal["missing", "partial", "complete"]:
    """Whether a finished install lies at a path, judged without hashing anything large.

    `complete` means: a manifest that decodes, for `entry` where given (by source hash), every
    listed file there at its size, and a receipt for this manifest in this place.
    """
    directory = Path(path)
    if not directory.exists():
        return "missing"
    try:
        data = read_manifest_bytes(directory)
        own = FileRecord(len(data), sha256(data).hexdigest())
        manifest = decode_manifest(data)
        if entry and manifest.source_hash != f"sha256:{entry.index_sha256}":
            return "partial"
        manifest.record(LAYOUT)
        check_trusted_sizes(directory, manifest)
        check_receipt_files(_trusted_receipt(directory, own), manifest, own)
    except (ManifestError, MissingFile, PartialInstall, ReceiptInvalid):
        return "partial"
    return "complete"


def _trusted_receipt(directory: Path, own: FileRecord) -> Receipt:
    receipt = read_receipt(directory)
    check_receipt_place(receipt, directory, own.sha256)
    return receipt


def _accept_manifest(
    data: bytes, directory: Path, allow_unpinned: bool, warn: Callable[[str], None] | None
) -> tuple[Manifest, PinnedEntry | None]:
    manifest = decode_manifest(data)
    entry = entry_by_model_id(manifest.model_id)
    check_manifest(manifest, entry.arch if entry else None)
    check_runnable(manifest.arch.family, f"{directory} ('{manifest.model_id}')")
    if pinned := entry_of(manifest):
        return manifest, pinned
    reason = (
        f"its source index is {manifest.source_hash}, the pinned one is sha256:{entry.index_sha256}"
        if entry
        else f"its model id '{manifest.model_id}' is not a pinned one"
    )
    message = f"{directory} matches no pinned model: {reason}."
    if not allow_unpinned:
        raise UnpinnedModel(
            f"{message} Allow unpinned models (--allow-unpinned) to use it at your own risk."
        )
    (warn or logging.getLogger("mference").warning)(f"{message} Its output is not vouched for.")
    return manifest, None


def _check_tokenizer(directory: Path, manifest: Manifest) -> None:
    # A missing file is left to the tokenizer, which may be told of another directory.
    for name in manifest.files:
        if name.startswith(f"{TOKENIZER}/") and (directory / name).exists():
            check_hash(directory, manifest, name)


def _check_experts(directory: Path, manifest: Manifest, layout: Layout, *, trusted: bool) -> None:
    try:
        check_layout(manifest, layout)
        check_placement(manifest, layout)
    except (LayoutError, MissingFile) as exc:
        if trusted:
            raise ReceiptInvalid(str(exc)) from None
        raise
    if trusted:
        check_trusted_sizes(directory, manifest)
