// Memory and ops of one back-end instance: checks shapes, ids and bounds, then runs kernels over the thread pool.
// Every check throws std::runtime_error, which the addon turns into a JavaScript exception.
#pragma once
#include <map>
#include <stdexcept>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels.h"
#include "thread_pool.h"

namespace copse {

// Anonymous memory straight from the system: zero, and without physical pages until it is touched.
class Memory {
 public:
  Memory() = default;
  explicit Memory(size_t bytes);
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Memory();
  uint8_t* data() const { return data_; }
  float* floats() const { return reinterpret_cast<float*>(data_); }
  size_t bytes() const { return bytes_; }
  // Gives whole system pages inside [from, from + count) back.
  void discard(size_t from, size_t count) const;

 private:
  void swap(Memory& other) {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
};

// A file mapped for reading.
class Mapping {
 public:
  explicit Mapping(const std::string& path);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  const uint8_t* data = nullptr;
  size_t bytes = 0;
};

// Work below this many multiplications is not worth waking threads for.
constexpr size_t kSerialWork = 1 << 15;

size_t weightBytes(Format format, int outDim, int inDim);
// Columns of a weight that share a scale; 0 where the format has no scales of its own.
int scaleGroup(Format format, int inDim);

struct Weight {
  Format format;
  int outDim, inDim;
  float scale;
  const uint8_t* data;
  std::shared_ptr<Mapping> mapping;  // or own memory
  Memory own;
};

struct KvPool {
  KvLayout layout;
  Memory pages, scratch;
};

struct StatePool {
  StateLayout layout;
  Memory slots, nodes, snapshots;
};

struct Batch {
  int rows;
  std::vector<Segment> segments;
  const int32_t* positions;
};

struct QkvArgs {
  int q, gate, k, qg, rawK, qNorm, kNorm;
  int heads, kvHeads, headDim;
  float eps;
  int rotaryDim;
  const float* invFreq;
  float ropeScale;
};

class Device {
 public:
  explicit Device(int threads);
  std::string detail() const;

  int alloc(size_t count);
  void free(int id);
  float* f32(int id, size_t count) const;
  int openFile(const std::string& path);
  void closeFile(int id);
  int weightFromFile(int file, Format format, int outDim, int inDim, float scale, double offset, double bytes);
  int weightFrom(Format format, int outDim, int inDim, float scale, const uint8_t* data, size_t bytes);
  int createKv(KvLayout layout);
  int createState(StateLayout layout);
  const KvLayout& kv(int id) const;
  const StateLayout& state(int id) const;
  void discardPages(int pool, const int32_t* pages, size_t count);
  void discardSnapshots(int pool, const int32_t* snapshots, size_t count);

  void embed(int out, int weight, const int32_t* ids, size_t count);
  void rmsNorm(int out, int x, int w, int rows, int dim, float eps);
  void linear(int out, int weight, int x, int rows);
  void add(int x, int y, size_t count);
  void siluMul(int out, int gate, int up, size_t count);
  void sigmoidMul(int out, int x, int gate, size_t count);
  void gatherRows(int out, int src, const int32_t* rows, size_t count, int dim);
  void concatRows(int dst, int a, int b, int rows, int dimA, int dimB);
  void route(int experts, int weights, int logits, int rows, int width, int k, bool renormalize);
  // out[i] = expert ids[i] over row i / perInput of x, for `choices` ids
  void groupedLinear(int out, int x, int ids, const int32_t* experts, size_t expertCount, int choices, int perInput);
  void mixExperts(int out, int y, int weights, int rows, int k, int dim);
  void addGated(int x, int y, int gate, int rows, int dim);
  void prepareQkv(const QkvArgs& args, const Batch& batch);
  void storeKv(int pool, int layer, int k, int v, float kScale, float vScale, const Batch& batch);
  void attention(int out, int q, int pool, int layer, int heads, float kScale, float vScale, const Batch& batch);
  void conv(int out, int m, int w, int pool, int layer, const Batch& batch);
  void deltaRule(int out, int qkv, int b, int a, int aLog, int dtBias, int pool, int layer, const Batch& batch);
  void gatedRmsNorm(int out, int o, int z, int w, int rows, int dim, float eps);
  void argmax(int out, int logits, int rows, int width, int usable);
  void topK(int ids, int logProbs, int logits, int rows, int width, int usable, int k);
  void commitKv(int pool, int slot, int ctxLen, const int32_t* nodes, size_t count, const int32_t* pages, size_t pageCount, int from, int to);
  void commitState(int pool, int slot, int ctxLen, const int32_t* nodes, size_t count);
  void copyPage(int pool, int dst, int src);
  void resetState(int pool, int slot);
  void saveState(int pool, int slot, int tokens, int snapshot);
  void restoreState(int pool, int slot, int tokens, int snapshot);
  void keepHidden(int pool, int slot, int src, int row);
  void loadHidden(int out, int row, int pool, int slot);

 private:
  const Weight& weight(int id) const;
  void checkKv(const KvLayout& kv, int layer, const Batch& batch) const;
  void checkState(const StateLayout& state, int layer, const Batch& batch) const;
  // Outputs from .. to of a weight in any format but NVFP4; `out` is that of output `from` and of row 0.
  void dense(float* out, size_t stride, const Weight& w, int from, int to, const float* x, int rows);
  void linearNvfp4(float* out, const Weight& w, const float* x, int rows);

  const KernelTable* kernels_;
  ThreadPool pool_;
  int nextId_ = 1;
  std::map<int, Memory> buffers_;
  std::map<int, std::shared_ptr<Mapping>> files_;
  std::map<int, Weight> weights_;
  std::map<int, std::unique_ptr<KvPool>> kvPools_;
  std::map<int, std::unique_ptr<StatePool>> statePools_;
  std::vector<int8_t> codes_;
  std::vector<int32_t> sums_;
  std::vector<float> scales_;
  std::vector<float> sorted_, sortedOut_;  // rows of groupedLinear, by expert
};

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::string text;
  ((text += [](const auto& part) {
     if constexpr (std::is_arithmetic_v<std::decay_t<decltype(part)>>) return std::to_string(part);
     else return std::string(part);
   }(parts)),
   ...);
  throw std::runtime_error(text);
}

}  // namespace copse
