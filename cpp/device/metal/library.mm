#include "device/metal/library.h"

#include "base/errors.h"

namespace mference::metal {

namespace {
// MTLLanguageVersion4_0, which older SDKs do not declare.
constexpr auto kMetal4 = static_cast<MTLLanguageVersion>(4 << 16);
}  // namespace

MetalLibrary::MetalLibrary(id<MTLDevice> device, const std::string& source, bool tensors)
    : device_(Ref<id<MTLDevice>>::share(device)) {
  const Pool pool;
  const auto options = Ref<MTLCompileOptions*>::adopt([[MTLCompileOptions alloc] init]);
  [options.get() setLanguageVersion:tensors ? kMetal4 : MTLLanguageVersion3_1];
  NSError* error = nil;
  library_ = Ref<id<MTLLibrary>>::adopt([device newLibraryWithSource:to_objc(source)
                                                             options:options.get()
                                                               error:&error]);
  if (!library_) throw DeviceError("the Metal kernels do not compile: " + reason(error));
}

const gpu::Pipeline& MetalLibrary::pipeline(const std::string& kernel,
                                            const std::vector<int32_t>& constants) {
  const std::lock_guard lock(mutex_);
  auto& known = pipelines_[{kernel, constants}];
  if (known) return *known;

  const Pool pool;
  const auto values =
      Ref<MTLFunctionConstantValues*>::adopt([[MTLFunctionConstantValues alloc] init]);
  for (size_t i = 0; i < constants.size(); ++i) {
    [values.get() setConstantValue:&constants[i] type:MTLDataTypeInt atIndex:i];
  }
  NSError* error = nil;
  const auto function =
      Ref<id<MTLFunction>>::adopt([library_.get() newFunctionWithName:to_objc(kernel)
                                                       constantValues:values.get()
                                                                error:&error]);
  if (!function) throw DeviceError("there is no Metal kernel " + kernel + ": " + reason(error));
  auto state = Ref<id<MTLComputePipelineState>>::adopt(
      [device_.get() newComputePipelineStateWithFunction:function.get() error:&error]);
  if (!state) {
    throw DeviceError("the GPU does not take the Metal kernel " + kernel + ": " + reason(error));
  }
  known = std::make_unique<MetalPipeline>(std::move(state));
  return *known;
}

}  // namespace mference::metal
