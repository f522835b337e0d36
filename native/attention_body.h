// Paged attention with an online softmax, included by kernels_body.h. A row takes blocks of pageTokens at absolute positions in
// order, so that neither the rows beside it nor the tree around it change its result.

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

// out [rows, outStride] = p [rows, columns] in the unit of the pool's type.
template <KvType type>
inline void decodeRows(float* out, size_t outStride, const uint8_t* p, int rows, int columns) {
  constexpr size_t bytes = type == KvType::fp8 ? 1 : type == KvType::bf16 ? 2 : 4;
  for (int r = 0; r < rows; ++r) decodeAs<type>(out + r * outStride, p + size_t(r) * columns * bytes, columns);
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
    decodeMany(raw, kv.type, kv.node(t.segment->slot, t.layer, 0, t.kvHead, nodes[n]), keys.dim);
    for (int d = 0; d < keys.dim; ++d) keys.kt[d * keys.pad + filled] = raw[d];
    decodeMany(keys.v + filled * keys.dimPad, kv.type, kv.node(t.segment->slot, t.layer, 1, t.kvHead, nodes[n]), keys.dim);
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

