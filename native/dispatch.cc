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
    if (!wanted || std::string(table->name).rfind(wanted, 0) == 0) return table;
  }
  throw std::runtime_error(std::string("COPSE_ISA is ") + wanted + ", which this CPU or build does not have");
}

uint16_t bf16Encode(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffff) > 0x7f800000) return uint16_t((bits >> 16) | 0x40);
  return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

uint8_t e4m3Encode(float x) {
  if (std::isnan(x)) return 0x7f;
  const uint8_t sign = std::signbit(x) ? 0x80 : 0;
  const float size = std::fmin(std::fabs(x), 448.0f);
  int exponent = size < 0x1p-6f ? -6 : std::ilogb(size);
  const int steps = int(std::nearbyintf(std::ldexp(size, 3 - exponent)));
  const int code = steps < 8 ? steps : ((exponent + 6) << 3) + steps;
  return uint8_t(sign | (code > 0x7e ? 0x7e : code));
}

int pathTo(int node, const int32_t* parents, int* path) {
  int depth = 0;
  for (int at = node; at >= 0; at = parents[at]) ++depth;
  for (int at = node, i = depth; at >= 0; at = parents[at]) path[--i] = at;
  return depth;
}

}  // namespace copse
