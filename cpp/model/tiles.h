// How a prompt is cut and ordered: chunks of tokens, a chunk's rows grouped by expert, experts in
// tiles, and when a tile may be read while the device still computes earlier ones.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace mference {

struct ChunkSpan {
  int first = 0;
  int count = 0;
};

// `tokens` tokens in chunks of `chunk`, the last one shorter.
std::vector<ChunkSpan> chunk_spans(int tokens, int chunk);

// One expert and its pairs: pairs[first, first + count).
struct ExpertGroup {
  int expert = 0;
  int first = 0;
  int count = 0;
};

// Writes the pairs p = row * k + rank of ids[rows, k] sorted by expert, ascending within one, and
// returns the experts that have any, ascending. Raises DeviceError if there are not rows * k ids,
// if k is not positive, or if an id is none of `experts`.
std::vector<ExpertGroup> group_by_expert(std::span<const int32_t> ids, int rows, int k, int experts,
                                         std::span<int32_t> pairs);

struct ExpertTile {
  int first_group = 0;
  int groups = 0;
  int first_pair = 0;
  int pairs = 0;
};

// The groups in tiles of `experts`, 1 to 16, the last one smaller. Raises DeviceError outside of
// that.
std::vector<ExpertTile> tiles_of(std::span<const ExpertGroup> groups, int experts);

// Do the tile being read and the `max_depth` tiles being computed fit the slots?
bool fits_slots(int max_depth, int tile_experts, int slots);

enum class TileStep {
  kIssue,          // nothing is in flight: placed without regard
  kPrefetch,       // placed beside what is in flight
  kDrainDepth,     // not placed: too many tiles are in flight
  kDrainUnplaced,  // not placed: nobody knows what the tiles in flight read
  kDrainNoPlan,    // not placed: no plan avoids their slots
};
inline bool drains(TileStep step) {
  return step >= TileStep::kDrainDepth;
}

// Places the next tile while `depth` earlier ones, which read `slots`, are in flight; or says why
// the oldest must be waited for first. `place` tries to place it outside the slots it is given.
TileStep next_tile(int depth, std::span<const int> slots, int max_depth,
                   const std::function<bool(std::span<const int> avoid)>& place);

}  // namespace mference
