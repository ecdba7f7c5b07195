// Bindings of the model and of the expert cache's policy.
#include "model/model.h"

#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/errors.h"
#include "experts/cache.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace mference {

namespace {

Arch read_arch(const py::dict& d) {
  Arch a;
  a.family = d["family"].cast<std::string>();
  const auto integer = [&](const char* key) { return d[key].cast<int>(); };
  const auto real = [&](const char* key) { return d[key].cast<double>(); };
  a.layers = integer("numLayers");
  a.hidden = integer("hiddenSize");
  a.dense_width = integer("ffnIntermediate");
  a.expert_width = integer("moeIntermediateSize");
  a.experts = integer("numExperts");
  a.top_k = integer("topKExperts");
  a.heads = integer("numHeads");
  a.kv_heads = integer("numKVHeads");
  a.full_kv_heads = integer("numFullKVHeads");
  a.head_dim = integer("headDim");
  a.full_head_dim = integer("fullHeadDim");
  a.vocabulary = integer("vocabSize");
  a.window = integer("slidingWindow");
  a.softcap = static_cast<float>(real("finalLogitSoftcap"));
  a.rope_theta = real("ropeTheta");
  a.full_rope_theta = real("fullRopeTheta");
  a.partial_rotary = real("partialRotaryFactor");
  a.attention_scale = real("attentionScale");
  a.linear_key_heads = integer("linearNumKHeads");
  a.linear_value_heads = integer("linearNumVHeads");
  a.linear_key_dim = integer("linearKeyHeadDim");
  a.linear_value_dim = integer("linearValueHeadDim");
  a.linear_taps = integer("linearConvKernelSize");
  for (const int kind : d["fullAttentionLayerMask"].cast<std::vector<int>>()) {
    a.mask.push_back(static_cast<LayerKind>(kind));
  }
  return a;
}

Activation read_activation(const py::dict& d) {
  const auto name = d["hiddenActivation"].cast<std::string>();
  if (name == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  if (name == "silu") return Activation::kSilu;
  throw DeviceError("hiddenActivation is " + name + "; it must be gelu_pytorch_tanh or silu");
}

// name -> (offset, size, scale offset, scale size, bias offset, bias size)
std::unordered_map<std::string, Tensor> read_tensors(const py::dict& d) {
  std::unordered_map<std::string, Tensor> tensors;
  for (const auto& [name, value] : d) {
    const auto t = value.cast<std::array<size_t, 6>>();
    tensors[name.cast<std::string>()] = {t[0], t[1], t[2], t[3], t[4], t[5]};
  }
  return tensors;
}

// (weight offset, scales offset, biases offset, bits, group)
ExpertShape::Part read_part(const py::handle& value) {
  const auto t = value.cast<std::array<size_t, 5>>();
  return {t[0], t[1], t[2], static_cast<int>(t[3]), static_cast<int>(t[4])};
}

// Lets Ctrl-C through: Python's signal flag is looked at between layers, but not more often than
// anyone could notice, since asking for the interpreter lock can wait on other threads.
class Interrupt {
 public:
  void operator()() {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::milliseconds(50)) return;
    last_ = now;
    const py::gil_scoped_acquire lock;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// A model as Python holds it: in the process that loaded it, and one caller at a time. What other
// threads may ask meanwhile is answered as of the last call that ended.
class SharedModel {
 public:
  explicit SharedModel(std::unique_ptr<Model> model) : model_(std::move(model)) { note(); }
  ~SharedModel() {
    // A forked child has none of the threads that the model would wait for.
    if (!at_home()) (void)model_.release();
  }
  SharedModel(const SharedModel&) = delete;
  SharedModel& operator=(const SharedModel&) = delete;

  // The right to use the model; taken and returned with the interpreter lock held.
  class Turn {
   public:
    explicit Turn(SharedModel& shared) : shared_(shared) {
      if (!shared.at_home()) {
        throw DeviceError("the model was loaded before this process was forked; load it again");
      }
      if (shared.busy_.exchange(true)) {
        throw GenerationError(
            "the model is already computing, for another thread or in a signal handler; "
            "load one model for each, or wait");
      }
    }
    ~Turn() {
      shared_.note();
      shared_.busy_ = false;
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    Model& operator*() const { return *shared_.model_; }
    Model* operator->() const { return shared_.model_.get(); }

   private:
    SharedModel& shared_;
  };

  int position() const { return position_; }
  int slots() const { return model_->slots(); }
  size_t state_bytes() const { return model_->sequence().bytes(); }
  const ExpertCounters& experts() const { return experts_; }
  const Phases& phases() const { return phases_; }
  std::pair<uint64_t, uint64_t> memory_peak() const { return memory_peak_; }

 private:
  bool at_home() const { return getpid() == process_; }
  void note() {
    position_ = model_->position();
    experts_ = model_->counters();
    phases_ = model_->phases();
    memory_peak_ = {model_->memory().own(), model_->memory().mapped()};
  }

  std::unique_ptr<Model> model_;
  pid_t process_ = getpid();
  std::atomic<bool> busy_{false};
  int position_ = 0;
  ExpertCounters experts_;
  Phases phases_;
  std::pair<uint64_t, uint64_t> memory_peak_;
};

std::unique_ptr<SharedModel> make_model(std::shared_ptr<Device> device, const py::dict& arch,
                                        const std::string& weights, const py::dict& tensors,
                                        const std::vector<std::string>& files,
                                        const std::vector<std::vector<size_t>>& offsets,
                                        size_t stride, const py::list& parts,
                                        std::function<void(int)> verify_layer, int slots,
                                        int context, int chunk, int readers, bool float32_kv,
                                        bool eager, const std::string& advice, bool slot_map) {
  ModelInit init;
  init.arch = read_arch(arch);
  init.weights_path = weights;
  init.tensors = read_tensors(tensors);
  init.experts = {files, offsets, stride, std::move(verify_layer)};
  init.expert_shape.gate = read_part(parts[0]);
  init.expert_shape.up = read_part(parts[1]);
  init.expert_shape.down = read_part(parts[2]);
  init.expert_shape.hidden = init.arch.hidden;
  init.expert_shape.width = init.arch.expert_width;
  init.expert_shape.activation = read_activation(arch);
  init.slots = slots;
  init.context = context;
  init.chunk = chunk;
  init.readers = readers;
  init.advice = parse_advice(advice);
  init.eager = eager;
  init.slot_map = slot_map;
  init.kv_type = float32_kv ? KvType::kFloat32 : KvType::kFloat16;
  return std::make_unique<SharedModel>(std::make_unique<Model>(std::move(device), std::move(init)));
}

using Tokens = py::array_t<int32_t, py::array::c_style | py::array::forcecast>;

void run(Model& model, const Tokens& tokens, Head head) {
  const std::vector<int32_t> copy(tokens.data(), tokens.data() + tokens.size());
  const py::gil_scoped_release release;
  model.forward(copy, head, Interrupt());
}

py::array_t<float> copy_logits(const Model& model) {
  const auto logits = model.logits();
  return py::array_t<float>(static_cast<py::ssize_t>(logits.size()), logits.data());
}

py::array_t<int16_t> copy_routing(const RoutingTrace& trace) {
  const py::ssize_t layers = trace.layers(), top_k = trace.top_k();
  const py::ssize_t tokens = static_cast<py::ssize_t>(trace.ids().size()) / (layers * top_k);
  return py::array_t<int16_t>({tokens, layers, top_k}, trace.ids().data());
}

py::dict counters(const SharedModel& model) {
  const ExpertCounters& c = model.experts();
  const Phases& p = model.phases();
  const auto seconds = [](uint64_t ns) { return static_cast<double>(ns) * 1e-9; };
  py::dict d;
  d["tokens"] = p.tokens;
  d["passes"] = p.passes;
  d["hits"] = c.hits;
  d["misses"] = c.misses;
  d["evictions"] = c.evictions;
  d["bytes_read"] = c.bytes_read;
  d["read_seconds"] = seconds(c.read_nanoseconds);
  d["fill_seconds"] = seconds(c.fill_nanoseconds);
  d["exposed_read_seconds"] = seconds(c.exposed_nanoseconds);
  d["advice_calls"] = c.advice_calls;
  d["advice_bytes"] = c.advice_bytes;
  d["mix_seconds"] = seconds(p.mix);
  d["router_wait_seconds"] = seconds(p.router_wait);
  d["routed_seconds"] = seconds(p.routed);
  d["head_seconds"] = seconds(p.head);
  d["eager_commits"] = p.eager;
  d["all_hit_layers"] = p.all_hit;
  d["plans_skipped"] = p.all_hit;
  d["slots"] = model.slots();
  d["state_bytes"] = model.state_bytes();
  return d;
}

}  // namespace

void bind_model(py::module_& module) {
  using Turn = SharedModel::Turn;
  py::class_<Snapshot>(module, "Snapshot")
      .def_readonly("position", &Snapshot::position)
      .def_property_readonly("bytes",
                             [](const Snapshot& s) { return s.kv.size() + s.recurrent.size(); });
  py::class_<SharedModel>(module, "Model")
      .def(py::init(&make_model), py::kw_only(), py::arg("device"), py::arg("arch"),
           py::arg("weights"), py::arg("tensors"), py::arg("expert_files"),
           py::arg("expert_offsets"), py::arg("expert_stride"), py::arg("expert_parts"),
           py::arg("verify_layer"), py::arg("slots"), py::arg("context"), py::arg("chunk"),
           py::arg("readers"), py::arg("float32_kv"), py::arg("eager") = true,
           py::arg("advice") = "off", py::arg("slot_map") = false)
      .def(
          "forward", [](SharedModel& m, const Tokens& t) { run(*Turn(m), t, Head::kNone); },
          py::arg("tokens"))
      .def(
          "greedy",
          [](SharedModel& m, const Tokens& t) {
            const Turn turn(m);
            run(*turn, t, Head::kArgmax);
            return turn->token();
          },
          py::arg("tokens"))
      .def(
          "logits",
          [](SharedModel& m, const Tokens& t) {
            const Turn turn(m);
            run(*turn, t, Head::kLogits);
            return copy_logits(*turn);
          },
          py::arg("tokens"))
      .def_property_readonly("position", &SharedModel::position)
      .def(
          "rewind",
          [](SharedModel& m, int position) {
            const Turn turn(m);
            const py::gil_scoped_release release;
            turn->rewind(position);
          },
          py::arg("position"))
      .def("snapshot",
           [](SharedModel& m) {
             const Turn turn(m);
             const py::gil_scoped_release release;
             return turn->save();
           })
      .def(
          "restore",
          [](SharedModel& m, const Snapshot& s) {
            const Turn turn(m);
            const py::gil_scoped_release release;
            turn->restore(s);
          },
          py::arg("snapshot"))
      .def(
          "record_routing", [](SharedModel& m, bool on) { Turn(m)->routing().record(on); },
          py::arg("on"))
      .def("routing", [](SharedModel& m) { return copy_routing(Turn(m)->routing()); })
      .def("memory_peak", &SharedModel::memory_peak)
      .def("counters", &counters);

  py::class_<Plan>(module, "Plan")
      .def_readonly("experts", &Plan::experts)
      .def_readonly("slots", &Plan::slots)
      .def_readonly("misses", &Plan::misses)
      .def_readonly("hits", &Plan::hits)
      .def_readonly("evictions", &Plan::evictions);
  py::class_<Reservation>(module, "Reservation")
      .def_readonly("experts", &Reservation::experts)
      .def_readonly("slots", &Reservation::slots);
  py::class_<ExpertCache>(module, "ExpertCache")
      .def(py::init([](int slots, int experts, const std::string& policy) {
             const auto possible = [](int count) { return count >= 1 && count <= INT16_MAX; };
             if (!possible(slots) || !possible(experts))
               throw py::value_error("slots and experts must be positive and fit 16 bits");
             if (policy != "lfu" && policy != "lru") throw py::value_error("policy is lfu or lru");
             return ExpertCache(slots, experts,
                                policy == "lru" ? CachePolicy::kLru : CachePolicy::kLfu);
           }),
           py::arg("slots"), py::arg("experts"), py::arg("policy") = "lfu")
      .def(
          "plan",
          [](ExpertCache& c, const std::vector<int>& experts, const std::vector<int>& avoid) {
            return c.plan(experts, avoid);
          },
          py::arg("experts"), py::arg("avoid") = std::vector<int>{})
      .def("publish", py::overload_cast<const Plan&>(&ExpertCache::publish), py::arg("plan"))
      .def(
          "reserve",
          [](ExpertCache& c, const std::vector<int>& experts, int keep) {
            return c.reserve(experts, keep);
          },
          py::arg("experts"), py::arg("keep"))
      .def(
          "land",
          [](ExpertCache& c, const Reservation& r, const std::vector<int>& failed) {
            return c.land(r, failed);
          },
          py::arg("reservation"), py::arg("failed") = std::vector<int>{})
      .def(
          "note_hits",
          [](ExpertCache& c, const std::vector<int>& experts) { c.note_hits(experts); },
          py::arg("experts"))
      .def(
          "probe",
          [](const ExpertCache& c, const std::vector<int>& experts) { return c.probe(experts); },
          py::arg("experts"))
      .def(
          "mirror",
          [](ExpertCache& c, py::array_t<int16_t, py::array::c_style>& copy) {
            if (copy.size() != static_cast<py::ssize_t>(c.table().size()))
              throw py::value_error("the copy needs a place for each expert");
            c.mirror({copy.mutable_data(), static_cast<size_t>(copy.size())});
          },
          py::arg("copy").noconvert(), py::keep_alive<1, 2>())
      .def("owners", &ExpertCache::owners)
      .def("table", &ExpertCache::table)
      .def("next_uncached", &ExpertCache::next_uncached);
}

}  // namespace mference
