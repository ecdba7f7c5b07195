"""`model_weights.bin`: the index of the resident tensors, and where their bytes lie."""

import mmap
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from mference.errors import CheckpointError, IndexCorrupt, MissingFile, TensorNotFound
from mference.store.directory import REINSTALL, WEIGHTS, page_rounded

HEADER = struct.Struct("<QQQ")
ENTRY = struct.Struct("<IHBBQQ4IQQQQ")
DTYPES = ("U32", "BF16", "F16", "F32", "I64", "I32")
MAX_INDEX = 1_048_575


@dataclass(frozen=True, slots=True)
class ResidentTensor:
    """One entry of the index; offsets (absolute in the file) and sizes in bytes.

    `dtype` is one of U32 (packed quantized values), BF16, F16, F32, I64, I32. `shape` is the
    logical shape, unpacked for quantized tensors, without the zero filling. Scales and biases
    (BF16, one a row and group) have offset and size 0 where there are none.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int
    scale_offset: int = 0
    scale_size: int = 0
    bias_offset: int = 0
    bias_size: int = 0

    @property
    def bits(self) -> int:
        """Bits a value, from the stored size and the logical shape (0 for an empty tensor)."""
        count = 1
        for n in self.shape:
            count *= n
        return self.size * 8 // count if count else 0

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """The (start, end) of weight, scales and biases, those that exist."""
        pairs = (
            (self.offset, self.size),
            (self.scale_offset, self.scale_size),
            (self.bias_offset, self.bias_size),
        )
        return tuple((o, o + s) for i, (o, s) in enumerate(pairs) if i == 0 or o or s)


class _Tensors(Mapping[str, ResidentTensor]):
    """Tensors by name; a name that is not there raises `TensorNotFound`."""

    def __init__(self, tensors: dict[str, ResidentTensor]) -> None:
        self._tensors = MappingProxyType(tensors)

    def __getitem__(self, name: str) -> ResidentTensor:
        try:
            return self._tensors[name]
        except KeyError:
            raise TensorNotFound(f"{WEIGHTS} has no tensor '{name}'. {REINSTALL}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


@dataclass(frozen=True)
class ResidentIndex:
    """The index region: its size (tensor bytes start there), the bytes after it, the tensors."""

    index_size: int
    resident_size: int
    tensors: Mapping[str, ResidentTensor]

    @property
    def file_size(self) -> int:
        """Bytes of the whole `model_weights.bin`."""
        return self.index_size + self.resident_size


@dataclass(frozen=True)
class TensorSpec:
    """A tensor to be placed: name, dtype, logical shape, bytes of weight, scales and biases."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    scale_size: int = 0
    bias_size: int = 0


def plan_index(specs: Sequence[TensorSpec]) -> ResidentIndex:
    """Place tensors back to back, in the order given, behind a page-rounded index.

    Raises `CheckpointError` (`scratch_exceeded`) if the index would exceed 1 048 575 bytes.
    """
    raw = HEADER.size + sum(ENTRY.size + len(s.name.encode()) for s in specs)
    if raw > MAX_INDEX:
        raise CheckpointError(
            f"the resident index needs {raw} bytes, the format allows {MAX_INDEX}",
            "scratch_exceeded",
        )
    index_size = at = page_rounded(raw)
    tensors = {}
    for spec in specs:
        scales = at + spec.size
        biases = scales + spec.scale_size
        tensors[spec.name] = ResidentTensor(
            spec.name,
            spec.dtype,
            spec.shape,
            at,
            spec.size,
            scales if spec.scale_size else 0,
            spec.scale_size,
            biases if spec.bias_size else 0,
            spec.bias_size,
        )
        at = biases + spec.bias_size
    return ResidentIndex(index_size, at - index_size, _Tensors(tensors))


def encode_index(index: ResidentIndex) -> bytes:
    """The bytes of the index region: header, entries, names, zero padding to `index_size`."""
    names = [tensor.name.encode() for tensor in index.tensors.values()]
    name_at = HEADER.size + ENTRY.size * len(names)
    out = bytearray(HEADER.pack(index.index_size, index.resident_size, len(names)))
    for tensor, name in zip(index.tensors.values(), names, strict=True):
        shape = (*tensor.shape, 0, 0, 0, 0)[:4]
        out += ENTRY.pack(
            name_at, len(name), DTYPES.index(tensor.dtype), 0, tensor.offset, tensor.size, *shape,
            tensor.scale_offset, tensor.scale_size, tensor.bias_offset, tensor.bias_size,
        )  # fmt: skip
        name_at += len(name)
    out += b"".join(names)
    return bytes(out.ljust(index.index_size, b"\0"))


def read_index(path: Path) -> ResidentIndex:
    """Read and check the index of a `model_weights.bin`; the tensor bytes are not touched.

    Raises `MissingFile`, and `IndexCorrupt` for every way in which the index contradicts itself
    or the file.
    """
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            if size < HEADER.size:
                raise _corrupt(f"{size} bytes are too few for the {HEADER.size}-byte header")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
                return _parse(view, size)
    except FileNotFoundError:
        raise MissingFile(f"{path} is missing. {REINSTALL}", path.name) from None


def _parse(view: mmap.mmap, file_size: int) -> ResidentIndex:
    index_size, resident_size, count = HEADER.unpack_from(view, 0)
    if index_size < HEADER.size or index_size > file_size:
        raise _corrupt(f"index size {index_size} is not inside [{HEADER.size}, {file_size}]")
    if HEADER.size + count * ENTRY.size > index_size:
        raise _corrupt(f"{count} entries do not fit an index of {index_size} bytes")
    if index_size + resident_size != file_size:
        raise _corrupt(
            f"the file has {file_size} bytes, its header says {index_size} + {resident_size}"
        )
    tensors: dict[str, ResidentTensor] = {}
    for i in range(count):
        tensor = _entry(view, HEADER.size + i * ENTRY.size, index_size)
        if tensor.name in tensors:
            raise _corrupt(f"tensor '{tensor.name}' is listed twice")
        for start, end in tensor.spans:
            if start < index_size or end > file_size:
                raise _corrupt(
                    f"tensor '{tensor.name}': bytes [{start}, {end}) are outside the data region"
                )
        tensors[tensor.name] = tensor
    return ResidentIndex(index_size, resident_size, _Tensors(tensors))


def _entry(view: mmap.mmap, at: int, index_size: int) -> ResidentTensor:
    (name_at, name_size, dtype, _reserved, offset, size, *shape,
     scale_offset, scale_size, bias_offset, bias_size) = ENTRY.unpack_from(view, at)  # fmt: skip
    if name_at < HEADER.size or name_at + name_size > index_size:
        raise _corrupt(f"the name of the entry at byte {at} lies outside the index")
    try:
        name = view[name_at : name_at + name_size].decode("utf-8")
    except UnicodeDecodeError:
        raise _corrupt(f"the name of the entry at byte {at} is not UTF-8") from None
    if dtype >= len(DTYPES):
        raise _corrupt(f"tensor '{name}' has the unknown dtype {dtype}")
    rank = max((i + 1 for i, n in enumerate(shape) if n), default=0)
    return ResidentTensor(
        name, DTYPES[dtype], tuple(shape[:rank]), offset, size,
        scale_offset, scale_size, bias_offset, bias_size,
    )  # fmt: skip


def _corrupt(message: str) -> IndexCorrupt:
    return IndexCorrupt(f"{WEIGHTS}: {message}. {REINSTALL}")
