"""Tensors of Metal 4, which no compiler here has: when they are used, and when they are not."""

import pytest

SCRIPT = """
import sys
import numpy as np
from mference import _core
from mference._core import ops
from tests.device.support import GPU_TILES, error, matrix, rows
from tests.reference import affine, operations

rng = np.random.default_rng(4)
q, x = affine.random_matrix(rng, 70, 192), rows(rng, 40, 192, outlier=float(sys.argv[2]))
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


# Stands in for what tensor.h includes, as Apple documents it, in plain threads: thread i of the
# threadgroup holds elements i, i + 128 and so on of the destination.
MATMUL2D = """
#define __HAVE_TENSOR__ 1
struct tensor_inline {};
template <class Index, int kRank>
struct dextents {
  Index sizes[kRank];
  dextents(Index columns, Index rows) : sizes{columns, rows} {}
};
template <class T, class Extents, class Kind>
struct tensor;
template <class Extents, class Kind>
struct tensor<threadgroup half, Extents, Kind> {
  threadgroup half* data;
  Extents extents;
  tensor(threadgroup half* from, Extents sizes) : data(from), extents(sizes) {}
};
template <int kCount>
struct execution_simdgroups {};
struct Descriptor {
  int m, n, k;
};
struct Sums {
  uint thread_index;
  float values[16];
  int get_capacity() const { return 16; }
  bool is_valid_element(ushort) const { return true; }
  thread float& operator[](ushort i) { return values[i]; }
  int2 get_multidimensional_index(ushort i) const {
    const int element = int(thread_index) + 128 * i;
    return int2(element % kTileRows, element / kTileRows);
  }
};
struct Product {
  uint thread_index;
  template <class X, class W>
  void run(X x, W w, thread Sums& sums) {
    for (int i = 0; i < 16; ++i) {
      const int2 at = sums.get_multidimensional_index(i);
      for (int k = 0; k < x.extents.sizes[0]; ++k) {
        sums[i] += float(x.data[at.y * x.extents.sizes[0] + k]) *
                   float(w.data[at.x * w.extents.sizes[0] + k]);
      }
    }
  }
};
"""


def stand_in(kernels):
    """tensor.h with the stand-in for what it includes."""
    text = (kernels / "tensor.h").read_text()
    for line in (
        "#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>\n",
        "#include <metal_tensor>\n",
    ):
        assert line in text
        text = text.replace(line, "")
    start, end = text.index("  constexpr auto descriptor"), text.index("  UNROLL\n  for (ushort i")
    text = (
        text[:start] + "  Product product{thread_index};\n  Sums sums{thread_index};\n" + text[end:]
    )
    (kernels / "tensor.h").write_text(MATMUL2D + text)


@pytest.fixture
def right(run_faulty, kernels):
    """Whether a product on a device with these kernels is right."""
    return lambda tensors: run_faulty(SCRIPT, kernels, 8, SOFTMETAL_TENSORS=tensors) == "True\n"


def use_tensors_if(kernels, condition):
    affine = (kernels / "affine.h").read_text()
    assert affine.count("if (kTensor)") == 1
    (kernels / "affine.h").write_text(affine.replace("if (kTensor)", f"if ({condition})"))


def use_zeros_except_in_the_check(kernels):
    (kernels / "tensor.h").write_text(ZEROS)
    use_tensors_if(kernels, "kTensor && cols != 128")


def test_the_kernels_work_where_the_gpu_has_tensors_and_the_compiler_none(right):
    assert right(tensors=1)


@pytest.mark.parametrize("largest", [8, 200_000])
def test_the_tiles_around_the_tensors_are_right(run_faulty, kernels, largest):
    stand_in(kernels)
    # Without the other path, its result cannot pass for this one's.
    use_tensors_if(kernels, "true")
    printed = run_faulty(SCRIPT, kernels, largest, SOFTMETAL_TENSORS=1)
    assert printed == "True\n"


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
