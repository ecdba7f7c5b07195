// The source of the lane kernels, included by one file for each instruction set, which defines
// kPartLanes, widen() and narrow() before and the table after. Nothing here has external linkage or
// comes from the standard library: an inline function compiled for AVX-512 must never be the copy
// that the linker keeps for everyone.

#define LANES_INLINE static inline __attribute__((always_inline))

constexpr int kLanes = 16;
constexpr int kParts = kLanes / kPartLanes;
typedef float FloatPart __attribute__((vector_size(kPartLanes * 4)));
typedef uint32_t WordPart __attribute__((vector_size(kPartLanes * 4)));
typedef uint16_t HalfPart __attribute__((vector_size(kPartLanes * 2)));

// Sixteen lanes are one register, a pair of registers or a pair of pairs. A compiler keeps these in
// registers where it would put one vector wider than a register into memory.
template <class T>
struct Pair {
  T low, high;
};

template <class T, int kCount>
struct Repeat {
  using Type = Pair<typename Repeat<T, kCount / 2>::Type>;
};
template <class T>
struct Repeat<T, 1> {
  using Type = T;
};
using Lanes = Repeat<FloatPart, kParts>::Type;
using Words = Repeat<WordPart, kParts>::Type;

template <class T>
LANES_INLINE Pair<T> operator+(Pair<T> a, Pair<T> b) {
  return {a.low + b.low, a.high + b.high};
}
template <class T>
LANES_INLINE Pair<T> operator-(Pair<T> a, Pair<T> b) {
  return {a.low - b.low, a.high - b.high};
}
template <class T>
LANES_INLINE Pair<T> operator*(Pair<T> a, Pair<T> b) {
  return {a.low * b.low, a.high * b.high};
}
template <class T>
LANES_INLINE Pair<T> operator/(Pair<T> a, Pair<T> b) {
  return {a.low / b.low, a.high / b.high};
}
template <class T>
LANES_INLINE Pair<T> operator&(Pair<T> a, Pair<T> b) {
  return {a.low & b.low, a.high & b.high};
}
template <class T>
LANES_INLINE Pair<T> operator|(Pair<T> a, Pair<T> b) {
  return {a.low | b.low, a.high | b.high};
}
template <class T>
LANES_INLINE Pair<T> operator<<(Pair<T> a, int b) {
  return {a.low << b, a.high << b};
}

LANES_INLINE WordPart words(FloatPart a) {
  return (WordPart)a;
}
LANES_INLINE FloatPart lanes(WordPart a) {
  return (FloatPart)a;
}
template <class T>
LANES_INLINE auto words(Pair<T> a) {
  return Pair{words(a.low), words(a.high)};
}
template <class T>
LANES_INLINE auto lanes(Pair<T> a) {
  return Pair{lanes(a.low), lanes(a.high)};
}

// a < b ? x : y in each lane.
template <class T, class U>
LANES_INLINE U where_less(T a, T b, U x, U y) {
  return a < b ? x : y;
}
template <class T, class U>
LANES_INLINE Pair<U> where_less(Pair<T> a, Pair<T> b, Pair<U> x, Pair<U> y) {
  return {where_less(a.low, b.low, x.low, y.low), where_less(a.high, b.high, x.high, y.high)};
}

template <class T>
LANES_INLINE void read(T& v, const void* p) {
  __builtin_memcpy(&v, p, sizeof(v));
}
template <class T>
LANES_INLINE void read(Pair<T>& v, const void* p) {
  read(v.low, p);
  read(v.high, static_cast<const char*>(p) + sizeof(T));
}
template <class T>
LANES_INLINE void write(void* p, T v) {
  __builtin_memcpy(p, &v, sizeof(v));
}
template <class T>
LANES_INLINE void write(void* p, Pair<T> v) {
  write(p, v.low);
  write(static_cast<char*>(p) + sizeof(T), v.high);
}

LANES_INLINE void fill(FloatPart& v, float x) {
  v = x - FloatPart{};
}
LANES_INLINE void fill(WordPart& v, uint32_t x) {
  v = x - WordPart{};
}
template <class T, class U>
LANES_INLINE void fill(Pair<T>& v, U x) {
  fill(v.low, x);
  v.high = v.low;
}

LANES_INLINE void read_bf16(FloatPart& v, const uint16_t* p) {
  HalfPart h;
  read(h, p);
  v = lanes(__builtin_convertvector(h, WordPart) << 16);
}
template <class T>
LANES_INLINE void read_bf16(Pair<T>& v, const uint16_t* p) {
  read_bf16(v.low, p);
  read_bf16(v.high, p + sizeof(T) / sizeof(float));
}

LANES_INLINE Lanes load(const float* p) {
  Lanes v;
  read(v, p);
  return v;
}
LANES_INLINE Lanes load_bf16(const uint16_t* p) {
  Lanes v;
  read_bf16(v, p);
  return v;
}
LANES_INLINE void store(float* p, Lanes v) {
  write(p, v);
}

LANES_INLINE Lanes broadcast(float x) {
  Lanes v;
  fill(v, x);
  return v;
}
LANES_INLINE Words broadcast(uint32_t x) {
  Words v;
  fill(v, x);
  return v;
}

LANES_INLINE Lanes load_first(const float* p, int n) {
  float v[kLanes] = {};
  __builtin_memcpy(v, p, n * sizeof(float));
  return load(v);
}

LANES_INLINE void store_first(float* p, Lanes v, int n) {
  float all[kLanes];
  store(all, v);
  __builtin_memcpy(p, all, n * sizeof(float));
}

LANES_INLINE Lanes larger(Lanes a, Lanes b) {
  return where_less(a, b, b, a);
}

// Lane i and lane i + 8, then 4, 2, 1 apart.
LANES_INLINE float sum(Lanes v) {
  float a[kLanes];
  store(a, v);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a[i] += a[i + half];
  }
  return a[0];
}

LANES_INLINE float maximum(Lanes v) {
  float a[kLanes];
  store(a, v);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a[i] = a[i] < a[i + half] ? a[i + half] : a[i];
  }
  return a[0];
}

typedef float Four __attribute__((vector_size(16)));
typedef float Eight __attribute__((vector_size(32)));
typedef float Sixteen __attribute__((vector_size(64)));

// out[i] = sum of the lanes of v[i], added as sum() adds them, for as many v as a register has
// lanes: each step adds the halves of all runs and packs the results of two registers into one.
LANES_INLINE void sums_of(const Four* v, float* out) {
  Four a[2];
  for (int i = 0; i < 2; ++i) {
    const Four x = v[2 * i], y = v[2 * i + 1];
    a[i] = __builtin_shufflevector(x, y, 0, 1, 4, 5) + __builtin_shufflevector(x, y, 2, 3, 6, 7);
  }
  const Four b = __builtin_shufflevector(a[0], a[1], 0, 2, 4, 6) +
                 __builtin_shufflevector(a[0], a[1], 1, 3, 5, 7);
  __builtin_memcpy(out, &b, sizeof(b));
}

LANES_INLINE void sums_of(const Eight* v, float* out) {
  Eight a[4], b[2];
  for (int i = 0; i < 4; ++i) {
    const Eight x = v[2 * i], y = v[2 * i + 1];
    a[i] = __builtin_shufflevector(x, y, 0, 1, 2, 3, 8, 9, 10, 11) +
           __builtin_shufflevector(x, y, 4, 5, 6, 7, 12, 13, 14, 15);
  }
  for (int i = 0; i < 2; ++i) {
    const Eight x = a[2 * i], y = a[2 * i + 1];
    b[i] = __builtin_shufflevector(x, y, 0, 1, 8, 9, 4, 5, 12, 13) +
           __builtin_shufflevector(x, y, 2, 3, 10, 11, 6, 7, 14, 15);
  }
  const Eight c = __builtin_shufflevector(b[0], b[1], 0, 2, 8, 10, 4, 6, 12, 14) +
                  __builtin_shufflevector(b[0], b[1], 1, 3, 9, 11, 5, 7, 13, 15);
  const Eight d = __builtin_shufflevector(c, c, 0, 4, 1, 5, 2, 6, 3, 7);
  __builtin_memcpy(out, &d, sizeof(d));
}

LANES_INLINE void sums_of(const Sixteen* v, float* out) {
  Sixteen a[8], b[4], c[2];
  for (int i = 0; i < 8; ++i) {
    const Sixteen x = v[2 * i], y = v[2 * i + 1];
    a[i] =
        __builtin_shufflevector(x, y, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
        __builtin_shufflevector(x, y, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  }
  for (int i = 0; i < 4; ++i) {
    const Sixteen x = a[2 * i], y = a[2 * i + 1];
    b[i] =
        __builtin_shufflevector(x, y, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
        __builtin_shufflevector(x, y, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
  }
  for (int i = 0; i < 2; ++i) {
    const Sixteen x = b[2 * i], y = b[2 * i + 1];
    c[i] =
        __builtin_shufflevector(x, y, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
        __builtin_shufflevector(x, y, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
  }
  const Sixteen d = __builtin_shufflevector(c[0], c[1], 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26,
                                            12, 14, 28, 30) +
                    __builtin_shufflevector(c[0], c[1], 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27,
                                            13, 15, 29, 31);
  const Sixteen e =
      __builtin_shufflevector(d, d, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  __builtin_memcpy(out, &e, sizeof(e));
}

// The register that is left when halves of sixteen lanes are added: the first steps of sum().
LANES_INLINE FloatPart folded(FloatPart v) {
  return v;
}
template <class T>
LANES_INLINE FloatPart folded(Pair<T> v) {
  return folded(v.low + v.high);
}

// out[i] = sum(v[i]) for sixteen v.
LANES_INLINE void sums(const Lanes* v, float* out) {
  FloatPart whole[kLanes];
  for (int i = 0; i < kLanes; ++i) whole[i] = folded(v[i]);
  for (int i = 0; i < kLanes; i += kPartLanes) sums_of(whole + i, out + i);
}

// exp to 2 units in the last place; 0 below -87 and infinity above 88. Polynomial of Cephes' expf.
LANES_INLINE Lanes exponential(Lanes x) {
  const auto c = [](float constant) { return broadcast(constant); };
  const Lanes magic = c(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Lanes shifted = x * c(1.44269504088896341f) + magic;
  const Lanes n = shifted - magic;
  const Lanes r = (x - n * c(0.693359375f)) - n * c(-2.12194440e-4f);
  Lanes p = r * c(1.9875691500e-4f) + c(1.3981999507e-3f);
  p = p * r + c(8.3334519073e-3f);
  p = p * r + c(4.1665795894e-2f);
  p = p * r + c(1.6666665459e-1f);
  p = p * r + c(5.0000001201e-1f);
  p = p * (r * r) + r + c(1.0f);
  const Words power = (words(shifted) + broadcast(127u - 0x4b400000u)) << 23;
  const Lanes y = p * lanes(power);
  const Lanes flushed = where_less(x, c(-87.0f), c(0.0f), y);
  return where_less(c(88.0f), x, c(__builtin_inff()), flushed);
}

// tanh to 2 units in the last place: Cephes' polynomial near zero, else from exp.
LANES_INLINE Lanes hyperbolic_tangent(Lanes x) {
  const auto c = [](float constant) { return broadcast(constant); };
  const Lanes magnitude = lanes(words(x) & broadcast(0x7fffffffu));
  const Words sign = words(x) & broadcast(0x80000000u);
  const Lanes z = x * x;
  Lanes p = z * c(-5.70498872745e-3f) + c(2.06390887954e-2f);
  p = p * z + c(-5.37397155531e-2f);
  p = p * z + c(1.33314422036e-1f);
  p = p * z + c(-3.33332819422e-1f);
  const Lanes near = p * z * x + x;
  const Lanes far = c(1.0f) - c(2.0f) / (exponential(magnitude + magnitude) + c(1.0f));
  return where_less(magnitude, c(0.625f), near, lanes(words(far) | sign));
}

// 0.5 u (1 + tanh(v)) = u / (1 + exp(-2 v)), which loses nothing where tanh is near -1.
LANES_INLINE Lanes gelu(Lanes u) {
  const Lanes v = u + u * u * u * broadcast(0.044715f);
  return u / (exponential(v * broadcast(-1.5957691216057308f)) + broadcast(1.0f));
}

LANES_INLINE Lanes silu(Lanes u) {
  return u / (exponential(u * broadcast(-1.0f)) + broadcast(1.0f));
}

static void norm(const float* x, const uint16_t* weight, int n, float eps, float* out) {
  Lanes total = broadcast(0.0f);
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) total = total + load(x + i) * load(x + i);
  if (i < n) {
    const Lanes rest = load_first(x + i, n - i);
    total = total + rest * rest;
  }
  const float inverse = 1.0f / __builtin_sqrtf(sum(total) / float(n) + eps);
  for (i = 0; i + kLanes <= n; i += kLanes) {
    const Lanes y = load(x + i) * broadcast(inverse);
    store(out + i, weight ? y * load_bf16(weight + i) : y);
  }
  for (; i < n; ++i) {
    const float y = x[i] * inverse;
    out[i] = weight ? y * __builtin_bit_cast(float, uint32_t(weight[i]) << 16) : y;
  }
}

// x[i] = f(x[i], i) sixteen lanes at a time, where f also loads what else it needs.
template <class F>
LANES_INLINE void for_lanes(float* x, int n, const F& f) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    store(x + i, f(load(x + i), [i](const float* y) { return load(y + i); }));
  }
  const int rest = n - i;
  if (rest == 0) return;
  store_first(
      x + i,
      f(load_first(x + i, rest), [i, rest](const float* y) { return load_first(y + i, rest); }),
      rest);
}

static void gate(Activation activation, float* gate, const float* up, int n) {
  if (activation == Activation::kGeluTanh) {
    for_lanes(gate, n, [up](Lanes u, auto at) { return gelu(u) * at(up); });
  } else {
    for_lanes(gate, n, [up](Lanes u, auto at) { return silu(u) * at(up); });
  }
}

static void open_gate(float* x, const float* gate, int n) {
  for_lanes(x, n, [gate](Lanes v, auto at) {
    return v / (exponential(at(gate) * broadcast(-1.0f)) + broadcast(1.0f));
  });
}

// Sixteen channels from `c`; the first product starts the sum.
static void convolve(const float* const* rows, const float* const* weights, int taps, int n,
                     float* out) {
  for (int c = 0; c < n; c += kLanes) {
    const int count = n - c < kLanes ? n - c : kLanes;
    const auto at = [c, count](const float* p) {
      return count == kLanes ? load(p + c) : load_first(p + c, count);
    };
    Lanes total = at(rows[0]) * at(weights[0]);
    for (int j = 1; j < taps; ++j) total = total + at(rows[j]) * at(weights[j]);
    if (count == kLanes) {
      store(out + c, silu(total));
    } else {
      store_first(out + c, silu(total), count);
    }
  }
}

// Both products with the state before it changes: S' q = g S q + d (k . q), so one pass reads it.
static void delta(const DeltaStep& step, float* state, int rows, float* out) {
  for (int first = 0; first < rows; first += kLanes) {
    float* block = state + first * step.key_dim;
    Lanes with_k[kLanes], with_q[kLanes];
    for (int r = 0; r < kLanes; ++r) {
      const float* row = block + r * step.key_dim;
      Lanes k = load(row) * load(step.k), q = load(row) * load(step.q);
      for (int i = kLanes; i < step.key_dim; i += kLanes) {
        const Lanes s = load(row + i);
        k = k + s * load(step.k + i);
        q = q + s * load(step.q + i);
      }
      with_k[r] = k;
      with_q[r] = q;
    }
    float recalled[kLanes], answered[kLanes], changes[kLanes];
    sums(with_k, recalled);
    sums(with_q, answered);
    const Lanes decay = broadcast(step.decay);
    const Lanes change = broadcast(step.beta) * (load(step.v + first) - decay * load(recalled));
    store(changes, change);
    store(out + first, decay * load(answered) + change * broadcast(step.kq));
    for (int r = 0; r < kLanes; ++r) {
      float* row = block + r * step.key_dim;
      const Lanes d = broadcast(changes[r]);
      for (int i = 0; i < step.key_dim; i += kLanes) {
        store(row + i, decay * load(row + i) + d * load(step.k + i));
      }
    }
  }
}

static float dot(const float* a, const float* b, int n) {
  Lanes total = load(a) * load(b);
  for (int i = kLanes; i < n; i += kLanes) total = total + load(a + i) * load(b + i);
  return sum(total);
}

static void softcap(float* x, int n, float cap) {
  for_lanes(x, n, [cap](Lanes z, auto) {
    return hyperbolic_tangent(z / broadcast(cap)) * broadcast(cap);
  });
}

static float sum_exp(const float* x, int n, float max) {
  Lanes total = broadcast(0.0f);
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) total = total + exponential(load(x + i) - broadcast(max));
  float rest = 0.0f;
  if (i < n) {
    float tail[kLanes];
    store(tail, exponential(load_first(x + i, n - i) - broadcast(max)));
    for (int j = 0; j < n - i; ++j) rest += tail[j];
  }
  return sum(total) + rest;
}

static void narrow_row(const float* x, int n, uint16_t* out) {
  for (int i = 0; i < n; i += kLanes) {
    const int count = n - i < kLanes ? n - i : kLanes;
    if (count == kLanes) {
      narrow(x + i, out + i);
      continue;
    }
    float rest[kLanes];
    uint16_t h[kLanes];
    store(rest, load_first(x + i, count));
    narrow(rest, h);
    __builtin_memcpy(out + i, h, count * sizeof(uint16_t));
  }
}

// Codes of one group in natural order, and the group's scale and sum.
LANES_INLINE void quantize_group(const float* x, int group, int32_t* codes, float* scale,
                                 float* sum) {
  // Compared as integers, magnitudes order NaN above infinity above every number.
  Words top = broadcast(0u);
  for (int i = 0; i < group; i += kLanes) {
    const Words magnitude = words(load(x + i)) & broadcast(0x7fffffffu);
    top = where_less(top, magnitude, magnitude, top);
  }
  uint32_t largest = 0;
  uint32_t tops[kLanes];
  write(tops, top);
  for (int i = 0; i < kLanes; ++i) largest = largest < tops[i] ? tops[i] : largest;
  if (largest >= 0x7f800000u || largest < 0x0d800000u) {
    // Not finite: the whole group becomes NaN. Below 2^-100, where 1 / scale would overflow: zero.
    *scale = largest >= 0x7f800000u ? __builtin_nanf("") : 0.0f;
    *sum = *scale;
    for (int i = 0; i < group; ++i) codes[i] = 0;
    return;
  }
  const float max = __builtin_bit_cast(float, largest);
  const float inverse = 32767.0f / max;
  const float magic = 12582912.0f;
  Words total = broadcast(0u);
  for (int i = 0; i < group; i += kLanes) {
    const Words q =
        words(load(x + i) * broadcast(inverse) + broadcast(magic)) - broadcast(0x4b400000u);
    write(codes + i, q);
    total = total + q;
  }
  uint32_t totals[kLanes];
  write(totals, total);
  uint32_t all = 0;
  for (int i = 0; i < kLanes; ++i) all += totals[i];
  *scale = max / 32767.0f;
  *sum = *scale * float(int32_t(all));
}

static void quantize(const float* x, int cols, int group, Layout layout, int16_t* codes,
                     float* scales, float* sums) {
  alignas(64) int32_t q[128];
  for (int g = 0; g < cols / group; ++g) {
    quantize_group(x + g * group, group, q, scales + g, sums + g);
    if (layout == Layout::kNibbles) {
      int16_t* block = codes + (g / 2) * 128 + (g % 2) * 16;
      for (int plane = 0; plane < 4; ++plane) {
        for (int i = 0; i < 16; ++i) block[plane * 32 + i] = int16_t(q[4 * i + plane]);
      }
    } else if (layout == Layout::kBytes) {
      for (int i = 0; i < 64; ++i) codes[g * 64 + i] = int16_t(q[2 * (i % 32) + i / 32]);
    } else {
      for (int i = 0; i < group; ++i) codes[g * group + i] = int16_t(q[i]);
    }
  }
}

// The rows of sixteen positions from `start` (a multiple of sixteen) as float32; rows outside
// [begin, end) are zero.
static void widen_rows(const AttentionTile& tile, const std::byte* base, int start, int begin,
                       int end, float* rows) {
  for (int i = 0; i < kLanes; ++i) {
    float* out = rows + i * tile.dim;
    const int position = start + i;
    if (position < begin || position >= end) {
      __builtin_memset(out, 0, tile.dim * sizeof(float));
      continue;
    }
    const std::byte* row = base + size_t(position % tile.capacity) * tile.stride;
    if (!tile.half) {
      __builtin_memcpy(out, row, tile.dim * sizeof(float));
      continue;
    }
    for (int d = 0; d < tile.dim; d += kLanes) {
      uint16_t h[kLanes];
      __builtin_memcpy(h, row + d * sizeof(uint16_t), sizeof(h));
      widen(h, out + d);
    }
  }
}

// out[i * kStep + j] = lane sums of query i times row j.
template <int kQueries, int kRows, int kStep>
LANES_INLINE void dots(const float* const* query, const float* rows, int dim, Lanes* out) {
  Lanes acc[kQueries][kRows];
  for (int i = 0; i < kQueries; ++i) {
    for (int j = 0; j < kRows; ++j) acc[i][j] = broadcast(0.0f);
  }
  for (int d = 0; d < dim; d += kLanes) {
    Lanes row[kRows];
#pragma GCC unroll 16
    for (int j = 0; j < kRows; ++j) row[j] = load(rows + j * dim + d);
#pragma GCC unroll 16
    for (int i = 0; i < kQueries; ++i) {
      const Lanes q = load(query[i] + d);
#pragma GCC unroll 16
      for (int j = 0; j < kRows; ++j) acc[i][j] = acc[i][j] + q * row[j];
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kRows; ++j) out[i * kStep + j] = acc[i][j];
  }
}

// The dot products of kQueries queries with sixteen rows, [query][kBlock] apart.
template <int kQueries>
LANES_INLINE void scores_of(const float* const* query, const float* rows, int dim, float* scores) {
  constexpr int kStep = kLanes / kQueries;
  // Sixteen accumulators at once if each is one register, else four.
  constexpr int kQ = kParts == 1 || kQueries == 1 ? kQueries : 2;
  constexpr int kR = kParts == 1 ? kStep : 4 / kQ;
  for (int j = 0; j < kLanes; j += kStep) {
    Lanes acc[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kQueries; i += kQ) {
      for (int r = 0; r < kStep; r += kR) {
        dots<kQ, kR, kStep>(query + i, rows + (j + r) * dim, dim, acc + i * kStep + r);
      }
    }
    float all[kLanes];
    sums(acc, all);
#pragma GCC unroll 16
    for (int i = 0; i < kQueries; ++i) {
      __builtin_memcpy(scores + i * AttentionTile::kBlock + j, all + i * kStep,
                       kStep * sizeof(float));
    }
  }
}

// out[i] += sum over sixteen rows, in order, of weight[i][row] * row, for kVectors vectors from d.
template <int kQueries, int kVectors>
LANES_INLINE void weigh(const float* weights, const float* rows, int dim, int d,
                        Average* const out) {
  Lanes acc[kQueries][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) acc[i][v] = load(out[i].out + d + v * kLanes);
  }
  for (int j = 0; j < kLanes; ++j) {
    Lanes row[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) row[v] = load(rows + j * dim + d + v * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kQueries; ++i) {
      const Lanes w = broadcast(weights[i * AttentionTile::kBlock + j]);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) acc[i][v] = acc[i][v] + row[v] * w;
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) store(out[i].out + d + v * kLanes, acc[i][v]);
  }
}

template <int kQueries>
LANES_INLINE void weigh_all(const float* weights, const float* rows, int dim, Average* out) {
  constexpr int kVectors = kParts == 1 ? 4 : 2;
  int d = 0;
  for (; d + kVectors * kLanes <= dim; d += kVectors * kLanes) {
    weigh<kQueries, kVectors>(weights, rows, dim, d, out);
  }
  for (; d < dim; d += kLanes) weigh<kQueries, 1>(weights, rows, dim, d, out);
}

// Scores of one query become weights exp(s - max); positions outside its range weigh nothing.
static void soften(const AttentionTile& tile, int query, int start, int count, float* scores,
                   Average* out) {
  if (tile.last[query] <= start || tile.first[query] >= start + count) {
    __builtin_memset(scores, 0, count * sizeof(float));
    out->max = -__builtin_inff();
    out->sum = 0.0f;
    return;
  }
  const uint32_t numbers[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  Words ramp;
  read(ramp, numbers);
  const Words span = broadcast(uint32_t(tile.last[query] - tile.first[query]));
  const Lanes scale = broadcast(tile.scale);
  const Lanes none = broadcast(-__builtin_inff());
  Lanes top = none;
  for (int i = 0; i < count; i += kLanes) {
    // One unsigned comparison answers first <= position < last.
    const Words offset = ramp + broadcast(uint32_t(start + i - tile.first[query]));
    const Lanes s = where_less(offset, span, load(scores + i) * scale, none);
    store(scores + i, s);
    top = larger(top, s);
  }
  out->max = maximum(top);
  Lanes total = broadcast(0.0f);
  for (int i = 0; i < count; i += kLanes) {
    const Lanes weight = exponential(load(scores + i) - broadcast(out->max));
    store(scores + i, weight);
    total = total + weight;
  }
  out->sum = sum(total);
}

static void attend(const AttentionTile& tile, int begin, int end, Average* out) {
  alignas(64) float scores[AttentionTile::kQueries * AttentionTile::kBlock];
  alignas(64) float rows[kLanes * AttentionTile::kMaxDim];
  const int start = begin / kLanes * kLanes;
  const int count = (end - start + kLanes - 1) / kLanes * kLanes;
  const int queries = tile.count;
  for (int i = 0; i < count; i += kLanes) {
    widen_rows(tile, tile.keys, start + i, begin, end, rows);
    int q = 0;
    float* at = scores + i;
    constexpr int kBlock = AttentionTile::kBlock;
    for (; q + 4 <= queries; q += 4) scores_of<4>(tile.query + q, rows, tile.dim, at + q * kBlock);
    for (; q + 2 <= queries; q += 2) scores_of<2>(tile.query + q, rows, tile.dim, at + q * kBlock);
    for (; q < queries; ++q) scores_of<1>(tile.query + q, rows, tile.dim, at + q * kBlock);
  }
  for (int q = 0; q < queries; ++q) {
    soften(tile, q, start, count, scores + q * AttentionTile::kBlock, out + q);
    __builtin_memset(out[q].out, 0, tile.dim * sizeof(float));
  }
  for (int i = 0; i < count; i += kLanes) {
    widen_rows(tile, tile.values, start + i, begin, end, rows);
    int q = 0;
    const float* at = scores + i;
    constexpr int kBlock = AttentionTile::kBlock;
    if (kParts == 1) {
      for (; q + 4 <= queries; q += 4) weigh_all<4>(at + q * kBlock, rows, tile.dim, out + q);
    }
    for (; q + 2 <= queries; q += 2) weigh_all<2>(at + q * kBlock, rows, tile.dim, out + q);
    for (; q < queries; ++q) weigh_all<1>(at + q * kBlock, rows, tile.dim, out + q);
  }
}

static void merge(const Average& part, int dim, Average& total) {
  if (part.sum == 0.0f) return;
  if (total.sum == 0.0f) {
    total.max = part.max;
    total.sum = part.sum;
    __builtin_memcpy(total.out, part.out, dim * sizeof(float));
    return;
  }
  const float max = total.max < part.max ? part.max : total.max;
  const Lanes keep = exponential(broadcast(total.max - max));
  const Lanes take = exponential(broadcast(part.max - max));
  total.max = max;
  float sum[kLanes];
  store(sum, broadcast(total.sum) * keep + broadcast(part.sum) * take);
  total.sum = sum[0];
  for (int d = 0; d < dim; d += kLanes) {
    store(total.out + d, load(total.out + d) * keep + load(part.out + d) * take);
  }
}
