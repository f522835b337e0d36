// AVX-512 with VNNI: one vector is the 16 outputs of a tile.
#include "kernels.h"
#if defined(__AVX512VNNI__)
#include <immintrin.h>
#define VL 16
#define NAME "avx512-vnni"
#define FMA(a, b, c) ((vf)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define FMA1(a, b, c) __builtin_fmaf(a, b, c)
#define BLOCK_VECTORS 4
#define SUM(v) sum256(_mm256_add_ps(_mm512_castps512_ps256((__m512)(v)), _mm512_extractf32x8_ps((__m512)(v), 1)))
#define LARGEST(v) max256(_mm256_max_ps(_mm512_castps512_ps256((__m512)(v)), _mm512_extractf32x8_ps((__m512)(v), 1)))
#define SET(x) ((vf)_mm512_set1_ps(x))
#define MIN(a, b) ((vf)_mm512_min_ps((__m512)(a), (__m512)(b)))
#define MAX(a, b) ((vf)_mm512_max_ps((__m512)(a), (__m512)(b)))
#define ZERO_BELOW(r, x, low) ((vf)_mm512_maskz_mov_ps(_mm512_cmp_ps_mask((__m512)(x), (__m512)(low), _CMP_GE_OQ), (__m512)(r)))
// E4M3 as fp16 bits is the value / 256, subnormals included: bit 15 of the shifted sign extension is the sign, bit 14 is cleared.
#define E4M3_UNITS(p)                                                                                               \
  ((vf)_mm512_cvtph_ps(_mm256_and_si256(                                                                            \
      _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 7), _mm256_set1_epi16(short(0xbfff)))))
#define HALVES_TO_INTS(p) ((vu)_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))))
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>
namespace copse {
namespace {
#include "x86_sums.h"
typedef int32_t vi16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t Word __attribute__((aligned(1), may_alias));
// Codes of a tile as unsigned bytes 2 * e2m1 + 12.
struct Tile {
  __m512i w[4];
  void decode(const uint8_t* data) {
    const __m512i table = _mm512_broadcast_i32x4(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    const __m512i low = _mm512_set1_epi8(15);
    const __m512i a = _mm512_loadu_si512(data), b = _mm512_loadu_si512(data + 64);
    w[0] = _mm512_shuffle_epi8(table, _mm512_and_si512(a, low));
    w[1] = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(a, 4), low));
    w[2] = _mm512_shuffle_epi8(table, _mm512_and_si512(b, low));
    w[3] = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(b, 4), low));
  }
  void dot(vi16* out, const int8_t* x, int32_t start) const {
    const Word* q = reinterpret_cast<const Word*>(x);
    __m512i sum = _mm512_set1_epi32(start);
    for (int i = 0; i < 4; ++i) sum = _mm512_dpbusd_epi32(sum, w[i], _mm512_set1_epi32(q[i]));
    out[0] = (vi16)sum;
  }
};
#include "kernels_body.h"
}  // namespace
const KernelTable* avx512Kernels() {
  const bool usable = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
  return usable ? &table : nullptr;
}
}  // namespace copse
#else
namespace copse {
const KernelTable* avx512Kernels() { return nullptr; }
}
#endif
