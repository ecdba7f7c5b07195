// Gemma 4 (26B-A4B and other sizes of its text stack).
#pragma once

#include "model/forward.h"

namespace mference::gemma4 {

extern const Family kFamily;

}  // namespace mference::gemma4
