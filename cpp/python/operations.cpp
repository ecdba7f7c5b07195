// Runs single operations on numpy arrays: what the tests and benchmarks of a device need.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>

#include "base/errors.h"
#include "device/device.h"
#include "python/bindings.h"

namespace mference {

namespace py = pybind11;

namespace {

constexpr size_t kFloat = sizeof(float);
constexpr size_t kHugePage = size_t{2} << 20;

template <class T>
using Array = py::array_t<T, py::array::c_style | py::array::forcecast>;
using Floats = Array<float>;
using Integers = Array<int32_t>;
using Bits = Array<uint16_t>;

struct AffineArrays {
  Array<uint8_t> weight;
  Bits scales, biases;
  int bits;
  int group;

  int rows() const { return static_cast<int>(weight.shape(0)); }
  int cols() const { return static_cast<int>(weight.shape(1) * 8 / bits); }
};

AffineArrays make_affine(Array<uint8_t> weight, Bits scales, Bits biases, int bits, int group) {
  if (weight.ndim() != 2) throw py::value_error("weight must be uint8[rows, cols * bits / 8]");
  if (bits <= 0 || group <= 0) throw py::value_error("bits and group must be positive");
  return {std::move(weight), std::move(scales), std::move(biases), bits, group};
}

// The buffers of one operation. Inputs that a checkpoint stores (packed weights, BF16) start
// `misalign` bytes after an aligned address, everything else is aligned.
class Bench {
 public:
  Bench(Device& device, int misalign) : device_(device), misalign_(misalign) {
    if (misalign < 0) throw py::value_error("misalign must not be negative");
  }

  template <class T, int kFlags>
  View input(const py::array_t<T, kFlags>& array) {
    return copy(array.data(), array.nbytes(), sizeof(T) < 4 ? misalign_ : 0);
  }
  View raw(const py::array& array) { return copy(array.data(), array.nbytes(), 0); }
  View raw(const std::vector<std::byte>& bytes) {
    return copy(bytes.data(), bytes.size(), misalign_);
  }

  Affine affine(const AffineArrays& a) {
    Affine affine;
    affine.weight = input(a.weight);
    affine.scales = input(a.scales);
    affine.biases = input(a.biases);
    affine.rows = a.rows();
    affine.cols = a.cols();
    affine.bits = a.bits;
    affine.group = a.group;
    return affine;
  }

  // Filled with a pattern, so that what an operation does not write shows.
  View output(size_t bytes) {
    const View view = place(bytes, 0);
    std::memset(view.buffer->data(), 0xff, bytes);
    return view;
  }

  void run(const Operation& operation) {
    const auto stream = device_.make_stream();
    py::gil_scoped_release release;
    stream->encode(operation);
    stream->synchronize();
  }

  // Seconds of each of `repeats` passes over all operations, after one that is not counted.
  std::vector<double> time(const std::vector<Operation>& operations, int repeats) {
    const auto stream = device_.make_stream();
    py::gil_scoped_release release;
    std::vector<double> seconds;
    for (int i = 0; i <= repeats; ++i) {
      const auto start = std::chrono::steady_clock::now();
      for (const Operation& operation : operations) stream->encode(operation);
      stream->synchronize();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      if (i > 0) seconds.push_back(took.count());
    }
    return seconds;
  }

 private:
  View place(size_t bytes, size_t offset) {
    // Large arrays lie on huge pages, as the slabs of experts do.
    const size_t alignment = bytes < kHugePage ? 64 : kHugePage;
    buffers_.push_back(device_.allocate(std::max<size_t>(offset + bytes, 1), alignment));
    return {buffers_.back().get(), offset, bytes};
  }
  View copy(const void* data, size_t bytes, size_t offset) {
    const View view = place(bytes, offset);
    if (bytes > 0) std::memcpy(view.buffer->data() + offset, data, bytes);
    return view;
  }

  Device& device_;
  size_t misalign_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

template <class T>
py::array_t<T> fetch(const View& view, std::vector<py::ssize_t> shape) {
  py::array_t<T> array(std::move(shape));
  std::memcpy(array.mutable_data(), view.buffer->data() + view.offset, array.nbytes());
  return array;
}

int extent(const py::array& array, int axis, const char* name) {
  if (axis >= array.ndim()) {
    throw py::value_error(std::string(name) + " has too few dimensions");
  }
  return static_cast<int>(array.shape(axis));
}

Floats embed_rows(Device& device, const AffineArrays& table, const Integers& tokens, float scale,
                  int misalign) {
  Bench bench(device, misalign);
  EmbedRows op;
  op.table = bench.affine(table);
  op.tokens = bench.input(tokens);
  op.rows = static_cast<int>(tokens.size());
  op.scale = scale;
  op.out = bench.output(size_t(op.rows) * op.table.cols * kFloat);
  bench.run(op);
  return fetch<float>(op.out, {op.rows, op.table.cols});
}

std::vector<Floats> norm_project(Device& device, const Floats& x, const Bits& norm,
                                 const std::vector<AffineArrays>& matrices, float eps,
                                 int misalign) {
  Bench bench(device, misalign);
  NormProject op;
  if (matrices.size() > NormProject::kMaxParts)
    throw DeviceError("NormProject.count: there must be one to four matrices");
  op.rows = extent(x, 0, "x");
  op.eps = eps;
  op.x = bench.input(x);
  op.norm = bench.input(norm);
  for (const AffineArrays& m : matrices) {
    op.parts[op.count++] = {bench.affine(m), bench.output(size_t(op.rows) * m.rows() * kFloat)};
  }
  bench.run(op);
  std::vector<Floats> results;
  for (int i = 0; i < op.count; ++i) {
    results.push_back(fetch<float>(op.parts[i].out, {op.rows, op.parts[i].matrix.rows}));
  }
  return results;
}

KvCache cache_of(Bench& bench, const py::array& keys, const py::array& values) {
  if (keys.ndim() != 3 || keys.dtype().kind() != 'f' || !keys.dtype().equal(values.dtype()) ||
      (keys.itemsize() != 2 && keys.itemsize() != 4)) {
    throw py::value_error("keys and values must be float16 or float32 [capacity, heads, dim]");
  }
  KvCache cache;
  cache.keys = bench.raw(py::array::ensure(keys, py::array::c_style));
  cache.values = bench.raw(py::array::ensure(values, py::array::c_style));
  cache.type = keys.itemsize() == 2 ? KvType::kFloat16 : KvType::kFloat32;
  cache.capacity = extent(keys, 0, "keys");
  cache.heads = extent(keys, 1, "keys");
  cache.dim = extent(keys, 2, "keys");
  return cache;
}

py::array fetch_like(const View& view, const py::array& like) {
  py::array array(like.dtype(), std::vector<py::ssize_t>(like.shape(), like.shape() + like.ndim()));
  std::memcpy(array.mutable_data(), view.buffer->data() + view.offset, array.nbytes());
  return array;
}

py::tuple qkv_epilogue(Device& device, const Floats& q, const Floats& k,
                       const std::optional<Floats>& v, const Bits& q_norm, const Bits& k_norm,
                       const Floats& rope, const py::array& keys, const py::array& values,
                       int position, std::optional<int> distance, bool norm_values, float eps,
                       int misalign) {
  Bench bench(device, misalign);
  QkvEpilogue op;
  op.cache = cache_of(bench, keys, values);
  op.rows = extent(q, 0, "q");
  op.heads = extent(q, 1, "q");
  op.q_width = extent(q, 2, "q");
  op.rotated = extent(rope, 1, "rope");
  op.distance = distance.value_or(op.cache.dim / 2);
  op.position = position;
  op.norm_values = norm_values;
  op.eps = eps;
  op.q = bench.input(q);
  op.q_out = op.q_width == op.cache.dim
                 ? op.q
                 : bench.output(size_t(op.rows) * op.heads * op.cache.dim * kFloat);
  op.k = bench.input(k);
  op.v = v ? bench.input(*v) : op.k;
  op.q_norm = bench.input(q_norm);
  op.k_norm = bench.input(k_norm);
  op.rope = bench.input(rope);
  bench.run(op);
  return py::make_tuple(fetch<float>(op.q_out, {op.rows, op.heads, op.cache.dim}),
                        fetch_like(op.cache.keys, keys), fetch_like(op.cache.values, values));
}

Floats gate_heads(Device& device, const Floats& x, const Floats& gate) {
  Bench bench(device, 0);
  GateHeads op;
  op.rows = extent(x, 0, "x");
  op.heads = extent(x, 1, "x");
  op.dim = extent(x, 2, "x");
  op.width = extent(gate, 2, "gate");
  op.x = bench.input(x);
  op.gate = bench.input(gate);
  bench.run(op);
  return fetch<float>(op.x, {op.rows, op.heads, op.dim});
}

py::tuple convolution_tail(Device& device, const Floats& x, const Bits& weight,
                           const py::array& tail, int misalign) {
  if (tail.dtype().kind() != 'f' || (tail.itemsize() != 2 && tail.itemsize() != 4)) {
    throw py::value_error("tail must be float16 or float32 [taps - 1, channels]");
  }
  Bench bench(device, misalign);
  ConvolutionTail op;
  op.rows = extent(x, 0, "x");
  op.channels = extent(x, 1, "x");
  op.taps = extent(weight, 1, "weight");
  op.type = tail.itemsize() == 2 ? KvType::kFloat16 : KvType::kFloat32;
  op.x = bench.input(x);
  op.weight = bench.input(weight);
  op.tail = bench.raw(py::array::ensure(tail, py::array::c_style));
  op.out = bench.output(x.nbytes());
  bench.run(op);
  return py::make_tuple(fetch<float>(op.out, {op.rows, op.channels}), fetch_like(op.tail, tail));
}

GatedDelta gated_delta_of(Bench& bench, const Floats& mixed, const Floats& alpha,
                          const Floats& beta, const Floats& rate, const Floats& dt_bias,
                          const Floats& z, const Bits& norm, const Floats& state, int key_heads,
                          float eps) {
  GatedDelta op;
  op.rows = extent(mixed, 0, "mixed");
  op.key_heads = key_heads;
  op.value_heads = extent(state, 0, "state");
  op.value_dim = extent(state, 1, "state");
  op.key_dim = extent(state, 2, "state");
  op.eps = eps;
  op.mixed = bench.input(mixed);
  op.alpha = bench.input(alpha);
  op.beta = bench.input(beta);
  op.rate = bench.input(rate);
  op.dt_bias = bench.input(dt_bias);
  op.z = bench.input(z);
  op.norm = bench.input(norm);
  op.state = bench.input(state);
  op.out = bench.output(size_t(op.rows) * op.value_heads * op.value_dim * kFloat);
  return op;
}

py::tuple gated_delta(Device& device, const Floats& mixed, const Floats& alpha, const Floats& beta,
                      const Floats& rate, const Floats& dt_bias, const Floats& z, const Bits& norm,
                      const Floats& state, int key_heads, float eps, int misalign) {
  Bench bench(device, misalign);
  const GatedDelta op =
      gated_delta_of(bench, mixed, alpha, beta, rate, dt_bias, z, norm, state, key_heads, eps);
  bench.run(op);
  return py::make_tuple(fetch<float>(op.out, {op.rows, op.value_heads * op.value_dim}),
                        fetch<float>(op.state, {op.value_heads, op.value_dim, op.key_dim}));
}

std::vector<double> time_gated_delta(Device& device, const Floats& mixed, const Floats& alpha,
                                     const Floats& beta, const Floats& rate, const Floats& dt_bias,
                                     const Floats& z, const Bits& norm, const Floats& state,
                                     int key_heads, int repeats) {
  Bench bench(device, 0);
  return bench.time(
      {gated_delta_of(bench, mixed, alpha, beta, rate, dt_bias, z, norm, state, key_heads, 1e-6f)},
      repeats);
}

Attention attention_of(Bench& bench, const Floats& q, const py::array& keys,
                       const py::array& values, int position, int window, float scale) {
  Attention op;
  op.rows = extent(q, 0, "q");
  op.heads = extent(q, 1, "q");
  op.position = position;
  op.window = window;
  op.scale = scale;
  op.q = bench.input(q);
  op.cache = cache_of(bench, keys, values);
  op.out = bench.output(size_t(op.rows) * op.heads * op.cache.dim * kFloat);
  return op;
}

Floats attention(Device& device, const Floats& q, const py::array& keys, const py::array& values,
                 int position, int window, float scale) {
  Bench bench(device, 0);
  const Attention op = attention_of(bench, q, keys, values, position, window, scale);
  bench.run(op);
  return fetch<float>(op.out, {op.rows, op.heads, op.cache.dim});
}

std::vector<double> time_attention(Device& device, const Floats& q, const py::array& keys,
                                   const py::array& values, int position, int window, int repeats) {
  Bench bench(device, 0);
  return bench.time({attention_of(bench, q, keys, values, position, window, 1.0f)}, repeats);
}

Project project_of(Bench& bench, const Floats& x, const AffineArrays& weight) {
  Project op;
  op.rows = extent(x, 0, "x");
  op.x = bench.input(x);
  op.weight = bench.affine(weight);
  op.out = bench.output(size_t(op.rows) * weight.rows() * kFloat);
  return op;
}

Floats project(Device& device, const Floats& x, const AffineArrays& weight, int misalign) {
  Bench bench(device, misalign);
  const Project op = project_of(bench, x, weight);
  bench.run(op);
  return fetch<float>(op.out, {op.rows, weight.rows()});
}

std::vector<double> time_project(Device& device, const Floats& x, const AffineArrays& weight,
                                 int copies, int repeats, int misalign) {
  Bench bench(device, misalign);
  std::vector<Operation> operations;
  for (int i = 0; i < copies; ++i) operations.push_back(project_of(bench, x, weight));
  return bench.time(operations, repeats);
}

py::tuple post_attention_router(Device& device, const Floats& x, const Floats& attention,
                                const Bits& post_attention, const Bits& pre_dense,
                                const Bits& pre_routed, const Bits& router_scale,
                                const Bits& expert_scale, const AffineArrays& router, int k,
                                float eps, int misalign) {
  Bench bench(device, misalign);
  PostAttentionRouter op;
  op.rows = extent(x, 0, "x");
  op.hidden = extent(x, 1, "x");
  op.k = k;
  op.eps = eps;
  op.x = bench.input(x);
  op.attention = bench.input(attention);
  op.post_attention = bench.input(post_attention);
  op.pre_dense = bench.input(pre_dense);
  op.pre_routed = bench.input(pre_routed);
  op.router_scale = bench.input(router_scale);
  op.expert_scale = bench.input(expert_scale);
  op.router = bench.affine(router);
  const size_t rows = op.rows;
  op.dense_in = bench.output(rows * op.hidden * kFloat);
  op.routed_in = bench.output(rows * op.hidden * kFloat);
  op.ids = bench.output(rows * std::max(k, 0) * sizeof(int32_t));
  op.weights = bench.output(rows * std::max(k, 0) * kFloat);
  bench.run(op);
  return py::make_tuple(
      fetch<float>(op.x, {op.rows, op.hidden}), fetch<float>(op.dense_in, {op.rows, op.hidden}),
      fetch<float>(op.routed_in, {op.rows, op.hidden}), fetch<int32_t>(op.ids, {op.rows, k}),
      fetch<float>(op.weights, {op.rows, k}));
}

py::tuple residual_router(Device& device, const Floats& x, const Floats& update, const Bits& norm,
                          const AffineArrays& router, int k, float eps, int misalign) {
  Bench bench(device, misalign);
  ResidualRouter op;
  op.rows = extent(x, 0, "x");
  op.hidden = extent(x, 1, "x");
  op.k = k;
  op.eps = eps;
  op.x = bench.input(x);
  op.update = bench.input(update);
  op.norm = bench.input(norm);
  op.router = bench.affine(router);
  const size_t rows = op.rows;
  op.normed = bench.output(rows * op.hidden * kFloat);
  op.ids = bench.output(rows * std::max(k, 0) * sizeof(int32_t));
  op.weights = bench.output(rows * std::max(k, 0) * kFloat);
  bench.run(op);
  return py::make_tuple(
      fetch<float>(op.x, {op.rows, op.hidden}), fetch<float>(op.normed, {op.rows, op.hidden}),
      fetch<int32_t>(op.ids, {op.rows, k}), fetch<float>(op.weights, {op.rows, k}));
}

Activation activation_of(const std::string& name) {
  if (name == "gelu_tanh") return Activation::kGeluTanh;
  if (name == "silu") return Activation::kSilu;
  throw py::value_error("activation must be gelu_tanh or silu");
}

Floats shared_expert(Device& device, const Floats& x, const AffineArrays& gate,
                     const AffineArrays& up, const AffineArrays& down,
                     const std::string& activation, const std::optional<AffineArrays>& scalar_gate,
                     int misalign) {
  Bench bench(device, misalign);
  SharedExpert op;
  if (scalar_gate) op.scalar_gate = bench.affine(*scalar_gate);
  op.rows = extent(x, 0, "x");
  op.activation = activation_of(activation);
  op.x = bench.input(x);
  op.gate = bench.affine(gate);
  op.up = bench.affine(up);
  op.down = bench.affine(down);
  op.scratch = bench.output(size_t(op.rows) * gate.rows() * kFloat);
  op.out = bench.output(size_t(op.rows) * down.rows() * kFloat);
  bench.run(op);
  return fetch<float>(op.out, {op.rows, down.rows()});
}

py::tuple look_up_slots(Device& device, const Integers& ids, const Array<int16_t>& table) {
  Bench bench(device, 0);
  LookUpSlots op;
  op.k = static_cast<int>(ids.size());
  op.experts = static_cast<int>(table.size());
  op.ids = bench.input(ids);
  op.table = bench.raw(table);
  op.slots = bench.output(op.k * sizeof(int32_t));
  op.hit = bench.output(sizeof(int32_t));
  bench.run(op);
  return py::make_tuple(fetch<int32_t>(op.slots, {op.k}), *fetch<int32_t>(op.hit, {1}).data());
}

// The nine parts of an expert, back to back.
ExpertShape::Part append(std::vector<std::byte>& blob, const AffineArrays& a) {
  const auto add = [&](const py::array& array) {
    const size_t offset = blob.size();
    const auto* data = static_cast<const std::byte*>(array.data());
    blob.insert(blob.end(), data, data + array.nbytes());
    return offset;
  };
  ExpertShape::Part part;
  part.weight = add(a.weight);
  part.scales = add(a.scales);
  part.biases = add(a.biases);
  part.bits = a.bits;
  part.group = a.group;
  return part;
}

struct ExpertArrays {
  AffineArrays gate, up, down;
  int first;
  int last;
};

// An expert's blob; where its parts lie goes into the shape.
std::vector<std::byte> pack(const ExpertArrays& expert, ExpertShape& shape) {
  std::vector<std::byte> blob;
  shape.gate = append(blob, expert.gate);
  shape.up = append(blob, expert.up);
  shape.down = append(blob, expert.down);
  shape.width = expert.gate.rows();
  return blob;
}

Floats routed_experts(Device& device, const Floats& x, const Integers& pairs, const Floats& weights,
                      const std::vector<ExpertArrays>& experts, const Floats& out, bool accumulate,
                      const std::string& activation, int misalign) {
  Bench bench(device, misalign);
  RoutedExperts op;
  op.rows = extent(x, 0, "x");
  op.k = extent(weights, 1, "weights");
  op.accumulate = accumulate;
  op.x = bench.input(x);
  op.pairs = bench.input(pairs);
  op.weights = bench.input(weights);
  op.out = bench.input(out);
  op.shape.hidden = extent(x, 1, "x");
  op.shape.activation = activation_of(activation);
  if (experts.size() > RoutedExperts::kMaxTile)
    throw DeviceError("a tile holds at most eight experts");
  size_t tile_pairs = 0;
  for (const ExpertArrays& e : experts) {
    op.experts[op.count++] = {bench.raw(pack(e, op.shape)), e.first, e.last};
    tile_pairs += std::max(e.last - e.first, 0);
  }
  op.scratch = bench.output(tile_pairs * op.shape.width * kFloat);
  bench.run(op);
  return fetch<float>(op.out, std::vector<py::ssize_t>(out.shape(), out.shape() + out.ndim()));
}

// The same for one row, whose expert e lies in slot slots[e] of a slab.
Floats guarded_experts(Device& device, const Floats& x, const std::vector<ExpertArrays>& experts,
                       const Integers& slots, int slot_count, int hit, const Floats& out,
                       const std::string& activation, int misalign) {
  Bench bench(device, misalign);
  RoutedExperts op;
  op.rows = extent(x, 0, "x");
  op.k = static_cast<int>(slots.size());
  op.x = bench.input(x);
  op.out = bench.input(out);
  op.shape.hidden = extent(x, 1, "x");
  op.shape.activation = activation_of(activation);
  if (experts.empty() || experts.size() > RoutedExperts::kMaxTile || slot_count < 1)
    throw DeviceError("a tile holds one to eight experts, and a slab has slots");
  std::vector<std::vector<std::byte>> blobs;
  for (const ExpertArrays& e : experts) blobs.push_back(pack(e, op.shape));
  const size_t stride = blobs[0].size();
  std::vector<std::byte> slab(stride * slot_count);
  for (size_t e = 0; e < experts.size(); ++e) {
    const int slot = e < size_t(op.k) ? slots.data()[e] : -1;
    if (slot >= 0 && slot < slot_count) {
      std::copy(blobs[e].begin(), blobs[e].end(), slab.begin() + slot * stride);
    }
  }
  const Integers hits(std::vector<py::ssize_t>{1}, &hit);
  op.guard = {bench.raw(slab), bench.input(slots), bench.input(hits), stride};
  for (const ExpertArrays& e : experts) {
    op.experts[op.count++] = {op.guard.slab.at(0, stride), e.first, e.last};
  }
  std::vector<int32_t> pairs(op.k);
  std::iota(pairs.begin(), pairs.end(), 0);
  op.pairs = bench.input(Integers(static_cast<py::ssize_t>(pairs.size()), pairs.data()));
  op.scratch = bench.output(experts.size() * op.shape.width * kFloat);
  bench.run(op);
  return fetch<float>(op.out, std::vector<py::ssize_t>(out.shape(), out.shape() + out.ndim()));
}

Floats zero(Device& device, int count) {
  Bench bench(device, 0);
  Zero op;
  op.count = count;
  op.out = bench.output(size_t(std::max(count, 0)) * kFloat);
  bench.run(op);
  return fetch<float>(op.out, {count});
}

Floats layer_tail(Device& device, const Floats& x, const Floats& shared, const Floats& routed,
                  const Bits& post_shared, const Bits& post_routed, const Bits& post_layer,
                  const Bits& layer_scalar, const std::optional<Integers>& ids,
                  const std::optional<Floats>& weights, float eps, int misalign) {
  Bench bench(device, misalign);
  LayerTail op;
  op.rows = extent(x, 0, "x");
  op.hidden = extent(x, 1, "x");
  op.parts = routed.ndim() == 2 ? 0 : extent(routed, 1, "routed");
  op.eps = eps;
  op.x = bench.input(x);
  op.shared = bench.input(shared);
  op.routed = bench.input(routed);
  if (ids) op.ids = bench.input(*ids);
  if (weights) op.weights = bench.input(*weights);
  op.post_shared = bench.input(post_shared);
  op.post_routed = bench.input(post_routed);
  op.post_layer = bench.input(post_layer);
  op.layer_scalar = bench.input(layer_scalar);
  bench.run(op);
  return fetch<float>(op.x, {op.rows, op.hidden});
}

Floats residual_tail(Device& device, const Floats& x, const Floats& shared, const Floats& routed,
                     const std::optional<Integers>& ids, const std::optional<Floats>& weights) {
  Bench bench(device, 0);
  ResidualTail op;
  op.rows = extent(x, 0, "x");
  op.hidden = extent(x, 1, "x");
  op.parts = routed.ndim() == 2 ? 0 : extent(routed, 1, "routed");
  op.x = bench.input(x);
  op.shared = bench.input(shared);
  op.routed = bench.input(routed);
  if (ids) op.ids = bench.input(*ids);
  if (weights) op.weights = bench.input(*weights);
  bench.run(op);
  return fetch<float>(op.x, {op.rows, op.hidden});
}

int head_argmax(Device& device, const Floats& x, const Bits& norm, const AffineArrays& table,
                float eps, int misalign) {
  Bench bench(device, misalign);
  HeadArgmax op;
  op.eps = eps;
  op.x = bench.input(x);
  op.norm = bench.input(norm);
  op.table = bench.affine(table);
  op.token = bench.output(sizeof(int32_t));
  bench.run(op);
  return *fetch<int32_t>(op.token, {1}).data();
}

Floats head_logits(Device& device, const Floats& x, const Bits& norm, const AffineArrays& table,
                   float softcap, float eps, int misalign) {
  Bench bench(device, misalign);
  HeadLogits op;
  op.softcap = softcap;
  op.eps = eps;
  op.x = bench.input(x);
  op.norm = bench.input(norm);
  op.table = bench.affine(table);
  op.logits = bench.output(size_t(table.rows()) * kFloat);
  bench.run(op);
  return fetch<float>(op.logits, {table.rows()});
}

py::tuple top_candidates(Device& device, const Floats& logits, int count) {
  Bench bench(device, 0);
  TopCandidates op;
  op.vocabulary = static_cast<int>(logits.size());
  op.count = count;
  op.logits = bench.input(logits);
  op.ids = bench.output(size_t(std::max(count, 0)) * sizeof(int32_t));
  op.values = bench.output(size_t(std::max(count, 0)) * kFloat);
  op.log_sum = bench.output(kFloat);
  bench.run(op);
  return py::make_tuple(fetch<int32_t>(op.ids, {count}), fetch<float>(op.values, {count}),
                        *fetch<float>(op.log_sum, {1}).data());
}

}  // namespace

void bind_operations(py::module_& module) {
  py::module_ ops = module.def_submodule("ops", "Single operations on numpy arrays.");
  const auto eps = py::arg("eps") = 1e-6f;
  const auto misalign = py::arg("misalign") = 0;
  const auto activation = py::arg("activation") = "gelu_tanh";

  py::class_<AffineArrays>(ops, "Affine", "An affine-quantized matrix [rows, cols].")
      .def(py::init(&make_affine), py::arg("weight"), py::arg("scales"), py::arg("biases"),
           py::arg("bits") = 4, py::arg("group") = 64)
      .def_property_readonly("rows", &AffineArrays::rows)
      .def_property_readonly("cols", &AffineArrays::cols);
  py::class_<ExpertArrays>(ops, "Expert", "One routed expert and its range of the pairs.")
      .def(py::init<AffineArrays, AffineArrays, AffineArrays, int, int>(), py::arg("gate"),
           py::arg("up"), py::arg("down"), py::arg("first"), py::arg("last"));

  ops.def("embed_rows", &embed_rows, py::arg("device"), py::arg("table"), py::arg("tokens"),
          py::arg("scale") = 1.0f, misalign);
  ops.def("norm_project", &norm_project, py::arg("device"), py::arg("x"), py::arg("norm"),
          py::arg("matrices"), eps, misalign);
  ops.def("qkv_epilogue", &qkv_epilogue, py::arg("device"), py::arg("q"), py::arg("k"),
          py::arg("v"), py::arg("q_norm"), py::arg("k_norm"), py::arg("rope"), py::arg("keys"),
          py::arg("values"), py::arg("position"), py::arg("distance") = py::none(),
          py::arg("norm_values") = true, eps, misalign);
  ops.def("gate_heads", &gate_heads, py::arg("device"), py::arg("x"), py::arg("gate"));
  ops.def("convolution_tail", &convolution_tail, py::arg("device"), py::arg("x"), py::arg("weight"),
          py::arg("tail"), misalign);
  ops.def("gated_delta", &gated_delta, py::arg("device"), py::arg("mixed"), py::arg("alpha"),
          py::arg("beta"), py::arg("rate"), py::arg("dt_bias"), py::arg("z"), py::arg("norm"),
          py::arg("state"), py::arg("key_heads"), eps, misalign);
  ops.def("attention", &attention, py::arg("device"), py::arg("q"), py::arg("keys"),
          py::arg("values"), py::arg("position"), py::arg("window") = 0, py::arg("scale") = 1.0f);
  ops.def("project", &project, py::arg("device"), py::arg("x"), py::arg("weight"), misalign);
  ops.def("post_attention_router", &post_attention_router, py::arg("device"), py::arg("x"),
          py::arg("attention"), py::arg("post_attention"), py::arg("pre_dense"),
          py::arg("pre_routed"), py::arg("router_scale"), py::arg("expert_scale"),
          py::arg("router"), py::arg("k"), eps, misalign);
  ops.def("residual_router", &residual_router, py::arg("device"), py::arg("x"), py::arg("update"),
          py::arg("norm"), py::arg("router"), py::arg("k"), eps, misalign);
  ops.def("shared_expert", &shared_expert, py::arg("device"), py::arg("x"), py::arg("gate"),
          py::arg("up"), py::arg("down"), activation, py::arg("scalar_gate") = py::none(),
          misalign);
  ops.def("look_up_slots", &look_up_slots, py::arg("device"), py::arg("ids"), py::arg("table"));
  ops.def("routed_experts", &routed_experts, py::arg("device"), py::arg("x"), py::arg("pairs"),
          py::arg("weights"), py::arg("experts"), py::arg("out"), py::arg("accumulate") = false,
          activation, misalign);
  ops.def("guarded_experts", &guarded_experts, py::arg("device"), py::arg("x"), py::arg("experts"),
          py::arg("slots"), py::arg("slot_count"), py::arg("hit"), py::arg("out"), activation,
          misalign);
  ops.def("zero", &zero, py::arg("device"), py::arg("count"));
  ops.def("layer_tail", &layer_tail, py::arg("device"), py::arg("x"), py::arg("shared"),
          py::arg("routed"), py::arg("post_shared"), py::arg("post_routed"), py::arg("post_layer"),
          py::arg("layer_scalar"), py::arg("ids") = py::none(), py::arg("weights") = py::none(),
          eps, misalign);
  ops.def("residual_tail", &residual_tail, py::arg("device"), py::arg("x"), py::arg("shared"),
          py::arg("routed"), py::arg("ids") = py::none(), py::arg("weights") = py::none());
  ops.def("head_argmax", &head_argmax, py::arg("device"), py::arg("x"), py::arg("norm"),
          py::arg("table"), eps, misalign);
  ops.def("head_logits", &head_logits, py::arg("device"), py::arg("x"), py::arg("norm"),
          py::arg("table"), py::arg("softcap") = 0.0f, eps, misalign);
  ops.def("top_candidates", &top_candidates, py::arg("device"), py::arg("logits"),
          py::arg("count"));
  ops.def("time_project", &time_project, py::arg("device"), py::arg("x"), py::arg("weight"),
          py::arg("copies") = 1, py::arg("repeats") = 5, misalign);
  ops.def("time_attention", &time_attention, py::arg("device"), py::arg("q"), py::arg("keys"),
          py::arg("values"), py::arg("position"), py::arg("window") = 0, py::arg("repeats") = 5);
  ops.def("time_gated_delta", &time_gated_delta, py::arg("device"), py::arg("mixed"),
          py::arg("alpha"), py::arg("beta"), py::arg("rate"), py::arg("dt_bias"), py::arg("z"),
          py::arg("norm"), py::arg("state"), py::arg("key_heads"), py::arg("repeats") = 5);
}

}  // namespace mference
