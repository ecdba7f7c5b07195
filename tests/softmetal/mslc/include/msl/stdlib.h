// Metal's standard library for clang's C++: what a rewritten .metal source includes. No system
// header is in sight, as on Metal, so that no overload for double is either.
#pragma once

#include "atomic.h"
#include "integer.h"
#include "math.h"
#include "matrix.h"
#include "quad.h"
#include "simd.h"
#include "target.h"
#include "traits.h"
#include "types.h"
#include "vector.h"
