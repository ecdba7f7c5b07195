// The rules by which the model plans its reads, for tests.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <utility>

#include "experts/advice.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace mference {

namespace {

using Ranges = std::vector<std::pair<size_t, size_t>>;

Ranges merge_ranges(const Ranges& ranges) {
  std::vector<FileRange> given;
  for (const auto& [offset, size] : ranges) given.push_back({offset, size});
  Ranges merged;
  for (const FileRange& range : merge(std::move(given))) {
    merged.emplace_back(range.offset, range.size);
  }
  return merged;
}

}  // namespace

void bind_planning(py::module_& module) {
  py::module_ planning = module.def_submodule("planning", "How the model plans its reads.");
  planning.def("merge", &merge_ranges, py::arg("ranges"));
  py::class_<AdvicePolicy>(planning, "AdvicePolicy")
      .def(py::init([](const std::string& mode, int misses, size_t size, uint64_t slow_call_ns) {
             return AdvicePolicy(parse_advice(mode), {misses, size, slow_call_ns});
           }),
           py::arg("mode"), py::arg("misses"), py::arg("size"), py::arg("slow_call_ns"))
      .def("begin", &AdvicePolicy::begin)
      .def("wanted", &AdvicePolicy::wanted, py::arg("misses"), py::arg("size"),
           py::arg("overlapped"))
      .def("completed", &AdvicePolicy::completed, py::arg("nanoseconds"));
}

}  // namespace mference
