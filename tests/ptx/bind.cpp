// The PTX device in `mference._core`, in builds for its tests.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "gpu.h"
#include "python/bindings.h"

namespace mference {

namespace py = pybind11;

namespace {

std::shared_ptr<Device> ptx_device(const std::string& kernels, bool timed) {
  const py::gil_scoped_release release;
  return gpu::make_device(ptx::PtxGpu::open(kernels, timed));
}

py::list ptx_times(const std::string& kernels) {
  py::list list;
  for (const ptx::Timing& timing : ptx::PtxGpu::open(kernels, true)->take_times()) {
    list.append(py::make_tuple(timing.kernel, timing.warm, timing.cold));
  }
  return list;
}

}  // namespace

void bind_ptx(py::module_& module) {
  module.def("ptx_device", &ptx_device, py::arg("kernels"), py::arg("timed") = false,
             "The first NVIDIA GPU as a device, with the kernels of a folder. timed=True measures "
             "every launch.");
  module.def("ptx_times", &ptx_times, py::arg("kernels"),
             "(kernel, microseconds warm, microseconds cold) of each launch since the last call.");
}

}  // namespace mference
