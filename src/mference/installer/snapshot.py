"""A source checkpoint as its metadata describes it: index, config, tensors, and which pin it is."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from typing import Any

from mference.errors import CheckpointError, SourceMismatch
from mference.families import (
    ENTRIES,
    FAMILIES,
    PinnedEntry,
    SourceRules,
    check_runnable,
    source_rules,
    supported_names,
)
from mference.families.arch import CORE_FIELDS, EXTENSION_FIELDS, Arch, first_difference
from mference.families.family import FlashHead, Quantization
from mference.families.pins import REQUIRED_SIDECARS
from mference.families.source_config import config_fields, config_invalid
from mference.installer.paths import check_remote_name
from mference.installer.safetensors import SourceTensor, read_header
from mference.installer.source import Source, read_small
from mference.jsontext import parse

INDEX_NAME = "model.safetensors.index.json"
CONFIG_NAME = REQUIRED_SIDECARS[0]
INDEX_CAP = 4 << 20
CONFIG_CAP = 1 << 20
UNPINNED_MODEL_ID = "unknown/snapshot"


@dataclass(frozen=True)
class Snapshot:
    """The metadata of one source. `entry` is None for a source that is not the pinned one.

    `commit` stands for the source's revision: the pin's, else the start of the index's SHA-256.
    """

    entry: PinnedEntry | None
    index: bytes
    config: bytes
    arch: Arch
    rules: SourceRules
    quantization: Quantization
    tensors: Mapping[str, SourceTensor]
    flash_head: FlashHead | None = None

    @property
    def index_sha256(self) -> str:
        """Hex SHA-256 of the index file."""
        return sha256(self.index).hexdigest()

    @property
    def model_id(self) -> str:
        """The `modelID` an install of this source carries."""
        return self.entry.model_id if self.entry else UNPINNED_MODEL_ID

    @property
    def commit(self) -> str:
        """Forty hex digits that name the source's revision."""
        return self.entry.revision if self.entry else self.index_sha256[:40]


def read_snapshot(source: Source, entry: PinnedEntry, *, allow_unpinned: bool) -> Snapshot:
    """Read a source's index, config and shard headers.

    The entry's own family needs no forward pass: whoever installs has asked for it by name.
    Raises `SourceMismatch` if it is not the pinned source and that is not allowed,
    `UnsupportedModel` for another family that cannot be run, `CheckpointError` for malformed
    metadata.
    """
    index = _required(source, INDEX_NAME, INDEX_CAP)
    found = sha256(index).hexdigest()
    pinned = found == entry.index_sha256
    if not pinned and not allow_unpinned:
        raise SourceMismatch(_mismatch(source, entry, found))
    config_bytes = _required(source, CONFIG_NAME, CONFIG_CAP)
    config = _parse_config(config_bytes)
    family, what = config_family(config), f"the source {source.description}"
    if family != entry.family:
        check_runnable(family, what)
    rules = source_rules(family, what)
    arch = rules.read_arch(config)
    if pinned:
        field = first_difference(arch, entry.arch, (*CORE_FIELDS, *EXTENSION_FIELDS))
        if field:
            raise SourceMismatch(
                f"{source.description}: {CONFIG_NAME} gives {field} as {arch[field]!r}, the pinned "
                f"model '{entry.name}' has {entry.arch[field]!r}. Download the source again."
            )
    return Snapshot(
        entry if pinned else None,
        index,
        config_bytes,
        arch,
        rules,
        read_quantization(config, rules.quantization),
        _read_tensors(source, index),
        rules.flash_head.read(config) if rules.flash_head else None,
    )


def config_family(config: Mapping[str, Any]) -> str:
    """The family whose configuration this is, by `model_type`. Raises `SourceMismatch`."""
    model_type = config.get("model_type")
    if model_type is None:
        return "gemma4"
    for family in FAMILIES.values():
        if model_type in family.model_types:
            return family.name
    raise SourceMismatch(
        f"models of type {model_type!r} are not supported. Supported: {supported_names()}."
    )


def read_quantization(
    config: Mapping[str, Any], accepted: Quantization | None = None
) -> Quantization:
    """The quantization a source config describes.

    Raises `CheckpointError` (`config_invalid`) if it is none that a store can hold, or not the
    one that is `accepted`.
    """
    fields = config_fields(config).object("quantization")
    base = fields.integer("group_size", minimum=1) if "group_size" in fields else 64
    bits = fields.integer("bits", minimum=1, maximum=16) if "bits" in fields else 4
    mode = fields.text("mode") if "mode" in fields else "affine"
    if mode.lower() != "affine":
        fields.fail(f"mode '{mode}' is not supported, only affine")
    overrides = {}
    for stem in fields:
        if not isinstance(config["quantization"][stem], dict):
            continue
        entry = fields.object(stem)
        pair = (
            entry.integer("bits", minimum=1, maximum=16) if "bits" in entry else bits,
            entry.integer("group_size", minimum=1) if "group_size" in entry else base,
        )
        if accepted is None and pair[1] != base and pair not in ((2, 32), (2, 64)):
            entry.fail(f"group size {pair[1]} at {pair[0]} bits is not supported (base {base})")
        overrides[stem] = pair
    found = Quantization(bits, base, mode, overrides)
    if accepted is not None and found != accepted:
        fields.fail(f"only {accepted} is accepted, found {found}")
    return found


def read_weight_map(index: bytes) -> dict[str, str]:
    """The shard of each tensor, as an index file's bytes name them.

    Raises `CheckpointError` (`index_invalid`, `unsafe_name`).
    """
    names = parse(index, INDEX_NAME, _index_invalid, unique_keys=True).object("weight_map")
    return {name: check_remote_name(names.text(name)) for name in names}


def _read_tensors(source: Source, index: bytes) -> dict[str, SourceTensor]:
    shards = read_weight_map(index)
    tensors = {}
    # One header at a time: what it lists beside the index's tensors is not kept in memory.
    for shard, listed in groupby(sorted(shards, key=shards.__getitem__), shards.__getitem__):
        header = read_header(source, shard)
        for name in listed:
            if name not in header:
                raise CheckpointError(f"{shard} has no tensor '{name}'", "missing_tensor")
            tensors[name] = header[name]
    return {name: tensors[name] for name in shards}


def _required(source: Source, name: str, cap: int) -> bytes:
    data = read_small(source, name, cap)
    if data is None:
        raise SourceMismatch(f"{source.description} has no {name}: it is no checkpoint")
    return data


def _mismatch(source: Source, entry: PinnedEntry, found: str) -> str:
    other = next((e for e in ENTRIES.values() if e.index_sha256 == found), None)
    hint = (
        f"It is the model '{other.name}': install it as that."
        if other
        else "Allow unpinned sources (--allow-unpinned) to install it at your own risk."
    )
    return (
        f"{source.description} is not the pinned source of '{entry.name}' (its {INDEX_NAME} has "
        f"SHA-256 {found}, the pinned one {entry.index_sha256}). {hint}"
    )


def _parse_config(data: bytes) -> dict[str, Any]:
    return parse(data, CONFIG_NAME, config_invalid).as_dict()


def _index_invalid(message: str) -> CheckpointError:
    return CheckpointError(message, "index_invalid")
