// Every kernel: formula, shapes, outputs first. One table per instruction set, made from the same bodies (kernels_body.h),
// which are written over the vector type of their file.
//
// Canonical arithmetic: what a kernel computes for a row depends on that row, its ancestors and its position alone.
// Vectors run over independent outputs, so that every sum has one order; threads split outputs, never a sum.
// Kernels check nothing: the ops (device.cc, sequence_ops.cc) have checked shapes, ids and bounds before.
#pragma once
#include <cstddef>
#include <cstdint>

namespace copse {

// The last four: fp8 codes [outDim, inDim], then from a multiple of 4 bytes on fp32 scales [outDim, ceil(inDim / group)].
enum class Format : int { nvfp4 = 0, bf16 = 1, f32 = 2, fp8 = 3, fp8Row = 4, fp8Group128 = 5, fp8Group64 = 6, fp8Group32 = 7 };
enum class KvType : int { fp8 = 0, bf16 = 1, f32 = 2 };

constexpr int kPad = 16;
constexpr int padUp(int n) { return (n + kPad - 1) / kPad * kPad; }

constexpr int kTileBytes = 144;  // 16 outputs x 16 inputs of NVFP4, see dtypes/tile.ts
constexpr int kGroupTiles = 8;   // 128 inputs share one activation scale
constexpr int kBlockRows = 12;   // rows that share one decoding of a tile

// int8 activations of at most kBlockRows rows: codes [tile][row][16], sums [tile][row] = -12 * sum of the 16 codes,
// scales [group][row] = max|x| / 127.
struct QuantBlock {
  int rows;
  int8_t* codes;
  int32_t* sums;
  float* scales;
};

// Rows of one sequence in a forward: chain rows, then the new nodes. Mirrors Segment of backend.ts.
struct Segment {
  int slot, firstRow, ctxLen, chainLen, nodeStart, nodeCount, pageCount;
  const int32_t* pages;
  const int32_t* parents;
  int rows() const { return chainLen + nodeCount - nodeStart; }
  int end() const { return ctxLen + chainLen; }
};

// Addresses inside a KV pool. Page: per layer and KV head K transposed [headDim][pageTokens], then V [pageTokens][headDim].
// Draft nodes: per slot, layer and KV head K then V, [maxNodes][headDim].
struct KvLayout {
  KvType type;
  int layers, kvHeads, headDim, pageTokens, pages, slots, maxNodes;
  size_t valueBytes, pageBytes, scratchBytes;
  uint8_t* pageBase;
  uint8_t* scratchBase;
  uint8_t* block(int page, int layer, int part, int head) const {
    return pageBase + size_t(page) * pageBytes +
           ((size_t(layer) * 2 + part) * kvHeads + head) * pageTokens * headDim * valueBytes;
  }
  uint8_t* node(int slot, int layer, int part, int head, int node) const {
    return scratchBase + size_t(slot) * scratchBytes +
           (((size_t(layer) * 2 + part) * kvHeads + head) * maxNodes + node) * headDim * valueBytes;
  }
};

// Rows [rowFrom, rowTo) of a segment for one KV head and the query heads that use it.
struct AttentionTask {
  float* out;      // [rows, heads, headDim]
  const float* q;  // [rows, heads, headDim]
  const KvLayout* kv;
  const Segment* segment;
  int layer, heads, kvHead, rowFrom, rowTo;
  float kScale, vScale;
};

// A slot: per layer S [2][valueHeads][keyDim][valuePad], k-hat [keyHeads][keyDim][ringPad] (column = position % 2C),
// R [valueHeads][2C][valuePad], g [valueHeads][ringPad], conv window [convKernel-1][channels]; then the hidden row.
// Draft nodes the same with maxNodes in place of 2C, and raw conv rows [maxNodes][channels].
// A snapshot: per layer one S, k-hat, R, g, window; then the hidden row.
struct StateLayout {
  int layers, keyHeads, valueHeads, keyDim, valueDim, convKernel, chunk, hiddenDim, slots, maxNodes, snapshots;
  int rep, channels, valuePad, ringPad, nodePad;
  size_t stateFloats, keyAt, errorAt, gateAt, windowAt, layerFloats, slotFloats;
  size_t nodeErrorAt, nodeGateAt, nodeInputAt, nodeLayerFloats, nodeSlotFloats;
  size_t snapshotLayerFloats, snapshotFloats;
  float* slotBase;
  float* nodeBase;
  float* snapshotBase;
  float* layer(int slot, int layer) const { return slotBase + slotFloats * slot + layerFloats * layer; }
  float* nodeLayer(int slot, int layer) const { return nodeBase + nodeSlotFloats * slot + nodeLayerFloats * layer; }
  float* hidden(int slot) const { return slotBase + slotFloats * slot + layerFloats * layers; }
  float* snapshot(int id) const { return snapshotBase + snapshotFloats * id; }
  int base(int position) const {
    int k = position / chunk - 1;
    return k > 0 ? k * chunk : 0;
  }
};

// All rows of a segment for one key head and its value heads.
struct DeltaTask {
  float* out;        // [rows, valueHeads, valueDim]
  const float* qkv;  // [rows, channels]
  const float* b;    // [rows, valueHeads]
  const float* a;
  const float* aLog;  // [valueHeads]
  const float* dtBias;
  const StateLayout* state;
  const Segment* segment;
  int layer, keyHead;
};

// Channels [from, to) of all rows of a segment.
struct ConvTask {
  float* out;      // [rows, channels]
  const float* m;  // [rows, channels]
  const float* w;  // [channels, convKernel]
  const StateLayout* state;
  const Segment* segment;
  int layer, from, to;
};

struct KernelTable {
  const char* name;
  // block = int8 codes of x [rows, inDim]
  void (*quantize)(const QuantBlock& block, const float* x, int inDim);
  // out[r, 0..outs) = scale * W x for one tile row of 16 outputs; row r of out at r * stride
  void (*nvfp4)(float* out, size_t stride, const uint8_t* tiles, int tileCount, const QuantBlock& block, float scale, int outs);
  // out[r, o] = scale * W[o] . x[r], o < outs; W rows of inDim values
  void (*dense)(float* out, size_t stride, Format format, const uint8_t* w, int outs, int inDim, const float* x, int rows, float scale);
  // out[dim] = scale * row of a matrix
  void (*decodeRow)(float* out, Format format, const uint8_t* row, int dim, float scale);
  // out = x * rsqrt(mean(x^2) + eps) * (1 + w)
  void (*rmsNorm)(float* out, const float* x, const float* w, int dim, float eps);
  // out = w * x * rsqrt(mean(x^2) + eps) * silu(z)
  void (*gatedRmsNorm)(float* out, const float* x, const float* z, const float* w, int dim, float eps);
  void (*add)(float* x, const float* y, size_t count);
  void (*siluMul)(float* out, const float* gate, const float* up, size_t count);
  void (*sigmoidMul)(float* out, const float* x, const float* gate, size_t count);
  void (*attention)(const AttentionTask& task);
  void (*conv)(const ConvTask& task);
  void (*delta)(const DeltaTask& task);
  // S at multiple j of the chunk from S at j - 1 and the log between, for the value heads of one key head
  void (*materialize)(const StateLayout& state, float* layer, int keyHead, int multiple);
  float (*logSumExp)(const float* x, int count);
};

const KernelTable* portableKernels();
const KernelTable* avx2Kernels();
const KernelTable* avx512Kernels();
const KernelTable* neonKernels();
// The best table of this CPU, or the one COPSE_ISA names; throws std::runtime_error when that is not there.
const KernelTable* chooseKernels();

// out[count] = x / scale in a pool's type: nearest, ties to even; E4M3 saturates, NaN stays NaN.
void encodeMany(uint8_t* out, KvType type, const float* x, int count, float scale);
// Draft nodes from a child of -1 down to `node`; returns their number.
int pathTo(int node, const int32_t* parents, int* path);

}  // namespace copse
