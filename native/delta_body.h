// The gated delta net: causal conv and the delta rule with its log, included by kernels_body.h. Rows that start from the same S
// share its products; then each adds its ancestors in order of their positions.

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

// out [m, columns] = a [m, depth] * b [depth, columns], columns in whole vectors; every sum runs over the depth in order.
template <int Q, int V>
inline void matrixTile(float* out, size_t outStride, const float* a, size_t aStride, const float* b, size_t bStride, int depth) {
  vf sums[Q][V];
  const float* rows[Q];
  for (int i = 0; i < Q; ++i) {
    rows[i] = a + i * aStride;
    for (int v = 0; v < V; ++v) sums[i][v] = set(0.0f);
  }
  products<Q, V>(sums, rows, b, depth, bStride);
  for (int i = 0; i < Q; ++i)
    for (int v = 0; v < V; ++v) store(out + i * outStride + v * VL, sums[i][v]);
}
template <int Q>
inline int matrixRows(float* out, size_t outStride, const float* a, size_t aStride, int from, int m, const float* b, size_t bStride, int depth, int columns) {
  constexpr int V = BLOCK_VECTORS;
  for (; from + Q <= m; from += Q) {
    int c = 0;
    for (; c + V * VL <= columns; c += V * VL) matrixTile<Q, V>(out + from * outStride + c, outStride, a + from * aStride, aStride, b + c, bStride, depth);
    for (; c + 2 * VL <= columns; c += 2 * VL) matrixTile<Q, 2>(out + from * outStride + c, outStride, a + from * aStride, aStride, b + c, bStride, depth);
    for (; c < columns; c += VL) matrixTile<Q, 1>(out + from * outStride + c, outStride, a + from * aStride, aStride, b + c, bStride, depth);
  }
  return from;
}
static void matrix(float* out, size_t outStride, const float* a, size_t aStride, int m, const float* b, size_t bStride, int depth, int columns) {
  int from = matrixRows<6>(out, outStride, a, aStride, 0, m, b, bStride, depth, columns);
  from = matrixRows<2>(out, outStride, a, aStride, from, m, b, bStride, depth, columns);
  matrixRows<1>(out, outStride, a, aStride, from, m, b, bStride, depth, columns);
}

// exp of a sum of gates, 0 where it is below 1e-30: too little to show in fp32, and it would make products subnormal, which are
// slow. A head that forgets fast gets there within a chunk.
inline vf fadev(vf x) {
  const vf low = set(-69.0f);
  return ZERO_BELOW(expv(x), x, low);
}
inline float fade1(float x) {
  const vf v = fadev(set(x));
  return v[0];
}

static void materialize(const StateLayout& s, float* layer, int keyHead, int multiple) {
  static thread_local std::vector<float> weights, factors, update;
  const int C = s.chunk, ring = 2 * C, first = (multiple - 1) * C % ring;
  const size_t size = size_t(s.keyDim) * s.valuePad;
  weights.resize(padUp(C));
  factors.resize(size_t(s.keyDim) * C);
  update.resize(size);
  for (int vh = keyHead * s.rep; vh < (keyHead + 1) * s.rep; ++vh) {
    const float* from = layer + ((size_t((multiple + 1) % 2)) * s.valueHeads + vh) * size;
    float* to = layer + ((size_t(multiple % 2)) * s.valueHeads + vh) * size;
    const float* gates = layer + s.gateAt + size_t(vh) * s.ringPad + first;
    float cum = 0;
    for (int i = 0; i < C; ++i) weights[i] = cum += gates[i];
    for (int i = 0; i < C; i += VL) store(weights.data() + i, fadev(set(cum) - load(weights.data() + i)));
    const float* keys = layer + s.keyAt + size_t(keyHead) * s.keyDim * s.ringPad + first;
    for (int d = 0; d < s.keyDim; ++d)
      for (int i = 0; i < C; ++i) factors[size_t(d) * C + i] = weights[i] * keys[size_t(d) * s.ringPad + i];
    const float* errors = layer + s.errorAt + (size_t(vh) * ring + first) * s.valuePad;
    matrix(update.data(), s.valuePad, factors.data(), C, s.keyDim, errors, s.valuePad, C, s.valuePad);
    const vf decay = set(fade1(cum));
    for (size_t i = 0; i < size; i += VL) store(to + i, FMA(decay, load(from + i), load(update.data() + i)));
  }
}

// Rows of a segment that start from the same S: chain rows of one chunk, or nodes.
struct DeltaRun {
  int base;
  bool onChain;
  std::vector<int> rows;
};

struct DeltaScratch {
  // Two rows per row of the run, k-hat and q-hat; their products with the ring's keys by position since the base, with the
  // nodes' keys, and with S.
  std::vector<float> kq, raw, onRing, onNodes, onState;
  std::vector<float> cums, kWeights, qWeights;
  std::vector<int> path;
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

// prediction += sum over j of kw[j] R_j, answer += sum over j of qw[j] R_j, for V vectors of value channels.
template <int V>
inline void addErrors(vf (&prediction)[V], vf (&answer)[V], const float* errors, size_t stride, const float* kw, const float* qw, int count) {
  for (int j = 0; j < count; ++j, errors += stride) {
    const vf k = set(kw[j]), q = set(qw[j]);
    for (int v = 0; v < V; ++v) {
      const vf error = load(errors + v * VL);
      prediction[v] = FMA(k, error, prediction[v]);
      answer[v] = FMA(q, error, answer[v]);
    }
  }
}

// One row of one value head: where its parts lie.
struct DeltaRow {
  float* state;  // k-hat S, then q-hat S, [2][valuePad]; becomes prediction and answer
  float decay;
  const float* ring[2];  // R rows since the base, in two pieces
  int ringCount[2];
  const float* nodes;  // R rows of all nodes
  const int* path;     // strict ancestors among them
  int pathCount;
};

template <int V>
inline void deltaColumns(const DeltaRow& row, int valuePad, const float* kw, const float* qw, int e) {
  vf prediction[V], answer[V];
  for (int v = 0; v < V; ++v) {
    prediction[v] = load(row.state + e + v * VL) * set(row.decay);
    answer[v] = load(row.state + valuePad + e + v * VL) * set(row.decay);
  }
  int j = 0;
  for (int piece = 0; piece < 2; ++piece) {
    addErrors<V>(prediction, answer, row.ring[piece] + e, valuePad, kw + j, qw + j, row.ringCount[piece]);
    j += row.ringCount[piece];
  }
  for (int i = 0; i < row.pathCount; ++i, ++j) addErrors<V>(prediction, answer, row.nodes + size_t(row.path[i]) * valuePad + e, 0, kw + j, qw + j, 1);
  for (int v = 0; v < V; ++v) {
    store(row.state + e + v * VL, prediction[v]);
    store(row.state + valuePad + e + v * VL, answer[v]);
  }
}

// k-hat and q-hat of the run's rows into the scratch and the keys into the log, then all their products with logged keys.
static void deltaKeys(const DeltaTask& t, const DeltaRun& run, DeltaScratch& w) {
  const StateLayout& s = *t.state;
  const Segment& seg = *t.segment;
  const int dk = s.keyDim, C = s.chunk, ring = 2 * C, kh = t.keyHead, m = 2 * int(run.rows.size());
  float* ringKeys = s.layer(seg.slot, t.layer) + s.keyAt + size_t(kh) * dk * s.ringPad;
  float* nodeKeys = s.nodeLayer(seg.slot, t.layer) + size_t(kh) * dk * s.nodePad;
  w.kq.resize(size_t(m) * dk);
  for (int i = 0; i < m / 2; ++i) {
    const int row = run.rows[i];
    const float* qkv = t.qkv + size_t(seg.firstRow + row) * s.channels;
    float* k = w.kq.data() + size_t(2 * i) * dk;
    l2norm(k, qkv + size_t(s.keyHeads + kh) * dk, dk, 1.0f);
    l2norm(k + dk, qkv + size_t(kh) * dk, dk, 1.0f / std::sqrt(float(dk)));
    float* column = run.onChain ? ringKeys + (seg.ctxLen + row) % ring : nodeKeys + seg.nodeStart + row - seg.chainLen;
    const size_t stride = run.onChain ? s.ringPad : s.nodePad;
    for (int d = 0; d < dk; ++d) column[d * stride] = k[d];
  }
  w.raw.resize(size_t(m) * s.ringPad);
  w.onRing.resize(size_t(m) * s.ringPad);
  matrix(w.raw.data(), s.ringPad, w.kq.data(), dk, m, ringKeys, s.ringPad, dk, s.ringPad);
  const int first = run.base % ring;
  for (int i = 0; i < m; ++i) {
    const float* from = w.raw.data() + size_t(i) * s.ringPad;
    float* to = w.onRing.data() + size_t(i) * s.ringPad;
    memcpy(to, from + first, size_t(ring - first) * 4);
    memcpy(to + ring - first, from, size_t(first) * 4);
  }
  if (run.onChain) return;
  w.onNodes.resize(size_t(m) * s.nodePad);
  matrix(w.onNodes.data(), s.nodePad, w.kq.data(), dk, m, nodeKeys, s.nodePad, dk, s.nodePad);
}

// The rows of a run, in order, for one value head.
static void deltaHead(const DeltaTask& t, const DeltaRun& run, DeltaScratch& w, int vh) {
  const StateLayout& s = *t.state;
  const Segment& seg = *t.segment;
  const int dk = s.keyDim, C = s.chunk, ring = 2 * C, vp = s.valuePad, m = int(run.rows.size());
  float* layer = s.layer(seg.slot, t.layer);
  float* nodes = s.nodeLayer(seg.slot, t.layer);
  float* gates = layer + s.gateAt + size_t(vh) * s.ringPad;
  float* errors = layer + s.errorAt + size_t(vh) * ring * vp;
  float* nodeGates = nodes + s.nodeGateAt + size_t(vh) * s.nodePad;
  float* nodeErrors = nodes + s.nodeErrorAt + size_t(vh) * s.maxNodes * vp;
  w.onState.resize(size_t(2 * m) * vp);
  matrix(w.onState.data(), vp, w.kq.data(), dk, 2 * m, layer + (size_t((run.base / C) % 2) * s.valueHeads + vh) * dk * vp, vp, dk, vp);
  const int logged = run.onChain ? seg.ctxLen + run.rows[0] - run.base : seg.end() - run.base;
  const int first = run.base % ring, firstPiece = ring - first;
  float cum = 0;
  for (int j = 0; j < logged; ++j) w.cums[j] = cum += gates[j < firstPiece ? first + j : j - firstPiece];
  const float loggedCum = cum, rate = -exp1(t.aLog[vh]);
  for (int i = 0; i < m; ++i) {
    const int row = run.rows[i], node = seg.nodeStart + row - seg.chainLen, onRing = run.onChain ? logged + i : logged;
    const size_t r = size_t(seg.firstRow + row);
    const int onPath = run.onChain ? 0 : pathTo(node, seg.parents, w.path.data()) - 1, ancestors = onRing + onPath;
    if (!run.onChain) cum = loggedCum;
    for (int j = 0; j < onPath; ++j) w.cums[onRing + j] = cum += nodeGates[w.path[j]];
    const float av = t.a[r * s.valueHeads + vh] + t.dtBias[vh];
    const float g = rate * (av > 20 ? av : std::log1p(exp1(av)));
    const float beta = 1.0f / (1.0f + exp1(-t.b[r * s.valueHeads + vh]));
    w.cums[ancestors] = cum += g;
    const float* kk = w.onRing.data() + size_t(2 * i) * s.ringPad;
    const float* qk = kk + s.ringPad;
    for (int j = 0; j < onRing; j += VL) {
      const vf fade = fadev(set(cum) - load(w.cums.data() + j));
      store(w.kWeights.data() + j, fade * load(kk + j));
      store(w.qWeights.data() + j, fade * load(qk + j));
    }
    const float *nodeKk = w.onNodes.data() + size_t(2 * i) * s.nodePad, *nodeQk = nodeKk + s.nodePad;
    for (int j = 0; j < onPath; ++j) {
      const float fade = fade1(cum - w.cums[onRing + j]);
      w.kWeights[onRing + j] = fade * nodeKk[w.path[j]];
      w.qWeights[onRing + j] = fade * nodeQk[w.path[j]];
    }
    float* state = w.onState.data() + size_t(2 * i) * vp;
    const int head = std::min(onRing, firstPiece);
    const DeltaRow parts{state, fade1(cum), {errors + size_t(first) * vp, errors}, {head, onRing - head}, nodeErrors, w.path.data(), onPath};
    int e = 0;
    for (; e + 4 * VL <= vp; e += 4 * VL) deltaColumns<4>(parts, vp, w.kWeights.data(), w.qWeights.data(), e);
    for (; e < vp; e += VL) deltaColumns<1>(parts, vp, w.kWeights.data(), w.qWeights.data(), e);
    const int at = (seg.ctxLen + row) % ring;
    const float own = run.onChain ? qk[onRing] : nodeQk[node];
    const float* v = t.qkv + r * s.channels + size_t(2) * s.keyHeads * dk + size_t(vh) * s.valueDim;
    float* error = run.onChain ? errors + size_t(at) * vp : nodeErrors + size_t(node) * vp;
    float* out = t.out + (r * s.valueHeads + vh) * s.valueDim;
    for (int c = 0; c < s.valueDim; ++c) {
      const float x = beta * (v[c] - state[c]);
      error[c] = x;
      out[c] = FMA1(own, x, state[vp + c]);
    }
    if (run.onChain) gates[at] = g;
    else nodeGates[node] = g;
  }
}

static void delta(const DeltaTask& t) {
  static thread_local DeltaScratch w;
  const StateLayout& s = *t.state;
  const Segment& seg = *t.segment;
  w.cums.resize(padUp(2 * s.chunk + s.maxNodes + 1));
  w.kWeights.resize(w.cums.size());
  w.qWeights.resize(w.cums.size());
  w.path.resize(std::max(1, s.maxNodes));
  DeltaRun run;
  auto go = [&] {
    if (run.rows.empty()) return;
    deltaKeys(t, run, w);
    for (int vh = t.keyHead * s.rep; vh < (t.keyHead + 1) * s.rep; ++vh) deltaHead(t, run, w, vh);
    run.rows.clear();
  };
  run.onChain = true;
  for (int row = 0; row < seg.chainLen; ++row) {
    const int position = seg.ctxLen + row;
    run.base = s.base(position);
    run.rows.push_back(row);
    const bool fills = (position + 1) % s.chunk == 0;
    if (!fills && row + 1 < seg.chainLen) continue;
    go();
    if (fills) materialize(s, s.layer(seg.slot, t.layer), t.keyHead, (position + 1) / s.chunk);
  }
  // Nodes reach into one chunk more at most; a parent's base is never behind its child's.
  run.onChain = false;
  for (int step = 0; step < 2; ++step) {
    run.base = s.base(seg.end()) + step * s.chunk;
    for (int node = seg.nodeStart; node < seg.nodeCount; ++node)
      if (s.base(seg.end() + pathTo(node, seg.parents, w.path.data()) - 1) == run.base) run.rows.push_back(seg.chainLen + node - seg.nodeStart);
    go();
  }
}

