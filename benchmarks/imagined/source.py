"""An imagined checkpoint as the installer reads it."""

import json
import struct
from collections.abc import Iterator
from typing import Any

from imagined.model import PAGE, ImaginedModel, Tensor
from mference.families import Arch
from mference.installer.source import BLOCK, DEMO_CHECKPOINT, Sink

SHARD = "model.safetensors"


class ImaginedSource:
    """A checkpoint that is made up as it is read."""

    description = identity = "random weights"

    def __init__(self, model: ImaginedModel, arch: Arch, layers: int) -> None:
        self._tensors = model.tensors(arch, layers)
        self._starts: list[tuple[int, int, Tensor]] = []
        header: dict[str, Any] = {}
        position = 0
        for key, (name, tensor) in enumerate(self._tensors.items()):
            end = position + tensor.size
            header[name] = {
                "dtype": tensor.dtype,
                "shape": list(tensor.shape),
                "data_offsets": [position, end],
            }
            self._starts.append((position, key, tensor))
            position = end
        text = json.dumps(header).encode()
        self._head = struct.pack("<Q", len(text)) + text
        self._size = len(self._head) + position
        weight_map = dict.fromkeys(self._tensors, SHARD)
        self._files = {
            "config.json": json.dumps(model.config(arch, layers)).encode(),
            "model.safetensors.index.json": json.dumps(
                {"metadata": {"total_size": position}, "weight_map": weight_map}
            ).encode(),
        }
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            self._files[name] = (DEMO_CHECKPOINT / name).read_bytes()

    def size(self, name: str, *, ranged: bool = False) -> int | None:  # noqa: ARG002
        """Bytes of a file, None if there is none."""
        if name == SHARD:
            return self._size
        return len(self._files[name]) if name in self._files else None

    def read(
        self,
        name: str,
        offset: int,
        length: int,
        size: int,  # noqa: ARG002
        sink: Sink,
    ) -> None:
        """The range, made as it is asked for."""
        if name != SHARD:
            sink(self._files[name][offset : offset + length])
            return
        for piece in self._shard(offset, offset + length):
            for start in range(0, len(piece), BLOCK):
                sink(piece[start : start + BLOCK])

    def interrupt(self) -> None:
        """Nothing here waits."""

    def _shard(self, first: int, last: int) -> Iterator[bytes]:
        if first < len(self._head):
            yield self._head[first:last]
        first, last = first - len(self._head), last - len(self._head)
        for start, key, tensor in self._starts:
            low, high = max(first, start), min(last, start + tensor.size)
            while low < high:
                index = (low - start) // PAGE
                page = start + index * PAGE
                piece = tensor.page(key, index)[low - page : high - page]
                yield piece
                low += len(piece)

    def close(self) -> None:
        """Nothing to release."""
