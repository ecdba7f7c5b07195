#include "model/weights.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "base/numeric.h"

namespace mference {

Weights::Weights(Device& device, const std::string& path,
                 std::unordered_map<std::string, Tensor> tensors)
    : file_(path), tensors_(std::move(tensors)) {
  std::vector<Range> spans;
  for (const auto& [name, t] : tensors_) {
    for (const auto& [offset, size] : {std::pair{t.offset, t.size},
                                       {t.scale_offset, t.scale_size},
                                       {t.bias_offset, t.bias_size}}) {
      if (size > file_.size() || offset > file_.size() - size) {
        throw DeviceError("tensor " + name + " lies outside " + path);
      }
      if (size > 0) spans.push_back({offset, offset + size});
    }
  }
  buffer_ = device.wrap(file_.data(), file_.size(), spans);
}

const Tensor& Weights::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    throw TensorNotFound("the install has no tensor '" + name + "'; reinstall the model");
  }
  return found->second;
}

Affine Weights::affine(const std::string& name, int rows, int cols) const {
  const Tensor& t = find(name + ".weight");
  const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(cols);
  Affine matrix;
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.bits = static_cast<int>(t.size * 8 / count);
  const size_t groups = t.scale_size / 2;
  const bool fits = (matrix.bits == 2 || matrix.bits == 4 || matrix.bits == 8) &&
                    t.size * 8 == count * static_cast<size_t>(matrix.bits) && groups > 0 &&
                    count % groups == 0 && t.bias_size == t.scale_size &&
                    static_cast<size_t>(cols) % (count / groups) == 0;
  if (!fits) {
    throw DeviceError("tensor " + name + " does not have the sizes of an affine matrix of " +
                      std::to_string(rows) + " x " + std::to_string(cols));
  }
  matrix.group = static_cast<int>(count / groups);
  matrix.weight = {buffer_.get(), t.offset, t.size};
  matrix.scales = {buffer_.get(), t.scale_offset, t.scale_size};
  matrix.biases = {buffer_.get(), t.bias_offset, t.bias_size};
  return matrix;
}

View Weights::vector(const std::string& name, int count) const {
  const Tensor& t = find(name);
  if (t.size != static_cast<size_t>(count) * 2) {
    throw DeviceError("tensor " + name + " should hold " + std::to_string(count) +
                      " BF16 values and has " + std::to_string(t.size) + " bytes");
  }
  return {buffer_.get(), t.offset, t.size};
}

std::vector<float> Weights::numbers(const std::string& name, int count) const {
  const Tensor& t = find(name);
  std::vector<float> values(count);
  if (t.size == values.size() * sizeof(float)) {
    std::memcpy(values.data(), file_.data() + t.offset, t.size);
    return values;
  }
  const View view = vector(name, count);
  std::vector<uint16_t> bits(count);
  std::memcpy(bits.data(), file_.data() + view.offset, view.size);
  std::transform(bits.begin(), bits.end(), values.begin(), bf16_to_float);
  return values;
}

}  // namespace mference
