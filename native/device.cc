// Buffers, weights, pools, and the ops on rows. See device.h.
#include "device.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace copse {
namespace {

template <class Map>
auto& find(Map& map, int id, const char* what) {
  auto it = map.find(id);
  if (it == map.end()) fail(what, " ", id, " does not exist");
  return it->second;
}

void checkWeight(Format format, int outDim, int inDim, size_t bytes) {
  if (outDim < 1 || inDim < 1) fail("a weight of [", outDim, ", ", inDim, "]");
  if (format == Format::nvfp4 && inDim % 16 != 0) fail("nvfp4 weight with ", inDim, " inputs, expected a multiple of 16");
  const size_t expected = weightBytes(format, outDim, inDim);
  if (bytes != expected) fail("weight [", outDim, ", ", inDim, "] has ", bytes, " bytes, expected ", expected);
}

}  // namespace

int scaleGroup(Format format, int inDim) {
  switch (format) {
    case Format::fp8Row: return inDim;
    case Format::fp8Group128: return 128;
    case Format::fp8Group64: return 64;
    case Format::fp8Group32: return 32;
    default: return 0;
  }
}

size_t weightBytes(Format format, int outDim, int inDim) {
  if (format == Format::nvfp4) return size_t((outDim + 15) / 16) * (inDim / 16) * kTileBytes;
  if (const int group = scaleGroup(format, inDim)) return (size_t(outDim) * inDim + 3) / 4 * 4 + size_t(outDim) * ((inDim + group - 1) / group) * 4;
  return size_t(outDim) * inDim * (format == Format::f32 ? 4 : format == Format::bf16 ? 2 : 1);
}

Device::Device(int threads) : kernels_(chooseKernels()), pool_(threads) {}

std::string Device::detail() const {
  return std::string(kernels_->name) + ", " + std::to_string(pool_.size()) + (pool_.size() == 1 ? " thread" : " threads");
}

int Device::alloc(size_t count) {
  buffers_.emplace(nextId_, Memory(std::max<size_t>(count, 1) * 4 + 64));
  return nextId_++;
}

void Device::free(int id) {
  if (buffers_.erase(id) == 0) fail("buffer ", id, " does not exist");
}

float* Device::f32(int id, size_t count) const {
  const Memory& memory = find(buffers_, id, "buffer");
  if (count > (memory.bytes() - 64) / 4) fail("buffer ", id, " holds ", (memory.bytes() - 64) / 4, " values, ", count, " are needed");
  return memory.floats();
}

int Device::openFile(const std::string& path) {
  files_.emplace(nextId_, std::make_shared<Mapping>(path));
  return nextId_++;
}

void Device::closeFile(int id) {
  if (files_.erase(id) == 0) fail("file ", id, " is not open");
}

int Device::weightFromFile(int file, Format format, int outDim, int inDim, float scale, double offset, double bytes) {
  const auto& mapping = find(files_, file, "file");
  if (!(offset >= 0) || !(bytes >= 0) || offset + bytes > double(mapping->bytes)) fail("bytes ", offset, " + ", bytes, " of a file of ", mapping->bytes);
  checkWeight(format, outDim, inDim, size_t(bytes));
  weights_.emplace(nextId_, Weight{format, outDim, inDim, scale, mapping->data + size_t(offset), mapping, Memory()});
  return nextId_++;
}

int Device::weightFrom(Format format, int outDim, int inDim, float scale, const uint8_t* data, size_t bytes) {
  checkWeight(format, outDim, inDim, bytes);
  // Kernels read whole vectors, at most 64 bytes past the end.
  Memory own(bytes + 64);
  memcpy(own.data(), data, bytes);
  const uint8_t* at = own.data();
  weights_.emplace(nextId_, Weight{format, outDim, inDim, scale, at, nullptr, std::move(own)});
  return nextId_++;
}

const Weight& Device::weight(int id) const { return find(weights_, id, "weight"); }

int Device::createKv(KvLayout l) {
  if (l.layers < 0 || l.kvHeads < 1 || l.headDim < 1 || l.pageTokens < 1 || l.pages < 0 || l.slots < 0 || l.maxNodes < 0) fail("a KV pool of impossible shape");
  l.valueBytes = l.type == KvType::fp8 ? 1 : l.type == KvType::bf16 ? 2 : 4;
  l.pageBytes = size_t(l.layers) * 2 * l.kvHeads * l.pageTokens * l.headDim * l.valueBytes;
  l.scratchBytes = size_t(l.layers) * 2 * l.kvHeads * l.maxNodes * l.headDim * l.valueBytes;
  auto pool = std::make_unique<KvPool>();
  pool->pages = Memory(l.pageBytes * l.pages + 64);
  pool->scratch = Memory(l.scratchBytes * l.slots + 64);
  l.pageBase = pool->pages.data();
  l.scratchBase = pool->scratch.data();
  pool->layout = l;
  kvPools_.emplace(nextId_, std::move(pool));
  return nextId_++;
}

int Device::createState(StateLayout s) {
  if (s.layers < 0 || s.keyHeads < 1 || s.valueHeads % s.keyHeads != 0 || s.keyDim < 1 || s.valueDim < 1 || s.convKernel < 1 || s.chunk < 1 || s.slots < 0 || s.maxNodes < 0 || s.snapshots < 0)
    fail("a state pool of impossible shape");
  s.rep = s.valueHeads / s.keyHeads;
  s.channels = 2 * s.keyHeads * s.keyDim + s.valueHeads * s.valueDim;
  s.valuePad = padUp(s.valueDim);
  s.ringPad = padUp(2 * s.chunk);
  s.nodePad = padUp(std::max(1, s.maxNodes));
  s.stateFloats = size_t(s.valueHeads) * s.keyDim * s.valuePad;
  s.keyAt = 2 * s.stateFloats;
  s.errorAt = s.keyAt + size_t(s.keyHeads) * s.keyDim * s.ringPad;
  s.gateAt = s.errorAt + size_t(s.valueHeads) * 2 * s.chunk * s.valuePad;
  s.windowAt = s.gateAt + size_t(s.valueHeads) * s.ringPad;
  s.layerFloats = s.windowAt + size_t(s.convKernel - 1) * s.channels;
  s.slotFloats = s.layerFloats * s.layers + s.hiddenDim;
  s.nodeErrorAt = size_t(s.keyHeads) * s.keyDim * s.nodePad;
  s.nodeGateAt = s.nodeErrorAt + size_t(s.valueHeads) * s.maxNodes * s.valuePad;
  s.nodeInputAt = s.nodeGateAt + size_t(s.valueHeads) * s.nodePad;
  s.nodeLayerFloats = s.nodeInputAt + size_t(s.maxNodes) * s.channels;
  s.nodeSlotFloats = s.nodeLayerFloats * s.layers;
  s.snapshotLayerFloats = s.layerFloats - s.stateFloats;
  s.snapshotFloats = s.snapshotLayerFloats * s.layers + s.hiddenDim;
  auto pool = std::make_unique<StatePool>();
  pool->slots = Memory(s.slotFloats * s.slots * 4 + 64);
  pool->nodes = Memory(s.nodeSlotFloats * s.slots * 4 + 64);
  pool->snapshots = Memory(s.snapshotFloats * s.snapshots * 4 + 64);
  s.slotBase = pool->slots.floats();
  s.nodeBase = pool->nodes.floats();
  s.snapshotBase = pool->snapshots.floats();
  pool->layout = s;
  statePools_.emplace(nextId_, std::move(pool));
  return nextId_++;
}

const KvLayout& Device::kv(int id) const { return find(kvPools_, id, "KV pool")->layout; }
const StateLayout& Device::state(int id) const { return find(statePools_, id, "state pool")->layout; }

void Device::discardPages(int pool, const int32_t* pages, size_t count) {
  const KvPool& kv = *find(kvPools_, pool, "KV pool");
  for (size_t i = 0; i < count; ++i) {
    if (pages[i] < 0 || pages[i] >= kv.layout.pages) fail("page ", pages[i], " of ", kv.layout.pages);
    kv.pages.discard(pages[i] * kv.layout.pageBytes, kv.layout.pageBytes);
  }
}

void Device::discardSnapshots(int pool, const int32_t* snapshots, size_t count) {
  const StatePool& state = *find(statePools_, pool, "state pool");
  const size_t bytes = state.layout.snapshotFloats * 4;
  for (size_t i = 0; i < count; ++i) {
    if (snapshots[i] < 0 || snapshots[i] >= state.layout.snapshots) fail("snapshot ", snapshots[i], " of ", state.layout.snapshots);
    state.snapshots.discard(snapshots[i] * bytes, bytes);
  }
}

// ---- ops on rows ---------------------------------------------------------------------------------------------

void Device::embed(int out, int weightId, const int32_t* ids, size_t count) {
  const Weight& w = weight(weightId);
  if (w.format == Format::nvfp4 || scaleGroup(w.format, w.inDim) > 0) fail("embed takes bf16 or f32 tables");
  float* y = f32(out, count * w.inDim);
  const size_t rowBytes = weightBytes(w.format, 1, w.inDim);
  for (size_t i = 0; i < count; ++i) {
    if (ids[i] < 0 || ids[i] >= w.outDim) fail("token ", ids[i], " of ", w.outDim);
    kernels_->decodeRow(y + i * w.inDim, w.format, w.data + ids[i] * rowBytes, w.inDim, w.scale);
  }
}

void Device::rmsNorm(int out, int x, int w, int rows, int dim, float eps) {
  float* y = f32(out, size_t(rows) * dim);
  const float* input = f32(x, size_t(rows) * dim);
  const float* weights = f32(w, dim);
  for (int r = 0; r < rows; ++r) kernels_->rmsNorm(y + size_t(r) * dim, input + size_t(r) * dim, weights, dim, eps);
}

void Device::gatedRmsNorm(int out, int o, int z, int w, int rows, int dim, float eps) {
  float* y = f32(out, size_t(rows) * dim);
  const float* input = f32(o, size_t(rows) * dim);
  const float* gate = f32(z, size_t(rows) * dim);
  const float* weights = f32(w, dim);
  const int parts = rows * dim > 16384 ? pool_.size() : 1;
  pool_.run(parts, [&](int part, int) {
    for (int r = int(int64_t(rows) * part / parts); r < int(int64_t(rows) * (part + 1) / parts); ++r)
      kernels_->gatedRmsNorm(y + size_t(r) * dim, input + size_t(r) * dim, gate + size_t(r) * dim, weights, dim, eps);
  });
}

void Device::linear(int out, int weightId, int x, int rows) {
  const Weight& w = weight(weightId);
  if (rows < 0) fail("linear of ", rows, " rows");
  if (out == x) fail("the output of linear is its input, buffer ", x);
  float* y = f32(out, size_t(rows) * w.outDim);
  const float* input = f32(x, size_t(rows) * w.inDim);
  if (w.format == Format::nvfp4) return linearNvfp4(y, w, input, rows);
  const int parts = size_t(rows) * w.outDim * w.inDim < kSerialWork ? 1 : std::min(w.outDim, 4 * pool_.size());
  pool_.run(parts, [&](int part, int) {
    const int from = int(int64_t(w.outDim) * part / parts), to = int(int64_t(w.outDim) * (part + 1) / parts);
    dense(y + from, w.outDim, w, from, to, input, rows);
  });
}

void Device::dense(float* out, size_t stride, const Weight& w, int from, int to, const float* x, int rows) {
  const int inDim = w.inDim, group = scaleGroup(w.format, inDim);
  if (group == 0) {
    const float scale = w.format == Format::fp8 ? w.scale : 1.0f;
    return kernels_->dense(out, stride, w.format, w.data + from * weightBytes(w.format, 1, inDim), to - from, inDim, x, rows, scale);
  }
  // Scaled values are exact in fp32 up to one rounding, the same on every path; a panel of them stays in the cache.
  constexpr int kPanel = 8;
  thread_local std::vector<float> panel;
  panel.resize(size_t(kPanel) * inDim + 16);
  const int perRow = (inDim + group - 1) / group;
  const float* scales = reinterpret_cast<const float*>(w.data + (size_t(w.outDim) * inDim + 3) / 4 * 4);
  for (int first = from; first < to; first += kPanel) {
    const int count = std::min(kPanel, to - first);
    for (int o = 0; o < count; ++o)
      for (int g = 0; g < perRow; ++g) {
        const size_t at = size_t(g) * group;
        const int width = std::min(group, inDim - int(at));
        kernels_->decodeRow(panel.data() + size_t(o) * inDim + at, Format::fp8, w.data + size_t(first + o) * inDim + at, width, scales[size_t(first + o) * perRow + g]);
      }
    kernels_->dense(out + (first - from), stride, Format::f32, reinterpret_cast<const uint8_t*>(panel.data()), count, inDim, x, rows, 1.0f);
  }
}

void Device::linearNvfp4(float* out, const Weight& w, const float* x, int rows) {
  const int tiles = w.inDim / 16, groups = (tiles + kGroupTiles - 1) / kGroupTiles;
  const int blocks = (rows + kBlockRows - 1) / kBlockRows;
  codes_.resize(size_t(rows) * w.inDim);
  sums_.resize(size_t(rows) * tiles);
  scales_.resize(size_t(rows) * groups);
  auto blockOf = [&](int b) {
    const int first = b * kBlockRows;
    return QuantBlock{std::min(kBlockRows, rows - first), codes_.data() + size_t(first) * w.inDim, sums_.data() + size_t(first) * tiles, scales_.data() + size_t(first) * groups};
  };
  const bool serial = size_t(rows) * w.outDim * w.inDim < kSerialWork * 4;
  auto quantizeBlock = [&](int b, int) { kernels_->quantize(blockOf(b), x + size_t(b) * kBlockRows * w.inDim, w.inDim); };
  if (serial || blocks == 1) for (int b = 0; b < blocks; ++b) quantizeBlock(b, 0);
  else pool_.run(blocks, quantizeBlock);
  const int tileRows = (w.outDim + 15) / 16;
  const int parts = serial ? 1 : std::min(tileRows, 4 * pool_.size());
  pool_.run(parts, [&](int part, int) {
    const int from = int(int64_t(tileRows) * part / parts), to = int(int64_t(tileRows) * (part + 1) / parts);
    for (int t = from; t < to; ++t) {
      const uint8_t* tileData = w.data + size_t(t) * tiles * kTileBytes;
      const int outs = std::min(16, w.outDim - t * 16);
      // The tile row stays in the cache while the row blocks pass.
      for (int b = 0; b < blocks; ++b)
        kernels_->nvfp4(out + size_t(b) * kBlockRows * w.outDim + t * 16, w.outDim, tileData, tiles, blockOf(b), w.scale, outs);
    }
  });
}

void Device::add(int x, int y, size_t count) { kernels_->add(f32(x, count), f32(y, count), count); }

void Device::siluMul(int out, int gate, int up, size_t count) {
  float* y = f32(out, count);
  const float *a = f32(gate, count), *b = f32(up, count);
  const int parts = count > 16384 ? pool_.size() : 1;
  pool_.run(parts, [&](int part, int) {
    // Cuts at multiples of 64 values: every value stays at the same place of its vector.
    const size_t from = count * part / parts / 64 * 64, to = part + 1 == parts ? count : count * (part + 1) / parts / 64 * 64;
    kernels_->siluMul(y + from, a + from, b + from, to - from);
  });
}

void Device::sigmoidMul(int out, int x, int gate, size_t count) { kernels_->sigmoidMul(f32(out, count), f32(x, count), f32(gate, count), count); }

void Device::gatherRows(int out, int src, const int32_t* rows, size_t count, int dim) {
  float* y = f32(out, count * dim);
  for (size_t i = 0; i < count; ++i) {
    if (rows[i] < 0) fail("row ", rows[i]);
    memcpy(y + i * dim, f32(src, (size_t(rows[i]) + 1) * dim) + size_t(rows[i]) * dim, size_t(dim) * 4);
  }
}

void Device::concatRows(int dst, int a, int b, int rows, int dimA, int dimB) {
  float* y = f32(dst, size_t(rows) * (dimA + dimB));
  const float *left = f32(a, size_t(rows) * dimA), *right = f32(b, size_t(rows) * dimB);
  for (int r = 0; r < rows; ++r) {
    memcpy(y + size_t(r) * (dimA + dimB), left + size_t(r) * dimA, size_t(dimA) * 4);
    memcpy(y + size_t(r) * (dimA + dimB) + dimA, right + size_t(r) * dimB, size_t(dimB) * 4);
  }
}

void Device::argmax(int out, int logits, int rows, int width, int usable) {
  if (usable < 1 || usable > width) fail("argmax over ", usable, " of ", width);
  int32_t* ids = reinterpret_cast<int32_t*>(f32(out, rows));
  const float* values = f32(logits, size_t(rows) * width);
  for (int r = 0; r < rows; ++r) {
    const float* row = values + size_t(r) * width;
    int best = 0;
    for (int i = 1; i < usable; ++i)
      if (row[i] > row[best]) best = i;
    ids[r] = best;
  }
}

void Device::topK(int ids, int logProbs, int logits, int rows, int width, int usable, int k) {
  if (usable < 1 || usable > width || k < 1 || k > usable) fail("top ", k, " of ", usable, " of ", width);
  int32_t* best = reinterpret_cast<int32_t*>(f32(ids, size_t(rows) * k));
  float* probs = f32(logProbs, size_t(rows) * k);
  const float* values = f32(logits, size_t(rows) * width);
  for (int r = 0; r < rows; ++r) {
    const float* row = values + size_t(r) * width;
    int32_t* top = best + size_t(r) * k;
    int have = 0;
    for (int i = 0; i < usable; ++i) {
      if (have == k && !(row[i] > row[top[k - 1]])) continue;
      int at = have < k ? have++ : k - 1;
      for (; at > 0 && row[i] > row[top[at - 1]]; --at) top[at] = top[at - 1];
      top[at] = i;
    }
    const float sum = kernels_->logSumExp(row, usable);
    for (int i = 0; i < k; ++i) probs[size_t(r) * k + i] = row[top[i]] - sum;
  }
}

}  // namespace copse
