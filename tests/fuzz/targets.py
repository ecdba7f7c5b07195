"""What is fuzzed: each reader of untrusted bytes, and what must hold for whatever it is given.

A target either refuses its input with one of its documented errors, or reads it; what was read is
written and read again to the same values. Anything else that it raises is a finding.
"""

import json
import logging
import struct
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from urllib.parse import unquote, urlsplit

from mference.chat.dialects.base import MAX_CALL_DEPTH, Dialect
from mference.chat.dialects.chatml import CHATML
from mference.chat.dialects.gemma4 import GEMMA4
from mference.chat.parts import Content, Reasoning, ToolCall
from mference.errors import (
    CheckpointError,
    IndexCorrupt,
    LayoutError,
    ManifestError,
    MissingFile,
    NoSpace,
    ReceiptInvalid,
    SourceMismatch,
    StateCorrupt,
    ToolCallError,
    UnsupportedModel,
)
from mference.families import ENTRIES, source_rules
from mference.installer import install
from mference.installer.journal import CompletedRange, Journal, decode_journal, encode_journal
from mference.installer.paths import file_url, is_inside
from mference.installer.safetensors import SourceTensor, parse_header
from mference.installer.snapshot import (
    CONFIG_NAME,
    INDEX_NAME,
    UNPINNED_MODEL_ID,
    config_family,
    read_quantization,
    read_weight_map,
)
from mference.jsontext import compact, parse, pretty
from mference.store.directory import RECEIPT
from mference.store.layout import decode_layout, encode_layout, measure_layout
from mference.store.manifest import (
    FileRecord,
    check_manifest,
    decode_manifest,
    encode_manifest,
    probe_family,
)
from mference.store.receipt import Receipt, encode_receipt, read_receipt
from mference.store.resident import encode_index, read_index
from tests.conformance.loader import Case, cases, edited, text
from tests.installer.checkpoints import FAMILY_NAMES, full_config, small_config
from tests.installer.toys import write_source
from tests.store.toys import TRUNK, write_toy

_SCRATCH = tempfile.TemporaryDirectory(prefix="mference-fuzz-")
_SHARDS = tuple(f"model-{i:05}-of-00002.safetensors" for i in (1, 2))
_TOOLS = ("f", "g", "get_weather", "forecast")

logging.getLogger("mference").addHandler(logging.NullHandler())  # an unpinned source is a warning


@dataclass(frozen=True)
class Target:
    """A reader under test. `run` gets one input; `seeds` are inputs to start from."""

    run: Callable[[bytes], None]
    seeds: Callable[[], Iterator[bytes]]


def _given(area: str, *kinds: str) -> Iterator[Case]:
    for parameter in cases(area, *kinds):
        (case,) = parameter.values
        yield case


def _file(name: str, data: bytes, size: int = 0) -> Path:
    """A new file of that data, with a hole at its end where `size` is more.

    An old one is removed: file systems send a file to the disk that is emptied and written again.
    """
    path = Path(_SCRATCH.name) / name
    path.unlink(missing_ok=True)
    with path.open("xb") as file:
        file.write(data)
        file.truncate(max(len(data), size))
    return path


def manifest(data: bytes) -> None:
    try:
        probe_family(data)
        found = decode_manifest(data)
    except ManifestError:
        return
    for entry in (None, *ENTRIES.values()):
        try:
            check_manifest(found, entry.arch if entry else None)
        except (ManifestError, MissingFile):
            continue
    # A writer writes no key that its family does not know.
    written = encode_manifest(found)
    again = decode_manifest(written)
    assert encode_manifest(again) == written
    assert replace(again, arch=found.arch, arch_keys=found.arch_keys) == found


def manifest_seeds() -> Iterator[bytes]:
    for case in _given("model_files", "manifest"):
        raw = case.given.get("raw")
        base = case.shared["bases"][case.given["base"]]
        yield raw.encode() if raw is not None else pretty(edited(base, case.given["edits"]))


def layout(data: bytes) -> None:
    try:
        found = decode_layout(data)
    except LayoutError:
        return
    assert decode_layout(encode_layout(found)) == found
    for layer in found.layers:
        try:
            assert layer.group_size() > 0
        except LayoutError:
            continue
    try:
        assert measure_layout(found) == len(encode_layout(found))
    except LayoutError:
        return


def layout_seeds() -> Iterator[bytes]:
    for case in _given("model_files", "layout", "layout_writer_check"):
        if "edits" in case.given:
            yield compact(edited(case.shared["layout_base"], case.given["edits"])).encode()


def index(data: bytes) -> None:
    path = _file("model_weights.bin", data)
    try:
        found = read_index(path)
    except IndexCorrupt:
        return
    for tensor in found.tensors.values():
        assert tensor.bits >= 0
        assert all(found.index_size <= a <= b <= len(data) for a, b in tensor.spans)
    names = sum(len(name.encode()) for name in found.tensors)
    if 24 + 72 * len(found.tensors) + names > found.index_size:
        return  # names that share bytes need more room when each is written out
    _file("model_weights.bin", encode_index(found) + data[found.index_size :])
    again = read_index(path)
    assert (again.index_size, again.resident_size) == (found.index_size, found.resident_size)
    assert dict(again.tensors) == dict(found.tensors)


def index_seeds() -> Iterator[bytes]:
    for case in _given("model_files", "index_bytes"):
        region = bytes.fromhex(case.expect["hex"])
        yield region + bytes(case.given["resident_size"])
    toy = write_toy(Path(_SCRATCH.name) / "toy.gturbo")
    yield (toy / "model_weights.bin").read_bytes()[:4096]


def receipt(data: bytes) -> None:
    path = _file(RECEIPT, data)
    try:
        found = read_receipt(path.parent)
    except ReceiptInvalid:
        return
    _file(RECEIPT, encode_receipt(found))
    assert read_receipt(path.parent) == found


def receipt_seeds() -> Iterator[bytes]:
    plain = Receipt(
        "ab" * 32,
        "/models/toy.gturbo",
        "2026-01-02T03:04:05Z",
        "MferenceRepack",
        {"manifest.json": FileRecord(10, "cd" * 32)},
    )
    yield encode_receipt(plain)
    yield encode_receipt(replace(plain, source_repo="owner/name", source_revision="ef" * 20))
    for case in _given("model_files", "receipt"):
        yield case.given["edit"].get("raw", "").encode()


def journal(data: bytes) -> None:
    try:
        found = decode_journal(data)
    except StateCorrupt:
        return
    assert decode_journal(encode_journal(found)) == found


def journal_seeds() -> Iterator[bytes]:
    done = tuple(CompletedRange(f"shard:{i}", "12" * 32, 64, 128) for i in range(3))
    plain = Journal("owner/name", "main", "ab" * 20, "cd" * 32, "ef" * 32, 4096, done)
    yield encode_journal(plain)
    for case in _given("install", "checkpoint"):
        document = json.loads(encode_journal(plain))
        try:
            yield compact(edited(document, case.given.get("edits", []))).encode()
        except (KeyError, IndexError, TypeError):
            continue


def header(data: bytes) -> None:
    """The last four bytes are the size of the tensors' data, the others the header's text."""
    content, size = data[:-4], int.from_bytes(data[-4:], "little")
    try:
        found = parse_header(content, "model.safetensors", 8 + len(content) + size)
    except CheckpointError:
        return
    written = _header_text(found, 8 + len(content))
    again = parse_header(written, "model.safetensors", 8 + len(written) + size)
    moved = len(written) - len(content)
    assert again == {n: replace(t, offset=t.offset + moved) for n, t in found.items()}
    assert sum(tensor.size for tensor in found.values()) == size


def _header_text(tensors: dict[str, SourceTensor], start: int) -> bytes:
    document = {
        tensor.name: {
            "dtype": tensor.dtype,
            "shape": tensor.shape,
            "data_offsets": (tensor.offset - start, tensor.offset - start + tensor.size),
        }
        for tensor in tensors.values()
    }
    return compact(document).encode()


def header_seeds() -> Iterator[bytes]:
    tensors = {
        f"{TRUNK}norm.weight": ("BF16", [64], [0, 128]),
        f"{TRUNK}layers.0.mlp.gate_proj.weight": ("U32", [4, 8], [128, 256]),
        "empty": ("F32", [0, 7], [256, 256]),
        "scalar": ("I64", [], [256, 264]),
    }
    document = {
        "__metadata__": {"format": "mlx"},
        **{n: {"dtype": d, "shape": s, "data_offsets": o} for n, (d, s, o) in tensors.items()},
    }
    yield compact(document).encode() + struct.pack("<I", 264)
    yield compact({"a": document["scalar"]}).encode() + struct.pack("<I", 264)
    yield b"{}" + struct.pack("<I", 0)


def config(data: bytes) -> None:
    """A source's config.json: which family it is, its architecture, its quantization."""
    try:
        values = parse(data, "config.json", CheckpointError).as_dict()
        rules = source_rules(config_family(values), "the source")
        if rules.flash_head:
            rules.flash_head.read(values)
        assert len(rules.read_arch(values).layer_mask) == rules.read_arch(values)["numLayers"]
    except (CheckpointError, SourceMismatch, UnsupportedModel):
        pass
    try:
        values = parse(data, "config.json", CheckpointError).as_dict()
        read_quantization(values).of("model.layers.0.mlp.gate_proj")
    except CheckpointError:
        pass


def config_seeds() -> Iterator[bytes]:
    yield (files("mference.demo") / "checkpoint" / "config.json").read_bytes()
    for family in FAMILY_NAMES:
        yield json.dumps(small_config(family)).encode()
        yield json.dumps(full_config(family)).encode()
    for case in _given("repack_plan", "config_map"):
        yield json.dumps({"model_type": case.given["model_type"], **case.given["config"]}).encode()


def weight_map(data: bytes) -> None:
    """A source's index: which shard each tensor is in, and that no shard lies elsewhere."""
    try:
        found = read_weight_map(data)
    except CheckpointError:
        return
    for shard in found.values():
        assert is_inside("/source", f"/source/{shard}")
        address = urlsplit(file_url("https://host/source", shard))
        assert (address.netloc, unquote(address.path)) == ("host", f"/source/{shard}")
        assert not (address.query or address.fragment)
    assert read_weight_map(json.dumps({"weight_map": found}).encode()) == found


def weight_map_seeds() -> Iterator[bytes]:
    yield (files("mference.demo") / "checkpoint" / INDEX_NAME).read_bytes()[:4096]
    for names in (("a", "b"), ("a/b.safetensors", "ä%2e"), ("../x", "/x"), ("a\\b", "a?b#c")):
        yield json.dumps(
            {"metadata": {}, "weight_map": dict(zip("xy", names, strict=True))}
        ).encode()


def source(data: bytes) -> None:
    """A whole source, planned: its config, index and shards' headers, between zero bytes."""
    config_text, index_text, *headers = (*data.split(b"\0"), b"", b"")[: len(_SHARDS) + 2]
    folder = Path(_SCRATCH.name) / "source"
    folder.mkdir(exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).touch()
    _file(f"source/{CONFIG_NAME}", config_text)
    _file(f"source/{INDEX_NAME}", index_text)
    for name, header_text in zip(_SHARDS, headers, strict=False):
        start = len(header_text).to_bytes(8, "little") + header_text
        _file(f"source/{name}", start, len(start) + _data_size(header_text))
    try:
        plan = install(
            folder, folder.with_name("x"), entry="demo", allow_unpinned=True, dry_run=True
        )
    except (CheckpointError, NoSpace, SourceMismatch, UnsupportedModel):
        return
    assert plan.model_id == UNPINNED_MODEL_ID
    assert 0 < plan.download <= sum(path.stat().st_size for path in folder.iterdir())
    assert plan.installed <= plan.required


def _data_size(header: bytes) -> int:
    """Bytes of the tensors' data that a header claims, within what a file of holes can have."""
    try:
        claimed = [tensor["data_offsets"][1] for tensor in json.loads(header).values()]
        return min(max(0, int(max(claimed))), 1 << 42)
    except (ValueError, OverflowError, RecursionError, AttributeError, TypeError, LookupError):
        return 0


def source_seeds() -> Iterator[bytes]:
    for layers in (1, 2):
        folder = write_source(Path(_SCRATCH.name) / f"toy-{layers}", layers)
        headers = []
        for shard in sorted(folder.glob("*.safetensors")):
            content = shard.read_bytes()
            headers.append(content[8 : 8 + int.from_bytes(content[:8], "little")])
        metadata = [(folder / name).read_bytes() for name in (CONFIG_NAME, INDEX_NAME)]
        yield b"\0".join((*metadata, *headers))


def calls(dialect: Dialect, write: Callable[[str, dict[str, object]], str], data: bytes) -> None:
    """The text of a tool call; `write` makes one of a name and arguments."""
    source = data.decode("utf-8", "replace")
    try:
        (call,) = dialect.parse_calls(source, _TOOLS)
    except ToolCallError:
        return
    assert call.name in _TOOLS
    assert json.loads(call.arguments_json) == call.arguments
    assert _depth(call.arguments) <= MAX_CALL_DEPTH + 1
    (again,) = dialect.parse_calls(write(call.name, call.arguments), _TOOLS)
    assert again.arguments == call.arguments
    assert again.arguments_json == call.arguments_json


def _gemma_call(name: str, arguments: dict[str, object]) -> str:
    return f"call:{name}{_written(arguments)}"


def _chatml_call(name: str, arguments: dict[str, object]) -> str:
    lines = [f"<function={name}>"]
    for key, value in arguments.items():
        text = value if isinstance(value, str) else json.dumps(value)
        lines += (f"<parameter={key}>", text, "</parameter>")
    return "\n".join((*lines, "</function>"))


def _written(value: object) -> str:
    """A value in Gemma's syntax: JSON with bare keys."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{k}:{_written(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    return json.dumps(value)


def _depth(value: object) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


def call_seeds(kind: str) -> Iterator[bytes]:
    for case in _given("tool_calls", kind):
        source = text(case.given["text"])
        if len(source) < 4096:
            yield source.encode("utf-8", "replace")


def stream(dialect: Dialect, data: bytes) -> None:
    """An answer in pieces: a byte below 32 is a control token or a cut, the rest is text.

    A vertical tab at the start says that the answer begins in a thought.
    """
    pieces = data.decode("utf-8", "replace")
    in_thought = pieces.startswith("\v")
    splitter = dialect.splitter(_TOOLS, in_thought=in_thought)
    roles = sorted(dialect.markers)
    parts: list[object] = []
    failure = None
    steps: list[Callable[[], tuple[object, ...]]] = []
    start = 0
    for i, letter in enumerate((*pieces, "\x1f")):
        if letter < " " and letter != "\n":
            steps.append(lambda piece=pieces[start:i]: splitter.text(piece))
            role = ord(letter)
            if role < len(roles):
                steps.append(lambda role=roles[role]: splitter.marker(role))
            start = i + 1
    for step in (*steps, splitter.finish):
        try:
            parts += step()
            assert failure is None, "a splitter that failed went on"
        except ToolCallError as error:
            assert failure in (None, error)
            failure = error
    assert all(isinstance(part, Content | Reasoning | ToolCall) for part in parts)


def stream_seeds(dialect: Dialect, kind: str) -> Iterator[bytes]:
    roles = sorted(dialect.markers)
    for case in _given("tool_calls", "assistant_stream"):
        steps = case.given["feed"]
        yield "\x1f".join(
            chr(roles.index(step["special"]))
            if step.get("special") in roles
            else step.get("text", step.get("flushed", ""))
            for step in steps
        ).encode("utf-8", "replace")
    opened, closed = (bytes([roles.index(f"tool_{end}")]) for end in ("open", "close"))
    for seed in call_seeds(kind):
        yield b"so" + opened + seed + closed
        yield b"\vhm\n" + opened + seed + closed


TARGETS = {
    "calls": Target(partial(calls, GEMMA4, _gemma_call), partial(call_seeds, "gemma")),
    "chatml_calls": Target(partial(calls, CHATML, _chatml_call), partial(call_seeds, "qwen")),
    "chatml_stream": Target(partial(stream, CHATML), partial(stream_seeds, CHATML, "qwen")),
    "config": Target(config, config_seeds),
    "header": Target(header, header_seeds),
    "index": Target(index, index_seeds),
    "journal": Target(journal, journal_seeds),
    "layout": Target(layout, layout_seeds),
    "manifest": Target(manifest, manifest_seeds),
    "receipt": Target(receipt, receipt_seeds),
    "source": Target(source, source_seeds),
    "stream": Target(partial(stream, GEMMA4), partial(stream_seeds, GEMMA4, "gemma")),
    "weight_map": Target(weight_map, weight_map_seeds),
}
