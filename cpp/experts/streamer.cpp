#include "experts/streamer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "base/errors.h"

namespace mference {

ExpertStreamer::ExpertStreamer(Device& device, Reader& reader, Adviser& adviser,
                               const ExpertFiles& files, int layer, int slots,
                               std::span<int16_t> table)
    : device_(device),
      reader_(reader),
      adviser_(adviser),
      files_(files),
      layer_(layer),
      slots_(slots) {
  const int experts = static_cast<int>(files.offsets[layer].size());
  cache_ = std::make_unique<ExpertCache>(slots, experts);
  if (!table.empty()) cache_->mirror(table);
}

ExpertStreamer::~ExpertStreamer() {
  if (in_flight_) in_flight_->join();
  if (fd_ >= 0) ::close(fd_);
}

void ExpertStreamer::open() {
  if (buffer_) return;
  if (files_.verify) files_.verify(layer_);
  const std::string& path = files_.paths[layer_];
  if (slots_ == 0) {
    resident_ = std::make_unique<MappedFile>(path);
    buffer_ = device_.wrap(resident_->data(), resident_->size());
    return;
  }
  if (fd_ < 0) fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) throw ExpertFillError("cannot open " + path + ": " + std::strerror(errno));
  slab_ = std::make_unique<Slab>(slots_, files_.stride);
  buffer_ = device_.wrap(slab_->data(), slab_->size());
}

std::optional<ExpertStreamer::Request> ExpertStreamer::request(std::span<const int> experts,
                                                               std::span<const int> avoid) {
  open();
  Request request;
  if (slots_ == 0) {
    request.plan.experts.assign(experts.begin(), experts.end());
    request.plan.hits = static_cast<int>(experts.size());
    counters_.hits += experts.size();
    return request;
  }
  // A step that was abandoned half way may have left reads behind that still write their slots.
  if (in_flight_) in_flight_->join();
  auto plan = cache_->plan(experts, avoid);
  if (!plan) return std::nullopt;
  request.plan = std::move(*plan);
  counters_.hits += request.plan.hits;
  counters_.misses += request.plan.misses.size();
  counters_.evictions += request.plan.evictions;
  if (request.plan.misses.empty()) return request;
  std::vector<ReadRequest> reads;
  std::vector<FileRange> ranges;
  for (const int miss : request.plan.misses) {
    const View slot = view(request.plan, miss);
    reads.push_back({fd_, files_.paths[layer_], files_.offsets[layer_][request.plan.experts[miss]],
                     files_.stride, slab_->data() + slot.offset});
    ranges.push_back({reads.back().offset, files_.stride});
  }
  // A request's hits can be computed meanwhile, and so can the tile whose slots it avoids.
  const bool overlapped = request.plan.hits > 0 || !avoid.empty();
  const Advised advised = adviser_.advise(fd_, std::move(ranges), overlapped);
  counters_.advice_calls += advised.calls;
  counters_.advice_bytes += advised.bytes;
  counters_.bytes_read += reads.size() * files_.stride;
  request.fill = in_flight_ = reader_.submit(std::move(reads));
  return request;
}

void ExpertStreamer::complete(Request& request) {
  if (!request.fill) return;
  const auto start = std::chrono::steady_clock::now();
  const auto fill = std::exchange(request.fill, nullptr);
  fill->join();
  const auto waited = static_cast<uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count());
  // On a busy machine the host may be woken long after the last read has ended.
  counters_.exposed_nanoseconds += std::min(waited, fill->span_nanoseconds());
  counters_.read_nanoseconds += fill->busy_nanoseconds();
  counters_.fill_nanoseconds += fill->span_nanoseconds();
  for (size_t i = 0; i < request.plan.misses.size(); ++i) {
    if (fill->succeeded(i)) cache_->publish(request.plan, request.plan.misses[i]);
  }
  fill->wait();
}

View ExpertStreamer::slab() const {
  if (!slab_) return {};
  return {buffer_.get(), 0, static_cast<size_t>(slots_) * files_.stride};
}

void ExpertStreamer::note_hits(std::span<const int> experts) {
  if (!cache_->probe(experts).empty()) {
    throw DeviceError("the device found experts of layer " + std::to_string(layer_) +
                      " in slots that do not hold them; set MFERENCE_SLOT_MAP=0 and report this");
  }
  cache_->note_hits(experts);
  counters_.hits += experts.size();
}

View ExpertStreamer::view(const Plan& plan, int index) const {
  const size_t offset = slots_ == 0 ? files_.offsets[layer_][plan.experts[index]]
                                    : static_cast<size_t>(plan.slots[index]) * files_.stride;
  return {buffer_.get(), offset, files_.stride};
}

}  // namespace mference
