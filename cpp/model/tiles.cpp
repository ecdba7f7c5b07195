#include "model/tiles.h"

#include <algorithm>
#include <string>

#include "base/errors.h"

namespace mference {

namespace {
constexpr int kMostTileExperts = 16;
}  // namespace

std::vector<ChunkSpan> chunk_spans(int tokens, int chunk) {
  if (chunk < 1) throw DeviceError("a chunk of " + std::to_string(chunk) + " tokens never ends");
  std::vector<ChunkSpan> spans;
  for (int first = 0; first < tokens; first += chunk) {
    spans.push_back({first, std::min(chunk, tokens - first)});
  }
  return spans;
}

std::vector<ExpertGroup> group_by_expert(std::span<const int32_t> ids, int rows, int k, int experts,
                                         std::span<int32_t> pairs) {
  if (k < 1) throw DeviceError("a row cannot choose " + std::to_string(k) + " experts");
  if (ids.size() != static_cast<size_t>(rows) * k) {
    throw DeviceError(std::to_string(ids.size()) + " choices of experts are not " +
                      std::to_string(k) + " for each of " + std::to_string(rows) + " rows");
  }
  std::vector<int> next(experts + 1, 0);
  for (const int32_t id : ids) {
    if (id < 0 || id >= experts) {
      throw DeviceError("the router chose expert " + std::to_string(id) + " of " +
                        std::to_string(experts));
    }
    ++next[id + 1];
  }
  std::vector<ExpertGroup> groups;
  for (int e = 0; e < experts; ++e) {
    if (next[e + 1] > 0) groups.push_back({e, next[e], next[e + 1]});
    next[e + 1] += next[e];
  }
  for (size_t p = 0; p < ids.size(); ++p) pairs[next[ids[p]]++] = static_cast<int32_t>(p);
  return groups;
}

std::vector<ExpertTile> tiles_of(std::span<const ExpertGroup> groups, int experts) {
  if (experts < 1 || experts > kMostTileExperts) {
    throw DeviceError("a tile of " + std::to_string(experts) + " experts: it must be 1 to " +
                      std::to_string(kMostTileExperts));
  }
  std::vector<ExpertTile> tiles;
  for (const ExpertGroup& group : groups) {
    if (tiles.empty() || tiles.back().groups == experts) {
      tiles.push_back({static_cast<int>(&group - groups.data()), 0, group.first, 0});
    }
    ++tiles.back().groups;
    tiles.back().pairs += group.count;
  }
  return tiles;
}

bool fits_slots(int max_depth, int tile_experts, int slots) {
  return (int64_t{max_depth} + 1) * tile_experts <= slots;
}

TileStep next_tile(int depth, std::span<const int> slots, int max_depth,
                   const std::function<bool(std::span<const int> avoid)>& place) {
  if (depth == 0) {
    place({});
    return TileStep::kIssue;
  }
  if (depth > max_depth) return TileStep::kDrainDepth;
  if (slots.empty()) return TileStep::kDrainUnplaced;
  return place(slots) ? TileStep::kPrefetch : TileStep::kDrainNoPlan;
}

}  // namespace mference
