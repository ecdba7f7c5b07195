// Compiled without sanitizers and red zones: control flow jumps between stacks here.
#include "emulator/group.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "emulator/access.h"
#include "emulator/switch_stack.h"

namespace softmetal {

namespace {

constexpr u8 kPoison = 0xFF;  // a NaN in every floating-point type
constexpr u8 kGuardByte = 0xA5;
constexpr usize kGuardBytes = 256;
constexpr const char* kMixedWait =
    "divergence: some lanes of a SIMD-group are in threadgroup_barrier, others in a SIMD-group "
    "function";

u32 bit(u32 index) {
  return 1u << index;
}

std::string text(const Vector3& v) {
  return std::to_string(v.x) + "," + std::to_string(v.y) + "," + std::to_string(v.z);
}

// Everybody who can come has come: combines what they brought, and makes all but `lane` ready.
void complete_rendezvous(Lane* lane, SimdGroup& simdgroup) {
  Group& group = *lane->group;
  for (u32 rest = simdgroup.waiting; rest != 0; rest &= rest - 1) {
    const Lane& other = *simdgroup.lane[std::countr_zero(rest)];
    if (other.operation != lane->operation) {
      group.fail(lane, "divergence: lanes of a SIMD-group are in different SIMD-group functions");
    }
    if (other.matrix_operations != lane->matrix_operations) {
      group.fail(lane, "divergence: lanes of a SIMD-group ran different matrix operations");
    }
  }
  if (simdgroup.at_barrier != 0) group.fail(lane, kMixedWait);
  const u32 half = simdgroup.phase & 1;
  simdgroup.active[half] = simdgroup.waiting;
  if (simdgroup.combine != nullptr) simdgroup.combine(&simdgroup, half, simdgroup.waiting);
  ++simdgroup.phase;
  simdgroup.ready = simdgroup.waiting & ~bit(lane->index);
  simdgroup.waiting = 0;
}

}  // namespace

Group::Group() {
  memory_.fill(kGuardByte);
}

// The dynamic arrays and the variables, with what a GPU leaves there: nothing to rely on. Guards lie
// around them and between the two.
void Group::lay_out_memory() {
  u32 first = 0;
  for (u32 i = 0; i < kMaxBuffers; ++i) {
    invocation.threadgroup[i] = memory_first() + first;
    first += (dispatch->threadgroup_bytes[i] + 15) / 16 * 16;
  }
  dynamic_last_ = memory_first() + first;
  variables_first_ = memory_last() - dispatch->static_threadgroup_bytes;
  std::memset(memory_first(), kPoison, first);
  std::memset(variables_first_, kPoison, dispatch->static_threadgroup_bytes);
  std::memset(dynamic_last_, kGuardByte, guard_bytes());
  std::memset(variables_first_ - guard_bytes(), kGuardByte, guard_bytes());
}

// Of the guards between dynamic arrays and variables.
usize Group::guard_bytes() const {
  return std::min<usize>(kGuardBytes, static_cast<usize>(variables_first_ - dynamic_last_));
}

void Group::check_memory() {
  const auto clean = [](const u8* from, usize bytes) {
    static const std::array<u8, kGuardBytes> kClean = [] {
      std::array<u8, kGuardBytes> all;
      all.fill(kGuardByte);
      return all;
    }();
    return std::memcmp(from, kClean.data(), bytes) == 0;
  };
  if (clean(dynamic_last_, guard_bytes()) &&
      clean(variables_first_ - guard_bytes(), guard_bytes()) &&
      clean(memory_first() - kGuardBytes, kGuardBytes) && clean(memory_last(), kGuardBytes)) {
    return;
  }
  memory_.fill(kGuardByte);
  report("a write outside the threadgroup memory it was given");
}

void Group::report(const std::string& what) {
  throw KernelError(std::string(dispatch->kernel->name) + ": " + what + " (threadgroup " +
                    text(position_) + ")");
}

void Group::run(const Dispatch& work, u64 index) {
  dispatch = &work;
  const Vector3& grid = work.threadgroups;
  const Vector3& full = work.threads_per_threadgroup;
  position_ = {static_cast<u32>(index % grid.x), static_cast<u32>(index / grid.x % grid.y),
               static_cast<u32>(index / grid.x / grid.y)};
  extent_ = {std::min(full.x, work.threads_per_grid.x - position_.x * full.x),
             std::min(full.y, work.threads_per_grid.y - position_.y * full.y),
             std::min(full.z, work.threads_per_grid.z - position_.z * full.z)};
  threads_ = extent_.x * extent_.y * extent_.z;
  simdgroup_count_ = (threads_ + kSimdWidth - 1) / kSimdWidth;
  random.seed(work.seed, index);
  error.clear();
  std::copy(std::begin(work.buffers), std::end(work.buffers), invocation.buffer);
  lay_out_memory();

  for (u32 s = 0; s < simdgroup_count_; ++s) {
    SimdGroup& simdgroup = simdgroups_[s];
    simdgroup.size = std::min(kSimdWidth, threads_ - s * kSimdWidth);
    simdgroup.unstarted = simdgroup.size == 32 ? ~0u : bit(simdgroup.size) - 1;
    simdgroup.ready = simdgroup.waiting = simdgroup.at_barrier = simdgroup.done = 0;
    simdgroup.phase = 0;
  }
  schedule();
  check_memory();
}

// Rounds over the SIMD-groups, until every lane is done. A barrier ends a round.
void Group::schedule() {
  std::array<u32, kMaxThreads / kSimdWidth> order;
  for (u32 i = 0; i < simdgroup_count_; ++i) order[i] = i;
  for (;;) {
    if (random) {
      for (u32 i = simdgroup_count_; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    }
    u32 at_barrier = 0;
    u32 done = 0;
    for (u32 i = 0; i < simdgroup_count_; ++i) {
      SimdGroup& simdgroup = simdgroups_[order[i]];
      while (Lane* lane = next(simdgroup)) {
        enter(lane);
        if (!error.empty()) {
          stacks.reclaim_all();
          report(error);
        }
      }
      at_barrier += static_cast<u32>(std::popcount(simdgroup.at_barrier));
      done += static_cast<u32>(std::popcount(simdgroup.done));
    }
    if (done == threads_) return;
    if (at_barrier != threads_) {
      stacks.reclaim_all();
      report("a threadgroup_barrier was reached by " + std::to_string(at_barrier) + " of " +
             std::to_string(threads_) + " threads, and the others ended without it");
    }
    for (u32 i = 0; i < simdgroup_count_; ++i) {
      simdgroups_[i].ready = simdgroups_[i].at_barrier;
      simdgroups_[i].at_barrier = 0;
    }
  }
}

__attribute__((noinline)) void Group::enter(Lane* lane) {
  fibers_.leave_for_lanes(stacks.base(), Stacks::kBytes);
  switch_stack(&scheduler, lane->stack_pointer);
  fibers_.come_back();
}

__attribute__((always_inline)) inline Lane* Group::next(SimdGroup& simdgroup) {
  const u32 candidates = simdgroup.ready | simdgroup.unstarted;
  if (candidates == 0) return nullptr;
  u32 index;
  if (random) {
    u32 rest = candidates;
    for (u32 skip = random.below(static_cast<u32>(std::popcount(candidates))); skip > 0; --skip) {
      rest &= rest - 1;
    }
    index = static_cast<u32>(std::countr_zero(rest));
  } else {
    index = static_cast<u32>(std::countr_zero(candidates));
  }
  if ((simdgroup.ready & bit(index)) != 0) {
    simdgroup.ready &= ~bit(index);
    return simdgroup.lane[index];
  }
  Lane* lane = stacks.take(lane_entry);
  lane->group = this;
  start(lane, simdgroup, index);
  return lane;
}

// Makes `lane` thread `index` of a SIMD-group, on whatever stack it is.
void Group::start(Lane* lane, SimdGroup& simdgroup, u32 index) {
  simdgroup.unstarted &= ~bit(index);
  simdgroup.lane[index] = lane;
  lane->simdgroup = &simdgroup;
  lane->constants = dispatch->constants;
  lane->threadgroup_memory = memory_last();
  lane->index = index;
  lane->simdgroup_index = static_cast<u32>(&simdgroup - simdgroups_.data());
  lane->matrix_operations = 0;
  const u32 flat = lane->simdgroup_index * kSimdWidth + index;
  const Vector3 in_group =
      extent_.x == threads_
          ? Vector3{flat, 0, 0}
          : Vector3{flat % extent_.x, flat / extent_.x % extent_.y, flat / extent_.x / extent_.y};
  const Vector3& full = dispatch->threads_per_threadgroup;
  lane->position = {
      {position_.x * full.x + in_group.x, position_.y * full.y + in_group.y,
       position_.z * full.z + in_group.z},
      in_group,
      position_,
      extent_,
      dispatch->threadgroups,
      dispatch->threads_per_grid,
      flat,
      simdgroup_count_,
  };
}

// Where a fresh stack begins. A lane that ends leaves its stack to the next one that has not begun:
// a kernel without barriers runs on one stack.
void Group::lane_entry() {
  Lane* lane = current();
  Group& group = *lane->group;
  if (group.predicate != nullptr) {
    group.predicate_result = group.predicate();
    group.stacks.give_back(lane);
    switch_stack(&lane->stack_pointer, group.scheduler);
  }
  for (;;) {
    group.dispatch->kernel->function(group.invocation, *lane);
    SimdGroup& simdgroup = *lane->simdgroup;
    simdgroup.done |= bit(lane->index);
    if (simdgroup.unstarted != 0 && simdgroup.ready == 0) {
      u32 index = static_cast<u32>(std::countr_zero(simdgroup.unstarted));
      if (group.random) {
        u32 rest = simdgroup.unstarted;
        for (u32 skip = group.random.below(static_cast<u32>(std::popcount(rest))); skip > 0;
             --skip) {
          rest &= rest - 1;
        }
        index = static_cast<u32>(std::countr_zero(rest));
      }
      group.start(lane, simdgroup, index);
      continue;
    }
    group.finish(lane);
  }
}

void Group::finish(Lane* lane) {
  SimdGroup& simdgroup = *lane->simdgroup;
  // Lanes that wait for a SIMD-group function may have waited for this one only.
  if ((simdgroup.ready | simdgroup.unstarted) == 0 && simdgroup.waiting != 0) {
    Lane* first = simdgroup.lane[std::countr_zero(simdgroup.waiting)];
    complete_rendezvous(first, simdgroup);
    simdgroup.ready |= bit(first->index);
  }
  Lane* successor = next(simdgroup);
  stacks.give_back(lane);
  if (successor != nullptr) {
    switch_stack(&lane->stack_pointer, successor->stack_pointer);
  }
  switch_stack(&lane->stack_pointer, scheduler);
  __builtin_unreachable();
}

void Group::fail(Lane* lane, const std::string& what) {
  if (error.empty()) {
    error = what + ", thread " + std::to_string(lane->position.index_in_threadgroup);
  }
  switch_stack(&lane->stack_pointer, scheduler);
  __builtin_unreachable();
}

bool Group::call_with_constants(bool (*function)(), const ConstantValue* constants) {
  predicate = function;
  Lane* lane = stacks.take(lane_entry);
  lane->group = this;
  lane->constants = constants;
  enter(lane);
  predicate = nullptr;
  return predicate_result;
}

namespace {

void simd_rendezvous(Lane* lane, u32 operation, void (*combine)(SimdGroup*, u32, u32)) {
  SimdGroup& simdgroup = *lane->simdgroup;
  lane->operation = operation;
  simdgroup.combine = combine;
  simdgroup.waiting |= bit(lane->index);
  if (Lane* other = lane->group->next(simdgroup)) {
    switch_stack(&lane->stack_pointer, other->stack_pointer);
    return;
  }
  complete_rendezvous(lane, simdgroup);
}

void threadgroup_barrier(Lane* lane) {
  SimdGroup& simdgroup = *lane->simdgroup;
  Group& group = *lane->group;
  simdgroup.at_barrier |= bit(lane->index);
  Lane* other = group.next(simdgroup);
  if (other != nullptr) {
    switch_stack(&lane->stack_pointer, other->stack_pointer);
    return;
  }
  if (simdgroup.waiting != 0) {
    group.fail(lane, kMixedWait);
  }
  for (u32 rest = simdgroup.at_barrier; rest != 0; rest &= rest - 1) {
    if (simdgroup.lane[std::countr_zero(rest)]->matrix_operations != lane->matrix_operations) {
      group.fail(lane, "divergence: lanes of a SIMD-group ran different matrix operations");
    }
  }
  switch_stack(&lane->stack_pointer, group.scheduler);
}

}  // namespace

Runtime* runtime() {
  static Runtime instance{simd_rendezvous, threadgroup_barrier, check_access};
  return &instance;
}

}  // namespace softmetal
