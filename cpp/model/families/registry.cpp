// The families this build can run.
#include <map>
#include <string>

#include "base/errors.h"
#include "model/families/gemma4.h"

namespace mference {

const Family& find_family(const std::string& name) {
  static const std::map<std::string, Family> families{
      {"gemma4", {gemma4::kv_shapes, gemma4::make}},
  };
  const auto found = families.find(name);
  if (found == families.end()) throw DeviceError("this build runs no family '" + name + "'");
  return found->second;
}

}  // namespace mference
