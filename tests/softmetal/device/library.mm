#include "device/library.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "device/device.h"
#include "device/violation.h"

using softmetal::ConstantValue;
using softmetal::GivenConstants;
using softmetal::LoadedModule;
using softmetal::PipelineState;

namespace {

size_t size_of(MTLDataType type) {
  switch (type) {
    case MTLDataTypeBool:
    case MTLDataTypeChar:
    case MTLDataTypeUChar:
      return 1;
    case MTLDataTypeHalf:
    case MTLDataTypeShort:
    case MTLDataTypeUShort:
      return 2;
    case MTLDataTypeFloat:
    case MTLDataTypeInt:
    case MTLDataTypeUInt:
      return 4;
    default:
      softmetal::violation("function constants of MTLDataType %lu are not supported",
                           static_cast<unsigned long>(type));
  }
}

// The values of a module's function constants; what is wrong with those given, or nothing.
std::string resolve(const LoadedModule& module, const softmetal::Kernel& kernel,
                    const GivenConstants& given, std::vector<ConstantValue>& values) {
  for (softmetal::u32 i = 0; i < module.constant_count(); ++i) {
    const softmetal::FunctionConstant& constant = module.constants()[i];
    const auto found = given.find(constant.index);
    values.push_back({found == given.end() ? 0 : found->second.bits, found != given.end()});
    const std::string what = "function constant " + std::string(constant.name) + " (index " +
                             std::to_string(constant.index) + ")";
    if (found != given.end() && found->second.type != constant.data_type) {
      return what + " was given a value of another type";
    }
    const auto* required = kernel.constants;
    const bool needed = std::find(required, required + kernel.constant_count, i) !=
                        required + kernel.constant_count;
    if (needed && found == given.end()) return what + " has no value";
  }
  return {};
}

}  // namespace

@implementation MTLFunctionConstantValues
- (GivenConstants&)given {
  if (values_ == nullptr) values_ = new GivenConstants;
  return *static_cast<GivenConstants*>(values_);
}
- (void)dealloc {
  delete static_cast<GivenConstants*>(values_);
  [super dealloc];
}
- (void)setConstantValue:(const void*)value type:(MTLDataType)type atIndex:(NSUInteger)index {
  softmetal::u64 bits = 0;
  std::memcpy(&bits, value, size_of(type));
  [self given][index] = {type, bits};
}
- (void)setConstantValues:(const void*)values type:(MTLDataType)type withRange:(NSRange)range {
  for (NSUInteger i = 0; i < range.length; ++i) {
    [self setConstantValue:static_cast<const char*>(values) + i * size_of(type)
                      type:type
                   atIndex:range.location + i];
  }
}
- (void)reset {
  [self given].clear();
}
@end

@implementation MTLCompileOptions
- (instancetype)init {
  language_version_ = MTLLanguageVersion3_2;
  math_mode_ = MTLMathModeFast;
  return self;
}
- (void)dealloc {
  [macros_ release];
  [super dealloc];
}
- (NSDictionary*)preprocessorMacros {
  return macros_;
}
- (void)setPreprocessorMacros:(NSDictionary*)macros {
  [macros retain];
  [macros_ release];
  macros_ = macros;
}
- (BOOL)fastMathEnabled {
  return math_mode_ == MTLMathModeFast;
}
- (void)setFastMathEnabled:(BOOL)enabled {
  math_mode_ = enabled ? MTLMathModeFast : MTLMathModeSafe;
}
- (MTLMathMode)mathMode {
  return math_mode_;
}
- (void)setMathMode:(MTLMathMode)mode {
  math_mode_ = mode;
}
- (MTLMathFloatingPointFunctions)mathFloatingPointFunctions {
  return math_functions_;
}
- (void)setMathFloatingPointFunctions:(MTLMathFloatingPointFunctions)functions {
  math_functions_ = functions;
}
- (MTLLanguageVersion)languageVersion {
  return language_version_;
}
- (void)setLanguageVersion:(MTLLanguageVersion)version {
  language_version_ = version;
}
@end

@implementation SoftmetalFunction
- (instancetype)initWithDevice:(id<MTLDevice>)device state:(PipelineState)state {
  device_ = device;
  state_ = new PipelineState(std::move(state));
  return self;
}
- (void)dealloc {
  delete state_;
  [super dealloc];
}
- (const PipelineState&)state {
  return *state_;
}
- (MTLFunctionType)functionType {
  return MTLFunctionTypeKernel;
}
- (NSString*)name {
  return [NSString stringWithUTF8String:state_->kernel->kernel->name];
}
@end

@implementation SoftmetalLibrary
- (instancetype)initWithDevice:(id<MTLDevice>)device
                        module:(std::shared_ptr<const LoadedModule>)module {
  device_ = device;
  module_ = new std::shared_ptr<const LoadedModule>(std::move(module));
  return self;
}
- (void)dealloc {
  delete module_;
  [super dealloc];
}
- (id<MTLFunction>)newFunctionWithName:(NSString*)functionName {
  return [self newFunctionWithName:functionName constantValues:nil error:nil];
}
- (id<MTLFunction>)newFunctionWithName:(NSString*)name
                        constantValues:(MTLFunctionConstantValues*)constantValues
                                 error:(NSError**)error {
  const std::string text = [name UTF8String];
  PipelineState state;
  state.module = *module_;
  state.kernel = state.module->find(text);
  if (state.kernel == nullptr) {
    softmetal::set_error(error, MTLLibraryErrorDomain, MTLLibraryErrorFunctionNotFound,
                         "there is no function " + text);
    return nil;
  }
  const softmetal::Kernel& kernel = *state.kernel->kernel;
  const std::string fault =
      resolve(*state.module, kernel,
              constantValues == nil ? GivenConstants() : [constantValues given], state.constants);
  if (!fault.empty()) {
    softmetal::set_error(error, MTLLibraryErrorDomain, MTLLibraryErrorCompileFailure,
                         text + ": " + fault);
    return nil;
  }
  for (softmetal::u32 i = 0; i < kernel.argument_count; ++i) {
    bool (*enabled)() = kernel.arguments[i].enabled;
    state.enabled.push_back(enabled == nullptr ||
                            softmetal::call_with_constants(enabled, state.constants.data()));
  }
  return [[SoftmetalFunction alloc] initWithDevice:device_ state:std::move(state)];
}
- (NSArray<NSString*>*)functionNames {
  std::vector<id> names;
  for (const softmetal::LoadedKernel& kernel : (*module_)->kernels()) {
    names.push_back([NSString stringWithUTF8String:kernel.kernel->name]);
  }
  return [NSArray arrayWithObjects:names.data() count:names.size()];
}
@end

@implementation SoftmetalPipeline
- (instancetype)initWithDevice:(id<MTLDevice>)device
                         state:(const PipelineState&)state
                         label:(NSString*)label {
  device_ = device;
  state_ = new PipelineState(state);
  label_ = [label retain];
  return self;
}
- (void)dealloc {
  delete state_;
  [super dealloc];
}
- (const PipelineState&)state {
  return *state_;
}
- (NSUInteger)maxTotalThreadsPerThreadgroup {
  const softmetal::u32 declared = state_->kernel->kernel->max_threads;
  return declared != 0 ? declared : softmetal::kMaxThreads;
}
- (NSUInteger)threadExecutionWidth {
  return softmetal::kSimdWidth;
}
- (NSUInteger)staticThreadgroupMemoryLength {
  return state_->kernel->static_bytes;
}
@end
