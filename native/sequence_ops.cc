// Ops that know sequences: attention, the gated delta net, commits and snapshots. See device.h.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "device.h"

namespace copse {
namespace {

// Positions stay far from the end of int, so that sums of a few need no care.
constexpr int kMaxPosition = 1 << 30;

void checkPath(int slot, int slots, int ctxLen) {
  if (slot < 0 || slot >= slots) fail("slot ", slot, " of ", slots);
  if (ctxLen < 0 || ctxLen > kMaxPosition) fail(ctxLen, " committed tokens");
}

int depthOf(const Segment& seg) {
  int deepest = 0;
  std::vector<int> depth(seg.nodeCount);
  for (int i = 0; i < seg.nodeCount; ++i) {
    depth[i] = seg.parents[i] < 0 ? 1 : depth[seg.parents[i]] + 1;
    deepest = std::max(deepest, depth[i]);
  }
  return deepest;
}

void checkSegments(const Batch& batch, int slots, int maxNodes) {
  int covered = 0;
  for (const Segment& s : batch.segments) {
    if (s.slot < 0 || s.slot >= slots) fail("slot ", s.slot, " of ", slots);
    for (const Segment* other = batch.segments.data(); other != &s; ++other)
      if (other->slot == s.slot) fail("two segments of slot ", s.slot);
    if (s.ctxLen < 0 || s.chainLen < 0 || s.nodeStart < 0 || s.nodeStart > s.nodeCount) fail("a segment of impossible lengths");
    if (s.nodeStart > 0 && s.chainLen > 0) fail("chain rows between the nodes of two forwards");
    if (s.ctxLen > kMaxPosition - s.chainLen) fail(s.ctxLen, " and ", s.chainLen, " tokens");
    if (s.nodeCount > maxNodes) fail(s.nodeCount, " nodes, the limit is ", maxNodes);
    for (int i = 0; i < s.nodeCount; ++i)
      if (s.parents[i] < -1 || s.parents[i] >= i) fail("node ", i, " has the parent ", s.parents[i]);
    if (s.firstRow < 0 || s.firstRow + s.rows() > batch.rows) fail("rows ", s.firstRow, " to ", s.firstRow + s.rows(), " of ", batch.rows);
    covered += s.rows();
  }
  if (covered != batch.rows) fail("segments cover ", covered, " of ", batch.rows, " rows");
}

// A stored key becomes a column of its page, whose keys are transposed.
void scatterKey(uint8_t* column, int pageTokens, const uint8_t* key, int dim, size_t valueBytes) {
  if (valueBytes == 1) {
    for (int d = 0; d < dim; ++d) column[size_t(d) * pageTokens] = key[d];
    return;
  }
  for (int d = 0; d < dim; ++d) memcpy(column + size_t(d) * pageTokens * valueBytes, key + d * valueBytes, valueBytes);
}

}  // namespace

void Device::checkKv(const KvLayout& kv, int layer, const Batch& batch) const {
  if (layer < 0 || layer >= kv.layers) fail("layer ", layer, " of ", kv.layers);
  checkSegments(batch, kv.slots, kv.maxNodes);
  for (const Segment& s : batch.segments) {
    const int needed = (s.end() + kv.pageTokens - 1) / kv.pageTokens;
    if (needed > s.pageCount) fail(s.end(), " tokens need ", needed, " pages, the table has ", s.pageCount);
    for (int i = 0; i < needed; ++i)
      if (s.pages[i] < 0 || s.pages[i] >= kv.pages) fail("page ", s.pages[i], " of ", kv.pages);
  }
}

void Device::checkState(const StateLayout& state, int layer, const Batch& batch) const {
  if (layer < 0 || layer >= state.layers) fail("layer ", layer, " of ", state.layers);
  checkSegments(batch, state.slots, state.maxNodes);
  for (const Segment& s : batch.segments)
    if (s.nodeCount > 0 && depthOf(s) > state.chunk) fail("nodes are ", depthOf(s), " deep, the limit is ", state.chunk);
}

void Device::prepareQkv(const QkvArgs& a, const Batch& batch) {
  const int dim = a.headDim, half = a.rotaryDim / 2, rows = batch.rows;
  float* q = f32(a.q, size_t(rows) * a.heads * dim);
  float* gate = f32(a.gate, size_t(rows) * a.heads * dim);
  float* k = f32(a.k, size_t(rows) * a.kvHeads * dim);
  const float* qg = f32(a.qg, size_t(rows) * a.heads * dim * 2);
  const float* rawK = f32(a.rawK, size_t(rows) * a.kvHeads * dim);
  const float *qNorm = f32(a.qNorm, dim), *kNorm = f32(a.kNorm, dim);
  const int parts = rows > 16 ? pool_.size() : 1;
  pool_.run(parts, [&](int part, int) {
    std::vector<float> cosines(half), sines(half);
    auto head = [&](float* out, const float* x, const float* w) {
      kernels_->rmsNorm(out, x, w, dim, a.eps);
      for (int i = 0; i < half; ++i) {
        const float u = out[i], v = out[i + half];
        out[i] = u * cosines[i] - v * sines[i];
        out[i + half] = v * cosines[i] + u * sines[i];
      }
    };
    for (int r = rows * part / parts; r < rows * (part + 1) / parts; ++r) {
      for (int i = 0; i < half; ++i) {
        const float angle = float(batch.positions[r]) * a.invFreq[i];
        cosines[i] = float(std::cos(double(angle))) * a.ropeScale;
        sines[i] = float(std::sin(double(angle))) * a.ropeScale;
      }
      for (int h = 0; h < a.heads; ++h) {
        const size_t at = (size_t(r) * a.heads + h) * dim;
        head(q + at, qg + 2 * at, qNorm);
        memcpy(gate + at, qg + 2 * at + dim, size_t(dim) * 4);
      }
      for (int h = 0; h < a.kvHeads; ++h) {
        const size_t at = (size_t(r) * a.kvHeads + h) * dim;
        head(k + at, rawK + at, kNorm);
      }
    }
  });
}

void Device::storeKv(int pool, int layer, int k, int v, float kScale, float vScale, const Batch& batch) {
  const KvLayout& kv = this->kv(pool);
  checkKv(kv, layer, batch);
  const int dim = kv.headDim, width = kv.kvHeads * dim, P = kv.pageTokens;
  const float *keys = f32(k, size_t(batch.rows) * width), *values = f32(v, size_t(batch.rows) * width);
  const size_t b = kv.valueBytes;
  std::vector<uint8_t> encoded(dim * b);
  for (const Segment& s : batch.segments)
    for (int i = 0; i < s.rows(); ++i)
      for (int head = 0; head < kv.kvHeads; ++head) {
        const float* key = keys + size_t(s.firstRow + i) * width + head * dim;
        const float* value = values + size_t(s.firstRow + i) * width + head * dim;
        if (i < s.chainLen) {
          const int token = (s.ctxLen + i) % P, page = s.pages[(s.ctxLen + i) / P];
          encodeMany(encoded.data(), kv.type, key, dim, kScale);
          scatterKey(kv.block(page, layer, 0, head) + token * b, P, encoded.data(), dim, b);
          encodeMany(kv.block(page, layer, 1, head) + size_t(token) * dim * b, kv.type, value, dim, vScale);
        } else {
          const int node = s.nodeStart + i - s.chainLen;
          encodeMany(kv.node(s.slot, layer, 0, head, node), kv.type, key, dim, kScale);
          encodeMany(kv.node(s.slot, layer, 1, head, node), kv.type, value, dim, vScale);
        }
      }
}

void Device::attention(int out, int q, int pool, int layer, int heads, float kScale, float vScale, const Batch& batch) {
  const KvLayout& kv = this->kv(pool);
  checkKv(kv, layer, batch);
  if (heads < 1 || heads % kv.kvHeads != 0) fail(heads, " heads over ", kv.kvHeads, " KV heads");
  const size_t count = size_t(batch.rows) * heads * kv.headDim;
  float* y = f32(out, count);
  const float* x = f32(q, count);
  // Blocks of rows share the decoding of a page; later rows see more, so they start first.
  constexpr int rowBlock = 64;
  std::vector<AttentionTask> tasks;
  for (const Segment& s : batch.segments) {
    const int rows = s.rows(), blocks = (rows + rowBlock - 1) / rowBlock;
    for (int b = blocks - 1; b >= 0; --b)
      for (int head = 0; head < kv.kvHeads; ++head)
        tasks.push_back({y, x, &kv, &s, layer, heads, head, b * rowBlock, std::min(rows, (b + 1) * rowBlock), kScale, vScale});
  }
  pool_.run(int(tasks.size()), [&](int i, int) { kernels_->attention(tasks[i]); });
}

void Device::conv(int out, int m, int w, int pool, int layer, const Batch& batch) {
  const StateLayout& state = this->state(pool);
  checkState(state, layer, batch);
  const size_t count = size_t(batch.rows) * state.channels;
  float* y = f32(out, count);
  const float* x = f32(m, count);
  const float* taps = f32(w, size_t(state.channels) * state.convKernel);
  std::vector<ConvTask> tasks;
  for (const Segment& s : batch.segments) {
    const int parts = s.rows() >= 4 ? pool_.size() : 1;
    for (int p = 0; p < parts; ++p)
      tasks.push_back({y, x, taps, &state, &s, layer, state.channels * p / parts / 64 * 64, p + 1 == parts ? state.channels : state.channels * (p + 1) / parts / 64 * 64});
  }
  pool_.run(int(tasks.size()), [&](int i, int) {
    if (tasks[i].from < tasks[i].to) kernels_->conv(tasks[i]);
  });
}

void Device::deltaRule(int out, int qkv, int b, int a, int aLog, int dtBias, int pool, int layer, const Batch& batch) {
  const StateLayout& state = this->state(pool);
  checkState(state, layer, batch);
  const size_t rows = batch.rows, heads = state.valueHeads;
  float* y = f32(out, rows * heads * state.valueDim);
  const float* x = f32(qkv, rows * state.channels);
  const float *bs = f32(b, rows * heads), *as = f32(a, rows * heads), *logs = f32(aLog, heads), *biases = f32(dtBias, heads);
  std::vector<DeltaTask> tasks;
  for (const Segment& s : batch.segments)
    for (int head = 0; head < state.keyHeads; ++head) tasks.push_back({y, x, bs, as, logs, biases, &state, &s, layer, head});
  pool_.run(int(tasks.size()), [&](int i, int) { kernels_->delta(tasks[i]); });
}

void Device::commitKv(int pool, int slot, int ctxLen, const int32_t* nodes, size_t count, const int32_t* pages, size_t pageCount, int from, int to) {
  const KvLayout& kv = this->kv(pool);
  checkPath(slot, kv.slots, ctxLen);
  if (from < 0 || to > kv.layers || from > to) fail("layers ", from, " to ", to, " of ", kv.layers);
  const size_t b = kv.valueBytes;
  const int P = kv.pageTokens, dim = kv.headDim;
  for (size_t i = 0; i < count; ++i) {
    const int position = ctxLen + int(i), node = nodes[i];
    if (node < 0 || node >= kv.maxNodes) fail("node ", node, " of ", kv.maxNodes);
    if (size_t(position / P) >= pageCount) fail("position ", position, " has no page");
    const int page = pages[position / P];
    if (page < 0 || page >= kv.pages) fail("page ", page, " of ", kv.pages);
    for (int layer = from; layer < to; ++layer)
      for (int head = 0; head < kv.kvHeads; ++head) {
        scatterKey(kv.block(page, layer, 0, head) + (position % P) * b, P, kv.node(slot, layer, 0, head, node), dim, b);
        memcpy(kv.block(page, layer, 1, head) + size_t(position % P) * dim * b, kv.node(slot, layer, 1, head, node), dim * b);
      }
  }
}

void Device::commitState(int pool, int slot, int ctxLen, const int32_t* nodes, size_t count) {
  const StateLayout& s = state(pool);
  checkPath(slot, s.slots, ctxLen);
  for (size_t i = 0; i < count; ++i)
    if (nodes[i] < 0 || nodes[i] >= s.maxNodes) fail("node ", nodes[i], " of ", s.maxNodes);
  const int ring = 2 * s.chunk;
  for (int l = 0; l < s.layers; ++l) {
    float* layer = s.layer(slot, l);
    const float* from = s.nodeLayer(slot, l);
    for (size_t i = 0; i < count; ++i) {
      const int position = ctxLen + int(i), column = position % ring, node = nodes[i];
      for (int h = 0; h < s.keyHeads * s.keyDim; ++h) layer[s.keyAt + size_t(h) * s.ringPad + column] = from[size_t(h) * s.nodePad + node];
      for (int h = 0; h < s.valueHeads; ++h) {
        memcpy(layer + s.errorAt + (size_t(h) * ring + column) * s.valuePad, from + s.nodeErrorAt + (size_t(h) * s.maxNodes + node) * s.valuePad, size_t(s.valuePad) * 4);
        layer[s.gateAt + size_t(h) * s.ringPad + column] = from[s.nodeGateAt + size_t(h) * s.nodePad + node];
      }
      float* window = layer + s.windowAt;
      if (s.convKernel > 1) {
        memmove(window, window + s.channels, size_t(s.convKernel - 2) * s.channels * 4);
        memcpy(window + size_t(s.convKernel - 2) * s.channels, from + s.nodeInputAt + size_t(node) * s.channels, size_t(s.channels) * 4);
      }
      if ((position + 1) % s.chunk == 0)
        for (int h = 0; h < s.keyHeads; ++h) kernels_->materialize(s, layer, h, (position + 1) / s.chunk);
    }
  }
}

void Device::copyPage(int pool, int dst, int src) {
  const KvLayout& kv = this->kv(pool);
  if (dst < 0 || dst >= kv.pages || src < 0 || src >= kv.pages) fail("pages ", dst, " and ", src, " of ", kv.pages);
  if (dst != src) memcpy(kv.pageBase + dst * kv.pageBytes, kv.pageBase + src * kv.pageBytes, kv.pageBytes);
}

void Device::resetState(int pool, int slot) {
  const StateLayout& s = state(pool);
  if (slot < 0 || slot >= s.slots) fail("slot ", slot, " of ", s.slots);
  memset(s.slotBase + s.slotFloats * slot, 0, s.slotFloats * 4);
}

void Device::saveState(int pool, int slot, int tokens, int snapshot) {
  const StateLayout& s = state(pool);
  checkPath(slot, s.slots, tokens);
  if (snapshot < 0 || snapshot >= s.snapshots) fail("snapshot ", snapshot, " of ", s.snapshots);
  const int half = s.base(tokens) / s.chunk % 2;
  float* to = s.snapshot(snapshot);
  for (int l = 0; l < s.layers; ++l, to += s.snapshotLayerFloats) {
    const float* layer = s.layer(slot, l);
    memcpy(to, layer + half * s.stateFloats, s.stateFloats * 4);
    memcpy(to + s.stateFloats, layer + s.keyAt, (s.layerFloats - s.keyAt) * 4);
  }
  memcpy(to, s.hidden(slot), size_t(s.hiddenDim) * 4);
}

void Device::restoreState(int pool, int slot, int tokens, int snapshot) {
  const StateLayout& s = state(pool);
  checkPath(slot, s.slots, tokens);
  if (snapshot < 0 || snapshot >= s.snapshots) fail("snapshot ", snapshot, " of ", s.snapshots);
  const int half = s.base(tokens) / s.chunk % 2, last = tokens / s.chunk;
  const float* from = s.snapshot(snapshot);
  for (int l = 0; l < s.layers; ++l, from += s.snapshotLayerFloats) {
    float* layer = s.layer(slot, l);
    memcpy(layer + half * s.stateFloats, from, s.stateFloats * 4);
    memcpy(layer + s.keyAt, from + s.stateFloats, (s.layerFloats - s.keyAt) * 4);
    // The second state, at the last multiple of the chunk; without one it is the empty state.
    if (last == 0) continue;
    for (int h = 0; h < s.keyHeads; ++h) kernels_->materialize(s, layer, h, last);
  }
  memcpy(s.hidden(slot), from, size_t(s.hiddenDim) * 4);
}

void Device::keepHidden(int pool, int slot, int src, int row) {
  const StateLayout& s = state(pool);
  if (slot < 0 || slot >= s.slots || row < 0) fail("slot ", slot, " of ", s.slots, ", row ", row);
  memcpy(s.hidden(slot), f32(src, (size_t(row) + 1) * s.hiddenDim) + size_t(row) * s.hiddenDim, size_t(s.hiddenDim) * 4);
}

void Device::loadHidden(int out, int row, int pool, int slot) {
  const StateLayout& s = state(pool);
  if (slot < 0 || slot >= s.slots || row < 0) fail("slot ", slot, " of ", s.slots, ", row ", row);
  memcpy(f32(out, (size_t(row) + 1) * s.hiddenDim) + size_t(row) * s.hiddenDim, s.hidden(slot), size_t(s.hiddenDim) * 4);
}

}  // namespace copse
