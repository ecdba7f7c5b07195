// Times the reader of experts: what a measurement of a disk needs.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "experts/reader.h"
#include "experts/slab.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace mference {

namespace {

double time_reads(int fd, const std::vector<size_t>& offsets, size_t size, int readers) {
  if (readers < 1 || readers > 256) throw py::value_error("readers must be 1 to 256");
  const py::gil_scoped_release release;
  Slab slots(readers, size);
  std::memset(slots.data(), 0, slots.size());
  Reader reader(readers);
  const auto start = std::chrono::steady_clock::now();
  for (size_t first = 0; first < offsets.size(); first += readers) {
    std::vector<ReadRequest> batch;
    for (size_t i = first; i < std::min(first + readers, offsets.size()); ++i) {
      batch.push_back({fd, "the file", offsets[i], size, slots.data() + batch.size() * size});
    }
    reader.submit(std::move(batch))->wait();
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

void bind_reading(py::module_& module) {
  module.def("time_reads", &time_reads, py::arg("fd"), py::arg("offsets"), py::arg("size"),
             py::arg("readers") = 8,
             "Seconds of reading `size` bytes at each offset, `readers` of them at a time.");
}

}  // namespace mference
