"""What is written is read back as it was, for any contents."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mference import errors
from mference.families import FAMILIES
from mference.jsontext import pretty, pretty_parts
from mference.store.layout import (
    ExpertLayout,
    LayerLayout,
    Layout,
    SubTensor,
    decode_layout,
    encode_layout,
    measure_layout,
)
from mference.store.manifest import (
    FileRecord,
    Manifest,
    QuantSlot,
    check_manifest,
    decode_manifest,
    encode_manifest,
)
from mference.store.resident import (
    DTYPES,
    TensorSpec,
    encode_index,
    plan_index,
    read_index,
)

names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=40)
sizes = st.integers(0, 500)


@st.composite
def specs(draw) -> list[TensorSpec]:
    return [
        TensorSpec(
            name,
            draw(st.sampled_from(DTYPES)),
            tuple(draw(st.lists(st.integers(1, 9), max_size=4))),
            draw(sizes),
            scales := draw(sizes),
            scales,
        )
        for name in draw(st.lists(names, unique=True, max_size=12))
    ]


@settings(deadline=None)
@given(specs())
def test_an_index_is_read_back_as_it_was_planned(tmp_path_factory, tensors):
    index = plan_index(tensors)
    path = tmp_path_factory.mktemp("index") / "model_weights.bin"
    path.write_bytes(encode_index(index).ljust(index.file_size, b"\0"))
    found = read_index(path)
    assert dict(found.tensors) == dict(index.tensors)
    assert (found.index_size, found.resident_size) == (index.index_size, index.resident_size)


@settings(deadline=None)
@given(specs(), st.data())
def test_a_damaged_index_is_read_or_refused_by_name(tmp_path_factory, tensors, data):
    index = plan_index(tensors)
    content = bytearray(encode_index(index).ljust(index.file_size, b"\0"))
    at = data.draw(st.integers(0, min(len(content), 24 + 72 * len(tensors)) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.mktemp("index") / "model_weights.bin"
    path.write_bytes(content)
    try:
        found = read_index(path)
    except errors.IndexCorrupt:
        return
    for tensor in found.tensors.values():
        assert all(found.index_size <= a <= b <= found.file_size for a, b in tensor.spans)


@st.composite
def layouts(draw) -> Layout:
    stride = 16384 * draw(st.integers(1, 3))
    count = draw(st.integers(1, 4))
    layers = draw(st.integers(1, 4))
    pieces = {
        name: SubTensor(
            draw(sizes), draw(sizes), "U32", (draw(sizes), 2), draw(st.sampled_from([None, 2, 4]))
        )
        for name in draw(st.lists(names, unique=True, max_size=3))
    }
    experts = tuple(ExpertLayout(e * stride, stride, pieces) for e in range(count))
    dense = draw(st.integers(0, layers))
    return Layout(
        stride,
        layers,
        count,
        tuple(
            LayerLayout(i, f"layer_{i:02d}.bin", () if i < dense else experts)
            for i in range(layers)
        ),
    )


@settings(deadline=None)
@given(layouts())
def test_a_layout_is_read_back_as_it_was_written(layout):
    data = encode_layout(layout)
    assert decode_layout(data) == layout
    assert measure_layout(layout) == len(data)


@settings(deadline=None)
@given(st.sampled_from(sorted(FAMILIES)), names, st.dictionaries(sizes, sizes, max_size=4))
def test_a_manifest_is_read_back_as_it_was_written(name, model_id, files):
    family = FAMILIES[name]
    manifest = Manifest(
        model_id=model_id,
        arch=family.baseline,
        files={f"f{i}": FileRecord(size, f"{i:064x}") for i, size in files.items()},
        experts_per_layer=8,
        num_layers=0,
        expert_stride=16384,
        quant={
            slot: QuantSlot(r.bits[0], r.scheme, r.scale_type, r.bias_type, r.group_size)
            for slot, r in family.quant.items()
        },
        source_hash="sha256:" + "a" * 64,
    )
    found = decode_manifest(encode_manifest(manifest))
    for key in ("model_id", "arch", "files", "quant", "source_hash", "expert_stride", "flags"):
        assert getattr(found, key) == getattr(manifest, key)
    with pytest.raises(errors.MissingFile):
        check_manifest(found, family.baseline)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.dictionaries(names, json_values, max_size=4))
def test_pretty_json_means_what_it_was_made_of(document):
    assert json.loads(pretty(document)) == document


@given(st.lists(st.lists(st.integers(), max_size=2), max_size=3))
def test_an_array_may_be_written_item_by_item(items):
    parts = pretty_parts({"a": 1, "items": iter(items), "z": {}})
    assert "".join(parts).encode() == pretty({"a": 1, "items": items, "z": {}})


@settings(deadline=None)
@given(st.dictionaries(names, json_values, max_size=4), st.binary(max_size=40))
def test_readers_refuse_any_other_json_by_name(document, junk):
    for data in (pretty(document), junk):
        with pytest.raises(errors.ManifestError):
            decode_manifest(data)
        with pytest.raises(errors.LayoutError):
            decode_layout(data)


def test_keys_are_ordered_by_number_and_without_case():
    text = pretty({"b10": 1, "b9": 2, "expertStride": 3, "expertsPerLayer": 4, "A": 5}).decode()
    assert [line.split('"')[1] for line in text.splitlines()[1:-1]] == [
        "A",
        "b9",
        "b10",
        "expertsPerLayer",
        "expertStride",
    ]


def test_keys_with_numbers_of_any_length_are_ordered_by_them():
    keys = ["b", "b09", "b10", "b" + "0" * 5000 + "11", "b" + "9" * 5000, "b1" + "0" * 5000]
    text = pretty(dict.fromkeys(reversed(keys), 1)).decode()
    assert [line.split('"')[1] for line in text.splitlines()[1:-1]] == keys
