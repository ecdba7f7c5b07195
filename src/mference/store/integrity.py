"""Checks of an install's files against its manifest: hashes, sizes, placement."""

import stat
import threading
from collections.abc import Callable
from pathlib import Path

from mference.errors import (
    Damage,
    IntegrityError,
    LayoutError,
    MissingFile,
    ReceiptInvalid,
    StoreError,
)
from mference.store.directory import EXPERTS, LAYOUT, PAGE, REINSTALL, sha256_file, unreadable
from mference.store.layout import PIECE_NAMES, Layout
from mference.store.manifest import Manifest


def check_hash(
    directory: Path,
    manifest: Manifest,
    name: str,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Check one file's size and SHA-256, reading it in blocks.

    Raises `MissingFile` if it is not listed or not there, `IntegrityError` if its bytes differ,
    `StoreError` if the system cannot read it. All but the first carry the `Damage`.
    """
    record = manifest.record(name)
    check_size(directory, name, record.size)
    try:
        found = sha256_file(directory / name, progress=progress)
    except OSError as exc:
        raise _unreadable(directory, name, exc) from exc
    if found != record.sha256:
        error = IntegrityError(
            f"{directory / name} is damaged: its SHA-256 is {found}, the manifest says "
            f"{record.sha256}. {REINSTALL}"
        )
        raise _of(Damage(name, "hash", "has another SHA-256 than the manifest says"), error)


def check_size(directory: Path, name: str, size: int) -> None:
    """Check one file's size in bytes, without reading it.

    Raises what `file_size` raises, and `IntegrityError`, each with the `Damage`.
    """
    found = file_size(directory, name)
    if found != size:
        detail = f"has {found} bytes, the manifest says {size}"
        error = IntegrityError(f"{directory / name} {detail}. {REINSTALL}")
        raise _of(Damage(name, "size", detail), error)


def file_size(directory: Path, name: str) -> int:
    """Bytes of a file of the install.

    Raises `MissingFile`, and `StoreError` if the system does not let us look, with the `Damage`.
    """
    path = directory / name
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        found = None
    except OSError as exc:
        raise _unreadable(directory, name, exc) from exc
    if found is None or not stat.S_ISREG(found.st_mode):
        error = MissingFile(f"{path} is missing. {REINSTALL}", name)
        raise _of(Damage(name, "missing", "is missing"), error)
    return found.st_size


def check_layout(manifest: Manifest, layout: Layout) -> None:
    """Check that a layout describes the layers of its manifest, in order, with their experts.

    Raises `LayoutError`.
    """
    pairs = (
        ("expertStride", layout.expert_stride, manifest.expert_stride),
        ("numLayers", layout.num_layers, manifest.num_layers),
        ("expertsPerLayer", layout.experts_per_layer, manifest.experts_per_layer),
        ("layers", len(layout.layers), manifest.num_layers),
    )
    for name, found, wanted in pairs:
        if found != wanted:
            raise _misplaced(f"{name} is {found}, the manifest says {wanted}")
    dense = manifest.arch.integer("numDenseLayers")
    for position, layer in enumerate(layout.layers):
        if layer.layer != position:
            raise _misplaced(f"layer {layer.layer} stands at position {position}")
        listed = f"{EXPERTS}/{layer.file}" in manifest.files
        if not layer.experts and (position >= dense or listed):
            raise _misplaced(f"layer {position} has no experts, but is no dense layer")


def check_placement(manifest: Manifest, layout: Layout) -> None:
    """Check every expert's size, alignment, range and pieces against the manifest's file sizes.

    Raises `LayoutError`, and `MissingFile` for a layer file that the manifest does not list.
    """
    for layer in layout.layers:
        if not layer.experts:
            continue
        size = manifest.record(f"{EXPERTS}/{layer.file}").size
        for i, expert in enumerate(layer.experts):
            where = f"layer {layer.layer}, expert {i}"
            if expert.size != layout.expert_stride:
                raise _misplaced(f"{where}: size {expert.size} is not the stride")
            if expert.offset % PAGE:
                raise _misplaced(f"{where}: offset {expert.offset} is not page aligned")
            if expert.offset + expert.size > size:
                raise _misplaced(f"{where}: ends past the {size} bytes of {layer.file}")
            missing = [name for name in PIECE_NAMES if name not in expert.tensors]
            if missing:
                raise _misplaced(f"{where}: '{missing[0]}' is missing")
            for name, piece in expert.tensors.items():
                if piece.offset + piece.size > expert.size:
                    raise _misplaced(
                        f"{where}: '{name}' ends past the expert's {expert.size} bytes"
                    )


def check_trusted_sizes(directory: Path, manifest: Manifest) -> None:
    """Check the size of every listed file, without reading any. Raises `ReceiptInvalid`."""
    for name, record in manifest.files.items():
        size = file_size(directory, name)
        if size != record.size:
            raise ReceiptInvalid(
                f"{directory / name} has {size} bytes, its receipt says {record.size}. {REINSTALL}"
            )


class LayerChecks:
    """First-touch verification of the layer files, each at most once, from any thread."""

    def __init__(self, count: int, check: Callable[[int], None]) -> None:
        self._check = check
        self._locks = [threading.Lock() for _ in range(count)]
        self._outcomes: list[bool | StoreError] = [False] * count

    def verify(self, layer: int) -> None:
        """Check a layer file now unless that was done; a failure is raised again every time.

        Raises `IndexError` for a layer that does not exist, and what the check raises.
        """
        with self._locks[layer]:
            outcome = self._outcomes[layer]
            if outcome is False:
                try:
                    self._check(layer)
                    outcome = True
                except StoreError as exc:
                    outcome = exc
                self._outcomes[layer] = outcome
        if isinstance(outcome, StoreError):
            raise outcome


def _unreadable(directory: Path, name: str, error: OSError) -> StoreError:
    detail = f"cannot be read: {error.strerror}"
    return _of(Damage(name, "unreadable", detail), unreadable(directory / name, error))


def _of(damage: Damage, error: StoreError) -> StoreError:
    error.damaged = (damage,)
    return error


def _misplaced(message: str) -> LayoutError:
    return LayoutError(f"{LAYOUT}: {message}. {REINSTALL}")
