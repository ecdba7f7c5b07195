"""The worked example of the format document, to the byte."""

import hashlib

from mference.store.manifest import encode_manifest
from mference.store.resident import encode_index, plan_index, read_index
from tests.store.toys import resident_specs, toy_files, toy_manifest, weights_bytes


def test_the_index_header_and_first_entry_are_as_printed():
    index = plan_index(resident_specs())
    data = encode_index(index)
    assert len(data) == 16384
    assert data[:24].hex() == "004000000000000010270000000000000400000000000000"
    assert data[24:96].hex() == (
        "380100002800000000400000000000000020000000000000800000008000000000000000000000000060"
        "000000000000000200000000000000620000000000000002000000000000"
    )
    assert (index.resident_size, index.file_size) == (10000, 26384)


def test_the_tensors_lie_where_the_table_says(tmp_path):
    path = tmp_path / "model_weights.bin"
    path.write_bytes(weights_bytes())
    tensors = read_index(path).tensors
    rows = [
        (t.dtype, t.shape, t.offset, t.size, t.scale_offset, t.bias_offset)
        for t in tensors.values()
    ]
    assert rows == [
        ("U32", (128, 128), 16384, 8192, 24576, 25088),
        ("U32", (2, 128), 25600, 256, 25856, 25864),
        ("BF16", (128,), 25872, 256, 0, 0),
        ("BF16", (128,), 26128, 256, 0, 0),
    ]
    assert [t.bits for t in tensors.values()] == [4, 8, 16, 16]


def test_every_file_has_the_printed_hash():
    files = toy_files()
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    empty = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert hashes == {
        "model_weights.bin": "15d9ce27bb464733adc76e6b3a56757fb242146ab0e309eda0370cd454ab4ffc",
        "packed_experts/layer_00.bin": (
            "6a3222c10bede451376aa9378d13e286f3bcd932822eec6d691893595c4f7d2e"
        ),
        "packed_experts/layout.json": (
            "e51d51108e335d397ad8fd2f47ed9f3c551842b0ac4e4f80ebf7233e7181202d"
        ),
        "tokenizer/config.json": empty,
        "tokenizer/tokenizer.json": empty,
        "tokenizer/tokenizer_config.json": empty,
    }
    assert len(files["packed_experts/layout.json"]) == 4449


def test_the_manifest_has_the_printed_hash():
    data = encode_manifest(toy_manifest(toy_files()))
    assert len(data) == 2712
    digest = "02e2c2f86a728431ae393db58feeea23487d8c253578a23cf6a8e496e6dbee5c"
    assert hashlib.sha256(data).hexdigest() == digest
