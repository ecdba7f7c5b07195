// The families this build can run.
#include <string>

#include "base/errors.h"
#include "model/families/gemma4.h"
#include "model/families/qwen36.h"

namespace mference {

const Family& find_family(const std::string& name) {
  for (const Family* family : {&gemma4::kFamily, &qwen36::kFamily}) {
    if (family->name == name) return *family;
  }
  throw DeviceError("this build runs no family '" + name + "'");
}

}  // namespace mference
