"""Carrying out one range: read it, write its parts, force them to the disk, digest them."""

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from mference.installer.plan import Copy, Range, RangeDigest
from mference.installer.source import Source, blocks

DEFAULT_SCRATCH = 512 << 10
MAX_SCRATCH = 1_048_575


def copy_range(
    source: Source,
    r: Range,
    size: int,
    root: Path,
    staging: Path,
    *,
    scratch: int = DEFAULT_SCRATCH,
    progress: Callable[[int], None] | None = None,
) -> str:
    """Write every part of a range into the files below `root`, and return its digest as hex.

    `size` is that of the whole shard. At most `scratch` output bytes are in memory. On return the
    bytes are on the disk. Raises the `InstallError` branch and `OSError`.
    """
    digest = RangeDigest(r)
    with ExitStack() as stack:
        descriptor, start = stack.enter_context(
            source.open_range(r.shard, r.offset, r.size, size, staging)
        )
        outputs: dict[str, int] = {}
        for part in r.parts:
            if part.path not in outputs:
                output = os.open(root / part.path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                stack.callback(os.close, output)
                outputs[part.path] = output
            position = start + part.source_offset - r.offset
            _copy_part(descriptor, position, part, outputs[part.path], digest, scratch, progress)
        for output in outputs.values():
            os.fsync(output)
    return digest.hexdigest()


def digest_range(
    r: Range, root: Path, scratch: int, progress: Callable[[int], None] | None = None
) -> str:
    """The digest, as hex, of what the files below `root` hold where a range was written.

    At most `scratch` bytes are in memory. Raises `CheckpointError` if a file is too short, and
    `OSError`.
    """
    digest = RangeDigest(r)
    for part in r.parts:
        descriptor = os.open(root / part.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            digest.start(part)
            for data in blocks(
                descriptor, part.destination_offset, part.output_size, scratch, part.path
            ):
                digest.update(data)
                if progress:
                    progress(len(data))
        finally:
            os.close(descriptor)
    return digest.hexdigest()


def _copy_part(
    descriptor: int,
    position: int,
    part: Copy,
    output: int,
    digest: RangeDigest,
    scratch: int,
    progress: Callable[[int], None] | None,
) -> None:
    digest.start(part)
    at = part.destination_offset
    tile = part.transform.tile(scratch)
    for data in blocks(descriptor, position, part.size, tile, part.shard):
        written = part.transform.apply(data)
        digest.update(written)
        write_all(output, written, at)
        at += len(written)
        if progress:
            progress(len(data))


def write_all(descriptor: int, data: bytes, at: int) -> None:
    """Write all of `data` at byte `at` of an open file. Raises `OSError`."""
    view = memoryview(data)
    while view:
        count = os.pwrite(descriptor, view, at)
        view = view[count:]
        at += count
