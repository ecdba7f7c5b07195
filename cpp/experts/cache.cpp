#include "experts/cache.h"

#include <algorithm>

namespace mference {

namespace {
template <class Range>
bool contains(const Range& range, int value) {
  return std::find(range.begin(), range.end(), value) != range.end();
}
}  // namespace

bool Plan::missing(int index) const {
  return contains(misses, index);
}

ExpertCache::ExpertCache(int slots, int experts, CachePolicy policy)
    : policy_(policy), slots_(slots), table_(experts, -1), uses_(experts, 0) {}

bool ExpertCache::before(int a, int b) const {
  const Slot& x = slots_[a];
  const Slot& y = slots_[b];
  if ((x.owner < 0) != (y.owner < 0)) return x.owner < 0;
  if (x.owner >= 0) {
    if (policy_ == CachePolicy::kLfu && uses_[x.owner] != uses_[y.owner]) {
      return uses_[x.owner] < uses_[y.owner];
    }
    if (x.last_use != y.last_use) return x.last_use < y.last_use;
  }
  return a < b;
}

void ExpertCache::touch(int expert, int slot) {
  slots_.at(slot).last_use = clock_;
  ++uses_[expert];
}

void ExpertCache::vacate(int slot) {
  const int owner = slots_.at(slot).owner;
  if (owner >= 0 && table_[owner] == slot) place(owner, -1);
  slots_[slot].owner = -1;
}

void ExpertCache::own(int slot, int expert) {
  (void)table_.at(expert);  // raises before anything changes
  vacate(slot);
  slots_[slot].owner = expert;
  place(expert, slot);
}

void ExpertCache::place(int expert, int slot) {
  table_[expert] = static_cast<int16_t>(slot);
  if (!mirror_.empty()) mirror_[expert] = table_[expert];
}

void ExpertCache::mirror(std::span<int16_t> copy) {
  mirror_ = copy;
  std::copy(table_.begin(), table_.end(), mirror_.begin());
}

std::optional<Plan> ExpertCache::plan(std::span<const int> experts, std::span<const int> avoid) {
  Plan plan;
  plan.experts.assign(experts.begin(), experts.end());
  plan.slots.assign(experts.size(), -1);
  for (size_t i = 0; i < experts.size(); ++i) {
    plan.slots[i] = table_.at(experts[i]);
    if (plan.slots[i] < 0) plan.misses.push_back(static_cast<int>(i));
  }
  std::vector<int> victims;
  for (int slot = 0; slot < slots(); ++slot) {
    if (slots_[slot].reserved || contains(avoid, slot) || contains(plan.slots, slot)) continue;
    victims.push_back(slot);
  }
  if (victims.size() < plan.misses.size()) return std::nullopt;
  std::partial_sort(victims.begin(), victims.begin() + plan.misses.size(), victims.end(),
                    [this](int a, int b) { return before(a, b); });
  for (size_t i = 0; i < plan.misses.size(); ++i) {
    if (slots_[victims[i]].owner >= 0) ++plan.evictions;
    vacate(victims[i]);
    plan.slots[plan.misses[i]] = victims[i];
  }
  plan.hits = static_cast<int>(experts.size() - plan.misses.size());
  ++clock_;
  for (size_t i = 0; i < experts.size(); ++i) touch(experts[i], plan.slots[i]);
  return plan;
}

void ExpertCache::publish(const Plan& plan) {
  for (const int miss : plan.misses) publish(plan, miss);
}

void ExpertCache::publish(const Plan& plan, int miss) {
  own(plan.slots[miss], plan.experts[miss]);
}

Reservation ExpertCache::reserve(std::span<const int> experts, int keep) {
  std::vector<int> victims;
  int evictable = 0;
  for (int slot = 0; slot < slots(); ++slot) {
    if (slots_[slot].reserved) continue;
    ++evictable;
    if (slots_[slot].owner < 0 || !contains(experts, slots_[slot].owner)) victims.push_back(slot);
  }
  std::sort(victims.begin(), victims.end(), [this](int a, int b) { return before(a, b); });
  const int room = std::min(static_cast<int>(victims.size()), std::max(0, evictable - keep));
  Reservation reservation;
  for (int i = 0; i < std::min(room, static_cast<int>(experts.size())); ++i) {
    vacate(victims[i]);
    slots_[victims[i]].reserved = true;
    reservation.experts.push_back(experts[i]);
    reservation.slots.push_back(victims[i]);
  }
  return reservation;
}

int ExpertCache::land(const Reservation& reservation, std::span<const int> failed) {
  int loaded = 0;
  for (size_t i = 0; i < reservation.slots.size(); ++i) {
    slots_.at(reservation.slots[i]).reserved = false;
    if (contains(failed, reservation.experts[i])) continue;
    own(reservation.slots[i], reservation.experts[i]);
    slots_[reservation.slots[i]].last_use = clock_;
    ++loaded;
  }
  return loaded;
}

void ExpertCache::note_hits(std::span<const int> experts) {
  ++clock_;
  for (const int expert : experts) touch(expert, table_.at(expert));
}

std::vector<int> ExpertCache::probe(std::span<const int> experts) const {
  std::vector<int> absent;
  for (const int expert : experts) {
    if (expert >= 0 && table_.at(expert) < 0 && !contains(absent, expert)) absent.push_back(expert);
  }
  return absent;
}

std::vector<int> ExpertCache::owners() const {
  std::vector<int> owners;
  for (const Slot& slot : slots_) owners.push_back(slot.owner);
  return owners;
}

int ExpertCache::next_uncached() {
  const int slot = uncached_;
  uncached_ = (uncached_ + 1) % slots();
  return slot;
}

}  // namespace mference
