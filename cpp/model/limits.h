// Refuses sizes that no model has, before any of them is multiplied.
#pragma once

#include "model/model.h"

namespace mference {

// Returns what it was given. Raises DeviceError naming the first value outside its range. Within
// these ranges no size of a buffer overflows, and no layer, expert or slot is missing.
ModelInit checked(ModelInit init);

}  // namespace mference
