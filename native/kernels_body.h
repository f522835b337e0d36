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
template <KvType type>
inline void decodeAs(float* out, const uint8_t* p, int count, float scale) {
  constexpr size_t bytes = type == KvType::fp8 ? 1 : type == KvType::bf16 ? 2 : 4;
  const vf factor = set(scale);
  int i = 0;
  for (; i + VL <= count; i += VL) store(out + i, decodeV<type>(p + i * bytes) * factor);
  for (; i < count; ++i) out[i] = decode1(type, p + i * bytes) * scale;
}
inline void decodeMany(float* out, KvType type, const uint8_t* p, int count, float scale) {
  if (type == KvType::fp8) decodeAs<KvType::fp8>(out, p, count, scale * unitOf(type));
  else if (type == KvType::bf16) decodeAs<KvType::bf16>(out, p, count, scale);
  else decodeAs<KvType::f32>(out, p, count, scale);
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

template <int R>
static void denseRow(float* out, size_t stride, const float* w, int inDim, const float* x, float scale) {
  vf sums[R];
  for (int r = 0; r < R; ++r) sums[r] = set(0.0f);
  int i = 0;
  for (; i + VL <= inDim; i += VL) {
    const vf wv = load(w + i);
    for (int r = 0; r < R; ++r) sums[r] = FMA(wv, load(x + size_t(r) * inDim + i), sums[r]);
  }
  for (int r = 0; r < R; ++r) {
    float sum = sumOf(sums[r]);
    for (int j = i; j < inDim; ++j) sum += w[j] * x[size_t(r) * inDim + j];
    out[r * stride] = sum * scale;
  }
}

static void decodeRow(float* out, Format format, const uint8_t* row, int dim, float scale) {
  decodeMany(out, kvTypeOf(format), row, dim, scale);
}

static void dense(float* out, size_t stride, Format format, const uint8_t* w, int outs, int inDim, const float* x, int rows, float scale) {
  static thread_local std::vector<float> panel;
  panel.resize(inDim);
  const size_t bytes = format == Format::f32 ? 4 : format == Format::bf16 ? 2 : 1;
  for (int o = 0; o < outs; ++o) {
    decodeMany(panel.data(), kvTypeOf(format), w + size_t(o) * inDim * bytes, inDim, 1.0f);
    int r = 0;
    for (; r + 4 <= rows; r += 4) denseRow<4>(out + r * stride + o, stride, panel.data(), inDim, x + size_t(r) * inDim, scale);
    for (; r < rows; ++r) denseRow<1>(out + r * stride + o, stride, panel.data(), inDim, x + size_t(r) * inDim, scale);
  }
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

// ---- attention -----------------------------------------------------------------------------------------------

// Running softmax of one query: its vector, maximum, sum and output.
struct Query {
  const float* q;
  float* out;
  float most, sum;
  int limit;  // positions it sees
};

// Keys and values of `blocks` pages that follow each other, decoded: kt [dim][blocks * pad], v [blocks * tokens][dimPad].
// p: per query the weights of all blocks, then one fade per block.
struct Keys {
  float *kt, *v, *p;
  int blocks, tokens, pad, dim, dimPad;
  float scale;
  int columns() const { return blocks * pad; }
  int stride() const { return columns() + blocks; }
};

// sums[i][..] += sum over k < n of a[i][k] * rows[k][..]: the two products of attention, Q of them side by side.
template <int Q, int V>
inline void products(vf (&sums)[Q][V], const float* const* a, const float* rows, int n, size_t stride) {
  for (int k = 0; k < n; ++k, rows += stride) {
    vf row[V];
    for (int v = 0; v < V; ++v) row[v] = load(rows + v * VL);
    for (int i = 0; i < Q; ++i) {
      const vf factor = set(a[i][k]);
      for (int v = 0; v < V; ++v) sums[i][v] = FMA(factor, row[v], sums[i][v]);
    }
  }
}

template <int Q, int V>
inline void scoreColumns(const Query* queries, const Keys& keys, int c) {
  vf sums[Q][V];
  const float* q[Q];
  for (int i = 0; i < Q; ++i) {
    q[i] = queries[i].q;
    for (int v = 0; v < V; ++v) sums[i][v] = set(0.0f);
  }
  products<Q, V>(sums, q, keys.kt + c, keys.dim, keys.columns());
  const vf scale = set(keys.scale);
  for (int i = 0; i < Q; ++i)
    for (int v = 0; v < V; ++v) store(keys.p + i * keys.stride() + c + v * VL, sums[i][v] * scale);
}

template <int Q, int V>
inline void valueColumns(const Query* queries, const Keys& keys, int block, int d) {
  vf sums[Q][V];
  const float* weights[Q];
  for (int i = 0; i < Q; ++i) {
    const float* p = keys.p + i * keys.stride();
    weights[i] = p + block * keys.pad;
    const vf fade = set(p[keys.columns() + block]);
    for (int v = 0; v < V; ++v) sums[i][v] = load(queries[i].out + d + v * VL) * fade;
  }
  products<Q, V>(sums, weights, keys.v + size_t(block) * keys.tokens * keys.dimPad + d, keys.tokens, keys.dimPad);
  for (int i = 0; i < Q; ++i)
    for (int v = 0; v < V; ++v) store(queries[i].out + d + v * VL, sums[i][v]);
}

// Scores of one block become weights; `seen` keys count, the others get weight 0.
inline void soften(Query& query, float* row, float* fade, int pad, int seen) {
  if (seen <= 0) {
    memset(row, 0, size_t(pad) * 4);
    *fade = 1.0f;
    return;
  }
  for (int j = seen; j < pad; ++j) row[j] = -INFINITY;
  vf highest = load(row);
  for (int k = VL; k < pad; k += VL) highest = MAX(load(row + k), highest);
  const float most = std::max(query.most, maxOf(highest));
  // exp(0) is exactly 1, so skipping it changes nothing.
  *fade = most == query.most ? 1.0f : exp1(query.most - most);
  const vf top = set(most);
  vf sums = set(0.0f);
  for (int k = 0; k < pad; k += VL) {
    const vf e = expv(load(row + k) - top);
    store(row + k, e);
    sums += e;
  }
  query.sum = FMA1(query.sum, *fade, sumOf(sums));
  query.most = most;
}

// Q queries against the blocks that begin at position `from`.
template <int Q>
static void attendBlocks(Query* queries, const Keys& keys, int from) {
  constexpr int V = BLOCK_VECTORS;
  int c = 0;
  for (; c + V * VL <= keys.columns(); c += V * VL) scoreColumns<Q, V>(queries, keys, c);
  for (; c < keys.columns(); c += VL) scoreColumns<Q, 1>(queries, keys, c);
  for (int block = 0; block < keys.blocks; ++block) {
    for (int i = 0; i < Q; ++i) {
      float* p = keys.p + i * keys.stride();
      const int seen = std::min(keys.tokens, queries[i].limit - from - block * keys.tokens);
      soften(queries[i], p + block * keys.pad, p + keys.columns() + block, keys.pad, seen);
    }
    int d = 0;
    for (; d + V * VL <= keys.dimPad; d += V * VL) valueColumns<Q, V>(queries, keys, block, d);
    for (; d < keys.dimPad; d += VL) valueColumns<Q, 1>(queries, keys, block, d);
  }
}

static void attend(Query* queries, int count, const Keys& keys, int from) {
  int i = 0;
  for (; i + 6 <= count; i += 6) attendBlocks<6>(queries + i, keys, from);
  for (; i + 3 <= count; i += 3) attendBlocks<3>(queries + i, keys, from);
  for (; i + 2 <= count; i += 2) attendBlocks<2>(queries + i, keys, from);
  for (; i < count; ++i) attendBlocks<1>(queries + i, keys, from);
}

// out [rows, outStride] = p [rows, columns] in the pool's type, before any scale.
template <KvType type>
inline void decodeRows(float* out, size_t outStride, const uint8_t* p, int rows, int columns) {
  constexpr size_t bytes = type == KvType::fp8 ? 1 : type == KvType::bf16 ? 2 : 4;
  for (int r = 0; r < rows; ++r, out += outStride, p += columns * bytes) {
    int i = 0;
    for (; i + VL <= columns; i += VL) store(out + i, decodeV<type>(p + i * bytes));
    for (; i < columns; ++i) out[i] = decode1(type, p + i * bytes);
  }
}
inline void decodeBlock(float* out, size_t outStride, KvType type, const uint8_t* p, int rows, int columns) {
  if (type == KvType::fp8) decodeRows<KvType::fp8>(out, outStride, p, rows, columns);
  else if (type == KvType::bf16) decodeRows<KvType::bf16>(out, outStride, p, rows, columns);
  else decodeRows<KvType::f32>(out, outStride, p, rows, columns);
}

struct AttentionScratch {
  std::vector<float> kt, v, out, p, raw;
  std::vector<Query> queries;
  std::vector<int> path;
};

// `blocks` pages from `first` on, all below the end of the chain.
static void fillPages(const AttentionTask& t, Keys& keys, int first, int blocks) {
  const KvLayout& kv = *t.kv;
  keys.blocks = blocks;
  for (int b = 0; b < blocks; ++b) {
    const int page = t.segment->pages[first + b];
    decodeBlock(keys.kt + b * keys.pad, keys.columns(), kv.type, kv.block(page, t.layer, 0, t.kvHead), keys.dim, keys.tokens);
    decodeBlock(keys.v + size_t(b) * keys.tokens * keys.dimPad, keys.dimPad, kv.type, kv.block(page, t.layer, 1, t.kvHead), keys.tokens, keys.dim);
  }
}

// One block that is not full: page content below the end of the chain, then nodes of a path, then zeros, so that masked keys
// meet finite values only.
static void fillPart(const AttentionTask& t, Keys& keys, float* raw, int block, const int* nodes, int nodeCount) {
  const KvLayout& kv = *t.kv;
  const int P = keys.tokens, from = block * P, end = t.segment->end();
  int filled = std::max(0, std::min(P, end - from));
  keys.blocks = 1;
  if (filled > 0) fillPages(t, keys, block, 1);
  for (int n = std::max(0, from - end); n < nodeCount && filled < P; ++n, ++filled) {
    decodeBlock(raw, 0, kv.type, kv.node(t.segment->slot, t.layer, 0, t.kvHead, nodes[n]), 1, keys.dim);
    for (int d = 0; d < keys.dim; ++d) keys.kt[d * keys.pad + filled] = raw[d];
    decodeBlock(keys.v + filled * keys.dimPad, 0, kv.type, kv.node(t.segment->slot, t.layer, 1, t.kvHead, nodes[n]), 1, keys.dim);
  }
  for (int j = filled; j < P; ++j) {
    for (int d = 0; d < keys.dim; ++d) keys.kt[d * keys.pad + j] = 0;
    memset(keys.v + j * keys.dimPad, 0, size_t(keys.dimPad) * 4);
  }
}

// The blocks of a task: whole pages for all rows, several at a time; then for the chain the page it ends in, and for every node the
// blocks that hold its ancestors.
static void attendTask(const AttentionTask& t, AttentionScratch& s, Keys& keys, int most) {
  const Segment& seg = *t.segment;
  const int P = keys.tokens, group = t.heads / t.kv->kvHeads, rows = t.rowTo - t.rowFrom;
  const int whole = std::min(seg.end() / P, (most + P - 1) / P), together = keys.blocks;
  int first = 0;
  auto skipBefore = [&](int position, int count) {
    while (first < count && s.queries[size_t(first) * group].limit <= position) ++first;
  };
  for (int block = 0; block < whole; block += keys.blocks) {
    fillPages(t, keys, block, std::min(together, whole - block));
    skipBefore(block * P, rows);
    attend(s.queries.data() + size_t(first) * group, (rows - first) * group, keys, block * P);
  }
  const int chainRows = std::max(0, std::min(seg.chainLen, t.rowTo) - t.rowFrom);
  skipBefore(whole * P, chainRows);
  if (first < chainRows) {
    fillPart(t, keys, s.raw.data(), whole, nullptr, 0);
    attend(s.queries.data() + size_t(first) * group, (chainRows - first) * group, keys, whole * P);
  }
  for (int i = chainRows; i < rows; ++i) {
    Query* query = s.queries.data() + size_t(i) * group;
    const int count = pathTo(seg.nodeStart + t.rowFrom + i - seg.chainLen, seg.parents, s.path.data());
    for (int block = whole; block * P < query->limit; ++block) {
      fillPart(t, keys, s.raw.data(), block, s.path.data(), count);
      attend(query, group, keys, block * P);
    }
  }
}

static void attention(const AttentionTask& t) {
  static thread_local AttentionScratch s;
  const KvLayout& kv = *t.kv;
  const Segment& seg = *t.segment;
  const int dim = kv.headDim, dimPad = padUp(dim), P = kv.pageTokens, pad = padUp(P), group = t.heads / kv.kvHeads;
  const int rows = t.rowTo - t.rowFrom;
  // About 64 keys at a time give independent sums even to one query, as long as they stay in the first cache.
  const int together = dim <= 128 ? std::max(1, 64 / pad) : 1;
  s.kt.assign(size_t(dim) * pad * together, 0);
  s.v.assign(size_t(P) * dimPad * together, 0);
  s.p.resize(size_t(6) * (pad + 1) * together);
  s.raw.resize(dim);
  s.path.resize(kv.maxNodes);
  s.out.assign(size_t(rows) * group * dimPad, 0);
  s.queries.resize(size_t(rows) * group);
  Keys keys{s.kt.data(), s.v.data(), s.p.data(), together, P, pad, dim, dimPad, t.kScale * unitOf(kv.type) / std::sqrt(float(dim))};
  int most = 0;
  for (int i = 0; i < rows; ++i) {
    const int row = t.rowFrom + i, node = seg.nodeStart + row - seg.chainLen;
    const int limit = row < seg.chainLen ? seg.ctxLen + row + 1 : seg.end() + pathTo(node, seg.parents, s.path.data());
    most = std::max(most, limit);
    for (int h = 0; h < group; ++h) {
      const float* q = t.q + (size_t(seg.firstRow + row) * t.heads + t.kvHead * group + h) * dim;
      s.queries[i * group + h] = {q, s.out.data() + (size_t(i) * group + h) * dimPad, -INFINITY, 0.0f, limit};
    }
  }
  attendTask(t, s, keys, most);
  const float scale = t.vScale * unitOf(kv.type);
  for (int i = 0; i < rows; ++i)
    for (int h = 0; h < group; ++h) {
      const Query& query = s.queries[i * group + h];
      float* out = t.out + (size_t(seg.firstRow + t.rowFrom + i) * t.heads + t.kvHead * group + h) * dim;
      const float factor = scale / query.sum;
      for (int d = 0; d < dim; ++d) out[d] = query.out[d] * factor;
    }
}

// ---- gated delta net -----------------------------------------------------------------------------------------

static void conv(const ConvTask& t) {
  const StateLayout& s = *t.state;
  const Segment& seg = *t.segment;
  const int K = s.convKernel, C = s.channels, width = t.to - t.from;
  float* window = s.layer(seg.slot, t.layer) + s.windowAt;
  float* inputs = s.nodeLayer(seg.slot, t.layer) + s.nodeInputAt;
  std::vector<float> taps(size_t(K) * width);
  for (int c = 0; c < width; ++c)
    for (int j = 0; j < K; ++j) taps[size_t(j) * width + c] = t.w[size_t(t.from + c) * K + j];
  std::vector<int> path(std::max(1, s.maxNodes));
  std::vector<const float*> sources(K);
  std::vector<float> sums(width);
  for (int row = 0; row < seg.rows(); ++row) {
    const float* current = t.m + size_t(seg.firstRow + row) * C + t.from;
    const bool onChain = row < seg.chainLen;
    int count = 0;
    if (!onChain) {
      const int node = seg.nodeStart + row - seg.chainLen;
      count = pathTo(node, seg.parents, path.data()) - 1;
      memcpy(inputs + size_t(node) * C + t.from, current, size_t(width) * 4);
    }
    sources[K - 1] = current;
    for (int back = 1; back < K; ++back) {
      const float* source = back <= count ? inputs + size_t(path[count - back]) * C : window + size_t(K - 1 - (back - count)) * C;
      sources[K - 1 - back] = source + t.from;
    }
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (int j = 0; j < K; ++j) {
      const float* tap = taps.data() + size_t(j) * width;
      const float* source = sources[j];
      int c = 0;
      for (; c + VL <= width; c += VL) store(sums.data() + c, FMA(load(tap + c), load(source + c), load(sums.data() + c)));
      for (; c < width; ++c) sums[c] = FMA1(tap[c], source[c], sums[c]);
    }
    float* out = t.out + size_t(seg.firstRow + row) * C + t.from;
    elementwise(out, sums.data(), sums.data(), width, [](vf a, vf) { return a * sigmoidv(a); });
    if (onChain) {
      for (int j = 0; j + 1 < K - 1; ++j) memcpy(window + size_t(j) * C + t.from, window + size_t(j + 1) * C + t.from, size_t(width) * 4);
      if (K > 1) memcpy(window + size_t(K - 2) * C + t.from, current, size_t(width) * 4);
    }
  }
}

static void materialize(const StateLayout& s, float* layer, int keyHead, int multiple) {
  const int C = s.chunk, ring = 2 * C;
  const size_t size = size_t(s.keyDim) * s.valuePad;
  std::vector<float> cums(C), weights(C), factors(C);
  for (int vh = keyHead * s.rep; vh < (keyHead + 1) * s.rep; ++vh) {
    const float* from = layer + ((size_t((multiple + 1) % 2)) * s.valueHeads + vh) * size;
    float* to = layer + ((size_t(multiple % 2)) * s.valueHeads + vh) * size;
    const float* gates = layer + s.gateAt + size_t(vh) * s.ringPad;
    float cum = 0;
    for (int i = 0; i < C; ++i) {
      cum += gates[((multiple - 1) * C + i) % ring];
      cums[i] = cum;
    }
    for (int i = 0; i < C; ++i) weights[i] = exp1(cum - cums[i]);
    const vf decay = set(exp1(cum));
    const float* errors = layer + s.errorAt + size_t(vh) * ring * s.valuePad;
    for (int d = 0; d < s.keyDim; ++d) {
      const float* keys = layer + s.keyAt + (size_t(keyHead) * s.keyDim + d) * s.ringPad;
      const int first = (multiple - 1) * C % ring;
      for (int i = 0; i < C; ++i) factors[i] = weights[i] * keys[first + i];
      for (int e = 0; e < s.valuePad; e += VL) {
        vf acc = decay * load(from + size_t(d) * s.valuePad + e);
        for (int i = 0; i < C; ++i) acc = FMA(set(factors[i]), load(errors + size_t(first + i) * s.valuePad + e), acc);
        store(to + size_t(d) * s.valuePad + e, acc);
      }
    }
  }
}

// One ancestor of a row: its R, and what it adds to the prediction and to the output per unit of R.
struct Ancestor {
  const float* error;
  float kk, qk;
};

struct DeltaScratch {
  std::vector<float> q, k, kk, qk, nodeKk, nodeQk, predicted, o, fades;
  std::vector<int> path, columns;
  std::vector<Ancestor> ancestors;
};

inline void l2norm(float* out, const float* x, int dim, float scale) {
  vf sums = set(0.0f);
  int i = 0;
  for (; i + VL <= dim; i += VL) sums = FMA(load(x + i), load(x + i), sums);
  float sum = sumOf(sums);
  for (; i < dim; ++i) sum += x[i] * x[i];
  const float factor = scale / std::sqrt(sum + 1e-6f);
  for (int j = 0; j < dim; ++j) out[j] = x[j] * factor;
}

template <int V>
inline void dotColumns(float* kk, float* qk, const float* k, const float* q, const float* keys, int dim, int columns) {
  vf a[V], b[V];
  for (int v = 0; v < V; ++v) a[v] = b[v] = set(0.0f);
  for (int d = 0; d < dim; ++d) {
    const vf kd = set(k[d]), qd = set(q[d]);
    for (int v = 0; v < V; ++v) {
      const vf key = load(keys + size_t(d) * columns + v * VL);
      a[v] = FMA(kd, key, a[v]);
      b[v] = FMA(qd, key, b[v]);
    }
  }
  for (int v = 0; v < V; ++v) {
    store(kk + v * VL, a[v]);
    store(qk + v * VL, b[v]);
  }
}

// kk[c] = k . keys column c, qk[c] = q . keys column c
inline void dots(float* kk, float* qk, const float* k, const float* q, const float* keys, int dim, int columns) {
  int c = 0;
  for (; c + 4 * VL <= columns; c += 4 * VL) dotColumns<4>(kk + c, qk + c, k, q, keys + c, dim, columns);
  for (; c < columns; c += VL) dotColumns<1>(kk + c, qk + c, k, q, keys + c, dim, columns);
}

// predicted = decay * S k + sum of kk R, o = decay * S q + sum of qk R, in V vectors of value channels.
template <int V>
inline void deltaColumns(float* predicted, float* o, const float* S, const float* k, const float* q, int dk, int vp, vf decay, const Ancestor* ancestors, int count, int e) {
  vf a[V], b[V];
  for (int v = 0; v < V; ++v) a[v] = b[v] = set(0.0f);
  for (int d = 0; d < dk; ++d) {
    const vf kd = set(k[d]), qd = set(q[d]);
    for (int v = 0; v < V; ++v) {
      const vf state = load(S + size_t(d) * vp + e + v * VL);
      a[v] = FMA(kd, state, a[v]);
      b[v] = FMA(qd, state, b[v]);
    }
  }
  for (int v = 0; v < V; ++v) {
    a[v] = decay * a[v];
    b[v] = decay * b[v];
  }
  for (int j = 0; j < count; ++j) {
    const vf kk = set(ancestors[j].kk), qk = set(ancestors[j].qk);
    for (int v = 0; v < V; ++v) {
      const vf error = load(ancestors[j].error + e + v * VL);
      a[v] = FMA(kk, error, a[v]);
      b[v] = FMA(qk, error, b[v]);
    }
  }
  for (int v = 0; v < V; ++v) {
    store(predicted + e + v * VL, a[v]);
    store(o + e + v * VL, b[v]);
  }
}

static void delta(const DeltaTask& t) {
  static thread_local DeltaScratch w;
  const StateLayout& s = *t.state;
  const Segment& seg = *t.segment;
  const int dk = s.keyDim, C = s.chunk, ring = 2 * C, vp = s.valuePad, kh = t.keyHead;
  float* layer = s.layer(seg.slot, t.layer);
  float* nodes = s.nodeLayer(seg.slot, t.layer);
  float* ringKeys = layer + s.keyAt + size_t(kh) * dk * s.ringPad;
  float* nodeKeys = nodes + size_t(kh) * dk * s.nodePad;
  w.q.resize(dk);
  w.k.resize(dk);
  w.kk.resize(s.ringPad);
  w.qk.resize(s.ringPad);
  w.nodeKk.resize(s.nodePad);
  w.nodeQk.resize(s.nodePad);
  w.predicted.resize(vp);
  w.o.resize(vp);
  w.fades.resize(padUp(ring + s.maxNodes + 1));
  w.path.resize(std::max(1, s.maxNodes));
  w.columns.resize(w.fades.size());
  w.ancestors.resize(w.fades.size());
  for (int row = 0; row < seg.rows(); ++row) {
    const bool onChain = row < seg.chainLen;
    const int node = seg.nodeStart + row - seg.chainLen;
    const int linear = seg.ctxLen + (onChain ? row : seg.chainLen);
    const int depth = onChain ? 0 : pathTo(node, seg.parents, w.path.data());
    const int position = onChain ? linear : linear + depth - 1;
    const int base = s.base(position);
    const int onRing = linear - base, ancestors = onRing + std::max(0, depth - 1);
    const size_t r = size_t(seg.firstRow + row);
    const float* qkv = t.qkv + r * s.channels;
    l2norm(w.q.data(), qkv + size_t(kh) * dk, dk, 1.0f / std::sqrt(float(dk)));
    l2norm(w.k.data(), qkv + size_t(s.keyHeads + kh) * dk, dk, 1.0f);
    dots(w.kk.data(), w.qk.data(), w.k.data(), w.q.data(), ringKeys, dk, s.ringPad);
    if (depth > 1) dots(w.nodeKk.data(), w.nodeQk.data(), w.k.data(), w.q.data(), nodeKeys, dk, s.nodePad);
    float own = 0;
    for (int d = 0; d < dk; ++d) own = FMA1(w.q[d], w.k[d], own);
    for (int d = 0; d < dk; ++d) {
      if (onChain) ringKeys[size_t(d) * s.ringPad + position % ring] = w.k[d];
      else nodeKeys[size_t(d) * s.nodePad + node] = w.k[d];
    }
    for (int j = 0, column = base % ring; j < ancestors; ++j) {
      w.columns[j] = j < onRing ? column : w.path[j - onRing];
      column = column + 1 == ring ? 0 : column + 1;
    }
    for (int vh = kh * s.rep; vh < (kh + 1) * s.rep; ++vh) {
      float* gates = layer + s.gateAt + size_t(vh) * s.ringPad;
      float* errors = layer + s.errorAt + size_t(vh) * ring * vp;
      float* nodeGates = nodes + s.nodeGateAt + size_t(vh) * s.nodePad;
      float* nodeErrors = nodes + s.nodeErrorAt + size_t(vh) * s.maxNodes * vp;
      const float av = t.a[r * s.valueHeads + vh] + t.dtBias[vh];
      const float softplus = av > 20 ? av : std::log1p(exp1(av));
      const float g = -exp1(t.aLog[vh]) * softplus;
      const float beta = 1.0f / (1.0f + exp1(-t.b[r * s.valueHeads + vh]));
      float cum = 0;
      for (int j = 0; j < ancestors; ++j) {
        cum += (j < onRing ? gates : nodeGates)[w.columns[j]];
        w.fades[j] = cum;
      }
      cum += g;
      for (int j = 0; j < ancestors; j += VL) store(w.fades.data() + j, expv(set(cum) - load(w.fades.data() + j)));
      for (int j = 0; j < ancestors; ++j) {
        const int at = w.columns[j];
        const float fade = w.fades[j];
        if (j < onRing) w.ancestors[j] = {errors + size_t(at) * vp, fade * w.kk[at], fade * w.qk[at]};
        else w.ancestors[j] = {nodeErrors + size_t(at) * vp, fade * w.nodeKk[at], fade * w.nodeQk[at]};
      }
      const vf decay = set(exp1(cum));
      const float* S = layer + (size_t((base / C) % 2) * s.valueHeads + vh) * dk * vp;
      int e = 0;
      for (; e + 4 * VL <= vp; e += 4 * VL) deltaColumns<4>(w.predicted.data(), w.o.data(), S, w.k.data(), w.q.data(), dk, vp, decay, w.ancestors.data(), ancestors, e);
      for (; e < vp; e += VL) deltaColumns<1>(w.predicted.data(), w.o.data(), S, w.k.data(), w.q.data(), dk, vp, decay, w.ancestors.data(), ancestors, e);
      const float* v = qkv + size_t(2) * s.keyHeads * dk + size_t(vh) * s.valueDim;
      float* error = onChain ? errors + size_t(position % ring) * vp : nodeErrors + size_t(node) * vp;
      float* out = t.out + (r * s.valueHeads + vh) * s.valueDim;
      for (int c = 0; c < s.valueDim; ++c) {
        const float x = beta * (v[c] - w.predicted[c]);
        error[c] = x;
        out[c] = FMA1(own, x, w.o[c]);
      }
      if (onChain) gates[position % ring] = g;
      else nodeGates[node] = g;
    }
    if (onChain && (position + 1) % C == 0) materialize(s, layer, kh, (position + 1) / C);
  }
}

static const KernelTable table = {NAME,   quantize, nvfp4,      dense,     decodeRow, rmsNorm, gatedRmsNorm, add,
                                  siluMul, sigmoidMul, attention, conv, delta,     materialize, logSumExp};
