// Function constants: int, bool, float, derived from others, optional, and in the way of arguments.
#include "common.h"

constant int kWidth [[function_constant(0)]];
constant bool kAdd [[function_constant(1)]];
constant float kFactor [[function_constant(2)]];
constant float kDefault = is_function_constant_defined(kFactor) ? kFactor : 3.0f;
constant bool kWide = kWidth > 4 && !kAdd;

inline float widen(float x) { return kWide ? x * 1000.0f : x; }

kernel void specialized(device float* y [[buffer(0)]],
                        device const float* added [[buffer(1), function_constant(kAdd)]],
                        uint i [[thread_position_in_grid]]) {
  float x = widen(float(kWidth)) * kDefault;
  if (kAdd) x += added[i];
  y[i] = x;
}

kernel void plain(device float* y [[buffer(0)]], uint i [[thread_position_in_grid]]) { y[i] = 1.0f; }
