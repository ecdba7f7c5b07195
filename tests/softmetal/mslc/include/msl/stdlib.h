// Metal's standard library for clang's C++: what a rewritten .metal source includes. No system
// header is in sight, as on Metal, so that no overload for double is either.
#pragma once

#include "types.h"
#include "traits.h"
#include "vector.h"
#include "math.h"
#include "integer.h"
#include "target.h"
#include "simd.h"
#include "quad.h"
#include "matrix.h"
#include "atomic.h"
