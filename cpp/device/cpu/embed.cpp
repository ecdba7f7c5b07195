#include <string>

#include "base/errors.h"
#include "base/numeric.h"
#include "device/cpu/execute.h"
#include "device/operands.h"

namespace mference::cpu {

namespace {

void embed_row(const Matrix& table, int row, float scale, float* out) {
  const uint8_t* packed = table.weight_row(row);
  const int per_byte = 8 / table.bits;
  const int mask = (1 << table.bits) - 1;
  for (int g = 0; g < table.groups(); ++g) {
    const float step = bf16_to_float(table.scale_row(row)[g]);
    const float bias = bf16_to_float(table.bias_row(row)[g]);
    for (int j = g * table.group; j < (g + 1) * table.group; ++j) {
      const int code = (packed[j / per_byte] >> (j % per_byte * table.bits)) & mask;
      out[j] = (step * static_cast<float>(code) + bias) * scale;
    }
  }
}

}  // namespace

void execute(const EmbedRows& op, Context& context) {
  const Matrix table = matrix(op.table, "EmbedRows.table");
  const int32_t* tokens = integers(op.tokens, op.rows, "EmbedRows.tokens");
  float* out = floats(op.out, size_t(op.rows) * table.cols, "EmbedRows.out");
  for (int r = 0; r < op.rows; ++r) {
    if (tokens[r] < 0 || tokens[r] >= table.rows) {
      throw DeviceError("EmbedRows.tokens: token " + std::to_string(tokens[r]) +
                        " is outside the table of " + std::to_string(table.rows) + " rows");
    }
  }
  context.pool.run(op.rows, size_t(table.cols) * 8, [&](int r) {
    embed_row(table, tokens[r], op.scale, out + size_t(r) * table.cols);
  });
}

}  // namespace mference::cpu
