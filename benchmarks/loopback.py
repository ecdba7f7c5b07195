"""A source checkpoint of Gemma 4 26B-A4B on disk, with random weights, and a server for it.

The installer's benchmark uses both: the files look as those that mlx-lm writes (shards of 5 GiB
with their tensors in no order), and the server takes as little of the processor as it can.
"""

import json
import os
import random
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from imagined import gemma4
from imagined.model import Tensor

from mference.families import Arch
from mference.installer.source import DEMO_CHECKPOINT

INDEX = "model.safetensors.index.json"
PIECE = 16 << 20
TOKENIZER_BYTES = 32 << 20  # the real tokenizer's, about
VISION_BYTES = 420 << 20  # likewise of the tensors that an install drops


@dataclass(frozen=True)
class Size:
    """How much of the model the checkpoint has, and the bytes at which a shard is full."""

    layers: int
    vision: int
    shard: int


SIZES = {"full": Size(30, VISION_BYTES, 5 << 30), "small": Size(1, 64 << 20, 320 << 20)}


def vision(size: int) -> dict[str, Tensor]:
    """Tensors of about that many bytes that no text model needs."""
    width = 1152
    layer = {"fc1": (4 * width, width), "fc2": (width, 4 * width), "norm": (width,)}
    tensors = {"embed_vision.embedding_projection.weight": Tensor("BF16", (2816, width))}
    while sum(tensor.size for tensor in tensors.values()) < size:
        prefix = f"vision_tower.encoder.layers.{len(tensors) // len(layer)}."
        tensors |= {f"{prefix}{name}.weight": Tensor("BF16", s) for name, s in layer.items()}
    return tensors


def write_checkpoint(folder: Path, arch: Arch, size: Size) -> None:
    """Write shards, index, config and tokenizer files."""
    tensors = {**vision(size.vision), **gemma4.tensors(arch, size.layers)}
    shards: list[dict[str, Tensor]] = [{}]
    for name, tensor in tensors.items():
        if sum(t.size for t in shards[-1].values()) + tensor.size > size.shard:
            shards.append({})
        shards[-1][name] = tensor
    weight_map: dict[str, str] = {}
    for i, shard in enumerate(shards, 1):
        name = f"model-{i:05}-of-{len(shards):05}.safetensors"
        write_shard(folder / name, shard)
        weight_map |= dict.fromkeys(shard, name)
    total = sum(tensor.size for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / INDEX).write_text(json.dumps(index, indent=4))
    (folder / "config.json").write_text(json.dumps(gemma4.config(arch, size.layers), indent=4))
    for name in ("tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(DEMO_CHECKPOINT / name, folder / name)
    tokenizer = (DEMO_CHECKPOINT / "tokenizer.json").read_bytes()
    (folder / "tokenizer.json").write_bytes(tokenizer.ljust(TOKENIZER_BYTES))


def write_shard(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write a shard as MLX does: data in no order, a header sorted by name and not padded."""
    order = list(tensors.items())
    random.Random(path.name).shuffle(order)
    header: dict[str, object] = {"__metadata__": {"format": "mlx"}}
    at = 0
    for name, tensor in order:
        end = at + tensor.size
        header[name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    generator = np.random.Generator(np.random.SFC64(len(text)))
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, tensor in order:
            for start in range(0, tensor.size, PIECE):
                size = min(PIECE, tensor.size - start)
                if tensor.value is not None:
                    file.write(np.full(size // 2, tensor.value, "<u2").data)
                else:
                    words = generator.integers(0, 2**64, -(-size // 8), dtype=np.uint64)
                    file.write(words.view(np.uint8)[:size].data)


class Server(ThreadingHTTPServer):
    """Serves the files of one folder; each is open from the beginning."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files = {
            f"/{path.name}": (os.open(path, os.O_RDONLY), path.stat().st_size)
            for path in folder.iterdir()
        }


class Answer(BaseHTTPRequestHandler):
    """Answers HEAD and GET, ranges among them, with `sendfile` on connections that stay open."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def do_HEAD(self) -> None:
        """The size of a file."""
        self._answer(body=False)

    def do_GET(self) -> None:
        """A file, or one range of it."""
        self._answer(body=True)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Say nothing."""

    def _answer(self, *, body: bool) -> None:
        if self.path not in self.server.files:
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        descriptor, size = self.server.files[self.path]
        first, last, wanted = 0, size - 1, self.headers.get("Range")
        if wanted:
            first, last = (int(text) for text in wanted.removeprefix("bytes=").split("-"))
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(last + 1 - first))
        self.end_headers()
        with suppress(BrokenPipeError, ConnectionResetError):
            while body and first <= last:
                count = os.sendfile(self.connection.fileno(), descriptor, first, last + 1 - first)
                first += count


def serve(folder: Path, channel: Connection) -> None:
    """Serve a folder until the process is ended; its port is sent through the channel."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    server = Server(folder)
    channel.send(server.server_port)
    server.serve_forever()


@contextmanager
def served(folder: Path) -> Iterator[int]:
    """The port at which a folder is served by a child process."""
    context = get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=serve, args=(folder, theirs), daemon=True)
    process.start()
    try:
        if not mine.poll(60):
            raise SystemExit("the server did not start")
        yield mine.recv()
    finally:
        process.terminate()
        process.join()
