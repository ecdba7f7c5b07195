// Runs one operation on the calling thread and the pool.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

#include "base/thread_pool.h"
#include "device/cpu/device.h"
#include "device/ops.h"

namespace mference::cpu {

// Memory that grows to the largest request and is reused by the operations of one stream.
class Scratch {
 public:
  // At least `bytes` bytes, aligned to 64, with undefined contents. Invalidates the previous block.
  std::byte* reserve(size_t bytes);

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  std::unique_ptr<std::byte[], Free> block_;
  size_t size_ = 0;
};

struct Context {
  explicit Context(const Options& chosen) : options(chosen), pool(chosen.threads) {}
  Options options;
  ThreadPool pool;
  Scratch activations;  // quantized inputs of a product
  Scratch partials;     // partial results of split work
};

void execute(const EmbedRows& op, Context& context);
void execute(const NormProject& op, Context& context);
void execute(const QkvEpilogue& op, Context& context);
void execute(const Attention& op, Context& context);
void execute(const GateHeads& op, Context& context);
void execute(const ConvolutionTail& op, Context& context);
void execute(const GatedDelta& op, Context& context);
void execute(const Project& op, Context& context);
void execute(const PostAttentionRouter& op, Context& context);
void execute(const ResidualRouter& op, Context& context);
void execute(const SharedExpert& op, Context& context);
void execute(const LookUpSlots& op, Context& context);
void execute(const RoutedExperts& op, Context& context);
void execute(const Zero& op, Context& context);
void execute(const LayerTail& op, Context& context);
void execute(const ResidualTail& op, Context& context);
void execute(const HeadArgmax& op, Context& context);
void execute(const HeadLogits& op, Context& context);
void execute(const TopCandidates& op, Context& context);

}  // namespace mference::cpu
