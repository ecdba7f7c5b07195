// Lets a stream wait for reads without the host: an event that counts fills as they land.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>

#include "device/device.h"
#include "experts/reader.h"

namespace mference {

// Fills may land in any order; the event advances in the order in which they were added, so that a
// value stands for a fill and all fills before it.
class FillGate {
 public:
  // `failed` hears of a fill that did not land before the event passes it; from a thread of the
  // reader.
  FillGate(Device& device, std::function<void(std::exception_ptr)> failed);
  ~FillGate();
  FillGate(const FillGate&) = delete;
  FillGate& operator=(const FillGate&) = delete;

  // The value that the event reaches once this fill and all earlier ones have ended.
  uint64_t add(Fill& fill);
  Event& event();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace mference
