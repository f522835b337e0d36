// Bodies of all kernels over a vector of VL floats. The including file defines VL, FMA(a, b, c) = a * b + c rounded once (or the
// same expression where the machine has no fused form) and dot16, and keeps everything in its own namespace.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels.h"

typedef float vf __attribute__((vector_size(VL * 4), aligned(4), may_alias));
typedef int32_t vi __attribute__((vector_size(VL * 4), aligned(4), may_alias));
typedef uint32_t vu __attribute__((vector_size(VL * 4), aligned(4), may_alias));
typedef uint8_t vb __attribute__((vector_size(VL), aligned(1), may_alias));
typedef uint16_t vh __attribute__((vector_size(VL * 2), aligned(1), may_alias));

inline vf set(float x) { return SET(x); }
inline vf load(const float* p) { return *reinterpret_cast<const vf*>(p); }
inline void store(float* p, vf v) { *reinterpret_cast<vf*>(p) = v; }
inline vf pick(vi mask, vf a, vf b) { return (vf)((mask & (vi)a) | (~mask & (vi)b)); }
inline float sumOf(vf v) { return SUM(v); }
inline float maxOf(vf v) { return LARGEST(v); }

// exp, relative error below 2e-7; 0 below -87.3.
inline vf expv(vf x) {
  const vf low = set(-87.3f);
  const vf clamped = MAX(MIN(x, set(88.7f)), low);
  const vf magic = set(12582912.0f);
  vf n = FMA(clamped, set(1.44269504088896341f), magic) - magic;
  vf r = FMA(n, set(-0.693359375f), clamped);
  r = FMA(n, set(2.12194440e-4f), r);
  vf p = set(1.9875691500e-4f);
  p = FMA(p, r, set(1.3981999507e-3f));
  p = FMA(p, r, set(8.3334519073e-3f));
  p = FMA(p, r, set(4.1665795894e-2f));
  p = FMA(p, r, set(1.6666665459e-1f));
  p = FMA(p, r, set(5.0000001201e-1f));
  p = FMA(p, r * r, r) + set(1.0f);
  vi exponent = (__builtin_convertvector(n, vi) + 127) << 23;
  return ZERO_BELOW(p * (vf)exponent, x, low);
}
inline float exp1(float x) {
  vf v = expv(set(x));
  return v[0];
}
inline vf sigmoidv(vf x) { return set(1.0f) / (set(1.0f) + expv(-x)); }

// E4M3 values / 256 from codes in 32-bit lanes. Arithmetic on fp32 subnormals would cost a hundred cycles: those codes are
// converted as whole numbers.
[[maybe_unused]] inline vf e4m3Units(vu bits) {
  const vi size = (vi)(bits & 0x7f);
  const vf small = __builtin_convertvector(size, vf) * set(0x1p-17f);
  const vf value = pick(size < 8, small, (vf)((size << 20) + (112 << 23)));
  return (vf)((vu)value | ((bits & 0x80) << 24));
}
inline vf fromBf16(const uint8_t* halves) { return (vf)(HALVES_TO_INTS(halves) << 16); }

inline float decode1(KvType type, const uint8_t* p) {
  if (type == KvType::f32) {
    float x;
    memcpy(&x, p, 4);
    return x;
  }
  if (type == KvType::bf16) {
    uint16_t h;
    memcpy(&h, p, 2);
    uint32_t bits = uint32_t(h) << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
  }
  const uint32_t size = *p & 0x7f, bits = (size << 20) + (112u << 23);
  float x;
  memcpy(&x, &bits, 4);
  if (size < 8) x = float(size) * 0x1p-17f;
  return *p & 0x80 ? -x : x;
}
// What a decoded value is still to be multiplied by: E4M3 comes in units of 256.
inline float unitOf(KvType type) { return type == KvType::fp8 ? 256.0f : 1.0f; }
template <KvType type>
inline vf decodeV(const uint8_t* p) {
  if constexpr (type == KvType::f32) return load(reinterpret_cast<const float*>(p));
  else if constexpr (type == KvType::bf16) return fromBf16(p);
  else return E4M3_UNITS(p);
}
// Values of a row in their unit.
template <KvType type>
inline void decodeAs(float* out, const uint8_t* p, int count) {
  constexpr size_t bytes = type == KvType::fp8 ? 1 : type == KvType::bf16 ? 2 : 4;
  int i = 0;
  for (; i + VL <= count; i += VL) store(out + i, decodeV<type>(p + i * bytes));
  for (; i < count; ++i) out[i] = decode1(type, p + i * bytes);
}
inline void decodeMany(float* out, KvType type, const uint8_t* p, int count) {
  if (type == KvType::fp8) decodeAs<KvType::fp8>(out, p, count);
  else if (type == KvType::bf16) decodeAs<KvType::bf16>(out, p, count);
  else decodeAs<KvType::f32>(out, p, count);
}
inline KvType kvTypeOf(Format format) {
  return format == Format::bf16 ? KvType::bf16 : format == Format::f32 ? KvType::f32 : KvType::fp8;
}

// ---- linear ------------------------------------------------------------------------------------------------

static void quantize(const QuantBlock& block, const float* x, int inDim) {
  const int tiles = inDim / 16;
  for (int r = 0; r < block.rows; ++r) {
    const float* row = x + size_t(r) * inDim;
    for (int t = 0, g = 0; t < tiles; t += kGroupTiles, ++g) {
      const int end = std::min(tiles, t + kGroupTiles);
      vf most = set(0.0f);
      for (int i = t * 16; i < end * 16; i += VL) {
        vf v = load(row + i);
        most = MAX((vf)((vu)v & 0x7fffffff), most);
      }
      const float amax = maxOf(most);
      block.scales[g * block.rows + r] = amax / 127.0f;
      const float inverse = amax == 0 ? 0 : 127.0f / amax;
      for (int tile = t; tile < end; ++tile) {
        int8_t* codes = block.codes + (size_t(tile) * block.rows + r) * 16;
        int sum = 0;
        for (int i = 0; i < 16; i += VL) {
          // Adding 1.5 * 2^23 rounds to nearest, ties to even.
          vf shifted = load(row + tile * 16 + i) * set(inverse) + set(12582912.0f);
          vi whole = (vi)shifted - 0x4b400000;
          for (int j = 0; j < VL; ++j) {
            codes[i + j] = int8_t(whole[j]);
            sum += whole[j];
          }
        }
        block.sums[size_t(tile) * block.rows + r] = -12 * sum;
      }
    }
  }
}

// How far the weight stream is prefetched, in bytes: far enough to cover a page walk. Measured, see perf/kernels.ts.
constexpr int kAhead = 4096;

template <int R>
static void nvfp4Rows(float* out, size_t stride, const uint8_t* tiles, int tileCount, const QuantBlock& block, float scale, int outs) {
  constexpr int parts = 16 / VL;
  vf total[R][parts];
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < parts; ++p) total[r][p] = set(0.0f);
  for (int t = 0, g = 0; t < tileCount; t += kGroupTiles, ++g) {
    const int end = std::min(tileCount, t + kGroupTiles);
    vf partial[R][parts];
    for (int r = 0; r < R; ++r)
      for (int p = 0; p < parts; ++p) partial[r][p] = set(0.0f);
    for (int tile = t; tile < end; ++tile) {
      const uint8_t* data = tiles + size_t(tile) * kTileBytes;
      for (int line = 0; line < kTileBytes; line += 64) __builtin_prefetch(data + kAhead + line);
      Tile weights;
      weights.decode(data);
      vf blockScale[parts];
      for (int p = 0; p < parts; ++p) blockScale[p] = E4M3_UNITS(data + 128 + p * VL);
      for (int r = 0; r < R; ++r) {
        vi dots[parts];
        weights.dot(dots, block.codes + (size_t(tile) * R + r) * 16, block.sums[size_t(tile) * R + r]);
        for (int p = 0; p < parts; ++p) partial[r][p] = FMA(__builtin_convertvector(dots[p], vf), blockScale[p], partial[r][p]);
      }
    }
    for (int r = 0; r < R; ++r)
      for (int p = 0; p < parts; ++p) total[r][p] = FMA(partial[r][p], set(block.scales[g * R + r]), total[r][p]);
  }
  for (int r = 0; r < R; ++r) {
    float buffer[16];
    // Block scales come in units of 256, and codes are doubled in the table.
    for (int p = 0; p < parts; ++p) store(buffer + p * VL, total[r][p] * set(scale * 128.0f));
    memcpy(out + r * stride, buffer, size_t(outs) * 4);
  }
}

static void nvfp4(float* out, size_t stride, const uint8_t* tiles, int tileCount, const QuantBlock& block, float scale, int outs) {
  using Fn = void (*)(float*, size_t, const uint8_t*, int, const QuantBlock&, float, int);
  static const Fn byRows[] = {nullptr,      nvfp4Rows<1>, nvfp4Rows<2>, nvfp4Rows<3>,  nvfp4Rows<4>,  nvfp4Rows<5>, nvfp4Rows<6>,
                              nvfp4Rows<7>, nvfp4Rows<8>, nvfp4Rows<9>, nvfp4Rows<10>, nvfp4Rows<11>, nvfp4Rows<12>};
  byRows[block.rows](out, stride, tiles, tileCount, block, scale, outs);
}

static void decodeRow(float* out, Format format, const uint8_t* row, int dim, float scale) {
  const KvType type = kvTypeOf(format);
  decodeMany(out, type, row, dim);
  if (scale * unitOf(type) == 1.0f) return;
  for (int i = 0; i < dim; ++i) out[i] *= scale * unitOf(type);
}

// R rows times O outputs: one vector of partial sums each, folded in one order; what is left of the inputs is added last.
template <int R, int O>
inline void denseTile(float* out, size_t stride, const float* w, int inDim, const float* x, float scale) {
  vf sums[R][O];
  for (int r = 0; r < R; ++r)
    for (int o = 0; o < O; ++o) sums[r][o] = set(0.0f);
  int i = 0;
  for (; i + VL <= inDim; i += VL) {
    vf weights[O];
    for (int o = 0; o < O; ++o) weights[o] = load(w + size_t(o) * inDim + i);
    for (int r = 0; r < R; ++r) {
      const vf row = load(x + size_t(r) * inDim + i);
      for (int o = 0; o < O; ++o) sums[r][o] = FMA(weights[o], row, sums[r][o]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int o = 0; o < O; ++o) {
      float sum = sumOf(sums[r][o]);
      for (int j = i; j < inDim; ++j) sum += w[size_t(o) * inDim + j] * x[size_t(r) * inDim + j];
      out[r * stride + o] = sum * scale;
    }
}

// The same for few rows, decoding as it goes.
template <KvType type, int R, int O>
inline void denseStream(float* out, size_t stride, const uint8_t* w, int inDim, const float* x, float scale) {
  constexpr size_t bytes = type == KvType::fp8 ? 1 : type == KvType::bf16 ? 2 : 4;
  vf sums[R][O];
  for (int r = 0; r < R; ++r)
    for (int o = 0; o < O; ++o) sums[r][o] = set(0.0f);
  int i = 0;
  for (; i + VL <= inDim; i += VL) {
    vf weights[O];
    for (int o = 0; o < O; ++o) {
      const uint8_t* at = w + (size_t(o) * inDim + i) * bytes;
      __builtin_prefetch(at + kAhead / 4);
      weights[o] = decodeV<type>(at);
    }
    for (int r = 0; r < R; ++r) {
      const vf row = load(x + size_t(r) * inDim + i);
      for (int o = 0; o < O; ++o) sums[r][o] = FMA(weights[o], row, sums[r][o]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int o = 0; o < O; ++o) {
      float sum = sumOf(sums[r][o]);
      for (int j = i; j < inDim; ++j) sum += decode1(type, w + (size_t(o) * inDim + j) * bytes) * x[size_t(r) * inDim + j];
      out[r * stride + o] = sum * scale;
    }
}

template <KvType type, int R>
static void denseFew(float* out, size_t stride, const uint8_t* w, int outs, int inDim, const float* x, float scale) {
  constexpr size_t bytes = type == KvType::fp8 ? 1 : type == KvType::bf16 ? 2 : 4;
  constexpr int O = R == 1 ? 8 : 4;
  int o = 0;
  for (; o + O <= outs; o += O) denseStream<type, R, O>(out + o, stride, w + size_t(o) * inDim * bytes, inDim, x, scale);
  for (; o < outs; ++o) denseStream<type, R, 1>(out + o, stride, w + size_t(o) * inDim * bytes, inDim, x, scale);
}

template <KvType type>
static void denseAs(float* out, size_t stride, const uint8_t* w, int outs, int inDim, const float* x, int rows, float scale) {
  constexpr size_t bytes = type == KvType::fp8 ? 1 : type == KvType::bf16 ? 2 : 4;
  int o = 0;
  using Few = void (*)(float*, size_t, const uint8_t*, int, int, const float*, float);
  static const Few few[] = {denseFew<type, 1>, denseFew<type, 2>, denseFew<type, 3>, denseFew<type, 4>, denseFew<type, 5>, denseFew<type, 6>};
  if (rows >= 1 && rows <= 6) return few[rows - 1](out, stride, w, outs, inDim, x, scale);
  static thread_local std::vector<float> panel;
  panel.resize(size_t(4) * inDim);
  constexpr int R = BLOCK_VECTORS + 2;
  for (; o < outs; o += 4) {
    const int count = std::min(4, outs - o);
    for (int i = 0; i < count; ++i) decodeAs<type>(panel.data() + size_t(i) * inDim, w + size_t(o + i) * inDim * bytes, inDim);
    int r = 0;
    if (count == 4) {
      for (; r + R <= rows; r += R) denseTile<R, 4>(out + r * stride + o, stride, panel.data(), inDim, x + size_t(r) * inDim, scale);
      for (; r + 2 <= rows; r += 2) denseTile<2, 4>(out + r * stride + o, stride, panel.data(), inDim, x + size_t(r) * inDim, scale);
      for (; r < rows; ++r) denseTile<1, 4>(out + r * stride + o, stride, panel.data(), inDim, x + size_t(r) * inDim, scale);
    }
    for (; r < rows; ++r)
      for (int i = 0; i < count; ++i) denseTile<1, 1>(out + r * stride + o + i, stride, panel.data() + size_t(i) * inDim, inDim, x + size_t(r) * inDim, scale);
  }
}

static void dense(float* out, size_t stride, Format format, const uint8_t* w, int outs, int inDim, const float* x, int rows, float scale) {
  const KvType type = kvTypeOf(format);
  scale *= unitOf(type);
  if (type == KvType::fp8) denseAs<KvType::fp8>(out, stride, w, outs, inDim, x, rows, scale);
  else if (type == KvType::bf16) denseAs<KvType::bf16>(out, stride, w, outs, inDim, x, rows, scale);
  else denseAs<KvType::f32>(out, stride, w, outs, inDim, x, rows, scale);
}

// ---- rows ----------------------------------------------------------------------------------------------------

inline float inverseRms(const float* x, int dim, float eps) {
  vf sums = set(0.0f);
  int i = 0;
  for (; i + VL <= dim; i += VL) sums = FMA(load(x + i), load(x + i), sums);
  float sum = sumOf(sums);
  for (; i < dim; ++i) sum += x[i] * x[i];
  return 1.0f / std::sqrt(sum / dim + eps);
}

static void rmsNorm(float* out, const float* x, const float* w, int dim, float eps) {
  const float scale = inverseRms(x, dim, eps);
  int i = 0;
  for (; i + VL <= dim; i += VL) store(out + i, load(x + i) * set(scale) * (set(1.0f) + load(w + i)));
  for (; i < dim; ++i) out[i] = x[i] * scale * (1.0f + w[i]);
}

// Elementwise kernels run whole vectors; the last one goes through a padded copy, so that every value takes the same path.
template <class Body>
inline void elementwise(float* out, const float* a, const float* b, size_t count, const Body& body) {
  size_t i = 0;
  for (; i + VL <= count; i += VL) store(out + i, body(load(a + i), load(b + i)));
  if (i == count) return;
  float x[VL] = {}, y[VL] = {}, z[VL];
  memcpy(x, a + i, (count - i) * 4);
  memcpy(y, b + i, (count - i) * 4);
  store(z, body(load(x), load(y)));
  memcpy(out + i, z, (count - i) * 4);
}

static void gatedRmsNorm(float* out, const float* x, const float* z, const float* w, int dim, float eps) {
  const vf scale = set(inverseRms(x, dim, eps));
  float normed[1024];
  for (int from = 0; from < dim; from += 1024) {
    const int count = std::min(1024, dim - from);
    elementwise(normed, x + from, w + from, count, [&](vf a, vf b) { return a * scale * b; });
    elementwise(out + from, normed, z + from, count, [](vf a, vf b) { return a * (b * sigmoidv(b)); });
  }
}
static void add(float* x, const float* y, size_t count) {
  elementwise(x, x, y, count, [](vf a, vf b) { return a + b; });
}
static void siluMul(float* out, const float* gate, const float* up, size_t count) {
  elementwise(out, gate, up, count, [](vf g, vf u) { return g * sigmoidv(g) * u; });
}
static void sigmoidMul(float* out, const float* x, const float* gate, size_t count) {
  elementwise(out, x, gate, count, [](vf a, vf g) { return a * sigmoidv(g); });
}
static float logSumExp(const float* x, int count) {
  float most = x[0];
  for (int i = 1; i < count; ++i) most = std::max(most, x[i]);
  double sum = 0;
  int i = 0;
  for (; i + VL <= count; i += VL) sum += sumOf(expv(load(x + i) - set(most)));
  for (; i < count; ++i) sum += exp1(x[i] - most);
  return most + float(std::log(sum));
}

#include "attention_body.h"
#include "delta_body.h"

static const KernelTable table = {NAME,   quantize, nvfp4,      dense,     decodeRow, rmsNorm, gatedRmsNorm, add,
                                  siluMul, sigmoidMul, attention, conv, delta,     materialize, logSumExp};
