// Chooses a kernel table, and the few scalar helpers that all of them share.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "kernels.h"

namespace copse {

const KernelTable* chooseKernels() {
  const KernelTable* all[] = {avx512Kernels(), avx2Kernels(), neonKernels(), portableKernels()};
  const char* wanted = std::getenv("COPSE_ISA");
  for (const KernelTable* table : all) {
    if (!table) continue;
    if (!wanted || !*wanted || std::string(table->name).rfind(wanted, 0) == 0) return table;
  }
  throw std::runtime_error(std::string("COPSE_ISA is ") + wanted + ", which this CPU or build does not have");
}

namespace {

inline uint32_t bitsOf(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return bits;
}

inline uint16_t bf16Encode(float x) {
  const uint32_t bits = bitsOf(x);
  const bool isNan = (bits & 0x7fffffff) > 0x7f800000;
  return uint16_t(isNan ? (bits >> 16) | 0x40 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Both branches are computed, so that loops over it become vectors. Below 2^-6 the sum with 2^14 has a last place of 2^-9, the
// step of the subnormals; above, the mantissa is rounded to 3 bits by integer addition, which carries into the exponent.
inline uint8_t e4m3Encode(float x) {
  const uint32_t bits = bitsOf(x), size = bits & 0x7fffffff, most = 0x43e00000;  // 448
  const uint32_t clamped = size < most ? size : most;
  float value;
  memcpy(&value, &clamped, 4);
  const uint32_t small = bitsOf(value + 16384.0f) - 0x46800000;
  const uint32_t normal = ((clamped + 0x7ffff + ((clamped >> 20) & 1)) >> 20) - (120 << 3);
  const uint32_t code = size > 0x7f800000 ? 0x7f : clamped < 0x3c800000 ? small : normal;
  return uint8_t((bits >> 24 & 0x80) | code);
}

}  // namespace

void encodeMany(uint8_t* out, KvType type, const float* x, int count, float scale) {
  if (type == KvType::fp8) {
    for (int i = 0; i < count; ++i) out[i] = e4m3Encode(x[i] / scale);
    return;
  }
  for (int i = 0; i < count; ++i) {
    const float value = x[i] / scale;
    const uint16_t half = bf16Encode(value);
    if (type == KvType::bf16) memcpy(out + 2 * i, &half, 2);
    else memcpy(out + 4 * i, &value, 4);
  }
}

int pathTo(int node, const int32_t* parents, int* path) {
  int depth = 0;
  for (int at = node; at >= 0; at = parents[at]) ++depth;
  for (int at = node, i = depth; at >= 0; at = parents[at]) path[--i] = at;
  return depth;
}

}  // namespace copse
