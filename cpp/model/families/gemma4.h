// Gemma 4 (26B-A4B and other sizes of its text stack).
#pragma once

#include "model/forward.h"

namespace mference::gemma4 {

std::vector<KvShape> kv_shapes(const Arch& arch);
std::unique_ptr<Forward> make(const ForwardInit& init);

}  // namespace mference::gemma4
