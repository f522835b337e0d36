// Any machine: vectors of 4 that the compiler maps to what is there, no fused multiply-add.
#include "kernels.h"
#define VL 4
#define NAME "portable"
#define FMA(a, b, c) ((a) * (b) + (c))
#define FMA1(a, b, c) ((a) * (b) + (c))
#define BLOCK_VECTORS 2
#define SUM(v) (((v)[0] + (v)[2]) + ((v)[1] + (v)[3]))
#define LARGEST(v) std::max(std::max((v)[0], (v)[2]), std::max((v)[1], (v)[3]))
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
#include "portable_tile.h"
#include "kernels_body.h"
}  // namespace
const KernelTable* portableKernels() { return &table; }
}  // namespace copse
