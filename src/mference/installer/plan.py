"""The range plan: which bytes of which shard are read, in what order, and where they go."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from unicodedata import normalize

from mference.errors import InstallError
from mference.installer.transforms import IDENTITY, Transform

MAX_CHUNK = 64 << 20
_U64_END = 2**64
_PLAN_DOMAIN = "Mference.RemoteInstallPlan"
_RANGE_DOMAIN = "Mference.RemoteRangeDestination"


@dataclass(frozen=True, slots=True)
class Copy:
    """Bytes of a shard and the file, relative to the install, that they go to; all in bytes."""

    shard: str
    source_offset: int
    size: int
    path: str
    destination_offset: int
    transform: Transform = IDENTITY

    @property
    def source_end(self) -> int:
        """The offset after the last source byte."""
        return self.source_offset + self.size

    @property
    def output_size(self) -> int:
        """Bytes written."""
        return self.size * self.transform.factor

    @property
    def destination_end(self) -> int:
        """The offset after the last byte written."""
        return self.destination_offset + self.output_size


@dataclass(frozen=True, slots=True)
class Range:
    """One read of a shard: [offset, offset + size), and the copies served by it."""

    id: str
    shard: str
    offset: int
    size: int
    parts: tuple[Copy, ...]

    @property
    def output_size(self) -> int:
        """Bytes written for all parts."""
        return sum(part.output_size for part in self.parts)


@dataclass(frozen=True)
class RangePlan:
    """All reads of an install. `outputs` are the sizes of the files they fill.

    `index_sha256` is the hex SHA-256 of the resident index region, which no range covers.
    """

    chunk: int
    ranges: tuple[Range, ...]
    outputs: Mapping[str, int]
    index_sha256: str

    @property
    def source_bytes(self) -> int:
        """Bytes read from the source, gaps inside ranges included."""
        return sum(r.size for r in self.ranges)

    def fingerprint(self) -> str:
        """Hex SHA-256 over everything that decides what the ranges mean and where they go."""
        transformed = any(not p.transform.is_identity for r in self.ranges for p in r.parts)
        digest = sha256(_text(f"{_PLAN_DOMAIN}.{'v2' if transformed else 'v1'}"))
        digest.update(_number(1, 0, self.chunk))
        digest.update(_text("identity", "", self.index_sha256))
        digest.update(_number(len(self.outputs)))
        for path in sorted(self.outputs):
            digest.update(_text(path) + _number(self.outputs[path]))
        digest.update(_number(len(self.ranges)))
        for r in self.ranges:
            digest.update(_text(r.id, normalize("NFC", r.shard)))
            digest.update(_number(r.offset, r.size, len(r.parts)))
            for part in r.parts:
                digest.update(_destination(r, part, transformed))
        return digest.hexdigest()


def plan_ranges(copies: Sequence[Copy], chunk: int = MAX_CHUNK) -> tuple[Range, ...]:
    """Cut copies to at most `chunk` source bytes, sort them by shard and offset, merge neighbours.

    Neighbours share a read while its span, gaps included, stays within `chunk`. Raises
    `InstallError` for a chunk or a copy that cannot be carried out.
    """
    pieces = sorted(
        (piece for copy in copies for piece in _cut(copy, chunk)),
        key=lambda c: (c.shard, c.source_offset),
    )
    groups: list[list[Copy]] = []
    end = 0
    for piece in pieces:
        group = groups[-1] if groups else None
        if (
            group
            and group[0].shard == piece.shard
            and max(end, piece.source_end) - group[0].source_offset <= chunk
        ):
            group.append(piece)
            end = max(end, piece.source_end)
        else:
            groups.append([piece])
            end = piece.source_end
    return tuple(_range(i, group) for i, group in enumerate(groups))


def check_destinations(copies: Iterable[Copy]) -> None:
    """Check that no two copies write one byte of one file. Raises `InstallError`."""
    ordered = sorted(copies, key=lambda c: (c.path, c.destination_offset))
    for first, second in pairwise(ordered):
        if first.path == second.path and first.destination_end > second.destination_offset:
            raise InstallError(
                f"two copies overlap in {first.path} at byte {second.destination_offset}"
            )


def digest_headers(r: Range) -> Iterator[bytes]:
    """What stands before the output bytes of each part in the digest of a range, in order."""
    transformed = any(not part.transform.is_identity for part in r.parts)
    domain = f"{_RANGE_DOMAIN}.{'v2' if transformed else 'v1'}"
    start = _text(domain, r.id) + _number(len(r.parts))
    for part in r.parts:
        yield start + _destination(r, part, transformed)
        start = b""


def _cut(copy: Copy, chunk: int) -> Iterable[Copy]:
    transform = copy.transform
    step = chunk - chunk % transform.unit
    if not 1 <= chunk <= MAX_CHUNK or step < 1:
        raise InstallError(f"a range chunk of {chunk} bytes is not possible")
    if copy.size < 1 or copy.size % transform.unit:
        raise InstallError(
            f"{copy.size} bytes cannot be copied to {copy.path} in units of {transform.unit}"
        )
    if max(copy.source_end, copy.destination_end) >= _U64_END:
        raise InstallError(f"the copy to {copy.path} at {copy.destination_offset} overflows")
    if copy.size <= chunk:
        return (copy,)
    return (
        Copy(
            copy.shard,
            copy.source_offset + at,
            min(step, copy.size - at),
            copy.path,
            copy.destination_offset + at * transform.factor,
            transform,
        )
        for at in range(0, copy.size, step)
    )


def _range(number: int, group: list[Copy]) -> Range:
    start = group[0].source_offset
    size = max(piece.source_end for piece in group) - start
    parts = sorted(group, key=lambda c: (c.path, c.destination_offset, c.source_offset))
    return Range(f"range-{number:08d}", group[0].shard, start, size, tuple(parts))


def _destination(r: Range, part: Copy, transformed: bool) -> bytes:
    numbers = (part.destination_offset, part.source_offset - r.offset, part.size)
    if not transformed:
        return _text(part.path) + _number(*numbers)
    return _text(part.path) + _number(*numbers, part.output_size) + _text(part.transform.name)


def _text(*values: str) -> bytes:
    encoded = [value.encode("utf-8") for value in values]
    return b"".join(_number(len(data)) + data for data in encoded)


def _number(*values: int) -> bytes:
    return b"".join(value.to_bytes(8, "little") for value in values)
