"""A source checkpoint as its metadata describes it: index, config, tensors, and which pin it is."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from mference.errors import CheckpointError, SourceMismatch
from mference.families import (
    ENTRIES,
    FAMILIES,
    PinnedEntry,
    SourceRules,
    source_rules,
    supported_names,
)
from mference.families.arch import CORE_FIELDS, EXTENSION_FIELDS, Arch, first_difference
from mference.families.pins import REQUIRED_SIDECARS
from mference.installer.paths import check_remote_name
from mference.installer.safetensors import SourceTensor, read_header
from mference.installer.source import Source, read_small
from mference.jsontext import Fields, parse

INDEX_NAME = "model.safetensors.index.json"
CONFIG_NAME = REQUIRED_SIDECARS[0]
INDEX_CAP = 4 << 20
CONFIG_CAP = 1 << 20
UNPINNED_MODEL_ID = "unknown/snapshot"

# The value of `model_type` by which each family's configuration is told from Gemma's.
_OTHER_MODEL_TYPES = {
    "deepseek_v4": "deepseekV4Flash",
    "maple": "maple",
    "qwen3_5_moe": "qwen36",
    "qwen3_5": "qwen38",
    "inkling_mm_model": "inklingSmall",
}


@dataclass(frozen=True)
class Quantization:
    """The `quantization` object of a source config: a base, and exceptions by tensor stem."""

    bits: int
    group_size: int
    mode: str
    overrides: Mapping[str, tuple[int, int]]

    def of(self, stem: str) -> tuple[int, int]:
        """(bits, group size) of the tensor whose name without `.weight` is `stem`."""
        return self.overrides.get(stem, (self.bits, self.group_size))


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

    Raises `SourceMismatch` if it is not the pinned source and that is not allowed,
    `UnsupportedModel` for a family without code, `CheckpointError` for malformed metadata.
    """
    index = _required(source, INDEX_NAME, INDEX_CAP)
    found = sha256(index).hexdigest()
    pinned = found == entry.index_sha256
    if not pinned and not allow_unpinned:
        raise SourceMismatch(_mismatch(source, entry, found))
    config_bytes = _required(source, CONFIG_NAME, CONFIG_CAP)
    config = _parse_config(config_bytes)
    rules = source_rules(config_family(config), f"the source {source.description}")
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
        read_quantization(config),
        _read_tensors(source, index),
    )


def config_family(config: Mapping[str, Any]) -> str:
    """The family whose configuration this is, by `model_type`. Raises `SourceMismatch`."""
    model_type = config.get("model_type")
    if isinstance(model_type, str) and model_type in _OTHER_MODEL_TYPES:
        return _OTHER_MODEL_TYPES[model_type]
    gemma = FAMILIES["gemma4"].rules
    assert gemma is not None
    if model_type is None or model_type in gemma.model_types:
        return "gemma4"
    raise SourceMismatch(
        f"models of type {model_type!r} are not supported. Supported: {supported_names()}."
    )


def read_quantization(config: Mapping[str, Any]) -> Quantization:
    """The quantization a source config describes. Raises `CheckpointError` (`config_invalid`)."""
    fields = Fields(config, CONFIG_NAME, _invalid).object("quantization")
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
        if pair[1] != base and pair not in ((2, 32), (2, 64)):
            entry.fail(f"group size {pair[1]} at {pair[0]} bits is not supported (base {base})")
        overrides[stem] = pair
    return Quantization(bits, base, mode, overrides)


def _read_tensors(source: Source, index: bytes) -> dict[str, SourceTensor]:
    names = parse(index, INDEX_NAME, _index_invalid, unique_keys=True).object("weight_map")
    shards = {name: check_remote_name(names.text(name)) for name in names}
    headers = {shard: read_header(source, shard) for shard in sorted(set(shards.values()))}
    tensors = {}
    for name, shard in shards.items():
        if name not in headers[shard]:
            raise CheckpointError(f"{shard} has no tensor '{name}'", "missing_tensor")
        tensors[name] = headers[shard][name]
    return tensors


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
    return parse(data, CONFIG_NAME, _invalid).as_dict()


def _invalid(message: str) -> CheckpointError:
    return CheckpointError(message, "config_invalid")


def _index_invalid(message: str) -> CheckpointError:
    return CheckpointError(message, "index_invalid")
