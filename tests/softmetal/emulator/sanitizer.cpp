#include "emulator/sanitizer.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SOFTMETAL_ASAN 1
#include <sanitizer/common_interface_defs.h>
#endif
#if __has_feature(thread_sanitizer)
#define SOFTMETAL_TSAN 1
#include <sanitizer/tsan_interface.h>
#endif
#endif

// These functions begin on one fiber and end on another: their own entries and exits must not count.
#define SOFTMETAL_BARE __attribute__((disable_sanitizer_instrumentation))

namespace softmetal {

FiberScope::FiberScope() {
#ifdef SOFTMETAL_TSAN
  fiber_ = __tsan_create_fiber(0);
#endif
}

FiberScope::~FiberScope() {
#ifdef SOFTMETAL_TSAN
  __tsan_destroy_fiber(fiber_);
#endif
}

SOFTMETAL_BARE void FiberScope::leave_for_lanes([[maybe_unused]] usize stacks,
                                                [[maybe_unused]] usize bytes) {
#ifdef SOFTMETAL_ASAN
  __sanitizer_start_switch_fiber(&fake_stack_, reinterpret_cast<void*>(stacks), bytes);
  __sanitizer_finish_switch_fiber(nullptr, &thread_stack_, &thread_stack_bytes_);
#endif
#ifdef SOFTMETAL_TSAN
  thread_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(fiber_, 0);
#endif
}

SOFTMETAL_BARE void FiberScope::come_back() {
#ifdef SOFTMETAL_TSAN
  __tsan_switch_to_fiber(thread_, 0);
#endif
#ifdef SOFTMETAL_ASAN
  __sanitizer_start_switch_fiber(nullptr, thread_stack_, thread_stack_bytes_);
  __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
#endif
}

}  // namespace softmetal
