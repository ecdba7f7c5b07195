"""`manifest.json`: what is in it, how it is written, and how it is refused."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mference.errors import (
    ArchMismatch,
    ManifestError,
    MissingFile,
    NotGturbo,
    StrideNotAligned,
    UnknownFlag,
    UnsupportedVersion,
)
from mference.families import FAMILIES, Family
from mference.families.arch import MASK_KEY, Arch, compare_arch, read_arch
from mference.families.family import QUANT_SLOTS, FlashHead, SlotRule
from mference.jsontext import Fields, parse, pretty
from mference.store.directory import (
    EXPERTS,
    LAYOUT,
    MANIFEST,
    MANIFEST_CAP,
    PAGE,
    REINSTALL,
    WEIGHTS,
    is_safe_name,
    layer_file,
)

MAGIC = "GTURBO"
VERSION = (1, 0)
FLAGS = {"streamingPresent": True, "turboQuantKV": False, "aneSharedExpert": False}


@dataclass(frozen=True)
class FileRecord:
    """Size in bytes and lowercase hex SHA-256 of one file of an install."""

    size: int
    sha256: str


@dataclass(frozen=True)
class QuantSlot:
    """How the tensors of one role are quantized: bits a weight, and bytes' meaning."""

    weight_bits: int
    scheme: str
    scale_type: str
    bias_type: str
    group_size: int


@dataclass(frozen=True)
class Manifest:
    """The contents of `manifest.json`; sizes in bytes.

    `source_hash` is `sha256:` and the hex SHA-256 of the source's index file, if recorded.
    """

    model_id: str
    arch: Arch
    files: Mapping[str, FileRecord]
    experts_per_layer: int
    num_layers: int
    expert_stride: int
    quant: Mapping[str, QuantSlot] | None = None
    source_hash: str | None = None
    flags: Mapping[str, bool] = field(default_factory=lambda: FLAGS)
    version: tuple[int, int] = VERSION
    flash_head: FlashHead | None = None
    overrides_honored: int = 0
    arch_keys: frozenset[str] = frozenset()

    @property
    def family(self) -> Family:
        """The family that `arch.family` names."""
        return FAMILIES[self.arch.family]

    def record(self, name: str) -> FileRecord:
        """The record of a file. Raises `MissingFile` if the manifest does not list it."""
        if name not in self.files:
            raise MissingFile(f"manifest.json does not list '{name}'. {REINSTALL}", name)
        return self.files[name]


def decode_manifest(data: bytes, *, cap: int = MANIFEST_CAP) -> Manifest:
    """Decode a manifest and check magic, version, flags and family, but no values.

    Raises `ManifestError` or one of `NotGturbo`, `UnsupportedVersion`, `UnknownFlag` below it.
    """
    if len(data) > cap:
        raise _corrupt(f"{MANIFEST} is larger than {cap} bytes")
    top = parse(data, MANIFEST, _corrupt)
    flags = top.object("flags")
    arch_fields = top.object("arch")
    arch = read_arch(arch_fields)
    magic = top.text("magic")
    version = (top.integer("versionMajor"), top.integer("versionMinor"))
    manifest = Manifest(
        model_id=top.text("modelID"),
        arch=arch,
        files=_read_files(top.object("files")),
        experts_per_layer=top.integer("expertsPerLayer"),
        num_layers=top.integer("numLayers"),
        expert_stride=top.integer("expertStride"),
        quant=_read_quant(top.object("quant")) if "quant" in top else None,
        source_hash=top.text("sourceSnapshotHash") if "sourceSnapshotHash" in top else None,
        flags={name: flags.boolean(name) for name in flags},
        version=version,
        flash_head=_read_flash_head(top.object("flashHead")) if "flashHead" in top else None,
        arch_keys=frozenset(key for key in arch_fields if key in arch_fields),
    )
    if magic != MAGIC:
        raise NotGturbo(f"{MANIFEST}: magic is '{magic}', not '{MAGIC}': not a .gturbo directory")
    if version[0] != VERSION[0]:
        raise UnsupportedVersion(
            f"{MANIFEST}: format version {version[0]}.{version[1]}; this version of mference reads "
            f"{VERSION[0]}.x. Update mference, or install the model again."
        )
    for name in flags:
        if name not in FLAGS:
            raise UnknownFlag(f"{MANIFEST}: unknown flag '{name}'. Update mference.", name)
    if manifest.flags.get("turboQuantKV"):
        raise _corrupt(f"{MANIFEST}: the flag turboQuantKV names a removed feature")
    if arch.family not in FAMILIES:
        raise _corrupt(f"{MANIFEST}: unknown model family '{arch.family}'")
    return manifest


def check_manifest(manifest: Manifest, expected: Arch | None, *, page: int = PAGE) -> None:
    """Check a decoded manifest against the architecture it should have, in the format's order.

    With `expected` None only rules that need no baseline are applied. `page` is the host's page
    size where that is larger than the format's. Raises the `ManifestError` branch, `MissingFile`.
    """
    if expected is None:
        expected = manifest.arch
        if len(manifest.arch.layer_mask) != manifest.arch["numLayers"]:
            raise ArchMismatch(f"{MANIFEST}: arch.{MASK_KEY} has not one value a layer", MASK_KEY)
    family = FAMILIES[expected.family]
    compare_arch(manifest.arch, manifest.arch_keys, expected, family.required_keys)
    _check_quant(manifest.quant, expected, family)
    _check_flash_head(manifest, family)
    if manifest.expert_stride % page:
        raise StrideNotAligned(
            f"{MANIFEST}: expertStride {manifest.expert_stride} is not a multiple of {page} bytes"
        )
    manifest.record(WEIGHTS)
    manifest.record(LAYOUT)
    for layer in range(expected.integer("numDenseLayers"), manifest.num_layers):
        names = (f"{EXPERTS}/{layer_file(layer)}", f"{EXPERTS}/layer_{layer}.bin")
        if not any(name in manifest.files for name in names):
            manifest.record(names[0])


def probe_family(data: bytes) -> str:
    """The family a manifest belongs to, read from `arch.family` alone. Raises `ManifestError`."""
    arch = parse(data, MANIFEST, _corrupt).object("arch")
    name = arch.text("family") if "family" in arch else "gemma4"
    if name not in FAMILIES:
        raise _corrupt(f"{MANIFEST}: unknown model family '{name}'")
    return name


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of `manifest.json` for a manifest made by a writer (which records `quant`)."""
    document: dict[str, Any] = {
        "magic": MAGIC,
        "versionMajor": manifest.version[0],
        "versionMinor": manifest.version[1],
        "flags": manifest.flags,
        "modelID": manifest.model_id,
        "arch": manifest.arch.written(manifest.family.extension_keys),
        "files": {
            name: {"size": record.size, "sha256": record.sha256}
            for name, record in manifest.files.items()
        },
        "expertsPerLayer": manifest.experts_per_layer,
        "numLayers": manifest.num_layers,
        "expertStride": manifest.expert_stride,
        "bitWidthOverridesHonored": manifest.overrides_honored,
    }
    if manifest.source_hash is not None:
        document["sourceSnapshotHash"] = manifest.source_hash
    if manifest.quant is not None:
        document["quant"] = {
            name: {
                "weightBits": slot.weight_bits,
                "scheme": slot.scheme,
                "scaleType": slot.scale_type,
                "biasType": slot.bias_type,
                "groupSize": slot.group_size,
            }
            for name, slot in manifest.quant.items()
        }
    if manifest.flash_head is not None:
        document["flashHead"] = _written_flash_head(manifest.flash_head)
    return pretty(document)


def _read_files(files: Fields) -> dict[str, FileRecord]:
    records = {}
    for name in files:
        if not is_safe_name(name):
            files.fail(f"'{name!r}' is not a path inside the install")
        entry = files.object(name)
        records[name] = FileRecord(entry.integer("size"), entry.text("sha256").lower())
    return records


def _read_quant(quant: Fields) -> dict[str, QuantSlot]:
    slots = {}
    for name in QUANT_SLOTS:
        slot = quant.object(name)
        slots[name] = QuantSlot(
            slot.integer("weightBits"),
            slot.text("scheme"),
            slot.text("scaleType"),
            slot.text("biasType"),
            slot.integer("groupSize"),
        )
    return slots


def _read_flash_head(head: Fields) -> FlashHead:
    return FlashHead(
        n_clusters=head.integer("nClusters"),
        cluster_size=head.integer("clusterSize"),
        n_probes=head.integer("nProbes"),
        group_size=head.integer("groupSize"),
        bits=head.integer("bits"),
        head_group_size=head.integer("headGroupSize"),
        head_bits=head.integer("headBits"),
        scaled_centroids=head.boolean("scaledCentroids"),
        force_tokens=head.integers("forceTokens"),
    )


def _written_flash_head(head: FlashHead) -> dict[str, Any]:
    return {
        "nClusters": head.n_clusters,
        "clusterSize": head.cluster_size,
        "nProbes": head.n_probes,
        "groupSize": head.group_size,
        "bits": head.bits,
        "headGroupSize": head.head_group_size,
        "headBits": head.head_bits,
        "scaledCentroids": head.scaled_centroids,
        "forceTokens": head.force_tokens,
    }


def _check_quant(quant: Mapping[str, QuantSlot] | None, expected: Arch, family: Family) -> None:
    if quant is None:
        shape = (expected["numLayers"], expected["hiddenSize"])
        baselines = [f.baseline for f in FAMILIES.values()]
        if any(shape == (b["numLayers"], b["hiddenSize"]) for b in baselines):
            raise _corrupt(f"{MANIFEST}: 'quant' is missing")
        return
    for name, slot in quant.items():
        if not _accepts(family.quant[name], slot):
            raise _corrupt(f"{MANIFEST}: quant.{name} is not supported for {family.name}: {slot}")


def _accepts(rule: SlotRule, slot: QuantSlot) -> bool:
    return (
        slot.weight_bits in rule.bits
        and slot.scheme.lower() == rule.scheme.lower()
        and slot.scale_type.lower() == rule.scale_type.lower()
        and slot.bias_type.lower() == rule.bias_type.lower()
        and slot.group_size == rule.group_size
    )


def _check_flash_head(manifest: Manifest, family: Family) -> None:
    head = manifest.flash_head
    if head is None:
        return
    if not (family.flash_head and head.fits(manifest.arch.integer("vocabSize"))):
        raise _corrupt(f"{MANIFEST}: flashHead is not valid for {family.name}: {head}")


def _corrupt(message: str) -> ManifestError:
    return ManifestError(f"{message}. {REINSTALL}")
