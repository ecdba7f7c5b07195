// A compiled library in this process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "emulator/dispatch.h"

namespace softmetal {

// A kernel with its variables in threadgroup memory, which are the same in all its pipelines.
struct LoadedKernel {
  const Kernel* kernel = nullptr;
  std::vector<const ThreadgroupVariable*> variables;
  u32 static_bytes = 0;    // that count against the limit
  u32 variable_bytes = 0;  // from the end of threadgroup memory, with the gaps between variables
};

class LoadedModule {
 public:
  // The module of a file, which stays loaded until the process ends. Raises CompileFailure.
  static std::shared_ptr<const LoadedModule> load(const std::string& path);

  const std::vector<LoadedKernel>& kernels() const { return kernels_; }
  const LoadedKernel* find(const std::string& name) const;
  const FunctionConstant* constants() const { return module_->constants; }
  u32 constant_count() const { return module_->constant_count; }
  // Its program-scope constants lie somewhere in here.
  Range image() const { return image_; }

 private:
  explicit LoadedModule(const std::string& path);

  Module* module_ = nullptr;
  std::vector<LoadedKernel> kernels_;
  Range image_;
};

}  // namespace softmetal
