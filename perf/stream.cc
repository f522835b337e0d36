// Streaming read bandwidth: threads sum disjoint parts of a block far beyond the caches; prints the best GB/s of five passes.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

typedef uint64_t Lanes __attribute__((vector_size(64)));

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::max(1, std::atoi(argv[1])) : 1;
  const size_t bytes = size_t(1) << 30, count = bytes / sizeof(Lanes) / threads;
  void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) return 1;
  auto* data = static_cast<Lanes*>(block);
  for (size_t i = 0; i < bytes / sizeof(Lanes); ++i) data[i] = Lanes{} + i;
  double best = 0;
  std::vector<Lanes> sums(threads * 2);
  for (int pass = 0; pass < 5; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> workers;
    for (int t = 0; t < threads; ++t)
      workers.emplace_back([&, t] {
        Lanes a{}, b{}, c{}, d{};
        const Lanes* from = data + count * t;
        for (size_t i = 0; i + 4 <= count; i += 4) a += from[i], b += from[i + 1], c += from[i + 2], d += from[i + 3];
        sums[t * 2] = a + b + c + d;
      });
    for (auto& worker : workers) worker.join();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, double(count) * threads * sizeof(Lanes) / seconds / 1e9);
  }
  std::printf("%.2f\n", best + 0 * double(sums[0][0]));
}
