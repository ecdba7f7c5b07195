// A libcuda.so.1 without a GPU: it runs each launch in the emulator of tests/softmetal, from the
// bytes that a real one would get. Kernels are those of FAKE_CUDA_KERNELS, compiled by mslc; with
// FAKE_CUDA_PTXAS every PTX text is assembled too. Everything it does not expect ends the process.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "device/module.h"
#include "emulator/dispatch.h"

namespace {

using softmetal::LoadedKernel;

struct Arguments {
  void* buffer[31];
  uint32_t threadgroup[8];
  uint32_t threads_per_grid[3];
};

struct Module {
  std::string text;
};

struct Function {
  const LoadedKernel* kernel;
  std::vector<softmetal::ConstantValue> constants;
  unsigned most_threads;
};

struct Event {
  std::chrono::steady_clock::time_point time;
};

constexpr size_t kInPage = 512;

int context;
thread_local bool is_current = false;
std::mutex mutex;
std::map<uintptr_t, size_t> allocations;

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "fake CUDA: %s\n", what.c_str());
  std::abort();
}

void need(bool condition, const char* what) {
  if (!condition) die(what);
}

const char* setting(const char* name) {
  const char* value = std::getenv(name);
  need(value != nullptr, name);
  return value;
}

void* allocate(size_t size) {
  need(is_current, "no context is current on this thread");
  // Small allocations lie inside a page, as the driver's do.
  auto* page =
      static_cast<std::byte*>(std::aligned_alloc(4096, (size + kInPage + 4095) / 4096 * 4096));
  std::byte* memory = page + kInPage;
  std::memset(memory, 0xa5, size);
  const std::lock_guard lock(mutex);
  allocations[reinterpret_cast<uintptr_t>(memory)] = size;
  return memory;
}

void release(void* memory) {
  const std::lock_guard lock(mutex);
  need(allocations.erase(reinterpret_cast<uintptr_t>(memory)) == 1, "freed what was not allocated");
  std::free(static_cast<std::byte*>(memory) - kInPage);
}

// By the permissions of its mapping.
bool is_writable(const void* memory) {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    size_t first = 0, last = 0;
    char permissions[5] = {};
    if (std::sscanf(line.c_str(), "%zx-%zx %4s", &first, &last, permissions) != 3) continue;
    if (address >= first && address < last) return permissions[1] == 'w';
  }
  return false;
}

bool is_allocated(const void* pointer) {
  const std::lock_guard lock(mutex);
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  auto after = allocations.upper_bound(address);
  if (after == allocations.begin()) return false;
  --after;
  return address < after->first + after->second;
}

void assemble(const std::string& text) {
  const char* ptxas = std::getenv("FAKE_CUDA_PTXAS");
  if (ptxas == nullptr) return;
  char name[] = "/tmp/fake-cuda-XXXXXX";
  const int file = ::mkstemp(name);
  need(file >= 0, "mkstemp");
  std::ofstream(name) << text;
  const std::string command = std::string(ptxas) + " -arch=sm_90 -o /dev/null " + name;
  if (std::system(command.c_str()) != 0) die("ptxas does not take " + std::string(name));
  std::remove(name);
}

}  // namespace

extern "C" {

int cuInit(unsigned flags) {
  return flags == 0 ? 0 : 1;
}
int cuGetErrorName(int error, const char** name) {
  *name = error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_FAKE";
  return 0;
}
int cuGetErrorString(int, const char** text) {
  *text = "a fake one";
  return 0;
}
int cuDeviceGet(int* device, int index) {
  *device = index;
  return 0;
}
int cuDeviceGetName(char* name, int size, int) {
  std::snprintf(name, static_cast<size_t>(size), "fake GPU");
  return 0;
}
int cuDevicePrimaryCtxRetain(void** out, int) {
  *out = &context;
  return 0;
}
int cuCtxSetCurrent(void* given) {
  is_current = given == &context;
  return is_current ? 0 : 201;
}

int cuModuleLoadDataEx(void** out, const char* text, unsigned count, int* options, void** values) {
  need(is_current && count == 2 && options[0] == 5 && options[1] == 6, "module options");
  need(reinterpret_cast<uintptr_t>(values[1]) == 8192, "the size of the log");
  assemble(text);
  *out = new Module{text};
  return 0;
}
int cuModuleGetFunction(void** out, Module* module, const char* name) {
  static const auto library = softmetal::LoadedModule::load(setting("FAKE_CUDA_KERNELS"));
  const std::string entry = std::string(".visible .entry ") + name + "(";
  if (module->text.find(entry) == std::string::npos) return 500;
  auto* function = new Function{library->find(name), {}, 0};
  need(function->kernel != nullptr, name);
  std::istringstream constants(module->text.substr(module->text.find(':') + 1));
  for (std::string line, value; function->constants.size() < library->constant_count();) {
    need(static_cast<bool>(constants >> value), "function constants");
    function->constants.push_back({static_cast<uint32_t>(std::stoi(value)), true});
  }
  const size_t bound = module->text.find(".maxntid ");
  need(bound != std::string::npos, ".maxntid");
  function->most_threads = static_cast<unsigned>(std::stoi(module->text.substr(bound + 9)));
  *out = function;
  return 0;
}

int cuMemHostAlloc(void** out, size_t size, unsigned flags) {
  need(flags == 3, "host allocations are portable and mapped");
  *out = allocate(size);
  return 0;
}
int cuMemFreeHost(void* memory) {
  release(memory);
  return 0;
}
int cuMemHostRegister_v2(void* memory, size_t size, unsigned) {
  // A page of a file that is mapped for reading cannot be written.
  if (std::getenv("FAKE_CUDA_REFUSE_REGISTER") != nullptr && !is_writable(memory)) return 1;
  const std::lock_guard lock(mutex);
  return allocations.emplace(reinterpret_cast<uintptr_t>(memory), size).second ? 0 : 712;
}
int cuMemHostUnregister(void* memory) {
  const std::lock_guard lock(mutex);
  return allocations.erase(reinterpret_cast<uintptr_t>(memory)) == 1 ? 0 : 713;
}
int cuMemHostGetDevicePointer_v2(void** out, void* memory, unsigned) {
  need(is_allocated(memory), "memory that is not pinned");
  *out = memory;
  return 0;
}
int cuMemAlloc_v2(void** out, size_t size) {
  *out = allocate(size);
  return 0;
}
int cuMemFree_v2(void* memory) {
  release(memory);
  return 0;
}
int cuMemcpyHtoDAsync_v2(void* to, const void* from, size_t size, void*) {
  need(is_current && is_allocated(to), "copied to no memory of the GPU");
  std::memcpy(to, from, size);
  return 0;
}
int cuMemcpyDtoHAsync_v2(void* to, const void* from, size_t size, void*) {
  need(is_current && is_allocated(from), "copied from no memory of the GPU");
  std::memcpy(to, from, size);
  return 0;
}
int cuMemsetD8Async(void* memory, unsigned char, size_t, void*) {
  need(is_allocated(memory), "filled no memory of the GPU");
  return 0;
}

int cuStreamCreate(void** out, unsigned) {
  *out = new int;
  return 0;
}
int cuStreamDestroy_v2(int* stream) {
  delete stream;
  return 0;
}
int cuStreamSynchronize(void*) {
  return std::getenv("FAKE_CUDA_FAIL") != nullptr ? 700 : 0;
}
int cuEventCreate(Event** out, unsigned) {
  *out = new Event;
  return 0;
}
int cuEventDestroy_v2(Event* event) {
  delete event;
  return 0;
}
int cuEventRecord(Event* event, void*) {
  event->time = std::chrono::steady_clock::now();
  return 0;
}
int cuEventElapsedTime(float* out, Event* begin, Event* end) {
  *out = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  return 0;
}

int cuLaunchKernel(Function* function, unsigned x, unsigned y, unsigned z, unsigned threads,
                   unsigned threads_y, unsigned threads_z, unsigned shared, void*,
                   void** parameters, void** extra) {
  need(is_current && extra == nullptr && threads_y == 1 && threads_z == 1, "launch");
  if (x == 0 || y == 0 || z == 0 || y > 65535 || z > 65535 || threads > 1024) return 1;
  if (threads > function->most_threads) return 701;
  if (shared % 16 != 0 || shared + function->kernel->static_bytes > 48 * 1024) return 1;
  Arguments arguments;
  std::memcpy(&arguments, parameters[0], sizeof(arguments));
  need(arguments.threads_per_grid[0] == x * threads && arguments.threads_per_grid[1] == y &&
           arguments.threads_per_grid[2] == z,
       "threads of the grid");
  softmetal::Dispatch dispatch;
  dispatch.kernel = function->kernel->kernel;
  dispatch.static_threadgroup_bytes = function->kernel->variable_bytes;
  dispatch.variables = &function->kernel->variables;
  dispatch.constants = function->constants.data();
  dispatch.threadgroups = {x, y, z};
  dispatch.threads_per_threadgroup = {threads, 1, 1};
  dispatch.threads_per_grid = {x * threads, y, z};
  dispatch.threadgroup_bytes[0] = shared;
  for (int i = 0; i < 31; ++i) {
    if (arguments.buffer[i] != nullptr) {
      need(is_allocated(arguments.buffer[i]), "an argument that the GPU does not see");
    }
    dispatch.buffers[i] = arguments.buffer[i];
  }
  try {
    softmetal::run(dispatch);
  } catch (const std::exception& error) {
    die(error.what());
  }
  return 0;
}
}
