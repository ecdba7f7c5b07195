"""Safetensors headers, read without trusting what they say."""

from dataclasses import dataclass
from reprlib import repr as shortened

from mference.errors import CheckpointError
from mference.installer.source import Source, read_range
from mference.jsontext import Fields, parse

HEADER_CAP = 16 << 20
_PREFIX = 8
_METADATA = "__metadata__"

DTYPE_SIZES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2,
    "BF16": 2, "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SourceTensor:
    """A tensor of a source checkpoint: `offset` in its shard file and `size`, in bytes."""

    name: str
    shard: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int


def read_header(source: Source, shard: str) -> dict[str, SourceTensor]:
    """The tensors of one shard, by name.

    The header must fit the file and the 16 MiB cap, name each tensor once, give each the bytes its
    dtype and shape need, and cover the data without gap or overlap. Raises `CheckpointError` with
    `reason` one of missing_file, header_truncated, header_too_large, header_invalid,
    unknown_dtype, tensor_size, tensor_overlap, tensor_gap, tensor_out_of_range.
    """
    size = source.size(shard, ranged=True)
    if size is None:
        raise CheckpointError(f"the source has no file {shard}", "missing_file")
    if size < _PREFIX:
        raise CheckpointError(f"{shard} is too short for a header", "header_truncated")
    prefix = read_range(source, shard, 0, _PREFIX, size)
    length = int.from_bytes(prefix, "little")
    if length > HEADER_CAP:
        raise CheckpointError(
            f"{shard} announces a header of {length} bytes, at most {HEADER_CAP} are accepted",
            "header_too_large",
        )
    if _PREFIX + length > size:
        raise CheckpointError(f"{shard} ends inside its header", "header_truncated")
    data = read_range(source, shard, _PREFIX, length, size) if length else b""
    return parse_header(data, shard, size)


def parse_header(data: bytes, shard: str, file_size: int) -> dict[str, SourceTensor]:
    """The tensors that a header's JSON text describes in a file of `file_size` bytes.

    Raises `CheckpointError`, as `read_header` does.
    """
    top = parse(data, shard, lambda m: CheckpointError(m, "header_invalid"), unique_keys=True)
    start = _PREFIX + len(data)
    tensors = [_tensor(top.object(name), name, shard, start) for name in top if name != _METADATA]
    end = start
    for tensor in sorted(tensors, key=lambda t: (t.offset, t.size)):
        if tensor.offset < end:
            raise CheckpointError(f"{shard}: '{tensor.name}' overlaps another", "tensor_overlap")
        if tensor.offset > end:
            raise CheckpointError(f"{shard}: bytes before '{tensor.name}' are unused", "tensor_gap")
        end += tensor.size
        if end > file_size:
            raise CheckpointError(
                f"{shard}: '{tensor.name}' ends past the file", "tensor_out_of_range"
            )
    if end != file_size:
        raise CheckpointError(
            f"{shard}: {file_size - end} bytes at its end are unused", "tensor_gap"
        )
    return {tensor.name: tensor for tensor in tensors}


def _tensor(fields: Fields, name: str, shard: str, start: int) -> SourceTensor:
    dtype = fields.text("dtype")
    if dtype not in DTYPE_SIZES:
        raise CheckpointError(f"{shard}: '{name}' has the unknown dtype {dtype}", "unknown_dtype")
    shape = fields.integers("shape")
    offsets = fields.integers("data_offsets")
    if len(offsets) != 2 or min((*shape, *offsets)) < 0 or max((*shape, *offsets)) >= 2**63:
        fields.fail("'shape' and 'data_offsets' must be sizes and a pair of offsets")
    size = _byte_count(dtype, shape)
    if offsets[1] - offsets[0] != size:
        raise CheckpointError(
            f"{shard}: '{name}' ({dtype} {shortened(list(shape))}) needs {size} bytes, its offsets "
            f"{list(offsets)} say otherwise",
            "tensor_size",
        )
    return SourceTensor(name, shard, dtype, shape, start + offsets[0], size)


def _byte_count(dtype: str, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor, or 2^63 for any that has more."""
    size = 0 if 0 in shape else DTYPE_SIZES[dtype]
    for n in shape:
        size = min(size * n, 2**63)
    return size
