#include "device/commands.h"

#include <algorithm>

#include "device/settings.h"

namespace softmetal {

void run_kernel(const KernelCommand& command) {
  const PipelineState& state = [command.pipeline state];
  Dispatch dispatch;
  dispatch.kernel = state.kernel->kernel;
  dispatch.static_threadgroup_bytes = state.kernel->variable_bytes;
  dispatch.variables = &state.kernel->variables;
  dispatch.constants = state.constants.data();
  dispatch.threadgroups = command.threadgroups;
  dispatch.threads_per_threadgroup = command.threads_per_threadgroup;
  dispatch.threads_per_grid = command.threads_per_grid;
  dispatch.seed = static_cast<u64>(get(Setting::kSeed));
  std::copy(command.threadgroup_bytes.begin(), command.threadgroup_bytes.end(),
            dispatch.threadgroup_bytes);
  for (u32 i = 0; i < dispatch.kernel->argument_count; ++i) {
    const Argument& argument = dispatch.kernel->arguments[i];
    if (argument.kind != ArgumentKind::kBuffer || !state.enabled[i]) continue;
    const Binding& binding = command.bindings[argument.index];
    auto* first = binding.bytes != nullptr
                      ? binding.bytes->data()
                      : reinterpret_cast<std::byte*>([binding.buffer gpuAddress]) + binding.offset;
    const size_t bytes =
        binding.bytes != nullptr ? binding.bytes->size() : [binding.buffer length] - binding.offset;
    dispatch.buffers[argument.index] = first;
    const auto at = reinterpret_cast<usize>(first);
    dispatch.ranges.push_back({at, at + bytes, argument.writable, &argument});
  }
  dispatch.ranges.push_back(state.module->image());
  const auto constants = reinterpret_cast<usize>(state.constants.data());
  dispatch.ranges.push_back(
      {constants, constants + state.constants.size() * sizeof(ConstantValue), false, nullptr});
  run(dispatch);
}

}  // namespace softmetal
