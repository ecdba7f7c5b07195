"""Affine quantization against the reference system's recorded bytes and values."""

import numpy as np
import pytest

from mference._core import ops
from mference.errors import DeviceError
from tests.conformance.loader import cases
from tests.device.support import cpu, matrix
from tests.reference import affine


def hexbits(values) -> np.ndarray:
    return np.vectorize(lambda h: int(h, 16))(np.asarray(values)).astype(np.uint16)


def packed(rows) -> np.ndarray:
    return np.array([np.frombuffer(bytes.fromhex(r), np.uint8) for r in rows])


def given_matrix(given) -> affine.Quantized:
    rows = given["packed"] if isinstance(given["packed"], list) else [given["packed"]]
    shape = (len(rows), -1)
    return affine.Quantized(
        packed(rows), hexbits(given["scales"]).reshape(shape),
        hexbits(given["biases"]).reshape(shape), given.get("bits", 4), given.get("group", 64),
    )  # fmt: skip


def close(got, expect, key) -> bool:
    """Within the relative or the absolute tolerance, whichever is wider."""
    got, want = np.asarray(got, np.float64), np.asarray(expect[key], np.float64)
    absolute = expect.get("absolute_tolerance", expect.get("tolerance", 0.0))
    bound = np.maximum(absolute, expect.get("relative_tolerance", 0.0) * np.abs(want))
    return bool((np.abs(got - want) <= bound).all())


@pytest.mark.parametrize("case", cases("quantization", "bf16"))
def test_bf16(case):
    bits = affine.bf16_bits(np.float32(case.given["value"]))
    assert f"{int(bits):04x}" == case.expect["bits"]
    assert float(affine.bf16_float(bits)) == case.expect["back"]


@pytest.mark.parametrize("case", cases("quantization", "pack"))
def test_pack(case):
    got = affine.pack(np.array(case.given["codes"]), case.given["bits"])
    assert got.tobytes().hex() == case.expect["packed"]


@pytest.mark.parametrize("case", cases("quantization", "encode"))
def test_encode(case):
    q = affine.quantize(case.given["values"], case.given["bits"], case.given["group"])
    assert q.weight.tobytes().hex() == case.expect["packed"]
    assert np.array_equal(q.scales, hexbits(case.expect["scales"]))
    assert np.array_equal(q.biases, hexbits(case.expect["biases"]))
    if "decoded" in case.expect:
        assert close(affine.dequantize(q).astype(np.float32), case.expect, "decoded")


@pytest.mark.parametrize("case", cases("quantization", "decode"))
def test_decode(case):
    q = given_matrix(case.given)
    assert close(affine.dequantize(q)[0], case.expect, "values")
    got = ops.embed_rows(cpu(), matrix(q), np.zeros(1, np.int32))
    assert close(got[0], case.expect, "values")


@pytest.mark.parametrize("float32", [False, True])
@pytest.mark.parametrize("case", cases("quantization", "matrix_vector"))
def test_matrix_vector(case, float32):
    x = np.array(case.given["x"], np.float32)[None]
    got = ops.project(cpu(float32=float32), x, matrix(given_matrix(case.given)), misalign=2)
    assert close(got[0], case.expect, "y")


@pytest.mark.parametrize("case", cases("quantization", "embedding_row"))
def test_embedding_row(case):
    table = matrix(given_matrix(case.given))
    got = ops.embed_rows(cpu(), table, np.zeros(1, np.int32), case.given["multiply"])
    assert close(got[0], case.expect, "values")


@pytest.mark.parametrize("case", cases("quantization", "shape_rule"))
def test_shape_rule(case):
    cols, group = case.given["columns"], case.given["group"]
    groups = max(cols // group, 1)
    table = ops.Affine(
        np.zeros((1, cols // 2), np.uint8), np.zeros((1, groups), np.uint16),
        np.zeros((1, groups), np.uint16), 4, group,
    )  # fmt: skip
    try:
        ops.embed_rows(cpu(), table, np.zeros(1, np.int32))
        accepted = True
    except DeviceError:
        accepted = False
    assert accepted == case.expect["accepted"]


@pytest.mark.parametrize("case", cases("quantization", "logical_shape"))
def test_logical_shape(case):
    *outer, words = case.given["packed_shape"]
    codes = affine.unpack(np.zeros((*outer, words * 4), np.uint8), case.given["bits"])
    assert list(codes.shape) == case.expect["shape"]


@pytest.mark.parametrize("case", cases("quantization", "derived_group"))
def test_derived_group(case):
    scales = case.given["scale_bytes"] // 2
    assert case.given["cols"] * case.given["rows"] // scales == case.expect["group"]


def deterministic(values, bits):
    first, second = affine.quantize(values, bits), affine.quantize(values, bits)
    return all(
        np.array_equal(getattr(first, part), getattr(second, part))
        for part in ("weight", "scales", "biases")
    )


def identical(values, bits):
    whole = affine.quantize(values, bits)
    rows = [affine.quantize(row, bits) for row in values]
    return all(
        np.array_equal(getattr(whole, part), np.stack([getattr(r, part) for r in rows]))
        for part in ("weight", "scales", "biases")
    )


def bounded(values, bits):
    worst = np.abs(affine.dequantize(affine.quantize(values, bits)) - values)
    groups = (values.shape[0], -1, 64)
    amax = np.abs(values).reshape(groups).max(-1)
    return bool((worst.reshape(groups).max(-1) <= amax / 7 + 0.001).all())


PROPERTIES = {
    "deterministic": deterministic,
    "identical": identical,
    "max error per group <= amax/7 + 0.001": bounded,
}


@pytest.mark.parametrize("case", cases("quantization", "property"))
def test_property(case):
    rng = np.random.default_rng(7)
    count = case.given.get("random_rows", case.given.get("rows", 4))
    low, high = case.given.get("range", (-1, 1))
    values = rng.uniform(low, high, (count, 256)).astype(np.float32)
    assert PROPERTIES[case.expect["property"]](values, case.given["bits"])
