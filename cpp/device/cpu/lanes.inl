// The source of the lane kernels, included by one file for each instruction set, which defines
// widen() and narrow() before and the table after. Nothing here has external linkage or comes from
// the standard library: an inline function compiled for AVX-512 must never be the copy that the
// linker keeps for everyone.

constexpr int kLanes = 16;
#if defined(__AVX512F__)
constexpr bool kWide = true;  // thirty-two registers of sixteen lanes
#else
constexpr bool kWide = false;
#endif

#define LANES_INLINE static inline __attribute__((always_inline))

LANES_INLINE Lanes load(const float* p) {
  Lanes v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}

LANES_INLINE void store(float* p, Lanes v) {
  __builtin_memcpy(p, &v, sizeof(v));
}

LANES_INLINE Lanes load_first(const float* p, int n) {
  Lanes v = {};
  __builtin_memcpy(&v, p, n * sizeof(float));
  return v;
}

LANES_INLINE void store_first(float* p, Lanes v, int n) {
  __builtin_memcpy(p, &v, n * sizeof(float));
}

LANES_INLINE Lanes load_bf16(const uint16_t* p) {
  Halves h;
  __builtin_memcpy(&h, p, sizeof(h));
  return (Lanes)(__builtin_convertvector(h, Words) << 16);
}

LANES_INLINE Lanes broadcast(float x) {
  return Lanes{} + x;
}

LANES_INLINE Lanes larger(Lanes a, Lanes b) {
  return a < b ? b : a;
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

// Lane i of the result is sum(v[i]): the same additions as sum(), sixteen trees at a time.
LANES_INLINE Lanes sums(const Lanes* v) {
  Lanes a[8], b[4], c[2];
  for (int i = 0; i < 8; ++i) {
    const Lanes x = v[2 * i], y = v[2 * i + 1];
    a[i] =
        __builtin_shufflevector(x, y, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
        __builtin_shufflevector(x, y, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  }
  for (int i = 0; i < 4; ++i) {
    const Lanes x = a[2 * i], y = a[2 * i + 1];
    b[i] =
        __builtin_shufflevector(x, y, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
        __builtin_shufflevector(x, y, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
  }
  for (int i = 0; i < 2; ++i) {
    const Lanes x = b[2 * i], y = b[2 * i + 1];
    c[i] =
        __builtin_shufflevector(x, y, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
        __builtin_shufflevector(x, y, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
  }
  const Lanes d = __builtin_shufflevector(c[0], c[1], 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12,
                                          14, 28, 30) +
                  __builtin_shufflevector(c[0], c[1], 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13,
                                          15, 29, 31);
  return __builtin_shufflevector(d, d, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
}

// exp to 2 units in the last place; 0 below -87 and infinity above 88. Polynomial of Cephes' expf.
LANES_INLINE Lanes exponential(Lanes x) {
  const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const Lanes shifted = x * 1.44269504088896341f + magic;
  const Lanes n = shifted - magic;
  const Lanes r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  Lanes p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const Words power = ((Words)shifted - 0x4b400000u + 127u) << 23;
  const Lanes y = p * (Lanes)power;
  const Lanes flushed = x < -87.0f ? Lanes{} : y;
  return x > 88.0f ? broadcast(__builtin_inff()) : flushed;
}

// tanh to 2 units in the last place: Cephes' polynomial near zero, else from exp.
LANES_INLINE Lanes hyperbolic_tangent(Lanes x) {
  const Lanes magnitude = (Lanes)((Words)x & 0x7fffffffu);
  const Words sign = (Words)x & 0x80000000u;
  const Lanes z = x * x;
  Lanes p = z * -5.70498872745e-3f + 2.06390887954e-2f;
  p = p * z + -5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z + -3.33332819422e-1f;
  const Lanes near = p * z * x + x;
  const Lanes far = 1.0f - 2.0f / (exponential(magnitude * 2.0f) + 1.0f);
  return magnitude < 0.625f ? near : (Lanes)((Words)far | sign);
}

// 0.5 u (1 + tanh(v)) = u / (1 + exp(-2 v)), which loses nothing where tanh is near -1.
LANES_INLINE Lanes gelu(Lanes u) {
  const Lanes v = u + u * u * u * 0.044715f;
  return u / (1.0f + exponential(v * -1.5957691216057308f));
}

LANES_INLINE Lanes silu(Lanes u) {
  return u / (1.0f + exponential(-u));
}

static void norm(const float* x, const uint16_t* weight, int n, float eps, float* out) {
  Lanes total = {};
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) total += load(x + i) * load(x + i);
  if (i < n) {
    const Lanes rest = load_first(x + i, n - i);
    total += rest * rest;
  }
  const float inverse = 1.0f / __builtin_sqrtf(sum(total) / float(n) + eps);
  for (i = 0; i + kLanes <= n; i += kLanes) {
    const Lanes y = load(x + i) * inverse;
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

static void softcap(float* x, int n, float cap) {
  for_lanes(x, n, [cap](Lanes z, auto) { return hyperbolic_tangent(z / cap) * cap; });
}

static float sum_exp(const float* x, int n, float max) {
  Lanes total = {};
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) total += exponential(load(x + i) - max);
  float rest = 0.0f;
  if (i < n) {
    float tail[kLanes];
    store(tail, exponential(load_first(x + i, n - i) - max));
    for (int j = 0; j < n - i; ++j) rest += tail[j];
  }
  return sum(total) + rest;
}

static void narrow_row(const float* x, int n, uint16_t* out) {
  for (int i = 0; i < n; i += kLanes) {
    const int count = n - i < kLanes ? n - i : kLanes;
    const Halves h = narrow(load_first(x + i, count));
    __builtin_memcpy(out + i, &h, count * sizeof(uint16_t));
  }
}

// Codes of one group in natural order, and the group's scale and sum.
LANES_INLINE void quantize_group(const float* x, int group, int32_t* codes, float* scale,
                                 float* sum) {
  // Compared as integers, magnitudes order NaN above infinity above every number.
  Words top = {};
  for (int i = 0; i < group; i += kLanes) {
    const Words magnitude = (Words)load(x + i) & 0x7fffffffu;
    top = top < magnitude ? magnitude : top;
  }
  uint32_t largest = 0;
  for (int i = 0; i < kLanes; ++i) largest = largest < top[i] ? top[i] : largest;
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
  Words total = {};
  for (int i = 0; i < group; i += kLanes) {
    const Words q = (Words)(load(x + i) * inverse + magic) - 0x4b400000u;
    __builtin_memcpy(codes + i, &q, sizeof(q));
    total += q;
  }
  uint32_t all = 0;
  for (int i = 0; i < kLanes; ++i) all += total[i];
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
      Halves h;
      __builtin_memcpy(&h, row + d * sizeof(uint16_t), sizeof(h));
      store(out + d, widen(h));
    }
  }
}

// out[i * kStep + j] = lane sums of query i times row j.
template <int kQueries, int kRows, int kStep>
LANES_INLINE void dots(const float* const* query, const float* rows, int dim, Lanes* out) {
  Lanes acc[kQueries][kRows] = {};
  for (int d = 0; d < dim; d += kLanes) {
    Lanes row[kRows];
    for (int j = 0; j < kRows; ++j) row[j] = load(rows + j * dim + d);
    for (int i = 0; i < kQueries; ++i) {
      const Lanes q = load(query[i] + d);
      for (int j = 0; j < kRows; ++j) acc[i][j] += q * row[j];
    }
  }
  for (int i = 0; i < kQueries; ++i) {
    for (int j = 0; j < kRows; ++j) out[i * kStep + j] = acc[i][j];
  }
}

// The dot products of kQueries queries with sixteen rows, [query][kBlock] apart.
template <int kQueries>
LANES_INLINE void scores_of(const float* const* query, const float* rows, int dim, float* scores) {
  constexpr int kStep = kLanes / kQueries;
  constexpr int kQ = kWide ? kQueries : (kQueries > 1 ? 2 : 1);
  constexpr int kR = kWide ? kStep : 4 / kQ;
  for (int j = 0; j < kLanes; j += kStep) {
    Lanes acc[kLanes];
    for (int i = 0; i < kQueries; i += kQ) {
      for (int r = 0; r < kStep; r += kR) {
        dots<kQ, kR, kStep>(query + i, rows + (j + r) * dim, dim, acc + i * kStep + r);
      }
    }
    float all[kLanes];
    store(all, sums(acc));
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
  for (int i = 0; i < kQueries; ++i) {
    for (int v = 0; v < kVectors; ++v) acc[i][v] = load(out[i].out + d + v * kLanes);
  }
  for (int j = 0; j < kLanes; ++j) {
    Lanes row[kVectors];
    for (int v = 0; v < kVectors; ++v) row[v] = load(rows + j * dim + d + v * kLanes);
    for (int i = 0; i < kQueries; ++i) {
      const float w = weights[i * AttentionTile::kBlock + j];
      for (int v = 0; v < kVectors; ++v) acc[i][v] += row[v] * w;
    }
  }
  for (int i = 0; i < kQueries; ++i) {
    for (int v = 0; v < kVectors; ++v) store(out[i].out + d + v * kLanes, acc[i][v]);
  }
}

template <int kQueries>
LANES_INLINE void weigh_all(const float* weights, const float* rows, int dim, Average* out) {
  constexpr int kVectors = kWide ? 4 : 2;
  int d = 0;
  for (; d + kVectors * kLanes <= dim; d += kVectors * kLanes) {
    weigh<kQueries, kVectors>(weights, rows, dim, d, out);
  }
  for (; d < dim; d += kLanes) weigh<kQueries, 1>(weights, rows, dim, d, out);
}

// Scores of one query become weights exp(s - max); positions outside its range weigh nothing.
static void soften(const AttentionTile& tile, int query, int start, int count, float* scores,
                   Average* out) {
  Lanes top = broadcast(-__builtin_inff());
  for (int i = 0; i < count; i += kLanes) {
    const Words lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const Words position = lane + uint32_t(start + i - tile.first[query]);
    // One unsigned comparison answers first <= position < last.
    const auto allowed = position < uint32_t(tile.last[query] - tile.first[query]);
    const Lanes s = allowed ? load(scores + i) * tile.scale : broadcast(-__builtin_inff());
    store(scores + i, s);
    top = larger(top, s);
  }
  out->max = maximum(top);
  Lanes total = {};
  for (int i = 0; i < count; i += kLanes) {
    const Lanes weight = exponential(load(scores + i) - out->max);
    store(scores + i, weight);
    total += weight;
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
    if (kWide) {
      for (; q + 4 <= queries; q += 4) weigh_all<4>(at + q * kBlock, rows, tile.dim, out + q);
    }
    for (; q + 2 <= queries; q += 2) weigh_all<2>(at + q * kBlock, rows, tile.dim, out + q);
    for (; q < queries; ++q) weigh_all<1>(at + q * kBlock, rows, tile.dim, out + q);
  }
}

static void merge(const Average& part, int dim, Average& total) {
  if (part.max == -__builtin_inff()) return;
  if (total.max == -__builtin_inff()) {
    total.max = part.max;
    total.sum = part.sum;
    __builtin_memcpy(total.out, part.out, dim * sizeof(float));
    return;
  }
  const float max = total.max < part.max ? part.max : total.max;
  const float keep = exponential(broadcast(total.max - max))[0];
  const float take = exponential(broadcast(part.max - max))[0];
  total.max = max;
  total.sum = total.sum * keep + part.sum * take;
  for (int d = 0; d < dim; d += kLanes) {
    store(total.out + d, load(total.out + d) * keep + load(part.out + d) * take);
  }
}
