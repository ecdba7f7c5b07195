// Compiled without sanitizers: it runs on the stacks of lanes, and in a signal handler.
#include "emulator/access.h"

#include <ucontext.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "emulator/group.h"

namespace softmetal {

namespace {

constexpr usize kNear = Group::kGuard;  // to threadgroup memory

thread_local Group* active_group = nullptr;
thread_local usize fault_address = 0;
thread_local bool fault_is_write = false;

// Where an address lies, in terms of the arguments.
std::string describe(const Dispatch& dispatch, usize address) {
  const Range* nearest = nullptr;
  usize distance = ~usize{0};
  for (const Range& range : dispatch.ranges) {
    if (range.argument == nullptr) continue;
    const usize away = address < range.first   ? range.first - address
                       : address >= range.last ? address - range.last
                                               : 0;
    if (away < distance) {
      distance = away;
      nearest = &range;
    }
  }
  if (nearest == nullptr) return "at an address outside its buffers";
  const std::string name =
      "buffer(" + std::to_string(nearest->argument->index) + ") " + nearest->argument->name;
  if (distance == 0 && address >= nearest->first && address < nearest->last) {
    return "at byte " + std::to_string(address - nearest->first) + " of " + name;
  }
  return address < nearest->first
             ? std::to_string(distance) + " bytes before " + name
             : std::to_string(distance) + " bytes past the end of " + name + " (" +
                   std::to_string(nearest->last - nearest->first) + " bytes)";
}

bool in_threadgroup_memory(Group& group, usize first, usize last) {
  const Dispatch& dispatch = *group.dispatch;
  for (u32 i = 0; i < kMaxBuffers; ++i) {
    const auto at = reinterpret_cast<usize>(group.invocation.threadgroup[i]);
    if (first >= at && last <= at + dispatch.threadgroup_bytes[i]) return true;
  }
  const auto end = reinterpret_cast<usize>(group.memory_last());
  for (const ThreadgroupVariable* variable : *dispatch.variables) {
    const usize at = end - variable->offset;
    if (first >= at && last <= at + variable->size) return true;
  }
  return false;
}

// A lane that faulted goes on here.
[[noreturn]] void fail_after_fault() {
  Lane* lane = current();
  Group& group = *lane->group;
  const std::string what = group.stacks.contains(fault_address)
                               ? "its variables need more than the stack of a thread"
                               : std::string("a ") + (fault_is_write ? "write " : "read ") +
                                     describe(*group.dispatch, fault_address);
  group.fail(lane, what);
}

struct sigaction previous_segv;
struct sigaction previous_bus;

void on_fault(int signal, siginfo_t* info, void* context) {
  auto* machine = static_cast<ucontext_t*>(context);
  auto& registers = machine->uc_mcontext.gregs;
  const auto stack = static_cast<usize>(registers[REG_RSP]);
  if (active_group != nullptr && active_group->stacks.contains(stack)) {
    fault_address = reinterpret_cast<usize>(info->si_addr);
    fault_is_write = (registers[REG_ERR] & 2) != 0;
    // On a used-up stack there is room from its top: nothing of the lane is needed any more.
    const usize top = reinterpret_cast<usize>(lane_of_stack(
        (fault_is_write && active_group->stacks.contains(fault_address) ? fault_address : stack) &
        ~(kStackBytes - 1)));
    registers[REG_RSP] = static_cast<greg_t>(top - 8);
    registers[REG_RIP] = reinterpret_cast<greg_t>(&fail_after_fault);
    return;
  }
  const struct sigaction& previous = signal == SIGBUS ? previous_bus : previous_segv;
  if ((previous.sa_flags & SA_SIGINFO) != 0 && previous.sa_sigaction != nullptr) {
    previous.sa_sigaction(signal, info, context);
    return;
  }
  // The instruction faults again, and the process ends as it would without us.
  ::sigaction(signal, &previous, nullptr);
}

// A signal stack for the thread it lives in: the lane's own may be used up.
struct SignalStack {
  SignalStack() : memory(static_cast<u8*>(std::malloc(kBytes))) {
    stack_t stack{};
    stack.ss_sp = memory;
    stack.ss_size = kBytes;
    ::sigaltstack(&stack, &outer);
  }
  ~SignalStack() {
    ::sigaltstack(&outer, nullptr);
    std::free(memory);
  }
  static constexpr usize kBytes = 64 * 1024;
  u8* memory;
  stack_t outer{};
};

}  // namespace

void check_access(const void* address, usize size, bool write) {
  Lane* lane = current();
  Group& group = *lane->group;
  const auto first = reinterpret_cast<usize>(address);
  const usize last = first + size;
  if (group.stacks.contains(first)) return;
  for (const Range& range : group.dispatch->ranges) {
    if (first >= range.first && last <= range.last && (range.writable || !write)) return;
  }
  if (in_threadgroup_memory(group, first, last)) return;
  const auto memory = reinterpret_cast<usize>(group.memory_first());
  const auto memory_end = reinterpret_cast<usize>(group.memory_last());
  const bool near_memory = first + kNear >= memory && first < memory_end + kNear;
  // The emulator's own objects: arguments, and what SIMD-group functions exchange.
  const auto own = reinterpret_cast<usize>(&group);
  if (first >= own && last <= own + sizeof(Group) && !near_memory) return;
  const std::string what =
      std::string(write ? "a write" : "a read") + " of " + std::to_string(size) + " bytes ";
  if (near_memory) {
    group.fail(lane, what + "outside the threadgroup memory it was given");
  }
  group.fail(lane, what + describe(*group.dispatch, first));
}

void catch_faults() {
  [[maybe_unused]] static const bool installed = [] {
    struct sigaction action{};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(SIGSEGV, &action, &previous_segv);
    ::sigaction(SIGBUS, &action, &previous_bus);
    return true;
  }();
}

FaultScope::FaultScope(Group* group) : outer_(active_group) {
  thread_local SignalStack signal_stack;
  active_group = group;
}

FaultScope::~FaultScope() {
  active_group = outer_;
}

}  // namespace softmetal
