// The kernels of metal/, compiled to PTX beforehand (compile.py), one file each.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "device/gpu/gpu.h"
#include "driver.h"

namespace mference::ptx {

class PtxPipeline final : public gpu::Pipeline {
 public:
  PtxPipeline(std::string kernel, std::string text)
      : kernel_(std::move(kernel)), text_(std::move(text)) {}
  // The kernel, assembled for threadgroups of so many threads: their registers must fit together.
  // Raises DeviceError with the assembler's message.
  CUfunction function(uint32_t threads) const;

 private:
  std::string kernel_;
  std::string text_;
  mutable std::mutex mutex_;
  mutable uint32_t threads_ = 0;
  mutable CUfunction function_ = nullptr;
};

class PtxLibrary final : public gpu::Library {
 public:
  explicit PtxLibrary(std::string directory) : directory_(std::move(directory)) {}
  const gpu::Pipeline& pipeline(const std::string& kernel,
                                const std::vector<int32_t>& constants) override;

 private:
  std::string directory_;
  std::mutex mutex_;
  std::map<std::pair<std::string, std::vector<int32_t>>, std::unique_ptr<PtxPipeline>> pipelines_;
};

}  // namespace mference::ptx
