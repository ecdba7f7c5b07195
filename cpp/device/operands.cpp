#include "device/operands.h"

#include <string>

#include "base/errors.h"
#include "device/device.h"

namespace mference {

namespace {

std::byte* bytes(const View& view, size_t count, size_t element, const char* field) {
  require(static_cast<bool>(view), field, "the view is absent");
  require(view.offset <= view.buffer->size() && view.size <= view.buffer->size() - view.offset,
          field, "the view leaves its buffer");
  if (view.size / element < count) {
    throw DeviceError(std::string(field) + ": the view holds " + std::to_string(view.size) +
                      " bytes, the operation needs " + std::to_string(count * element));
  }
  std::byte* data = view.buffer->data() + view.offset;
  require(reinterpret_cast<uintptr_t>(data) % element == 0, field,
          "the view is not aligned to its elements");
  return data;
}

}  // namespace

void require(bool accepted, const char* field, const char* what) {
  if (!accepted) throw DeviceError(std::string(field) + ": " + what);
}

float* floats(const View& view, size_t count, const char* field) {
  return reinterpret_cast<float*>(bytes(view, count, sizeof(float), field));
}

int32_t* integers(const View& view, size_t count, const char* field) {
  return reinterpret_cast<int32_t*>(bytes(view, count, sizeof(int32_t), field));
}

uint16_t* halves(const View& view, size_t count, const char* field) {
  return reinterpret_cast<uint16_t*>(bytes(view, count, sizeof(uint16_t), field));
}

Matrix matrix(const Affine& affine, const char* field) {
  require(affine.rows > 0 && affine.cols > 0, field, "the matrix is empty");
  require(affine.bits == 2 || affine.bits == 4 || affine.bits == 8, field,
          "codes must have 2, 4 or 8 bits");
  require(affine.group == 32 || affine.group == 64 || affine.group == 128, field,
          "the group must be 32, 64 or 128");
  require(affine.cols % affine.group == 0, field, "columns must be a multiple of the group");
  Matrix m;
  m.rows = affine.rows;
  m.cols = affine.cols;
  m.bits = affine.bits;
  m.group = affine.group;
  const size_t rows = m.rows;
  m.weight =
      reinterpret_cast<const uint8_t*>(halves(affine.weight, rows * m.row_bytes() / 2, field));
  m.scales = halves(affine.scales, rows * m.groups(), field);
  m.biases = halves(affine.biases, rows * m.groups(), field);
  return m;
}

}  // namespace mference
