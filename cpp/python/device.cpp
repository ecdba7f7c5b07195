// Devices, and the exceptions of the core as the classes of mference.errors.
#include "device/device.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "base/errors.h"
#include "device/cpu/device.h"
#include "python/bindings.h"

namespace mference {

namespace py = pybind11;

namespace {

void set_error(const char* name, const std::exception& error) {
  const py::object type = py::module_::import("mference.errors").attr(name);
  PyErr_SetString(type.ptr(), error.what());
}

void translate(std::exception_ptr error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const ExpertFillError& e) {
    set_error("ExpertFillError", e);
  } catch (const DeviceError& e) {
    set_error("DeviceError", e);
  } catch (const GenerationError& e) {
    set_error("GenerationError", e);
  } catch (const TensorNotFound& e) {
    set_error("TensorNotFound", e);
  }
}

std::shared_ptr<Device> cpu_device(int threads, const std::string& isa, bool float32_products) {
  cpu::Options options;
  options.threads = threads;
  options.isa = cpu::parse_isa(isa);
  options.float32_products = float32_products;
  return cpu::make_device(options);
}

std::vector<std::string> cpu_isas() {
  std::vector<std::string> names;
  for (const cpu::Isa isa : cpu::available()) names.push_back(cpu::isa_name(isa));
  return names;
}

}  // namespace

void bind_device(py::module_& module) {
  py::register_exception_translator(translate);
  py::class_<Device, std::shared_ptr<Device>>(module, "Device",
                                              "Where a model runs: buffers, events and streams.")
      .def_property_readonly("name", &Device::name)
      .def("__repr__", [](const Device& device) { return "<Device " + device.name() + ">"; });
  module.def("cpu_device", &cpu_device, py::arg("threads") = 0, py::arg("isa") = "auto",
             py::arg("float32_products") = false,
             "The CPU as a device. threads=0 takes every processor this process may run on.");
  module.def("cpu_isas", &cpu_isas, "Instruction sets this processor can run, best last.");
}

}  // namespace mference
