// The loops of the x86 affine kernels, included at the end of the file of each instruction set,
// which defines its registers (Floats and Integers), kTile and the operations on them before. Like
// lanes.inl it has internal linkage only.
//
// One row of activations: the weights stream through as one sequence of bytes (two rows at once
// would halve the speed of memory for some widths), eight groups at a time. Many rows: two
// registers' worth of rows of weights are transposed and unpacked once, a lane is a weight row, and
// activations are broadcast, so nothing is left to reduce.

constexpr int kHalfRows = sizeof(Floats) / sizeof(float);
constexpr int kPanelRows = 2 * kHalfRows;
constexpr int kFewInputs = 3;     // rows of activations for which unpacking does not pay
constexpr int kBlockInputs = 64;  // rows of activations for one unpacking of the weights

Layout layout(int bits, int group) {
  if (group != kGroup) return Layout::kNatural;
  if (bits == 4) return Layout::kNibbles;
  return bits == 8 ? Layout::kBytes : Layout::kNatural;
}

template <class F, class I>
inline F add_groups(F lanes, I d, F scale, F bias, F x_scale, F x_sum) {
  const F product = to_floats(d) * (scale * x_scale);
  return lanes + (product + bias * x_sum);
}

inline float sum_lanes(__m256 lanes) {
  const __m128 a = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
  const __m128 b = _mm_add_ps(a, _mm_movehl_ps(a, a));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

// Adds kGroups (at most eight) groups of a row.
template <int kBits, int kGroups>
inline __m256 add_some(__m256 lanes, const Matrix& m, const Inputs& x, int row, int g) {
  const uint8_t* packed = m.weight_row(row) + size_t(g) * kGroup * kBits / 8;
  return add_groups(lanes, dot_groups<kBits, kGroups>(packed, x.codes + g * kGroup),
                    bf16_floats<kGroups>(m.scale_row(row) + g),
                    bf16_floats<kGroups>(m.bias_row(row) + g), _mm256_load_ps(x.scales + g),
                    _mm256_load_ps(x.sums + g));
}

template <int kBits, int kRest>
void vector_of(const Matrix& m, const Inputs& x, int first, int last, float* y) {
  const int whole = m.groups() / 8 * 8;
  for (int r = first; r < last; ++r) {
    __m256 lanes = _mm256_setzero_ps();
    for (int g = 0; g < whole; g += 8) lanes = add_some<kBits, 8>(lanes, m, x, r, g);
    if constexpr (kRest > 0) lanes = add_some<kBits, kRest>(lanes, m, x, r, whole);
    y[r - first] = sum_lanes(lanes);
  }
}

// The groups left over by blocks of eight decide the code of the last block.
template <int kBits, int... kRests>
void vector_of(std::integer_sequence<int, kRests...>, const Matrix& m, const Inputs& x, int first,
               int last, float* y) {
  using Kernel = void (*)(const Matrix&, const Inputs&, int, int, float*);
  static constexpr Kernel kKernels[] = {vector_of<kBits, kRests>...};
  kKernels[m.groups() % 8](m, x, first, last, y);
}

constexpr std::make_integer_sequence<int, 8> kRests;

void vector(const Matrix& m, const Inputs& x, int first, int last, float* y) {
  if (x.layout == Layout::kNibbles) {
    vector_of<4>(kRests, m, x, first, last, y);
  } else if (x.layout == Layout::kBytes) {
    vector_of<8>(kRests, m, x, first, last, y);
  } else {
    portable_vector(m, x, first, last, y);
  }
}

// The weights of one group of a panel's rows: for each plane and pair of the kNibbles layout, the
// two codes of each row.
struct Panel {
  Integers codes[4][8][2];

  void unpack(const uint8_t* base, size_t stride, int rows, int half) {
    Integers words[8];
    transpose(base, stride, rows, 16, words);
    for (int w = 0; w < 8; ++w) {
      codes[0][w][half] = nibbles<0>(words[w]);
      codes[1][w][half] = nibbles<4>(words[w]);
      codes[2][w][half] = nibbles<8>(words[w]);
      codes[3][w][half] = nibbles<12>(words[w]);
    }
  }
};

// Scales and biases of sixteen groups of a panel's rows, one row a lane.
struct PanelScales {
  Floats scale[16][2], bias[16][2];

  void load(const Matrix& m, int row, int rows, int g, int half) {
    const size_t stride = m.groups() * sizeof(uint16_t);
    const int units = m.groups() - g < 16 ? m.groups() - g : 16;
    spread(m.scale_row(row) + g, stride, rows, units, scale, half);
    spread(m.bias_row(row) + g, stride, rows, units, bias, half);
  }

  static void spread(const uint16_t* base, size_t stride, int rows, int units, Floats (*out)[2],
                     int half) {
    Integers words[8];
    transpose(reinterpret_cast<const uint8_t*>(base), stride, rows, units, words);
    for (int w = 0; w < 8; ++w) {
      out[2 * w][half] = low_bf16(words[w]);
      out[2 * w + 1][half] = high_bf16(words[w]);
    }
  }
};

// The eight canonical lanes of each row of activations and of weights.
struct Lanes {
  Floats lane[8][2];
};

template <int kRows>
void add_group(const Panel& panel, const PanelScales& scales, const Inputs& x, int g,
               Lanes* lanes) {
  const int32_t* pairs =
      reinterpret_cast<const int32_t*>(x.codes + (g / 2) * 2 * kGroup) + (g % 2) * 8;
  const size_t stride = x.code_stride / 2;
  Integers d[kRows][2] = {};
  for (int plane = 0; plane < 4; ++plane) {
    for (int w = 0; w < 8; ++w) {
      const Integers low = panel.codes[plane][w][0], high = panel.codes[plane][w][1];
#pragma GCC unroll 8
      for (int t = 0; t < kRows; ++t) {
        const Integers pair = broadcast(pairs[t * stride + plane * 16 + w]);
        d[t][0] = add_products(d[t][0], low, pair);
        d[t][1] = add_products(d[t][1], high, pair);
      }
    }
  }
  for (int t = 0; t < kRows; ++t) {
    const Floats x_scale = broadcast(x.scales[t * x.group_stride + g]);
    const Floats x_sum = broadcast(x.sums[t * x.group_stride + g]);
    for (int half = 0; half < 2; ++half) {
      Floats& lane = lanes[t].lane[g % 8][half];
      lane = add_groups(lane, d[t][half], scales.scale[g % 16][half], scales.bias[g % 16][half],
                        x_scale, x_sum);
    }
  }
}

// The rows of activations left over by whole tiles decide the code, too.
template <int... kLess>
void add_group_rows(std::integer_sequence<int, kLess...>, const Panel& panel,
                    const PanelScales& scales, const Inputs& x, int rows, int g, Lanes* lanes) {
  using Kernel = void (*)(const Panel&, const PanelScales&, const Inputs&, int, Lanes*);
  static constexpr Kernel kKernels[] = {add_group<kLess + 1>...};
  kKernels[rows - 1](panel, scales, x, g, lanes);
}

inline Floats sum_lanes(const Lanes& lanes, int half) {
  const auto l = [&](int i) { return lanes.lane[i][half]; };
  return ((l(0) + l(4)) + (l(2) + l(6))) + ((l(1) + l(5)) + (l(3) + l(7)));
}

// The same columns of the next panel, which the hardware does not see coming.
inline void prefetch_rows(const uint8_t* p, size_t stride) {
  for (int i = 0; i < kPanelRows; ++i) _mm_prefetch(chars(p + i * stride), _MM_HINT_T1);
}

// The next panel's scales or biases, which lie back to back.
inline void prefetch_scales(const uint16_t* p, int groups) {
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(p);
  for (size_t i = 0; i < size_t(kPanelRows) * groups * sizeof(uint16_t); i += 64) {
    _mm_prefetch(chars(bytes + i), _MM_HINT_T1);
  }
}

// Up to kPanelRows rows of weights times up to kBlockInputs rows of activations.
void multiply_panel(const Matrix& m, const Inputs& x, int inputs, int row, int rows, float* y,
                    size_t stride) {
  alignas(64) Lanes lanes[kBlockInputs];
  alignas(64) Panel panel;
  alignas(64) PanelScales scales;
  __builtin_memset(static_cast<void*>(lanes), 0, inputs * sizeof(Lanes));
  const int halves = rows > kHalfRows ? 2 : 1;
  if (halves == 1) {
    __builtin_memset(static_cast<void*>(&panel), 0, sizeof(panel));
    __builtin_memset(static_cast<void*>(&scales), 0, sizeof(scales));
  }
  const auto rows_of = [&](int half) {
    const int left = rows - kHalfRows * half;
    return left < kHalfRows ? left : kHalfRows;
  };
  prefetch_scales(m.scale_row(row + kPanelRows), m.groups());
  prefetch_scales(m.bias_row(row + kPanelRows), m.groups());
  for (int g = 0; g < m.groups(); ++g) {
    if (g % 2 == 0) prefetch_rows(m.weight_row(row + kPanelRows) + g * kGroup / 2, m.row_bytes());
    for (int half = 0; half < halves; ++half) {
      const int from = row + kHalfRows * half;
      if (g % 16 == 0) scales.load(m, from, rows_of(half), g, half);
      panel.unpack(m.weight_row(from) + g * kGroup / 2, m.row_bytes(), rows_of(half), half);
    }
    for (int t = 0; t < inputs; t += kTile) {
      const int tile = inputs - t < kTile ? inputs - t : kTile;
      add_group_rows(std::make_integer_sequence<int, kTile>(), panel, scales, x.from(t), tile, g,
                     lanes + t);
    }
  }
  for (int t = 0; t < inputs; ++t) {
    for (int half = 0; half < halves; ++half) {
      store_first(y + t * stride + kHalfRows * half, sum_lanes(lanes[t], half), rows_of(half));
    }
  }
}

// Few rows of activations, or bytes: a few rows of weights stay in the nearest cache for all.
void vectors(const Matrix& m, const Inputs& x, int first, int last, float* y, size_t stride) {
  constexpr int kStep = 8;
  for (int r = first; r < last; r += kStep) {
    const int end = r + kStep < last ? r + kStep : last;
    for (int t = 0; t < x.rows; ++t) vector(m, x.from(t), r, end, y + t * stride + (r - first));
  }
}

void block(const Matrix& m, const Inputs& x, int first, int last, float* y, size_t stride) {
  if (x.layout != Layout::kNibbles || x.rows <= kFewInputs) {
    vectors(m, x, first, last, y, stride);
    return;
  }
  for (int r = first; r < last; r += kPanelRows) {
    const int rows = last - r < kPanelRows ? last - r : kPanelRows;
    for (int t = 0; t < x.rows; t += kBlockInputs) {
      const int inputs = x.rows - t < kBlockInputs ? x.rows - t : kBlockInputs;
      multiply_panel(m, x.from(t), inputs, r, rows, y + t * stride + (r - first), stride);
    }
  }
}
