// Ways of writing that C++ does not have, or has otherwise: one number of results for each.
#include "common.h"

struct alignas(8) Pair {
  half2 a;
  packed_half2 b;
};

constant float2 kPairs[2][2] = {{float2(1, 2), float2(3)}, {float2(4, 5), float2(6)}};
constant constexpr static const ushort kMask = 0xF;

template <typename T>
struct Wide {
  using type = vec<T, 4>;
};

template <typename T, int N, bool negate = false>
inline float total(vec<T, N> v) {
  float sum = 0;
  for (int i = 0; i < N; ++i) sum += float(v[i]);
  if (negate) sum = -sum;
  return sum;
}

namespace inner {
inline uint deeper(thread const uint* values, uint n) {
  uint sum = 0;
  for (uint i = 0; i < n; ++i) sum += values[i];
  return sum;
}

template <typename T, typename U = float4>
[[host_name("never")]] kernel void dialect(device float* y [[buffer(0)]], device const T* x [[buffer(1)]],
                                           constant Pair& pair [[buffer(2)]],
                                           threadgroup uint* dynamic [[threadgroup(0)]],
                                           uint i [[thread_position_in_threadgroup]],
                                           uint n [[threads_per_threadgroup]]) {
  using V = typename Wide<T>::type;
  typedef vec<float, 2> F2;
  threadgroup float square[4][8], line[4];
  threadgroup Pair shared[2];
  threadgroup vec<T, 2> vectors[3];
  if (i == 0) {
    for (uint k = 0; k < 32; ++k) square[k / 8][k % 8] = float(k);
    for (uint k = 0; k < 4; ++k) line[k] = square[k][k];
    shared[1] = pair;
    vectors[2] = vec<T, 2>(T(1), T(2));
    for (uint k = 0; k < 4; ++k) dynamic[k] = k * k;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  if (i != n - 1) return;

  const V a(x[0], x[1], x[2], x[3]);
  const V b = V(x[4]);
  const U c = U(F2(1.0f, 2.0f), 3.0f, 4.0f);
  const float4 d = float4{1, 2, 3, 4};
  const half4 h = half4(a) * 2.0h;
  const uint3 u = uint3(uchar3(250, 251, 252)) + 10;
  uint row = 0;
  y[row++] = total(a);
  y[row++] = total<T, 4, true>(b);
  y[row++] = dot(float4(c), d);
  y[row++] = float(h.x + h.w);
  y[row++] = float(u.x + u.z);
  y[row++] = total((float4)a + float4(h));
  y[row++] = (float)(int)-2.5f;
  y[row++] = line[3] + square[2][5];
  y[row++] = float(shared[1].a.y) + float(half2(shared[1].b).x) + float(shared[1].b.y);
  y[row++] = float(vectors[2].x) + float(vectors[2][1]);
  y[row++] = kPairs[1][0].y + kPairs[0][1].x;
  y[row++] = float(dynamic[3] & kMask);
  const uint numbers[3] = {1, 2, 3};
  y[row++] = float(deeper(numbers, 3));
  y[row++] = select(1.0f, 2.0f, a.x < a.y) + (all(d > 0.0f) ? 4.0f : 0.0f) + (any(d > 5.0f) ? 8.0f : 0.0f);
  float4 e = d.wzyx;
  e.xz = float2(9.0f);
  y[row++] = e.x + e.y * 10.0f + e.z * 100.0f + e.w * 1000.0f;
  y[row++] = float(as_type<ushort>(1.0h)) + as_type<float>(0x40490fdbu);
  y[row++] = 1e3 + .5 + 0x10 + 1.5e-1f;
  if constexpr (sizeof(T) == 2) {
    y[row++] = 2.0f;
  } else {
    y[row++] = 4.0f;
  }
  y[row++] = float(bfloat(1.00390625f)) + float(1.5bf);
  y[row++] = float(ushort(65535) + ushort(1)) + float(short(-7) / 2) + float(uchar(300));
  y[row++] = float(max(short(3), short(-4))) + float(min(3u, 4u)) + float(clamp(7, 1, 5));
}
}  // namespace inner
template [[host_name("dialect_"
                     "half")]] [[kernel]] void inner::dialect<half>(device float*, device const half*, constant Pair&, threadgroup uint*, uint, uint);
template [[host_name("dialect_float")]] [[kernel]] void inner::dialect<float, float4>(device float*, device const float*, constant Pair&, threadgroup uint*, uint, uint);
