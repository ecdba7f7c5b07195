"""From source tensors to a store: the resident index, the expert layout, and the copies."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from reprlib import repr as shortened

from mference.errors import CheckpointError
from mference.families import Family, SourceRules
from mference.families.arch import Arch
from mference.families.family import (
    QUANT_SLOTS,
    FlashHead,
    FlashHeadRules,
    Quantization,
    Role,
    RowScale,
    classify,
    layer_stem,
    resident_order,
)
from mference.installer.plan import Copy
from mference.installer.safetensors import SourceTensor
from mference.installer.transforms import IDENTITY, UNPACK_2_TO_4, Transform, repeat_bf16
from mference.store.directory import EXPERTS, LAYOUT_CAP, WEIGHTS, layer_file, page_rounded
from mference.store.layout import ExpertLayout, LayerLayout, Layout, SubTensor
from mference.store.manifest import QuantSlot
from mference.store.resident import DTYPES, ResidentIndex, TensorSpec, plan_index

ROLES: tuple[Role, ...] = ("gate", "up", "down")
_WEIGHT, _SCALES, _BIASES = ".weight", ".scales", ".biases"
_MAX_BYTES = 1 << 41  # the saved state of an unfinished install has room for no more ranges
_MAX_EXPERTS = LAYOUT_CAP >> 10  # each takes more than 1 KiB of layout.json
_MAX_RANK, _MAX_DIMENSION = 4, 2**32 - 1
_DEFAULT_BITS = {"embedding": 4, "attention": 4, "router": 8, "sharedExpert": 8, "routedExpert": 4}


@dataclass(frozen=True)
class Repack:
    """The store that a source becomes. `outputs` are its large files and their sizes in bytes."""

    index: ResidentIndex
    layout: Layout
    copies: tuple[Copy, ...]
    quant: Mapping[str, QuantSlot]
    outputs: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Part:
    """A source tensor as it is stored: through a transform, with the shape it then has.

    That of packed codes is the shape they unpack to.
    """

    source: SourceTensor
    shape: tuple[int, ...]
    transform: Transform = IDENTITY

    @property
    def size(self) -> int:
        """Bytes stored."""
        return self.source.size * self.transform.factor

    def copy(self, path: str, at: int, part: int = 0, parts: int = 1) -> Copy:
        """The copy of one of so many equal parts to byte `at` of a file."""
        size = self.source.size // parts
        offset = self.source.offset + part * size
        return Copy(self.source.shard, offset, size, path, at, self.transform)


@dataclass(frozen=True, slots=True)
class QuantizedTensor:
    """A packed weight with its companions, and the bits of a code as it is stored."""

    weight: Part
    scales: Part
    biases: Part
    bits: int


def plan_repack(
    family: Family,
    rules: SourceRules,
    arch: Arch,
    quantization: Quantization,
    tensors: Mapping[str, SourceTensor],
    flash_head: FlashHead | None = None,
) -> Repack:
    """Decide where every kept tensor of a source goes.

    `flash_head` is the sparse head that the source's config describes, if any. Raises
    `CheckpointError` with `reason` one of unknown_tensor_prefix, missing_scales, missing_biases,
    dtype_mismatch, shape_mismatch, configuration_error, scratch_exceeded, too_large.
    """
    resident, routed = _sort_out(rules, arch, tensors, flash_head)
    _check_extent(arch, tensors, len(routed))
    if flash_head and rules.flash_head:
        _check_flash_head(rules.flash_head, flash_head, arch, tensors)
        own = {rules.flash_head.centroids: (flash_head.bits, flash_head.group_size)}
        quantization = replace(quantization, overrides={**quantization.overrides, **own})
    quantized = {
        name: _resident(rules, tensors, tensors[name], quantization)
        for name in resident
        if _is_packed(tensors[name])
    }
    companions = {p.source.name for q in quantized.values() for p in (q.scales, q.biases)}
    names = sorted(
        (n for n in resident if n not in companions), key=lambda n: resident_order(rules, n)
    )
    index = plan_index([_spec(tensors[name], quantized.get(name)) for name in names])
    layers = {
        layer: {
            role: _routed(rules, tensors, weights.get(role), layer, role, arch, quantization)
            for role in ROLES
        }
        for layer, weights in routed.items()
    }
    layout = _place_experts(arch, layers)
    copies = (
        *_resident_copies(names, tensors, quantized, index),
        *(
            c
            for layer, roles in sorted(layers.items())
            for c in _expert_copies(layer, roles, layout)
        ),
    )
    outputs = {WEIGHTS: index.file_size}
    for layer_layout in layout.layers:
        if layer_layout.experts:
            outputs[f"{EXPERTS}/{layer_layout.file}"] = (
                len(layer_layout.experts) * layout.expert_stride
            )
    quant = _quant_slots(family, rules, quantization, quantized, layers)
    return Repack(index, layout, copies, quant, outputs)


def _sort_out(
    rules: SourceRules,
    arch: Arch,
    tensors: Mapping[str, SourceTensor],
    flash_head: FlashHead | None,
) -> tuple[list[str], dict[int, dict[Role, SourceTensor]]]:
    resident: list[str] = []
    routed: dict[int, dict[Role, SourceTensor]] = {}
    for name, tensor in tensors.items():
        kind = classify(rules, name, arch.integer("numLayers"), flash_head=flash_head is not None)
        if kind.bucket == "unknown":
            raise CheckpointError(f"'{name}' is no tensor of this family", "unknown_tensor_prefix")
        if kind.bucket == "resident":
            resident.append(name)
        if kind.role and name.endswith(_WEIGHT):
            routed.setdefault(kind.layer, {})[kind.role] = tensor
    return resident, routed


def _check_flash_head(
    rules: FlashHeadRules, head: FlashHead, arch: Arch, tensors: Mapping[str, SourceTensor]
) -> None:
    missing = [name for name in rules.names if name not in tensors]
    if missing:
        raise CheckpointError(
            f"the config describes a sparse head, the source has no {missing}",
            "configuration_error",
        )
    columns = arch.integer("hiddenSize") * head.bits // 32
    for name, dtype, shape in (
        (rules.centroids + _WEIGHT, "U32", (head.n_clusters, columns)),
        (rules.token_map, "I32", (head.n_clusters, head.cluster_size)),
    ):
        _check(tensors[name], dtype, shape)


def _check_extent(arch: Arch, tensors: Mapping[str, SourceTensor], layers: int) -> None:
    total = sum(tensor.size for tensor in tensors.values())
    if total > _MAX_BYTES:
        raise CheckpointError(
            f"the source's tensors have {total} bytes, at most {_MAX_BYTES} are accepted",
            "too_large",
        )
    experts = layers * arch.integer("numExperts")
    if experts > _MAX_EXPERTS:
        raise CheckpointError(
            f"the source has {experts} experts, at most {_MAX_EXPERTS} are accepted", "too_large"
        )


def _is_packed(tensor: SourceTensor) -> bool:
    return tensor.dtype == "U32" and tensor.name.endswith(_WEIGHT)


def _resident(
    rules: SourceRules,
    tensors: Mapping[str, SourceTensor],
    weight: SourceTensor,
    quantization: Quantization,
) -> QuantizedTensor:
    tensor = _quantized(rules, tensors, weight, quantization)
    if rules.row_scale is None or tensor.bits != rules.row_scale.bits:
        return tensor
    wide = Part(weight, tensor.weight.shape, UNPACK_2_TO_4)
    return replace(tensor, weight=wide, bits=4)


def _quantized(
    rules: SourceRules,
    tensors: Mapping[str, SourceTensor],
    weight: SourceTensor,
    quantization: Quantization,
) -> QuantizedTensor:
    bits, group = quantization.of(weight.name.removesuffix(_WEIGHT))
    if 32 % bits or not weight.shape:
        raise CheckpointError(f"'{weight.name}': {bits} bits do not pack", "shape_mismatch")
    if rules.row_scale and bits == rules.row_scale.bits:
        return _row_scaled(rules.row_scale, tensors, weight)
    return _affine(tensors, weight, bits, group)


def _affine(
    tensors: Mapping[str, SourceTensor], weight: SourceTensor, bits: int, group: int
) -> QuantizedTensor:
    """A weight whose scales and biases are in the source: all three are copied as they are."""
    stem = weight.name.removesuffix(_WEIGHT)
    for suffix in (_SCALES, _BIASES):
        if stem + suffix not in tensors:
            raise CheckpointError(f"'{weight.name}' has no {suffix[1:]}", f"missing_{suffix[1:]}")
    _check_size(weight)
    columns = weight.shape[-1] * (32 // bits)
    if columns % group:
        raise CheckpointError(
            f"'{weight.name}': {columns} columns are no whole groups of {group}", "shape_mismatch"
        )
    shape = (*weight.shape[:-1], columns // group)
    parts = []
    for suffix in (_SCALES, _BIASES):
        _check(tensors[stem + suffix], "BF16", shape)
        parts.append(Part(tensors[stem + suffix], shape))
    scales, biases = parts
    return QuantizedTensor(Part(weight, (*weight.shape[:-1], columns)), scales, biases, bits)


def _row_scaled(
    rule: RowScale, tensors: Mapping[str, SourceTensor], weight: SourceTensor
) -> QuantizedTensor:
    """A weight with a factor a row, of which scales and biases are made: `RowScale` says how."""
    stem = weight.name.removesuffix(_WEIGHT)
    if stem + rule.suffix not in tensors:
        raise CheckpointError(f"'{weight.name}' has no {rule.suffix[1:]}", "configuration_error")
    for suffix in (_SCALES, _BIASES):
        if stem + suffix in tensors:
            raise CheckpointError(
                f"'{weight.name}' has {rule.suffix[1:]}, and {suffix[1:]} beside it",
                "configuration_error",
            )
    factors, rows = tensors[stem + rule.suffix], weight.shape[:-1]
    _check(factors, "BF16", rows)
    columns = weight.shape[-1] * (32 // rule.bits)
    if columns % rule.group:
        raise CheckpointError(
            f"'{weight.name}': {columns} columns are no whole groups of {rule.group}",
            "shape_mismatch",
        )
    groups = columns // rule.group
    scales, biases = (
        Part(factors, (*rows, groups), repeat_bf16(groups, negate=negate))
        for negate in (False, True)
    )
    return QuantizedTensor(Part(weight, (*rows, columns)), scales, biases, rule.bits)


def _check(tensor: SourceTensor, dtype: str, shape: tuple[int, ...]) -> None:
    if tensor.dtype != dtype:
        raise CheckpointError(f"'{tensor.name}' is {tensor.dtype}, not {dtype}", "dtype_mismatch")
    if tensor.shape != shape:
        raise CheckpointError(
            f"'{tensor.name}' has shape {list(tensor.shape)}, not {list(shape)} as its weight or "
            "the config wants",
            "shape_mismatch",
        )


def _spec(tensor: SourceTensor, quantized: QuantizedTensor | None) -> TensorSpec:
    if tensor.dtype not in DTYPES:
        raise CheckpointError(f"'{tensor.name}': {tensor.dtype} is not stored", "dtype_mismatch")
    if quantized is None:
        _check_size(tensor)
        _check_shape(tensor.name, tensor.shape)
        return TensorSpec(tensor.name, tensor.dtype, tensor.shape, tensor.size)
    _check_size(tensor)
    _check_shape(tensor.name, quantized.weight.shape)
    weight = quantized.weight
    return TensorSpec(
        tensor.name,
        tensor.dtype,
        weight.shape,
        weight.size,
        quantized.scales.size,
        quantized.biases.size,
    )


def _check_size(tensor: SourceTensor) -> None:
    if not tensor.size:
        raise CheckpointError(
            f"'{tensor.name}' has shape {list(tensor.shape)}: no values", "shape_mismatch"
        )


def _check_shape(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) > _MAX_RANK or max(shape, default=1) > _MAX_DIMENSION:
        raise CheckpointError(
            f"'{name}' has shape {shortened(list(shape))}; the store has room for {_MAX_RANK} "
            f"dimensions of at most {_MAX_DIMENSION}",
            "shape_mismatch",
        )


def _routed(
    rules: SourceRules,
    tensors: Mapping[str, SourceTensor],
    weight: SourceTensor | None,
    layer: int,
    role: Role,
    arch: Arch,
    quantization: Quantization,
) -> QuantizedTensor:
    if weight is None:
        raise CheckpointError(f"layer {layer} has experts without '{role}'", "configuration_error")
    if weight.dtype != "U32" or len(weight.shape) != 3:
        raise CheckpointError(
            f"'{weight.name}' is {weight.dtype} {list(weight.shape)}, not U32 of rank 3",
            "shape_mismatch",
        )
    tensor = _quantized(rules, tensors, weight, quantization)
    hidden, width = arch.integer("hiddenSize"), arch.integer("moeIntermediateSize")
    wanted = (arch["numExperts"], *((hidden, width) if role == "down" else (width, hidden)))
    if tensor.weight.shape != wanted:
        raise CheckpointError(
            f"'{weight.name}' unpacks to {list(tensor.weight.shape)}, the config says "
            f"{list(wanted)}",
            "shape_mismatch",
        )
    return tensor


def _pieces(
    roles: Mapping[Role, QuantizedTensor],
) -> Iterator[tuple[str, Part, int | None]]:
    for role in ROLES:
        tensor = roles[role]
        yield role, tensor.weight, tensor.bits
        yield f"{role}_scales", tensor.scales, None
        yield f"{role}_biases", tensor.biases, None


def _place_experts(arch: Arch, layers: Mapping[int, Mapping[Role, QuantizedTensor]]) -> Layout:
    experts = arch.integer("numExperts")
    blobs: dict[int, dict[str, SubTensor]] = {}
    stride = 0
    for layer, roles in layers.items():
        at = 0
        blobs[layer] = {}
        for name, part, bits in _pieces(roles):
            size = part.size // experts
            blobs[layer][name] = SubTensor(at, size, part.source.dtype, part.shape[1:], bits)
            at += size
        stride = max(stride, page_rounded(at))
    return Layout(
        stride,
        arch.integer("numLayers"),
        experts if layers else 0,
        tuple(
            LayerLayout(
                layer,
                layer_file(layer),
                tuple(ExpertLayout(e * stride, stride, blobs[layer]) for e in range(experts))
                if layer in blobs
                else (),
            )
            for layer in range(arch.integer("numLayers"))
        ),
    )


def _resident_copies(
    names: list[str],
    tensors: Mapping[str, SourceTensor],
    quantized: Mapping[str, QuantizedTensor],
    index: ResidentIndex,
) -> Iterator[Copy]:
    for name in names:
        entry, packed = index.tensors[name], quantized.get(name)
        if packed is None:
            yield Part(tensors[name], entry.shape).copy(WEIGHTS, entry.offset)
            continue
        yield packed.weight.copy(WEIGHTS, entry.offset)
        yield packed.scales.copy(WEIGHTS, entry.scale_offset)
        yield packed.biases.copy(WEIGHTS, entry.bias_offset)


def _expert_copies(
    layer: int, roles: Mapping[Role, QuantizedTensor], layout: Layout
) -> Iterator[Copy]:
    path = f"{EXPERTS}/{layout.layers[layer].file}"
    experts = layout.layers[layer].experts
    for e, expert in enumerate(experts):
        for name, part, _ in _pieces(roles):
            at = expert.offset + expert.tensors[name].offset
            yield part.copy(path, at, e, len(experts))


def _quant_slots(
    family: Family,
    rules: SourceRules,
    quantization: Quantization,
    quantized: Mapping[str, QuantizedTensor],
    layers: Mapping[int, Mapping[Role, QuantizedTensor]],
) -> dict[str, QuantSlot]:
    if family.fixed_quant:
        return {
            name: QuantSlot(r.bits[0], r.scheme, r.scale_type, r.bias_type, r.group_size)
            for name, r in family.quant.items()
        }
    bits = dict(_DEFAULT_BITS)
    for name, tensor in sorted(quantized.items(), key=lambda i: resident_order(rules, i[0])):
        if name == rules.embedding[0]:
            bits["embedding"] = tensor.bits
        for slot, stems in rules.quant_witnesses.items():
            if layer_stem(rules, name) in stems:
                bits[slot] = tensor.bits
    if layers:
        bits["routedExpert"] = layers[min(layers)]["gate"].bits
    return {
        slot: QuantSlot(bits[slot], quantization.mode, "BF16", "BF16", quantization.group_size)
        for slot in QUANT_SLOTS
    }
