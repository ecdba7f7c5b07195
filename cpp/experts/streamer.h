// One layer's routed experts: where each lies in the layer file, and the slots they are read into.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "device/device.h"
#include "experts/advice.h"
#include "experts/cache.h"
#include "experts/reader.h"
#include "experts/slab.h"

namespace mference {

struct ExpertFiles {
  std::vector<std::string> paths;            // by layer; empty for a layer without experts
  std::vector<std::vector<size_t>> offsets;  // by layer and expert
  size_t stride = 0;
  std::function<void(int layer)> verify;  // called once, before a layer is first read
};

// Counters of a run. Byte and time counts are of the reads themselves.
struct ExpertCounters {
  uint64_t hits = 0;
  uint64_t misses = 0;
  uint64_t evictions = 0;
  uint64_t bytes_read = 0;
  uint64_t read_nanoseconds = 0;     // summed over reads, which overlap each other
  uint64_t fill_nanoseconds = 0;     // from the start of each batch of reads to its last end
  uint64_t exposed_nanoseconds = 0;  // what the host waited for
  uint64_t advice_calls = 0;         // ranges named to the system before they were read
  uint64_t advice_bytes = 0;
};

// A layer opens its file on first use. A slot whose fill has not ended is never a victim, and
// neither is one the caller names in `avoid`; so no two reads write one slot, and no read writes a
// slot that queued device work still owns.
class ExpertStreamer {
 public:
  // slots = 0 maps the layer file instead: every expert is a hit. With a table, i16[experts], the
  // device can look up which expert lies in which slot.
  ExpertStreamer(Device& device, Reader& reader, Adviser& adviser, const ExpertFiles& files,
                 int layer, int slots, std::span<int16_t> table = {});
  ~ExpertStreamer();
  ExpertStreamer(const ExpertStreamer&) = delete;
  ExpertStreamer& operator=(const ExpertStreamer&) = delete;

  // Places the experts and starts reading the missing ones. Empty if they cannot be placed
  // without touching `avoid`.
  struct Request {
    Plan plan;
    std::shared_ptr<Fill> fill;  // null if nothing is missing
  };
  std::optional<Request> request(std::span<const int> experts, std::span<const int> avoid = {});
  // Waits for the request's reads and publishes them. Raises ExpertFillError if one failed; the
  // others stay usable.
  void complete(Request& request);
  View view(const Plan& plan, int index) const;

  // All slots, once there are any that a look-up could find: none before the first request.
  View slab() const;
  size_t stride() const { return files_.stride; }
  // Counts a request that the device has served from the slots by itself. Raises DeviceError if they
  // do not hold it.
  void note_hits(std::span<const int> experts);

  const ExpertCounters& counters() const { return counters_; }
  const ExpertCache& cache() const { return *cache_; }
  int slots() const { return slots_; }

 private:
  void open();

  Device& device_;
  Reader& reader_;
  Adviser& adviser_;
  const ExpertFiles& files_;
  int layer_;
  int slots_;
  int fd_ = -1;
  std::unique_ptr<MappedFile> resident_;
  std::unique_ptr<Slab> slab_;
  std::unique_ptr<Buffer> buffer_;
  std::unique_ptr<ExpertCache> cache_;
  std::shared_ptr<Fill> in_flight_;
  ExpertCounters counters_;
};

}  // namespace mference
