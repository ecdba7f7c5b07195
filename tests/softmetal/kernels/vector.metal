// Element by element, in the scalar types that host_name instantiates.
#include "common.h"

constexpr constant uint kUnroll = 2;
constant float kTable[4] = {0.25f, 0.5f, 1.0f, 2.0f};

template <typename T>
[[kernel]] void scale(device const T* x [[buffer(0)]], device T* y [[buffer(1)]],
                      constant float& factor [[buffer(2)]], constant uint& count [[buffer(3)]],
                      uint i [[thread_position_in_grid]]) {
  for (uint k = i * kUnroll; k < min(count, (i + 1) * kUnroll); ++k) {
    y[k] = T(float(x[k]) * factor);
  }
}
template [[host_name("scale_float")]] [[kernel]] void scale<float>(device const float*, device float*, constant float&, constant uint&, uint);
template [[host_name("scale_half")]] [[kernel]] void scale<half>(device const half*, device half*, constant float&, constant uint&, uint);
template [[host_name("scale_bfloat")]] [[kernel]] decltype(scale<bfloat>) scale<bfloat>;

kernel void vectors(device const packed_float3* x [[buffer(0)]], device float4* y [[buffer(1)]],
                    device const ushort2* bits [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  const float3 v = float3(x[i]);
  float4 w(v.zyx, kTable[i & 3]);
  const half2 h = as_type<half2>(as_type<uint>(bits[i]));
  w.xy += float2(h);
  w = select(w, float4(-1.0f), w > 100.0f);
  y[i] = clamp(w, float4(-50.0f), float4(50.0f)) + (float4)short4(1, 2, 3, 4);
}

kernel void copy(device const Shape* from [[buffer(0)]], device Shape* to [[buffer(1)]],
                 uint i [[thread_position_in_grid]]) {
  const Shape shape = from[i];
  to[i] = {shape.columns, square(shape.rows)};
}

kernel void places(device uint* out [[buffer(0)]], uint3 grid [[thread_position_in_grid]],
                   uint3 in_group [[thread_position_in_threadgroup]],
                   uint3 group [[threadgroup_position_in_grid]],
                   uint3 extent [[threads_per_threadgroup]], uint3 groups [[threadgroups_per_grid]],
                   uint3 threads [[threads_per_grid]], uint index [[thread_index_in_threadgroup]],
                   ushort lane [[thread_index_in_simdgroup]],
                   ushort simdgroup [[simdgroup_index_in_threadgroup]],
                   uint simdgroups [[simdgroups_per_threadgroup]],
                   uint width [[threads_per_simdgroup]]) {
  device uint* at = out + 24 * (grid.x + threads.x * (grid.y + threads.y * grid.z));
  const uint values[24] = {grid.x, grid.y, grid.z, in_group.x, in_group.y, in_group.z,
                           group.x, group.y, group.z, extent.x, extent.y, extent.z,
                           groups.x, groups.y, groups.z, threads.x, threads.y, threads.z,
                           index, lane, simdgroup, simdgroups, width, 7};
  for (uint k = 0; k < 24; ++k) at[k] = values[k];
}
