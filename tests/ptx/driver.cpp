#include "driver.h"

#include <dlfcn.h>

#include "base/errors.h"

namespace mference::ptx {

const Driver& Driver::instance() {
  static const auto* driver = new Driver;
  return *driver;
}

Driver::Driver() {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw DeviceError(std::string("there is no CUDA driver here: ") + ::dlerror());
  }
#define MFERENCE_OPEN(member, arguments, name)                           \
  member = reinterpret_cast<decltype(member)>(::dlsym(library, name));   \
  if (member == nullptr) {                                               \
    throw DeviceError("the CUDA driver has no " name "; it is too old"); \
  }
  MFERENCE_CUDA(MFERENCE_OPEN)
#undef MFERENCE_OPEN
  check(cuInit(0), "cuInit");
  CUdevice device = 0;
  check(cuDeviceGet(&device, 0), "cuDeviceGet");
  char name[256] = {};
  check(cuDeviceGetName(name, sizeof(name), device), "cuDeviceGetName");
  name_ = name;
  check(cuDevicePrimaryCtxRetain(&context_, device), "cuDevicePrimaryCtxRetain");
}

std::string Driver::describe(CUresult result) const {
  const char *name = nullptr, *text = nullptr;
  if (cuGetErrorName(result, &name) != 0 || name == nullptr) name = "an unknown error";
  if (cuGetErrorString(result, &text) != 0 || text == nullptr) text = "no description";
  return std::string(name) + " (" + std::to_string(result) + "), " + text;
}

void Driver::check(CUresult result, const std::string& what) const {
  if (result != 0) throw DeviceError(what + ": " + describe(result));
}

}  // namespace mference::ptx
