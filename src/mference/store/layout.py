"""`packed_experts/layout.json`: where each expert and each of its nine pieces lies."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from mference.errors import LayoutError
from mference.jsontext import Fields, Pretty, parse, pretty_parts, pretty_value
from mference.store.directory import LAYOUT, LAYOUT_CAP, REINSTALL, is_safe_name

WEIGHT_NAMES = ("gate", "up", "down")
PIECE_NAMES = tuple(n for w in WEIGHT_NAMES for n in (w, f"{w}_scales", f"{w}_biases"))

CHUNK = 512 << 10
"""Bytes of the text that are in memory at once, beside one layer's."""

_PIECES_DEPTH = 5  # document, layers, layer, experts, expert


@dataclass(frozen=True, slots=True)
class SubTensor:
    """One piece of an expert blob.

    `offset` (bytes, relative to the blob), `size` (bytes), `dtype` (`U32` or `BF16`), `shape` (the
    unpacked shape on the three weights), `bits` (on the weights only, else None).
    """

    offset: int
    size: int
    dtype: str
    shape: tuple[int, ...]
    bits: int | None = None


@dataclass(frozen=True, slots=True)
class ExpertLayout:
    """One expert: `offset` in its layer file and `size` (the stride), in bytes; its pieces."""

    offset: int
    size: int
    tensors: dict[str, SubTensor]


@dataclass(frozen=True, slots=True)
class LayerLayout:
    """One layer: its file's base name and its experts by id (none for a dense layer)."""

    layer: int
    file: str
    experts: tuple[ExpertLayout, ...]

    def group_size(self, name: str = "gate") -> int:
        """Columns that share one scale in a weight of this layer, derived from its sizes.

        Raises `LayoutError` where the sizes allow no whole group.
        """
        tensors = self.experts[0].tensors if self.experts else {}
        weight, scales = tensors.get(name), tensors.get(f"{name}_scales")
        if weight is None or scales is None or len(weight.shape) != 2:
            raise _corrupt(f"{LAYOUT}: layer {self.layer} has no '{name}' weight with scales")
        rows, columns = weight.shape
        groups, rest = divmod(scales.size, 2 * rows) if rows > 0 else (0, 1)
        if rest or not 1 <= groups <= columns or columns % groups:
            raise _corrupt(f"{LAYOUT}: layer {self.layer}: sizes of '{name}' and its scales differ")
        return columns // groups


@dataclass(frozen=True, slots=True)
class Layout:
    """All layers, by position. `expert_stride` is in bytes."""

    expert_stride: int
    num_layers: int
    experts_per_layer: int
    layers: tuple[LayerLayout, ...]


def decode_layout(data: bytes, *, cap: int = LAYOUT_CAP) -> Layout:
    """Decode `layout.json`.

    Offsets are taken as written, experts may come in any order, an expert without an id takes the
    next free position. Raises `LayoutError`.
    """
    if len(data) > cap:
        raise _corrupt(f"{LAYOUT} is larger than {cap} bytes")
    top = parse(data, LAYOUT, _corrupt)
    count = top.integer("expertsPerLayer")
    # Experts of a layer are alike: equal pieces are kept once.
    pool: dict[SubTensor, SubTensor] = {}
    layers = tuple(_read_layer(layer, count, pool) for layer in top.objects("layers"))
    return Layout(top.integer("expertStride"), top.integer("numLayers"), count, layers)


def encode_layout(layout: Layout) -> bytes:
    """The bytes of `layout.json`."""
    return b"".join(layout_chunks(layout))


def layout_chunks(layout: Layout) -> Iterator[bytes]:
    """The bytes of `layout.json`, at most `CHUNK` at a time: a large model has tens of MB."""
    document = {**_head(layout), "layers": _layers(layout)}
    waiting = bytearray()
    for part in pretty_parts(document):
        waiting += part.encode("utf-8")
        while len(waiting) >= CHUNK:
            yield bytes(waiting[:CHUNK])
            del waiting[:CHUNK]
    if waiting:
        yield bytes(waiting)


def measure_layout(layout: Layout) -> int:
    """Bytes of `layout.json`, after the writer's own check. Raises `LayoutError`."""
    check_written_layout(
        Fields(_head(layout), LAYOUT, _corrupt),
        (Fields(layer, f"{LAYOUT}: 'layers'", _corrupt) for layer in _layers(layout)),
        layout.num_layers,
        layout.experts_per_layer,
        layout.expert_stride,
    )
    return sum(len(chunk) for chunk in layout_chunks(layout))


def check_written_layout(
    top: Fields,
    layers: Iterable[Fields],
    num_layers: int,
    experts_per_layer: int,
    expert_stride: int,
) -> None:
    """A writer's check of the document it writes, a layer at a time, stricter than a reader's.

    Every layer is numbered by its position, every expert id is written out once, sits at an
    aligned place of its own, and has the stride as its size. Raises `LayoutError`.
    """
    wanted = (num_layers, experts_per_layer, expert_stride)
    if wanted != tuple(top.integer(k) for k in ("numLayers", "expertsPerLayer", "expertStride")):
        top.fail("the sizes are not the planned ones")
    count = 0
    for position, layer in enumerate(layers):
        if layer.integer("layer") != position:
            layer.fail(f"the layer at position {position} has another number")
        _check_written_layer(layer, experts_per_layer, expert_stride)
        count += 1
    if count != num_layers:
        top.fail(f"{count} layers are written, {num_layers} are planned")


def _check_written_layer(layer: Fields, experts_per_layer: int, expert_stride: int) -> None:
    experts = layer.objects("experts")
    if not experts:
        return
    ids = sorted(e.integer("expert") for e in experts)
    places = sorted(e.integer("offset") for e in experts)
    if ids != list(range(experts_per_layer)):
        layer.fail("expert ids are not each written once")
    if places != [i * expert_stride for i in range(experts_per_layer)]:
        layer.fail("experts do not fill the layer file one stride after another")
    if any(e.integer("size") != expert_stride for e in experts):
        layer.fail("an expert's size is not the stride")


def _head(layout: Layout) -> dict[str, Any]:
    return {
        "expertStride": layout.expert_stride,
        "numLayers": layout.num_layers,
        "expertsPerLayer": layout.experts_per_layer,
    }


def _layers(layout: Layout) -> Iterator[dict[str, Any]]:
    for layer in layout.layers:
        # The experts that one writer places share their pieces: these are rendered once.
        shared: dict[int, Pretty] = {}
        for expert in layer.experts:
            if id(expert.tensors) not in shared:
                pieces = {name: _piece(t) for name, t in expert.tensors.items()}
                shared[id(expert.tensors)] = pretty_value(pieces, _PIECES_DEPTH)
        yield {
            "layer": layer.layer,
            "file": layer.file,
            "experts": [
                {
                    "expert": i,
                    "offset": expert.offset,
                    "size": expert.size,
                    "tensors": shared[id(expert.tensors)],
                }
                for i, expert in enumerate(layer.experts)
            ],
        }


def _read_layer(fields: Fields, count: int, pool: dict[SubTensor, SubTensor]) -> LayerLayout:
    number = fields.integer("layer")
    file = fields.text("file")
    if "/" in file or not is_safe_name(file):
        fields.fail(f"'file' must be a base name, found {file!r}")
    listed = fields.objects("experts")
    if not listed:
        return LayerLayout(number, file, ())
    if len(listed) != count:
        fields.fail(f"{len(listed)} experts are listed, expertsPerLayer is {count}")
    experts: list[ExpertLayout | None] = [None] * count
    free = 0
    for expert in listed:
        if "physicalRank" in expert:
            expert.integer("physicalRank", maximum=count - 1)
        while experts[free] is not None:
            free += 1
        position = free
        if "expert" in expert:
            position = expert.integer("expert", maximum=count - 1)
        experts[position] = ExpertLayout(
            expert.integer("offset"), expert.integer("size"), _read_pieces(expert, pool)
        )
    complete = tuple(expert for expert in experts if expert is not None)
    if len(complete) != count:
        fields.fail(f"expert {experts.index(None)} is missing")
    return LayerLayout(number, file, complete)


def _read_pieces(expert: Fields, pool: dict[SubTensor, SubTensor]) -> dict[str, SubTensor]:
    tensors = expert.object("tensors")
    pieces = {}
    for name in tensors:
        fields = tensors.object(name)
        shape = fields.integers("shape")
        if any(n < 0 for n in shape):
            fields.fail(f"'shape' {shape} has a negative dimension")
        piece = SubTensor(
            fields.integer("offset"),
            fields.integer("size"),
            fields.text("dtype"),
            shape,
            fields.integer("bits") if "bits" in fields else None,
        )
        pieces[name] = pool.setdefault(piece, piece)
    return pieces


def _piece(tensor: SubTensor) -> dict[str, Any]:
    piece: dict[str, Any] = {
        "offset": tensor.offset,
        "size": tensor.size,
        "dtype": tensor.dtype,
        "shape": tensor.shape,
    }
    if tensor.bits is not None:
        piece["bits"] = tensor.bits
    return piece


def _corrupt(message: str) -> LayoutError:
    return LayoutError(f"{message}. {REINSTALL}")
