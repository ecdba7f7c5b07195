"""Libraries, function constants and pipelines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from tests.softmetal.driver import Metal


def test_a_library_lists_its_functions(metal: Metal) -> None:
    names = metal.library("vector").names
    assert sorted(names) == [
        "copy",
        "places",
        "scale_bfloat",
        "scale_float",
        "scale_half",
        "vectors",
    ]


@pytest.mark.parametrize("constants", [{0: 7, 1: False}, {0: 2, 1: False, 2: 0.5}, {0: 9, 1: True}])
def test_function_constants_specialize_a_kernel(metal: Metal, constants: dict) -> None:
    y, added = metal.empty(np.float32, 8), np.arange(8, dtype=np.float32)
    pipeline = metal.pipeline("constants", "specialized", constants)
    arguments = [y, metal.put(added) if constants[1] else None]
    metal.run(pipeline, arguments, [1], [8])
    wide = constants[0] > 4 and not constants[1]
    expected = constants[0] * (1000.0 if wide else 1.0) * constants.get(2, 3.0)
    got = metal.get(y, np.float32, 8)
    assert got.tolist() == [expected + (a if constants[1] else 0) for a in added]


def test_pipelines_of_one_library_do_not_share_constants(metal: Metal) -> None:
    library = metal.library("constants")
    pipelines = [library.pipeline("specialized", {0: k, 1: False}) for k in (1, 2, 3)]
    for k, pipeline in [*enumerate(pipelines, 1), (1, pipelines[0])]:
        y = metal.empty(np.float32, 1)
        metal.run(pipeline, [y], [1], [1])
        assert metal.get(y, np.float32, 1)[0] == 3.0 * k


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        ({}, r"function constant k\w+ \(index \d\) has no value"),
        ({0: 3}, r"function constant kAdd \(index 1\) has no value"),
        ({0: 3, 1: 1}, r"function constant kAdd \(index 1\) was given a value of another type"),
        (
            {0: 1.5, 1: True},
            r"function constant kWidth \(index 0\) was given a value of another type",
        ),
    ],
)
def test_function_constants_must_be_given(metal: Metal, constants: dict, message: str) -> None:
    with pytest.raises(RuntimeError, match="specialized: " + message):
        metal.pipeline("constants", "specialized", constants)


def test_kernels_that_use_no_constants_need_none(metal: Metal) -> None:
    metal.pipeline("constants", "plain")


def test_a_missing_function_is_named(metal: Metal) -> None:
    with pytest.raises(RuntimeError, match="there is no function scale_double"):
        metal.pipeline("vector", "scale_double")


def test_pipelines_tell_their_limits(metal: Metal) -> None:
    source = """
    [[max_total_threads_per_threadgroup(256)]] kernel void k(device float* y [[buffer(0)]],
                                                              uint i [[thread_position_in_grid]]) {
      threadgroup half a[7];
      threadgroup float4 b[2];
      a[i] = 0; b[i].x = float(a[i]);
      y[i] = b[i].x;
    }
    """
    pipeline = metal.pipeline(source, "k")
    assert (pipeline.max_threads, pipeline.static_bytes, pipeline.width) == (256, 48, 32)


def test_too_much_threadgroup_memory_makes_no_pipeline(metal: Metal) -> None:
    source = """
    kernel void big(device float* y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
      threadgroup float a[8193];
      a[i] = 1; y[i] = a[i];
    }
    """
    with pytest.raises(RuntimeError, match="big: its threadgroup memory of 32784 bytes exceeds"):
        metal.pipeline(source, "big")


def test_macros_reach_the_source(metal: Metal) -> None:
    source = """
    kernel void k(device int* y [[buffer(0)]]) { y[0] = VALUE + (__METAL_VERSION__ >= 310); }
    """
    library = metal.device.library(source, {"VALUE": "41"})
    y = metal.empty(np.int32, 1)
    metal.run(library.pipeline("k"), [y], [1], [1])
    assert metal.get(y, np.int32, 1)[0] == 42


def test_compile_errors_carry_file_and_line(metal: Metal) -> None:
    source = "\nkernel void k(device float* y [[buffer(0)]]) {\n  y[0] = nowhere;\n}\n"
    with pytest.raises(RuntimeError, match=r"program_source:3:10: error: .*'nowhere'"):
        metal.device.library(source)
