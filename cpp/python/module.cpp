// The Python module `mference._core`.
#include <pybind11/pybind11.h>

#include "python/bindings.h"

PYBIND11_MODULE(_core, module) {
  module.doc() = "The C++ core of mference: devices, operations, experts and models.";
  mference::bind_device(module);
#if defined(MFERENCE_METAL)
  mference::bind_metal(module);
#endif
#if defined(MFERENCE_PTX)
  mference::bind_ptx(module);
#endif
  mference::bind_operations(module);
  mference::bind_model(module);
  mference::bind_experts(module);
  mference::bind_planning(module);
  mference::bind_reading(module);
  mference::bind_hashing(module);
}
