// Runs mslc.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace softmetal {

// The text is the compiler's.
class CompileFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct CompileRequest {
  std::string source;
  std::vector<std::string> macros;  // NAME=VALUE
  int metal_version = 310;
};

// The path of the compiled library. Raises CompileFailure.
std::string compile(const CompileRequest& request);

}  // namespace softmetal
