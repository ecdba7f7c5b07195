// The caches as the device sees them: a table expert -> slot for each layer, and what the last
// look-up in one of them found.
//
// Only the host thread that plans writes the tables, and a layer's table changes only while no
// look-up in it is queued: between the reading of a token's choice and the next token's mixing. So no
// lock is needed. A look-up that a failed stream skips leaves what the one before it found; guarded
// experts may then run once more, into rows that nobody reads, before the step's error is raised.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "device/device.h"

namespace mference {

class SlotMap {
 public:
  // All experts absent.
  SlotMap(Device& device, int layers, int experts, int top_k);

  std::span<int16_t> table(int layer);
  // The operation that looks up a token's choice, i32[top_k], in a layer's table.
  LookUpSlots look_up(int layer, const View& choice) const;
  // Lets experts of that layer run if the look-up found all of them.
  SlotGuard guard(const View& slab, size_t stride) const;
  // Whether it did; valid once the look-up has completed.
  bool hit() const;

 private:
  int experts_;
  int top_k_;
  size_t row_;  // bytes of a layer's table
  std::unique_ptr<Buffer> tables_;
  std::unique_ptr<Buffer> found_;  // i32[top_k] slots, i32 hit
};

}  // namespace mference
