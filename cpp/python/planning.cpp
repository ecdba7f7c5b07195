// The rules by which the model plans its buffers, its reads, its chunks and its state, for tests.
#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <tuple>
#include <utility>

#include "device/gpu/cuts.h"
#include "experts/advice.h"
#include "model/tiles.h"
#include "python/bindings.h"
#include "state/kv.h"

namespace py = pybind11;

namespace mference {

namespace {

using Ranges = std::vector<std::pair<size_t, size_t>>;
using Ints = std::tuple<int, int>;
using Ids = py::array_t<int32_t, py::array::c_style | py::array::forcecast>;

Ranges merge_ranges(const Ranges& ranges) {
  std::vector<FileRange> given;
  for (const auto& [offset, size] : ranges) given.push_back({offset, size});
  Ranges merged;
  for (const FileRange& range : merge(std::move(given))) {
    merged.emplace_back(range.offset, range.size);
  }
  return merged;
}

Ranges buffer_cuts(size_t size, size_t limit, const Ranges& spans) {
  std::vector<Range> given;
  for (const auto& [first, last] : spans) given.push_back({first, last});
  Ranges cuts;
  for (const Range& range : gpu::cut(size, limit, given))
    cuts.emplace_back(range.first, range.last);
  return cuts;
}

std::vector<Ints> spans(int tokens, int chunk) {
  std::vector<Ints> spans;
  for (const ChunkSpan& span : chunk_spans(tokens, chunk))
    spans.emplace_back(span.first, span.count);
  return spans;
}

// The sorted pairs, the groups and the tiles of a chunk.
py::tuple tile_chunk(const Ids& ids, int rows, int k, int experts, int tile) {
  std::vector<int32_t> pairs(ids.size());
  const auto groups =
      group_by_expert({ids.data(), static_cast<size_t>(ids.size())}, rows, k, experts, pairs);
  std::vector<std::tuple<int, int, int>> group_rows;
  for (const ExpertGroup& g : groups) group_rows.emplace_back(g.expert, g.first, g.count);
  std::vector<std::tuple<int, int, int, int>> tile_rows;
  for (const ExpertTile& t : tiles_of(groups, tile)) {
    tile_rows.emplace_back(t.first_group, t.groups, t.first_pair, t.pairs);
  }
  return py::make_tuple(pairs, group_rows, tile_rows);
}

const char* step_name(TileStep step) {
  switch (step) {
    case TileStep::kIssue:
      return "issue";
    case TileStep::kPrefetch:
      return "prefetch";
    case TileStep::kDrainDepth:
      return "drain: depth";
    case TileStep::kDrainUnplaced:
      return "drain: no slots";
    case TileStep::kDrainNoPlan:
      return "drain: no plan";
  }
  return "";
}

std::string step(int depth, const std::vector<int>& slots, int max_depth,
                 const std::function<bool(std::vector<int>)>& place) {
  return step_name(next_tile(depth, slots, max_depth, [&](std::span<const int> avoid) {
    return place({avoid.begin(), avoid.end()});
  }));
}

// A KvState, and the device that it was made on.
struct OwnedKv {
  std::shared_ptr<Device> device;
  KvState state;
};

std::unique_ptr<OwnedKv> make_kv(std::shared_ptr<Device> device,
                                 const std::vector<std::tuple<int, int, int>>& layers, int context,
                                 int chunk, bool float32) {
  std::vector<KvShape> shapes;
  for (const auto& [heads, dim, window] : layers) shapes.push_back({heads, dim, window});
  const KvType type = float32 ? KvType::kFloat32 : KvType::kFloat16;
  KvState state(*device, shapes, context, chunk, type);
  return std::unique_ptr<OwnedKv>(new OwnedKv{std::move(device), std::move(state)});
}

py::dict kv_layer(const OwnedKv& kv, int index) {
  const KvCache& cache = kv.state.layer(index);
  py::dict d;
  d["capacity"] = cache.capacity;
  d["keys"] = py::make_tuple(cache.keys.offset, cache.keys.size);
  d["values"] = py::make_tuple(cache.values.offset, cache.values.size);
  return d;
}

}  // namespace

void bind_planning(py::module_& module) {
  py::module_ planning =
      module.def_submodule("planning", "How the model plans buffers, reads, chunks and state.");
  planning.def("buffer_cuts", &buffer_cuts, py::arg("size"), py::arg("limit"), py::arg("spans"));
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

  planning.def("chunk_spans", &spans, py::arg("tokens"), py::arg("chunk"));
  planning.def("tile_chunk", &tile_chunk, py::arg("ids"), py::arg("rows"), py::arg("k"),
               py::arg("experts"), py::arg("tile"));
  planning.def("fits_slots", &fits_slots, py::arg("max_depth"), py::arg("tile"), py::arg("slots"));
  planning.def("next_tile", &step, py::arg("depth"), py::arg("slots"), py::arg("max_depth"),
               py::arg("place"));

  planning.def("kv_oldest", &kv_oldest, py::arg("written"), py::arg("capacity"));
  py::class_<OwnedKv>(planning, "KvState")
      .def(py::init(&make_kv), py::arg("device"), py::arg("layers"), py::arg("context"),
           py::arg("chunk"), py::arg("float32") = false)
      .def_property_readonly("position", [](const OwnedKv& kv) { return kv.state.position(); })
      .def(
          "append",
          [](OwnedKv& kv, int rows) {
            kv.state.write(rows);
            kv.state.advance(rows);
          },
          py::arg("rows"))
      .def(
          "rewind", [](OwnedKv& kv, int position) { kv.state.rewind(position); },
          py::arg("position"))
      .def("layer", &kv_layer, py::arg("index"));
}

}  // namespace mference
