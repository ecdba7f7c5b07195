// Which expert lies in which slot of a layer, and which slot gives way. No I/O happens here.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace mference {

enum class CachePolicy { kLfu, kLru };

// The answer to a request for several distinct experts: a slot for each, in the request's order.
struct Plan {
  std::vector<int> experts;
  std::vector<int> slots;
  std::vector<int> misses;  // indices into `experts` of those that must be read
  int hits = 0;
  int evictions = 0;

  bool missing(int index) const;
};

// Slots set aside for experts that are predicted, not yet requested.
struct Reservation {
  std::vector<int> experts;
  std::vector<int> slots;
};

// Victims, in order: empty slots, then the fewest uses (LFU only), then the oldest use, then the
// lowest slot. Uses are counted for each expert over the whole run and rise with each planned
// request; probes and reservations count nothing. An expert or slot that does not exist is
// std::out_of_range. Not thread safe: one host thread plans.
class ExpertCache {
 public:
  ExpertCache(int slots, int experts, CachePolicy policy = CachePolicy::kLfu);

  int slots() const { return static_cast<int>(slots_.size()); }

  // Assigns slots. An evicted expert is gone at once; a missed one is resident only after
  // publish(). Slots in `avoid` are never overwritten. Empty if the misses cannot be placed, and
  // then nothing has changed.
  std::optional<Plan> plan(std::span<const int> experts, std::span<const int> avoid = {});
  // Marks the plan's misses as loaded, all of them or only the one at index `miss`.
  void publish(const Plan& plan);
  void publish(const Plan& plan, int miss);

  // Takes victims for predicted experts while leaving `keep` slots evictable, in the given order,
  // as many as fit. Reserved slots are neither hits nor victims until land() or until released.
  Reservation reserve(std::span<const int> experts, int keep);
  // Ends a reservation: experts not in `failed` become resident. Returns how many did.
  int land(const Reservation& reservation, std::span<const int> failed = {});

  // Counts uses of experts that a device-side lookup served.
  void note_hits(std::span<const int> experts);
  // The experts of the request that are not resident: request order, no repeats, no negatives.
  std::vector<int> probe(std::span<const int> experts) const;
  std::vector<int> owners() const;                              // expert by slot, -1 empty
  const std::vector<int16_t>& table() const { return table_; }  // slot by expert, -1 absent
  // From now on every change of the table is written to `copy` too, which must outlive the cache.
  void mirror(std::span<int16_t> copy);
  // The slot for a load that bypasses the cache: round robin.
  int next_uncached();

 private:
  struct Slot {
    int owner = -1;
    bool reserved = false;
    uint64_t last_use = 0;
  };

  void touch(int expert, int slot);
  void own(int slot, int expert);
  void place(int expert, int slot);
  void vacate(int slot);
  bool before(int a, int b) const;  // is slot a the better victim?

  CachePolicy policy_;
  std::vector<Slot> slots_;
  std::vector<int16_t> table_;
  std::span<int16_t> mirror_;
  std::vector<uint64_t> uses_;
  uint64_t clock_ = 0;
  int uncached_ = 0;
};

}  // namespace mference
