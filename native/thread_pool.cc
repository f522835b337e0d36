// See thread_pool.h. A worker announces itself in `inside_` before it looks whether the job is open; the caller closes
// the job before it waits for `inside_` to become 0. With sequential consistency one of the two always sees the other.
#include "thread_pool.h"

namespace copse {
namespace {

constexpr int kSpins = 600;  // about 30 us where a pause takes 40 to 50 ns

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::take(int thread) {
  for (int i = next_.fetch_add(1); i < count_; i = next_.fetch_add(1)) call_(self_, i, thread);
}

void ThreadPool::dispatch(int count, Call call, const void* self) {
  call_ = call;
  self_ = self;
  count_ = count;
  next_ = 0;
  open_ = true;
  epoch_.fetch_add(1);
  epoch_.notify_all();
  take(0);
  open_ = false;
  for (int spins = 0; inside_.load() != 0; ++spins) {
    if (spins < kSpins) relax();
    else std::this_thread::yield();
  }
}

void ThreadPool::work(int thread) {
  uint32_t seen = 0;
  while (!stop_) {
    for (int spins = 0; epoch_.load() == seen && spins < kSpins; ++spins) relax();
    epoch_.wait(seen);
    seen = epoch_.load();
    inside_.fetch_add(1);
    if (open_.load()) take(thread);
    inside_.fetch_sub(1);
  }
}

}  // namespace copse
