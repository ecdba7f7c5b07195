"""Tensors of Metal 4, which no compiler here has: when they are used, and when they are not."""

import shutil
from pathlib import Path

import pytest

KERNELS = Path(__file__).parents[2] / "metal"

SCRIPT = """
import sys
import numpy as np
from mference import _core
from mference._core import ops
from tests.device.support import GPU_TILES, error, matrix, rows
from tests.reference import affine, operations

rng = np.random.default_rng(4)
q, x = affine.random_matrix(rng, 70, 192), rows(rng, 40, 192)
got = ops.project(_core.metal_device(sys.argv[1]), x, matrix(q))
print(error(got, operations.product(x, q)) <= GPU_TILES)
"""

# Stands in for tensor.h: a compiler with tensors, whose products are zero.
ZEROS = """
#pragma once
#define __HAVE_TENSOR__ 1
inline void multiply_tile_tensor(Matrix row, int bits, int group, bool words, int cols,
                                 device const float* x, device const ushort* norm, float eps,
                                 uint thread_index, threadgroup float* scratch,
                                 threadgroup float* factors) {
  for (int i = int(thread_index); i < kTileTokens * kTileRows; i += kTileThreads) scratch[i] = 0.0f;
  if (thread_index < kTileTokens) factors[thread_index] = 1.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
"""


@pytest.fixture
def kernels(tmp_path):
    return shutil.copytree(KERNELS, tmp_path / "metal")


@pytest.fixture
def right(run_faulty, kernels):
    """Whether a product on a device with these kernels is right."""
    return lambda tensors: run_faulty(SCRIPT, kernels, SOFTMETAL_TENSORS=tensors) == "True\n"


def use_zeros_except_in_the_check(kernels):
    (kernels / "tensor.h").write_text(ZEROS)
    affine = (kernels / "affine.h").read_text()
    assert affine.count("if (kTensor)") == 1
    (kernels / "affine.h").write_text(affine.replace("if (kTensor)", "if (kTensor && cols != 128)"))


def test_the_kernels_work_where_the_gpu_has_tensors_and_the_compiler_none(right):
    assert right(tensors=1)


def test_tensors_that_pass_the_check_are_used(right, kernels):
    use_zeros_except_in_the_check(kernels)
    assert not right(tensors=1)


def test_a_gpu_without_tensors_does_not_use_them(right, kernels):
    use_zeros_except_in_the_check(kernels)
    assert right(tensors=0)


def test_tensors_that_multiply_wrongly_are_not_used(right, kernels):
    (kernels / "tensor.h").write_text(ZEROS)
    assert right(tensors=1)


def test_tensors_that_do_not_compile_are_not_used(right, kernels):
    (kernels / "tensor.h").write_text("#if __METAL_VERSION__ >= 400\n#error none\n#endif\n")
    assert right(tensors=1)
