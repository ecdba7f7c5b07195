// The Metal device, in builds that have one.
#include "device/metal/metal.h"

#include <pybind11/pybind11.h>

#include <filesystem>

#include "python/bindings.h"

namespace mference {

namespace py = pybind11;

namespace {

// The kernels are installed beside this module; a test may name others.
std::shared_ptr<Device> metal_device(std::string kernels) {
  if (kernels.empty()) {
    const auto self = py::module_::import("mference._core").attr("__file__").cast<std::string>();
    kernels = std::filesystem::path(self).parent_path() / "metal";
  }
  const py::gil_scoped_release release;
  return gpu::make_device(metal::open_gpu(kernels));
}

}  // namespace

void bind_metal(py::module_& module) {
  module.def("metal_device", &metal_device, py::arg("kernels") = "");
}

}  // namespace mference
