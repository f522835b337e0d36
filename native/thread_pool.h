// A few persistent threads for loops whose iterations write disjoint outputs.
//
// The caller works too and takes every index that nobody else took, so a worker that the system does not schedule
// delays nothing but the index it holds. Idle workers spin briefly (ops follow each other within microseconds), then sleep.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace copse {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  int size() const { return int(workers_.size()) + 1; }

  // body(index, thread) for every index below count; thread 0 is the caller. Returns when all are done.
  template <class Body>
  void run(int count, const Body& body) {
    if (count <= 1 || workers_.empty()) {
      for (int i = 0; i < count; ++i) body(i, 0);
      return;
    }
    dispatch(count, [](const void* self, int i, int thread) { (*static_cast<const Body*>(self))(i, thread); }, &body);
  }

 private:
  using Call = void (*)(const void* self, int index, int thread);
  void dispatch(int count, Call call, const void* self);
  void take(int thread);
  void work(int thread);

  // Written by the caller only while the job is closed and no worker is inside.
  Call call_ = nullptr;
  const void* self_ = nullptr;
  int count_ = 0;
  alignas(64) std::atomic<uint32_t> epoch_{0};
  std::atomic<bool> open_{false};
  std::atomic<bool> stop_{false};
  alignas(64) std::atomic<int> next_{0};
  alignas(64) std::atomic<int> inside_{0};
  std::vector<std::thread> workers_;
};

}  // namespace copse
