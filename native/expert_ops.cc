// Mixture of experts: routing, products grouped by expert, mixing. See backend.ts for the formulas.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "device.h"

namespace copse {
namespace {

// Choices of one expert: positions [from, to) in the sorted order.
struct Group {
  const Weight* weight;
  int from, to, firstBlock;
};

}  // namespace

void Device::route(int experts, int weights, int logits, int rows, int width, int k, bool renormalize) {
  if (rows < 0 || k < 1 || k > width) fail("route to ", k, " of ", width, " experts");
  int32_t* ids = reinterpret_cast<int32_t*>(f32(experts, size_t(rows) * k));
  float* probabilities = f32(weights, size_t(rows) * k);
  const float* values = f32(logits, size_t(rows) * width);
  for (int r = 0; r < rows; ++r) {
    const float* row = values + size_t(r) * width;
    int32_t* top = ids + size_t(r) * k;
    int have = 0;
    for (int i = 0; i < width; ++i) {
      if (have == k && !(row[i] > row[top[k - 1]])) continue;
      int at = have < k ? have++ : k - 1;
      for (; at > 0 && row[i] > row[top[at - 1]]; --at) top[at] = top[at - 1];
      top[at] = i;
    }
    double sum = 0;
    if (renormalize) for (int j = 0; j < k; ++j) sum += std::exp(double(row[top[j]]) - row[top[0]]);
    else for (int i = 0; i < width; ++i) sum += std::exp(double(row[i]) - row[top[0]]);
    for (int j = 0; j < k; ++j) probabilities[size_t(r) * k + j] = float(std::exp(double(row[top[j]]) - row[top[0]]) / sum);
  }
}

void Device::groupedLinear(int out, int x, int ids, const int32_t* experts, size_t expertCount, int choices, int perInput) {
  if (choices < 0 || perInput < 1 || choices % perInput != 0) fail(choices, " choices, ", perInput, " per row");
  if (out == x) fail("the output of groupedLinear is its input, buffer ", x);
  if (expertCount == 0) fail("groupedLinear without experts");
  const int32_t* chosen = reinterpret_cast<const int32_t*>(f32(ids, choices));
  const Weight& shape = weight(experts[0]);
  const int outDim = shape.outDim, inDim = shape.inDim;
  float* y = f32(out, size_t(choices) * outDim);
  const float* input = f32(x, size_t(choices / perInput) * inDim);
  for (int i = 0; i < choices; ++i)
    if (chosen[i] < 0 || size_t(chosen[i]) >= expertCount) fail("expert ", chosen[i], " of ", expertCount);
  std::vector<int> order(choices);
  for (int i = 0; i < choices; ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return chosen[a] < chosen[b]; });
  std::vector<Group> groups;
  int blocks = 0;
  for (int at = 0; at < choices;) {
    int to = at;
    while (to < choices && chosen[order[to]] == chosen[order[at]]) ++to;
    const Weight& w = weight(experts[chosen[order[at]]]);
    if (w.outDim != outDim || w.inDim != inDim) fail("expert of [", w.outDim, ", ", w.inDim, "] among experts of [", outDim, ", ", inDim, "]");
    groups.push_back({&w, at, to, blocks});
    blocks += (to - at + kBlockRows - 1) / kBlockRows;
    at = to;
  }
  sorted_.resize(size_t(choices) * inDim);
  sortedOut_.resize(size_t(choices) * outDim + 16);
  const int tiles = inDim / 16, scaleGroups = (tiles + kGroupTiles - 1) / kGroupTiles;
  codes_.resize(size_t(choices) * inDim);
  sums_.resize(size_t(choices) * std::max(tiles, 1));
  scales_.resize(size_t(choices) * std::max(scaleGroups, 1));
  auto blockOf = [&](const Group& g, int b) {
    const int first = g.from + b * kBlockRows;
    return QuantBlock{std::min(kBlockRows, g.to - first), codes_.data() + size_t(first) * inDim, sums_.data() + size_t(first) * tiles, scales_.data() + size_t(first) * scaleGroups};
  };
  auto rowBlocks = [](const Group& g) { return (g.to - g.from + kBlockRows - 1) / kBlockRows; };
  const int groupCount = int(groups.size());
  const int workers = size_t(choices) * outDim * inDim < kSerialWork ? 1 : pool_.size();
  // Gathering and quantizing: a group at a time, so that every row is quantized once.
  pool_.run(workers == 1 ? 1 : groupCount, [&](int part, int) {
    for (int i = workers == 1 ? 0 : part; i < (workers == 1 ? groupCount : part + 1); ++i) {
      const Group& g = groups[i];
      for (int at = g.from; at < g.to; ++at) memcpy(sorted_.data() + size_t(at) * inDim, input + size_t(order[at] / perInput) * inDim, size_t(inDim) * 4);
      if (g.weight->format != Format::nvfp4) continue;
      for (int b = 0; b < rowBlocks(g); ++b) kernels_->quantize(blockOf(g, b), sorted_.data() + size_t(g.from + b * kBlockRows) * inDim, inDim);
    }
  });
  // One task per expert and part of its outputs: a weight is read by one task, once.
  const int tileRows = (outDim + 15) / 16;
  const int parts = workers == 1 ? 1 : std::max(1, std::min(tileRows, (4 * workers + groupCount - 1) / groupCount));
  pool_.run(workers == 1 ? 1 : groupCount * parts, [&](int task, int) {
    for (int i = workers == 1 ? 0 : task; i < (workers == 1 ? groupCount : task + 1); ++i) {
      const Group& g = groups[i / parts];
      const int from = int(int64_t(tileRows) * (i % parts) / parts), to = int(int64_t(tileRows) * (i % parts + 1) / parts);
      const Weight& w = *g.weight;
      float* result = sortedOut_.data() + size_t(g.from) * outDim;
      if (w.format != Format::nvfp4) {
        const int last = std::min(outDim, to * 16);
        dense(result + from * 16, outDim, w, from * 16, last, sorted_.data() + size_t(g.from) * inDim, g.to - g.from);
        continue;
      }
      for (int t = from; t < to; ++t)
        for (int b = 0; b < rowBlocks(g); ++b)
          kernels_->nvfp4(result + size_t(b) * kBlockRows * outDim + t * 16, outDim, w.data + size_t(t) * tiles * kTileBytes, tiles, blockOf(g, b), w.scale, std::min(16, outDim - t * 16));
    }
  });
  for (int at = 0; at < choices; ++at) memcpy(y + size_t(order[at]) * outDim, sortedOut_.data() + size_t(at) * outDim, size_t(outDim) * 4);
}

void Device::mixExperts(int out, int y, int weights, int rows, int k, int dim) {
  if (rows < 0 || k < 1 || dim < 1) fail("mixExperts of ", rows, " rows, ", k, " experts, ", dim, " values");
  if (out == y) fail("the output of mixExperts is its input, buffer ", y);
  float* to = f32(out, size_t(rows) * dim);
  const float* parts = f32(y, size_t(rows) * k * dim);
  const float* share = f32(weights, size_t(rows) * k);
  for (int r = 0; r < rows; ++r) {
    float* sum = to + size_t(r) * dim;
    std::fill(sum, sum + dim, 0.0f);
    for (int j = 0; j < k; ++j) {
      const float factor = share[size_t(r) * k + j];
      const float* part = parts + (size_t(r) * k + j) * dim;
      for (int i = 0; i < dim; ++i) sum[i] += factor * part[i];
    }
  }
}

void Device::addGated(int x, int y, int gate, int rows, int dim) {
  if (rows < 0 || dim < 1) fail("addGated of ", rows, " rows of ", dim);
  float* to = f32(x, size_t(rows) * dim);
  const float* added = f32(y, size_t(rows) * dim);
  const float* gates = f32(gate, rows);
  for (int r = 0; r < rows; ++r) {
    const float factor = float(1 / (1 + std::exp(-double(gates[r]))));
    for (size_t i = size_t(r) * dim; i < size_t(r + 1) * dim; ++i) to[i] += factor * added[i];
  }
}

}  // namespace copse
