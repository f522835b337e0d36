// Tests the kernels of the chosen table without Node, so that they also run under an emulator of another CPU: products against
// plain sums in double precision, and canonical arithmetic bit for bit. COPSE_ISA chooses the table. Exit code 1 on a failure.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>

#include "device.h"

namespace {

using copse::Batch;
using copse::Device;
using copse::Format;
using copse::Segment;
using Values = std::vector<float>;

int failures = 0;
uint32_t seed = 1;

float random1() {
  seed = seed * 1664525u + 1013904223u;
  return float(seed >> 8) / float(1 << 23) - 1.0f;
}
Values randoms(size_t count) {
  Values v(count);
  for (float& x : v) x = random1();
  return v;
}

void check(bool holds, const char* what) {
  std::printf("%s %s\n", holds ? "ok  " : "FAIL", what);
  if (!holds) ++failures;
}
bool same(const Values& a, const Values& b) { return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * 4) == 0; }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
// Largest difference in units of the largest expected magnitude.
double worst(const Values& a, const std::vector<double>& b, double size = 1e-9) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::isfinite(a[i]) ? std::fabs(a[i] - b[i]) : 1e9);
    size = std::max(size, std::fabs(b[i]));
  }
  return most / size;
}

int upload(Device& device, const Values& values) {
  const int id = device.alloc(values.size());
  memcpy(device.f32(id, values.size()), values.data(), values.size() * 4);
  return id;
}
Values download(Device& device, int id, size_t count) {
  const float* p = device.f32(id, count);
  return Values(p, p + count);
}
Values part(const Values& values, size_t from, size_t count) { return Values(values.begin() + from, values.begin() + from + count); }

double e4m3(uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const double size = exponent == 0 ? std::ldexp(mantissa / 8.0, -6) : std::ldexp(1 + mantissa / 8.0, exponent - 7);
  return code & 0x80 ? -size : size;
}

// W x in double precision; nvfp4 with activations rounded as the op documents.
std::vector<double> plainLinear(Format format, const std::vector<uint8_t>& w, int outs, int ins, const Values& x, int rows, double scale) {
  static const double e2m1[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  std::vector<double> y(size_t(rows) * outs, 0.0);
  for (int r = 0; r < rows; ++r)
    for (int i = 0; i < ins; ++i) {
      double xi = x[size_t(r) * ins + i];
      if (format == Format::nvfp4) {
        const int from = i / 128 * 128, to = std::min(ins, from + 128);
        float most = 0;
        for (int j = from; j < to; ++j) most = std::max(most, std::fabs(x[size_t(r) * ins + j]));
        xi = std::nearbyint(float(xi) * (127.0f / most)) * (double(most) / 127);
      }
      for (int o = 0; o < outs; ++o) {
        double weight = 0;
        if (format == Format::nvfp4) {
          const uint8_t* tile = w.data() + (size_t(o / 16) * (ins / 16) + i / 16) * copse::kTileBytes;
          const uint8_t byte = tile[(i % 16 >= 8 ? 64 : 0) + o % 16 * 4 + i % 4], code = i % 8 >= 4 ? byte >> 4 : byte & 15;
          weight = (code & 8 ? -1 : 1) * e2m1[code & 7] * e4m3(tile[128 + o % 16]);
        } else if (format == Format::fp8) weight = e4m3(w[size_t(o) * ins + i]);
        else {
          uint32_t bits = 0;
          if (format == Format::bf16) memcpy(reinterpret_cast<uint8_t*>(&bits) + 2, w.data() + (size_t(o) * ins + i) * 2, 2);
          else memcpy(&bits, w.data() + (size_t(o) * ins + i) * 4, 4);
          float f;
          memcpy(&f, &bits, 4);
          weight = f;
        }
        y[size_t(r) * outs + o] += scale * weight * xi;
      }
    }
  return y;
}

void testLinear(Device& device, Format format, int outs, int ins, const char* name) {
  std::vector<uint8_t> w;
  if (format == Format::nvfp4) {
    w.resize(size_t((outs + 15) / 16) * (ins / 16) * copse::kTileBytes);
    for (size_t i = 0; i < w.size(); ++i) w[i] = i % copse::kTileBytes < 128 ? uint8_t(int(128 * random1())) : uint8_t(i % 119);
  } else {
    for (int i = 0; i < outs * ins; ++i) {
      const float value = random1();
      uint8_t bytes[4];
      memcpy(bytes, &value, 4);
      if (format == Format::fp8) w.push_back(uint8_t((bytes[2] % 127) | (bytes[3] & 0x80)));
      else w.insert(w.end(), bytes + (format == Format::bf16 ? 2 : 0), bytes + 4);
    }
  }
  const float scale = format == Format::nvfp4 || format == Format::fp8 ? 0.25f : 1.0f;
  const int id = device.weightFrom(format, outs, ins, scale, w.data(), w.size()), maxRows = 27;
  const Values x = randoms(size_t(maxRows) * ins);
  const int in = upload(device, x), out = device.alloc(size_t(maxRows) * outs);
  device.linear(out, id, in, maxRows);
  const Values all = download(device, out, size_t(maxRows) * outs);
  check(worst(all, plainLinear(format, w, outs, ins, x, maxRows, scale)) < 2e-6, name);
  bool equal = true;
  for (int rows = 1; rows < maxRows; ++rows) {
    device.linear(out, id, in, rows);
    equal = equal && same(download(device, out, size_t(rows) * outs), part(all, 0, size_t(rows) * outs));
  }
  check(equal, "  a row does not depend on the number of rows");
}

// A sequence of positions 0 .. total: as one chain, in slices, and as a chain whose end is a tree of one path and side branches.
struct Forward {
  std::vector<int32_t> pages, parents;
  std::vector<int32_t> positions;
  Batch batch;
  Forward(int ctxLen, int chainLen, std::vector<int32_t> tree, int pageCount) : parents(std::move(tree)) {
    for (int i = 0; i < pageCount; ++i) pages.push_back(pageCount - 1 - i);
    for (int i = 0; i < chainLen; ++i) positions.push_back(ctxLen + i);
    std::vector<int> depth;
    for (int parent : parents) {
      depth.push_back(parent < 0 ? 0 : depth[parent] + 1);
      positions.push_back(ctxLen + chainLen + depth.back());
    }
    const int nodes = int(parents.size());
    batch = {chainLen + nodes, {Segment{0, 0, ctxLen, chainLen, 0, nodes, pageCount, pages.data(), parents.data()}}, positions.data()};
  }
};

using Run = std::function<Values(const Batch&, const std::vector<int>& tokens)>;

// `run` computes rows that stand for tokens; returns per-token outputs. Compares slices and a tree with one chain.
void testPaths(const char* name, int width, const std::function<Run()>& fresh) {
  const int total = 101, pageCount = 8;
  auto tokens = [](int from, int count) {
    std::vector<int> t;
    for (int i = 0; i < count; ++i) t.push_back(from + i);
    return t;
  };
  const Values whole = fresh()(Forward(0, total, {}, pageCount).batch, tokens(0, total));
  Run sliced = fresh();
  Values joined;
  for (int at = 0, step = 1; at < total; at += step, step = at % 7 + 1) {
    step = std::min(step, total - at);
    const Values rows = sliced(Forward(at, step, {}, pageCount).batch, tokens(at, step));
    joined.insert(joined.end(), rows.begin(), rows.end());
  }
  check(same(whole, joined), name);
  Run tree = fresh();
  // Nodes 0, 2, 3, 5 are the path of tokens 94 .. 97, across a chunk and a page; the others are strangers (tokens 7 and 8).
  const int chain = 94;
  tree(Forward(0, chain - 3, {}, pageCount).batch, tokens(0, chain - 3));
  const std::vector<int> rowTokens = {91, 92, 93, 94, 7, 95, 96, 8, 97};
  const Values rows = tree(Forward(chain - 3, 3, {-1, -1, 0, 2, 0, 3}, pageCount).batch, rowTokens);
  bool equal = true;
  for (size_t i = 0; i < rowTokens.size(); ++i)
    if (rowTokens[i] > 8) equal = equal && same(part(rows, i * width, width), part(whole, size_t(rowTokens[i]) * width, width));
  check(equal, "  a node equals the last row of its path");
}

// Rows of `values` [token][width] in the order of the tokens.
int rowsOf(Device& device, const Values& values, int width, const std::vector<int>& tokens) {
  Values rows;
  for (int token : tokens) rows.insert(rows.end(), values.begin() + size_t(token) * width, values.begin() + size_t(token + 1) * width);
  return upload(device, rows);
}

void testAttention(Device& device, copse::KvType type, const char* name) {
  const int heads = 6, kvHeads = 2, dim = 24, total = 101;
  const Values q = randoms(size_t(total) * heads * dim), k = randoms(size_t(total) * kvHeads * dim), v = randoms(size_t(total) * kvHeads * dim);
  auto fresh = [&]() -> Run {
    copse::KvLayout l{};
    l.type = type;
    l.layers = 1, l.kvHeads = kvHeads, l.headDim = dim, l.pageTokens = 16, l.pages = 8, l.slots = 1, l.maxNodes = 8;
    const int pool = device.createKv(l);
    return [=, &device, &q, &k, &v](const Batch& batch, const std::vector<int>& tokens) {
      const int out = device.alloc(tokens.size() * heads * dim);
      device.storeKv(pool, 0, rowsOf(device, k, kvHeads * dim, tokens), rowsOf(device, v, kvHeads * dim, tokens), 0.5f, 2.0f, batch);
      device.attention(out, rowsOf(device, q, heads * dim, tokens), pool, 0, heads, 0.5f, 2.0f, batch);
      return download(device, out, tokens.size() * heads * dim);
    };
  };
  testPaths(name, heads * dim, fresh);
  if (type != copse::KvType::f32) return;
  std::vector<int> all(total);
  for (int i = 0; i < total; ++i) all[i] = i;
  std::vector<double> expected;
  for (int t = 0; t < total; ++t)
    for (int h = 0; h < heads; ++h) {
      const int kv = h / (heads / kvHeads);
      std::vector<double> sum(dim, 0.0);
      double weights = 0;
      for (int j = 0; j <= t; ++j) {
        double dot = 0;
        for (int d = 0; d < dim; ++d) dot += double(q[(size_t(t) * heads + h) * dim + d]) * k[(size_t(j) * kvHeads + kv) * dim + d];
        const double weight = std::exp(dot / std::sqrt(double(dim)));
        weights += weight;
        for (int d = 0; d < dim; ++d) sum[d] += weight * v[(size_t(j) * kvHeads + kv) * dim + d];
      }
      for (double x : sum) expected.push_back(x / weights);
    }
  check(worst(fresh()(Forward(0, total, {}, 8).batch, all), expected) < 2e-6, "  equals the plain softmax");
}

// Convolution, SiLU and the delta rule over one chain from an empty state, as a recurrence in double precision:
// S' = exp(g) S, S = S' + beta k (v - S'^T k)^T, out = S^T q.
struct PlainDelta {
  int keyHeads, valueHeads, dk, dv, total;
  Values w, aLog, dtBias;

  // Channels of row t after convolution and SiLU, the L2 norms of heads of q and k included.
  std::vector<double> mixed(const Values& qkv, int t) const {
    const int channels = 2 * keyHeads * dk + valueHeads * dv;
    std::vector<double> m(channels, 0.0);
    for (int c = 0; c < channels; ++c) {
      for (int tap = std::max(0, 3 - t); tap < 4; ++tap) m[c] += double(w[c * 4 + tap]) * qkv[size_t(t - 3 + tap) * channels + c];
      m[c] *= sigmoid(m[c]);
    }
    for (int from = 0; from < 2 * keyHeads * dk; from += dk) {
      double squares = 1e-6;
      for (int i = 0; i < dk; ++i) squares += m[from + i] * m[from + i];
      for (int i = 0; i < dk; ++i) m[from + i] /= std::sqrt(squares * (from < keyHeads * dk ? dk : 1));
    }
    return m;
  }

  std::vector<double> run(const Values& qkv, const Values& b, const Values& a) const {
    std::vector<double> out, states(size_t(valueHeads) * dk * dv, 0.0);
    for (int t = 0; t < total; ++t) {
      const std::vector<double> m = mixed(qkv, t);
      for (int h = 0; h < valueHeads; ++h) {
        const size_t at = size_t(t) * valueHeads + h;
        const double *q = m.data() + h * keyHeads / valueHeads * dk, *k = q + keyHeads * dk, *v = m.data() + 2 * keyHeads * dk + h * dv;
        const double decay = std::exp(-std::exp(double(aLog[h])) * std::log1p(std::exp(double(a[at]) + dtBias[h])));
        double* S = states.data() + size_t(h) * dk * dv;
        for (int j = 0; j < dv; ++j) {
          double seen = 0, y = 0;
          for (int i = 0; i < dk; ++i) seen += (S[i * dv + j] *= decay) * k[i];
          for (int i = 0; i < dk; ++i) y += (S[i * dv + j] += sigmoid(b[at]) * k[i] * (v[j] - seen)) * q[i];
          out.push_back(y);
        }
      }
    }
    return out;
  }
};

void testDelta(Device& device) {
  const int keyHeads = 2, valueHeads = 4, dk = 24, dv = 20, channels = 2 * keyHeads * dk + valueHeads * dv, total = 101;
  const Values qkv = randoms(size_t(total) * channels), b = randoms(size_t(total) * valueHeads), a = randoms(size_t(total) * valueHeads);
  const int aLog = upload(device, randoms(valueHeads)), dtBias = upload(device, randoms(valueHeads)), w = upload(device, randoms(size_t(channels) * 4));
  auto fresh = [&]() -> Run {
    copse::StateLayout s{};
    s.layers = 1, s.keyHeads = keyHeads, s.valueHeads = valueHeads, s.keyDim = dk, s.valueDim = dv, s.convKernel = 4;
    s.chunk = 16, s.slots = 1, s.maxNodes = 8;
    const int pool = device.createState(s);
    return [=, &device, &qkv, &b, &a](const Batch& batch, const std::vector<int>& tokens) {
      const int mixed = device.alloc(tokens.size() * channels), out = device.alloc(tokens.size() * valueHeads * dv);
      device.conv(mixed, rowsOf(device, qkv, channels, tokens), w, pool, 0, batch);
      device.deltaRule(out, mixed, rowsOf(device, b, valueHeads, tokens), rowsOf(device, a, valueHeads, tokens), aLog, dtBias, pool, 0, batch);
      return download(device, out, tokens.size() * valueHeads * dv);
    };
  };
  testPaths("conv and delta rule in slices", valueHeads * dv, fresh);
  std::vector<int> all(total);
  for (int i = 0; i < total; ++i) all[i] = i;
  const Values y = fresh()(Forward(0, total, {}, 8).batch, all);
  auto values = [&](int id, size_t count) { return download(device, id, count); };
  const PlainDelta plain{keyHeads, valueHeads, dk, dv, total, values(w, size_t(channels) * 4), values(aLog, valueHeads), values(dtBias, valueHeads)};
  check(worst(y, plain.run(qkv, b, a)) < 2e-5, "  equals the plain recurrence");
}

void testRows(Device& device) {
  const int rows = 3, dim = 77, count = rows * dim;
  Values x = randoms(count), z = randoms(count);
  for (float& v : z) v *= 30;
  const Values w = randoms(dim);
  const int in = upload(device, x), gate = upload(device, z), weights = upload(device, w), out = device.alloc(count);
  std::vector<double> silu(count), gated(count), normed(count), passed(count);
  for (int i = 0; i < count; ++i) {
    double squares = 0;
    for (int j = i / dim * dim; j < i / dim * dim + dim; ++j) squares += double(x[j]) * x[j];
    const double unit = x[i] / std::sqrt(squares / dim + 1e-6);
    passed[i] = x[i] * sigmoid(z[i]);
    silu[i] = z[i] * passed[i];
    normed[i] = unit * (1 + w[i % dim]);
    gated[i] = w[i % dim] * unit * z[i] * sigmoid(z[i]);
  }
  device.siluMul(out, gate, in, count);
  check(worst(download(device, out, count), silu) < 1e-6, "silu, and exp from -30 to 30");
  device.sigmoidMul(out, in, gate, count);
  check(worst(download(device, out, count), passed) < 1e-6, "sigmoid");
  // One weight at a time: an error relative to the largest output would hide exp at its small end.
  bool holds = true;
  for (float at = -80; at < 80; at += 0.37f) {
    device.sigmoidMul(out, upload(device, {1.0f}), upload(device, {at}), 1);
    holds = holds && worst(download(device, out, 1), {sigmoid(at)}, 1e-300) < 1e-6;
  }
  check(holds, "  relative to each value, from -80 to 80");
  device.rmsNorm(out, in, weights, rows, dim, 1e-6f);
  check(worst(download(device, out, count), normed) < 1e-6, "rms norm");
  device.gatedRmsNorm(out, in, gate, weights, rows, dim, 1e-6f);
  check(worst(download(device, out, count), gated) < 1e-6, "gated rms norm");
}

}  // namespace

int main() {
  try {
    Device device(2);
    std::printf("%s\n", device.detail().c_str());
    testLinear(device, Format::nvfp4, 40, 304, "nvfp4 linear equals the plain sum");
    testLinear(device, Format::bf16, 21, 77, "bf16 linear equals the plain sum");
    testLinear(device, Format::f32, 21, 77, "f32 linear equals the plain sum");
    testLinear(device, Format::fp8, 21, 77, "fp8 linear equals the plain sum");
    testAttention(device, copse::KvType::f32, "attention over f32 in slices");
    testAttention(device, copse::KvType::bf16, "attention over bf16 in slices");
    testAttention(device, copse::KvType::fp8, "attention over fp8 in slices");
    testDelta(device);
    testRows(device);
  } catch (const std::exception& error) {
    check(false, error.what());
  }
  std::printf("%d failed\n", failures);
  return failures == 0 ? 0 : 1;
}
