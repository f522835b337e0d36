// Codes of a tile as whole numbers, for machines without byte dot products.
struct Tile {
  int8_t w[16][16];
  void decode(const uint8_t* data) {
    static const int8_t doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    for (int row = 0; row < 16; ++row)
      for (int i = 0; i < 16; ++i) {
        const uint8_t byte = data[(i >= 8 ? 64 : 0) + 4 * row + i % 4];
        w[row][i] = doubled[i % 8 >= 4 ? byte >> 4 : byte & 15];
      }
  }
  template <class V>
  void dot(V* out, const int8_t* x, int32_t) const {
    for (int row = 0; row < 16; ++row) {
      int32_t sum = 0;
      for (int i = 0; i < 16; ++i) sum += w[row][i] * x[i];
      out[row / VL][row % VL] = sum;
    }
  }
};
