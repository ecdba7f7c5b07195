#include "experts/slot_map.h"

#include <cstring>

#include "base/numeric.h"

namespace mference {

namespace {
constexpr size_t kAlignment = 64;
constexpr size_t kInt = sizeof(int32_t);
}  // namespace

SlotMap::SlotMap(Device& device, int layers, int experts, int top_k)
    : experts_(experts),
      top_k_(top_k),
      row_(round_up(experts * sizeof(int16_t), kAlignment)),
      tables_(device.allocate(row_ * layers, kAlignment)),
      found_(device.allocate((top_k + 1) * kInt, kAlignment)) {
  std::memset(tables_->data(), 0xff, tables_->size());
}

std::span<int16_t> SlotMap::table(int layer) {
  return {reinterpret_cast<int16_t*>(tables_->data() + layer * row_),
          static_cast<size_t>(experts_)};
}

LookUpSlots SlotMap::look_up(int layer, const View& choice) const {
  LookUpSlots op;
  op.ids = choice;
  op.table = {tables_.get(), layer * row_, experts_ * sizeof(int16_t)};
  op.slots = {found_.get(), 0, top_k_ * kInt};
  op.hit = {found_.get(), top_k_ * kInt, kInt};
  op.experts = experts_;
  op.k = top_k_;
  return op;
}

SlotGuard SlotMap::guard(const View& slab, size_t stride) const {
  return {slab, {found_.get(), 0, top_k_ * kInt}, {found_.get(), top_k_ * kInt, kInt}, stride};
}

bool SlotMap::hit() const {
  int32_t hit = 0;
  std::memcpy(&hit, found_->data() + top_k_ * kInt, kInt);
  return hit == 1;
}

}  // namespace mference
