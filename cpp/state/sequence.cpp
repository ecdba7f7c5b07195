#include "state/sequence.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/errors.h"

namespace mference {

Sequence::Sequence(std::string model, Device& device, const std::vector<KvShape>& kv,
                   const std::vector<RecurrentShape>& recurrent, int context, int chunk,
                   KvType type)
    : model_(std::move(model)),
      kv_(device, kv, context, chunk, type),
      recurrent_(device, recurrent, type) {}

void Sequence::begin(int rows) {
  if (lost_) {
    throw DeviceError(
        "a pass that failed has left the recurrent states half way; rewind to 0 or restore a "
        "snapshot");
  }
  kv_.write(rows);
  lost_ = !recurrent_.empty();
}

void Sequence::end(int rows) {
  kv_.advance(rows);
  lost_ = false;
}

void Sequence::rewind(int position) {
  if (!recurrent_.empty() && position != 0 && (position != kv_.position() || lost_)) {
    throw DeviceError("cannot rewind from position " + std::to_string(kv_.position()) + " to " +
                      std::to_string(position) +
                      ": this model has recurrent states, which only lead forward; restore a "
                      "snapshot of that position, or start again from 0");
  }
  kv_.rewind(position);
  if (position == 0) {
    recurrent_.clear();
    lost_ = false;
  }
}

Snapshot Sequence::save() const {
  if (lost_) {
    throw DeviceError(
        "the recurrent states were lost in a pass that failed; rewind to 0 or restore an earlier "
        "snapshot");
  }
  Snapshot snapshot;
  snapshot.model = model_;
  snapshot.type = kv_.type();
  snapshot.capacities = kv_.capacities();
  snapshot.position = kv_.position();
  snapshot.written = kv_.written();
  snapshot.kv = kv_.save();
  snapshot.recurrent.assign(recurrent_.data(), recurrent_.data() + recurrent_.bytes());
  return snapshot;
}

void Sequence::restore(const Snapshot& snapshot) {
  if (snapshot.model != model_ || snapshot.recurrent.size() != recurrent_.bytes()) {
    throw DeviceError("the snapshot is of another model; take one of this model");
  }
  if (snapshot.type != kv_.type()) {
    throw DeviceError("the snapshot has keys and values of another type; take one of this model");
  }
  if (snapshot.written > kv_.context()) {
    throw DeviceError("the snapshot holds " + std::to_string(snapshot.written) +
                      " tokens, and this context " + std::to_string(kv_.context()) +
                      "; load the model with a larger context");
  }
  const std::vector<int> capacities = kv_.capacities();
  for (size_t i = 0; i < capacities.size(); ++i) {
    // Below the smaller capacity every position lies in the row of its own number.
    const int least = std::min(capacities[i], snapshot.capacities[i]);
    if (capacities[i] != snapshot.capacities[i] && snapshot.written > least) {
      throw DeviceError(
          "the snapshot's rings have another size; load the model with the context and the prefill "
          "chunk that it was taken with");
    }
  }
  kv_.restore(snapshot.position, snapshot.written, snapshot.kv);
  std::copy(snapshot.recurrent.begin(), snapshot.recurrent.end(), recurrent_.data());
  lost_ = false;
}

}  // namespace mference
