// Any machine: vectors of 4 that the compiler maps to what is there, no fused multiply-add.
#include "kernels.h"
#define VL 4
#define NAME "portable"
#define FMA(a, b, c) ((a) * (b) + (c))
#define FMA1(a, b, c) ((a) * (b) + (c))
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
