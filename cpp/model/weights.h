// The common weights: one mapped file, tensors by name.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "device/device.h"

namespace mference {

// Where one tensor lies in `model_weights.bin`: absolute offsets and sizes in bytes. Companions of
// size 0 are absent.
struct Tensor {
  size_t offset = 0, size = 0;
  size_t scale_offset = 0, scale_size = 0;
  size_t bias_offset = 0, bias_size = 0;
};

class Weights {
 public:
  Weights(Device& device, const std::string& path, std::unordered_map<std::string, Tensor> tensors);

  // The quantized matrix `name`.weight; bits and group follow from the sizes. Raises
  // TensorNotFound if it is absent and DeviceError if its sizes do not fit the shape.
  Affine affine(const std::string& name, int rows, int cols) const;
  // The BF16 vector `name` of `count` elements.
  View vector(const std::string& name, int count) const;
  // The vector `name` of `count` numbers, stored in BF16 or float32.
  std::vector<float> numbers(const std::string& name, int count) const;
  size_t bytes() const { return file_.size(); }

 private:
  const Tensor& find(const std::string& name) const;

  MappedFile file_;
  std::unique_ptr<Buffer> buffer_;
  std::unordered_map<std::string, Tensor> tensors_;
};

}  // namespace mference
