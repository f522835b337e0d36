// 64-bit Arm with dot product instructions: four outputs a vector.
#include "kernels.h"
#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#if defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#define VL 4
#define NAME "neon-dotprod"
#define FMA(a, b, c) ((vf)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#define FMA1(a, b, c) __builtin_fmaf(a, b, c)
#define BLOCK_VECTORS 4
#define SUM(v) (((v)[0] + (v)[2]) + ((v)[1] + (v)[3]))
#define LARGEST(v) vmaxvq_f32((float32x4_t)(v))
#define SET(x) (vf{x, x, x, x})
#define MIN(a, b) pick((a) < (b), a, b)
#define MAX(a, b) pick((a) > (b), a, b)
#define ZERO_BELOW(r, x, low) pick((x) >= (low), r, set(0.0f))
#define E4M3_UNITS(p) e4m3Units(__builtin_convertvector(*reinterpret_cast<const vb*>(p), vu))
#define HALVES_TO_INTS(p) __builtin_convertvector(*reinterpret_cast<const vh*>(p), vu)
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>
namespace copse {
namespace {
typedef int32_t vi4 __attribute__((vector_size(16), aligned(4), may_alias));
// Signed bytes 2 * e2m1: four vectors of 4 outputs for each of the four input quads.
struct Tile {
  int8x16_t w[4][4];
  void decode(const uint8_t* data) {
    const int8x16_t table = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    const uint8x16_t low = vdupq_n_u8(15);
    for (int p = 0; p < 4; ++p) {
      const uint8x16_t a = vld1q_u8(data + 16 * p), b = vld1q_u8(data + 64 + 16 * p);
      w[p][0] = vqtbl1q_s8(table, vandq_u8(a, low));
      w[p][1] = vqtbl1q_s8(table, vshrq_n_u8(a, 4));
      w[p][2] = vqtbl1q_s8(table, vandq_u8(b, low));
      w[p][3] = vqtbl1q_s8(table, vshrq_n_u8(b, 4));
    }
  }
  void dot(vi4* out, const int8_t* x, int32_t) const {
    const int8x16_t q = vld1q_s8(x);
    for (int p = 0; p < 4; ++p) {
      int32x4_t sum = vdupq_n_s32(0);
      sum = vdotq_laneq_s32(sum, w[p][0], q, 0);
      sum = vdotq_laneq_s32(sum, w[p][1], q, 1);
      sum = vdotq_laneq_s32(sum, w[p][2], q, 2);
      sum = vdotq_laneq_s32(sum, w[p][3], q, 3);
      out[p] = (vi4)sum;
    }
  }
};
#include "kernels_body.h"
}  // namespace
const KernelTable* neonKernels() {
#if defined(__linux__)
  return getauxval(AT_HWCAP) & HWCAP_ASIMDDP ? &table : nullptr;
#else
  return &table;  // every Apple CPU of this architecture has dot products
#endif
}
}  // namespace copse
#else
namespace copse {
const KernelTable* neonKernels() { return nullptr; }
}
#endif
