#include "device/module.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "device/compiler.h"

namespace softmetal {

namespace {

// Between variables, so that a write past the end of one does not reach the next unseen.
constexpr u32 kGap = 16;

Range find_image(const void* inside) {
  struct Search {
    usize address;
    Range range;
  } search{reinterpret_cast<usize>(inside), {}};
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        Range range{~usize{0}, 0, true, nullptr};
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& header = info->dlpi_phdr[i];
          if (header.p_type != PT_LOAD) continue;
          range.first = std::min(range.first, static_cast<usize>(info->dlpi_addr + header.p_vaddr));
          range.last = std::max(
              range.last, static_cast<usize>(info->dlpi_addr + header.p_vaddr + header.p_memsz));
        }
        if (wanted.address < range.first || wanted.address >= range.last) return 0;
        wanted.range = range;
        return 1;
      },
      &search);
  return search.range;
}

}  // namespace

std::shared_ptr<const LoadedModule> LoadedModule::load(const std::string& path) {
  static auto* mutex = new std::mutex;
  static auto* loaded = new std::map<std::string, std::shared_ptr<const LoadedModule>>;
  const std::lock_guard lock(*mutex);
  auto& module = (*loaded)[path];
  if (module == nullptr) module.reset(new LoadedModule(path));
  return module;
}

LoadedModule::LoadedModule(const std::string& path) {
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw CompileFailure(::dlerror());
  module_ = static_cast<Module*>(::dlsym(handle, "softmetal_module"));
  if (module_ == nullptr || module_->abi_version != kAbiVersion) {
    throw CompileFailure(path + " was compiled for another emulator; delete it");
  }
  *module_->runtime = *runtime();
  image_ = find_image(module_);
  for (u32 i = 0; i < module_->kernel_count; ++i) {
    LoadedKernel loaded;
    loaded.kernel = &module_->kernels[i];
    for (auto* variable = module_->variables; variable != module_->variables_end; ++variable) {
      if (variable->kernel != loaded.kernel->identity) continue;
      const u32 unit = std::max(16u, variable->alignment);
      const u32 bytes = (variable->size + unit - 1) / unit * unit;
      loaded.variable_bytes = (loaded.variable_bytes + bytes + unit - 1) / unit * unit;
      variable->offset = loaded.variable_bytes;
      loaded.variable_bytes += kGap;
      loaded.static_bytes += bytes;
      loaded.variables.push_back(variable);
    }
    kernels_.push_back(std::move(loaded));
  }
}

const LoadedKernel* LoadedModule::find(const std::string& name) const {
  const auto found =
      std::find_if(kernels_.begin(), kernels_.end(),
                   [&](const LoadedKernel& kernel) { return kernel.kernel->name == name; });
  return found == kernels_.end() ? nullptr : &*found;
}

}  // namespace softmetal
