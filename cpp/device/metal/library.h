// The kernels of metal/, compiled by the system when the device is opened.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "device/gpu/gpu.h"
#include "device/metal/objects.h"

namespace mference::metal {

class MetalPipeline final : public gpu::Pipeline {
 public:
  explicit MetalPipeline(Ref<id<MTLComputePipelineState>> state) : state_(std::move(state)) {}
  id<MTLComputePipelineState> get() const { return state_.get(); }

 private:
  Ref<id<MTLComputePipelineState>> state_;
};

class MetalLibrary final : public gpu::Library {
 public:
  // With `tensors`, the kernels may use the tensors of Metal 4.
  MetalLibrary(id<MTLDevice> device, const std::string& source, bool tensors);
  const gpu::Pipeline& pipeline(const std::string& kernel,
                                const std::vector<int32_t>& constants) override;

 private:
  Ref<id<MTLDevice>> device_;
  Ref<id<MTLLibrary>> library_;
  std::mutex mutex_;
  std::map<std::pair<std::string, std::vector<int32_t>>, std::unique_ptr<MetalPipeline>> pipelines_;
};

}  // namespace mference::metal
