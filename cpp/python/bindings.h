// Each part of the core binds itself to the module.
#pragma once

#include <pybind11/pybind11.h>

namespace mference {

void bind_device(pybind11::module_& module);
void bind_metal(pybind11::module_& module);
void bind_ptx(pybind11::module_& module);
void bind_operations(pybind11::module_& module);
void bind_model(pybind11::module_& module);
void bind_experts(pybind11::module_& module);
void bind_planning(pybind11::module_& module);
void bind_reading(pybind11::module_& module);
void bind_hashing(pybind11::module_& module);

}  // namespace mference
