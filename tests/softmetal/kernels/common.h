#pragma once

#include <metal_stdlib>
using namespace metal;

struct Shape {
  uint rows;
  uint columns;
};

template <typename T>
inline T square(T x) {
  return x * x;
}
