// AVX2 and FMA: a tile in two halves of 8 outputs. The biased table keeps products below 2^15, so maddubs never saturates.
#include "kernels.h"
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>
#define VL 8
#define NAME "avx2"
#define FMA(a, b, c) ((vf)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define FMA1(a, b, c) __builtin_fmaf(a, b, c)
#define BLOCK_VECTORS 2
#define SUM(v) sum256((__m256)(v))
#define LARGEST(v) max256((__m256)(v))
#define SET(x) ((vf)_mm256_set1_ps(x))
#define MIN(a, b) ((vf)_mm256_min_ps((__m256)(a), (__m256)(b)))
#define MAX(a, b) ((vf)_mm256_max_ps((__m256)(a), (__m256)(b)))
#define ZERO_BELOW(r, x, low) ((vf)_mm256_and_ps(_mm256_cmp_ps((__m256)(x), (__m256)(low), _CMP_GE_OQ), (__m256)(r)))
// E4M3 as fp16 bits is the value / 256, subnormals included: bit 15 of the shifted sign extension is the sign, bit 14 is cleared.
#define E4M3_UNITS(p)                                                                                           \
  ((vf)_mm256_cvtph_ps(_mm_and_si128(                                                                           \
      _mm_slli_epi16(_mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))), 7), _mm_set1_epi16(short(0xbfff)))))
#define HALVES_TO_INTS(p) ((vu)_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>
namespace copse {
namespace {
#include "x86_sums.h"
typedef int32_t vi8 __attribute__((vector_size(32), aligned(4), may_alias));
struct Tile {
  __m256i w[2][4];
  void decode(const uint8_t* data) {
    const __m256i table = _mm256_broadcastsi128_si256(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    const __m256i low = _mm256_set1_epi8(15);
    for (int half = 0; half < 2; ++half) {
      const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + 32 * half));
      const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + 64 + 32 * half));
      w[half][0] = _mm256_shuffle_epi8(table, _mm256_and_si256(a, low));
      w[half][1] = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(a, 4), low));
      w[half][2] = _mm256_shuffle_epi8(table, _mm256_and_si256(b, low));
      w[half][3] = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(b, 4), low));
    }
  }
  void dot(vi8* out, const int8_t* x, int32_t start) const {
    int32_t q[4];
    memcpy(q, x, 16);
    const __m256i ones = _mm256_set1_epi16(1);
    for (int half = 0; half < 2; ++half) {
      __m256i sum = _mm256_set1_epi32(start);
      for (int i = 0; i < 4; ++i)
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(w[half][i], _mm256_set1_epi32(q[i])), ones));
      out[half] = (vi8)sum;
    }
  }
};
#include "kernels_body.h"
}  // namespace
const KernelTable* avx2Kernels() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") ? &table : nullptr;
}
}  // namespace copse
#else
namespace copse {
const KernelTable* avx2Kernels() { return nullptr; }
}
#endif
