// The streamer of one layer's experts, and the gate that streams wait at, for tests.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <utility>

#include "experts/fill_gate.h"
#include "experts/streamer.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace mference {

namespace {

// A streamer and what it uses. A request is completed before the next one begins.
class OneLayer {
 public:
  OneLayer(std::shared_ptr<Device> device, const std::string& path,
           const std::vector<size_t>& offsets, size_t stride, int slots, int readers)
      : device_(std::move(device)),
        reader_(readers),
        adviser_(AdviceMode::kOff),
        files_{{path}, {offsets}, stride, {}},
        streamer_(*device_, reader_, adviser_, files_, 0, slots) {}

  // The plan, once its reads have ended; raises ExpertFillError if one failed.
  std::optional<Plan> load(const std::vector<int>& experts) {
    auto request = streamer_.request(experts);
    if (!request) return std::nullopt;
    const py::gil_scoped_release release;
    streamer_.complete(*request);
    return std::move(request->plan);
  }
  std::vector<int> owners() const { return streamer_.cache().owners(); }
  py::bytes content(int expert) const {
    Plan plan;
    plan.experts = {expert};
    plan.slots = {streamer_.cache().table().at(expert)};
    if (plan.slots[0] < 0) throw py::key_error("the expert is in no slot");
    const View view = streamer_.view(plan, 0);
    return {reinterpret_cast<const char*>(view.buffer->data() + view.offset), view.size};
  }

 private:
  std::shared_ptr<Device> device_;
  Reader reader_;
  Adviser adviser_;
  ExpertFiles files_;
  ExpertStreamer streamer_;
};

// A gate whose fills end when they are told to.
class OpenGate {
 public:
  explicit OpenGate(std::shared_ptr<Device> device)
      : device_(std::move(device)), gate_(*device_, [this](std::exception_ptr) { ++failures_; }) {}
  // The gate waits for its fills.
  ~OpenGate() {
    for (size_t i = 0; i < fills_.size(); ++i) end(i + 1, "");
  }
  uint64_t add() {
    fills_.push_back(std::make_unique<Fill>(1));
    return gate_.add(*fills_.back());
  }
  void end(size_t number, const std::string& error) {
    const auto fill = std::move(fills_.at(number - 1));
    if (fill) fill->finish(0, error, 0);
  }
  uint64_t value() { return gate_.event().value(); }
  int failures() const { return failures_; }

 private:
  std::shared_ptr<Device> device_;
  int failures_ = 0;
  std::vector<std::unique_ptr<Fill>> fills_;
  FillGate gate_;
};

}  // namespace

void bind_experts(py::module_& module) {
  py::class_<OneLayer>(module, "ExpertStreamer")
      .def(py::init<std::shared_ptr<Device>, const std::string&, const std::vector<size_t>&, size_t,
                    int, int>(),
           py::kw_only(), py::arg("device"), py::arg("path"), py::arg("offsets"), py::arg("stride"),
           py::arg("slots"), py::arg("readers"))
      .def("load", &OneLayer::load, py::arg("experts"))
      .def("owners", &OneLayer::owners)
      .def("content", &OneLayer::content, py::arg("expert"));
  py::class_<OpenGate>(module, "FillGate")
      .def(py::init<std::shared_ptr<Device>>(), py::arg("device"))
      .def("add", &OpenGate::add)
      .def("end", &OpenGate::end, py::arg("number"), py::arg("error") = "")
      .def_property_readonly("value", &OpenGate::value)
      .def_property_readonly("failures", &OpenGate::failures);
}

}  // namespace mference
