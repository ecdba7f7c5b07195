// One row of results for each function.
#include "common.h"

kernel void unary(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                  uint i [[thread_position_in_grid]], uint n [[threads_per_grid]]) {
  const float v = x[i];
  const float p = fabs(v) + 0.125f;
  uint row = 0;
  y[n * row++ + i] = exp(v);
  y[n * row++ + i] = exp2(v);
  y[n * row++ + i] = precise::exp(v);
  y[n * row++ + i] = fast::exp(v);
  y[n * row++ + i] = log(p);
  y[n * row++ + i] = log2(p);
  y[n * row++ + i] = sqrt(p);
  y[n * row++ + i] = rsqrt(p);
  y[n * row++ + i] = precise::rsqrt(p);
  y[n * row++ + i] = sin(v);
  y[n * row++ + i] = cos(v);
  y[n * row++ + i] = tanh(v);
  y[n * row++ + i] = precise::tanh(v);
  y[n * row++ + i] = pow(p, v);
  y[n * row++ + i] = floor(v);
  y[n * row++ + i] = ceil(v);
  y[n * row++ + i] = trunc(v);
  y[n * row++ + i] = rint(v);
  y[n * row++ + i] = round(v);
  y[n * row++ + i] = fract(v);
  y[n * row++ + i] = sign(v);
  y[n * row++ + i] = saturate(v);
  y[n * row++ + i] = abs(v);
  y[n * row++ + i] = clamp(v, -0.5f, 0.5f);
  y[n * row++ + i] = mix(v, 2.0f * v, 0.25f);
  y[n * row++ + i] = fma(v, v, -1.0f);
  y[n * row++ + i] = fmin(v, 0.25f) + fmax(v, -0.25f);
  y[n * row++ + i] = dot(float4(v, 1.0f, 2.0f, v), float4(2.0f));
  y[n * row++ + i] = length(float3(v, 2.0f, 0.0f));
  y[n * row++ + i] = step(0.0f, v);
  y[n * row++ + i] = isnan(v) || isinf(v) ? 1.0f : 0.0f;
  y[n * row++ + i] = precise::divide(1.0f, p);
}

kernel void halves(device const half* x [[buffer(0)]], device half* y [[buffer(1)]],
                   device const bfloat* u [[buffer(2)]], device bfloat* w [[buffer(3)]],
                   uint i [[thread_position_in_grid]]) {
  y[i] = x[i] * x[i] + 0.1h;
  w[i] = u[i] * u[i] + bfloat(0.1f);
}

kernel void integers(device const uint* x [[buffer(0)]], device uint* y [[buffer(1)]],
                     uint i [[thread_position_in_grid]], uint n [[threads_per_grid]]) {
  const uint v = x[i];
  uint row = 0;
  y[n * row++ + i] = popcount(v);
  y[n * row++ + i] = clz(v);
  y[n * row++ + i] = ctz(v);
  y[n * row++ + i] = extract_bits(v, 5, 7);
  y[n * row++ + i] = insert_bits(v, 3u, 4, 8);
  y[n * row++ + i] = reverse_bits(v);
  y[n * row++ + i] = rotate(v, 9u);
  y[n * row++ + i] = mulhi(v, 0x9E3779B9u);
  y[n * row++ + i] = addsat(v, 0xF0000000u);
  y[n * row++ + i] = subsat(v, 0x10000u);
  y[n * row++ + i] = absdiff(v, 1000u);
  y[n * row++ + i] = min(v, 77u) + max(v, 99u);
  y[n * row++ + i] = uint(as_type<int>(v) >> 3);
}
