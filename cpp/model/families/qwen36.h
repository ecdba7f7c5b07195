// Qwen 3.6 (35B-A3B and other sizes of its text stack).
#pragma once

#include "model/forward.h"

namespace mference::qwen36 {

extern const Family kFamily;

}  // namespace mference::qwen36
