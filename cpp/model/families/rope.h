// The angles of rotary positions, as the epilogues read them.
#pragma once

#include <memory>
#include <vector>

#include "device/device.h"
#include "model/forward.h"

namespace mference {

// cos and sin of t * theta^(-2i / dim) for `rotated` pairs i, for every row of a pass.
class Rope {
 public:
  Rope(Device& device, int dim, int rotated, double theta, int rows);
  void fill(Pass pass);
  View view() const { return {table_.get(), 0, table_->size()}; }
  int rotated() const { return rotated_; }

 private:
  int rotated_;
  std::vector<double> frequencies_;
  std::unique_ptr<Buffer> table_;
};

}  // namespace mference
