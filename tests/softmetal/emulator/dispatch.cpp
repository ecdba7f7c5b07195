#include "emulator/dispatch.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>

#include "device/settings.h"
#include "emulator/access.h"
#include "emulator/group.h"
#include "emulator/workers.h"

namespace softmetal {

namespace {

// Groups are large, so each is used again.
class Groups {
 public:
  static Groups& instance() {
    static auto* groups = new Groups;
    return *groups;
  }
  std::unique_ptr<Group> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<Group>();
    auto group = std::move(free_.back());
    free_.pop_back();
    return group;
  }
  void give_back(std::unique_ptr<Group> group) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(group));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Group>> free_;
};

class BorrowedGroup {
 public:
  BorrowedGroup() : group_(Groups::instance().take()), scope_(group_.get()) {}
  ~BorrowedGroup() { Groups::instance().give_back(std::move(group_)); }
  Group* operator->() { return group_.get(); }

 private:
  std::unique_ptr<Group> group_;
  FaultScope scope_;
};

// The k-th of `total` threadgroups to run: in order, or in one of many orders.
class Order {
 public:
  Order(u64 total, u64 seed) : total_(total) {
    if (seed == 0 || total < 2) return;
    Random random;
    random.seed(seed, total);
    do {
      step_ = 1 + random.below(static_cast<u32>(total));
    } while (std::gcd(step_, total) != 1);
    first_ = random.below(static_cast<u32>(total));
  }
  u64 at(u64 k) const { return (first_ + k * step_) % total_; }

 private:
  u64 total_;
  u64 step_ = 1;
  u64 first_ = 0;
};

int thread_limit() {
  const int64_t wanted = get(Setting::kThreads);
  return wanted > 0 ? static_cast<int>(wanted)
                    : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

// Below this the others would come too late to be of use.
constexpr std::chrono::microseconds kWorthSharing{30};

}  // namespace

void run(const Dispatch& dispatch) {
  catch_faults();
  const u64 total =
      u64{dispatch.threadgroups.x} * dispatch.threadgroups.y * dispatch.threadgroups.z;
  const Order order(total, dispatch.seed);

  const auto begin = std::chrono::steady_clock::now();
  {
    BorrowedGroup group;
    group->run(dispatch, order.at(0));
  }
  if (total == 1) return;
  const auto expected =
      (std::chrono::steady_clock::now() - begin) * static_cast<int64_t>(total - 1);

  std::atomic<u64> next{1};  // relaxed: threadgroups are not ordered, which a sanitizer should see
  std::mutex mutex;
  std::exception_ptr error;
  const int threads = expected < kWorthSharing ? 1 : thread_limit();
  const u64 chunk = total / (static_cast<u64>(threads) * 16) + 1;
  const auto work = [&] {
    BorrowedGroup group;
    for (u64 first; (first = next.fetch_add(chunk, std::memory_order_relaxed)) < total;) {
      try {
        for (u64 k = first; k < std::min(first + chunk, total); ++k) {
          group->run(dispatch, order.at(k));
        }
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
        next.store(total, std::memory_order_relaxed);
      }
    }
  };
  if (threads == 1) {
    work();
  } else {
    Workers::instance().run(static_cast<int>(std::min<u64>(threads, total - 1)) - 1, work);
  }
  if (error) std::rethrow_exception(error);
}

bool call_with_constants(bool (*function)(), const ConstantValue* constants) {
  BorrowedGroup group;
  return group->call_with_constants(function, constants);
}

}  // namespace softmetal
