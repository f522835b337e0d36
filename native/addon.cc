// Node-API glue: a device per back-end instance, ops as functions of handles and numbers. Context-aware: every environment
// (main thread or worker) has its own exports, and a device dies with the object that holds it.
#include <node_api.h>

#include <cmath>
#include <cstring>
#include <string>
#include <thread>

#include "device.h"

namespace {

using copse::Batch;
using copse::Device;
using copse::fail;
using copse::Format;
using copse::Segment;

struct Ints {
  const int32_t* data;
  size_t size;
};

// Arguments of a call, converted on access; what does not convert throws.
class Args {
 public:
  Args(napi_env env, napi_callback_info info) : env_(env) {
    size_ = 20;
    napi_get_cb_info(env, info, &size_, values_, nullptr, nullptr);
  }
  double number(size_t i) const {
    double x;
    if (i >= size_ || napi_get_value_double(env_, values_[i], &x) != napi_ok) fail("argument ", i, " is not a number");
    return x;
  }
  int integer(size_t i) const {
    const double x = number(i);
    if (!(std::fabs(x) <= 2147483647.0)) fail("argument ", i, " is ", x, ", expected a 32-bit integer");
    return int(x);
  }
  size_t count(size_t i) const {
    const double x = number(i);
    if (!(x >= 0) || x > 9e15) fail("argument ", i, " is ", x, ", expected a count");
    return size_t(x);
  }
  float single(size_t i) const { return float(number(i)); }
  std::string text(size_t i) const {
    size_t length;
    if (i >= size_ || napi_get_value_string_utf8(env_, values_[i], nullptr, 0, &length) != napi_ok) fail("argument ", i, " is not a text");
    std::string s(length, '\0');
    napi_get_value_string_utf8(env_, values_[i], s.data(), length + 1, &length);
    return s;
  }
  Ints ints(size_t i) const {
    size_t size;
    void* data = array(i, napi_int32_array, &size);
    return {static_cast<const int32_t*>(data), size};
  }
  float* floats(size_t i, size_t* size) const { return static_cast<float*>(array(i, napi_float32_array, size)); }
  uint8_t* bytes(size_t i, size_t* size) const { return static_cast<uint8_t*>(array(i, napi_uint8_array, size)); }
  // Any array of 4-byte values.
  void* words(size_t i, size_t* size) const {
    napi_typedarray_type type;
    void* data = raw(i, &type, size);
    if (type != napi_int32_array && type != napi_float32_array) fail("argument ", i, " is not an Int32Array or Float32Array");
    return data;
  }
  Device& device() const {
    void* p = nullptr;
    if (size_ == 0 || napi_get_value_external(env_, values_[0], &p) != napi_ok || !p) fail("argument 0 is not a device");
    auto* holder = static_cast<std::unique_ptr<Device>*>(p);
    if (!*holder) fail("the back-end is closed");
    return **holder;
  }
  std::unique_ptr<Device>* holder() const {
    void* p = nullptr;
    if (size_ == 0 || napi_get_value_external(env_, values_[0], &p) != napi_ok) fail("argument 0 is not a device");
    return static_cast<std::unique_ptr<Device>*>(p);
  }
  // rows, segments, 7 numbers per segment, then pages and parents of each, then positions.
  Batch batch(size_t i) const {
    const Ints flat = ints(i);
    size_t at = 2;
    if (flat.size < 2) fail("a batch without a head");
    Batch batch{flat.data[0], {}, nullptr};
    const size_t segments = size_t(flat.data[1]);
    if (flat.data[0] < 0 || segments > flat.size) fail("a batch that is cut off");
    size_t lists = at + 7 * segments;
    if (lists > flat.size) fail("a batch that is cut off");
    for (size_t s = 0; s < segments; ++s, at += 7) {
      const int32_t* f = flat.data + at;
      Segment segment{f[0], f[1], f[2], f[3], f[4], f[5], f[6], flat.data + lists, flat.data + lists + f[6]};
      lists += size_t(f[6]) + size_t(f[5]);
      if (f[5] < 0 || f[6] < 0 || lists > flat.size) fail("a batch that is cut off");
      batch.segments.push_back(segment);
    }
    batch.positions = flat.data + lists;
    if (lists + size_t(batch.rows) != flat.size) fail("a batch with ", flat.size - lists, " positions for ", batch.rows, " rows");
    return batch;
  }

 private:
  void* raw(size_t i, napi_typedarray_type* type, size_t* size) const {
    void* data = nullptr;
    if (i >= size_ || napi_get_typedarray_info(env_, values_[i], type, size, &data, nullptr, nullptr) != napi_ok) fail("argument ", i, " is not a typed array");
    return data;
  }
  void* array(size_t i, napi_typedarray_type wanted, size_t* size) const {
    napi_typedarray_type type;
    void* data = raw(i, &type, size);
    if (type != wanted) fail("argument ", i, " is a typed array of another type");
    return data;
  }
  napi_env env_;
  size_t size_;
  napi_value values_[20];
};

napi_value numberOf(napi_env env, double x) {
  napi_value value;
  napi_create_double(env, x, &value);
  return value;
}

napi_value textOf(napi_env env, const std::string& text) {
  napi_value value;
  napi_create_string_utf8(env, text.c_str(), text.size(), &value);
  return value;
}

// A C++ exception becomes a JavaScript one.
template <auto Body>
napi_value call(napi_env env, napi_callback_info info) {
  try {
    return Body(env, Args(env, info));
  } catch (const std::exception& error) {
    napi_throw_error(env, nullptr, error.what());
    return nullptr;
  }
}

namespace js {

napi_value open(napi_env env, const Args& a) {
  int threads = a.integer(0);
  if (threads <= 0) threads = int(std::thread::hardware_concurrency());
  auto* holder = new std::unique_ptr<Device>();
  try {
    *holder = std::make_unique<Device>(threads > 0 ? threads : 1);
  } catch (...) {
    delete holder;
    throw;
  }
  napi_value external;
  napi_create_external(env, holder, [](napi_env, void* p, void*) { delete static_cast<std::unique_ptr<Device>*>(p); }, nullptr, &external);
  return external;
}
napi_value close(napi_env, const Args& a) {
  a.holder()->reset();
  return nullptr;
}
napi_value detail(napi_env env, const Args& a) { return textOf(env, a.device().detail()); }
napi_value alloc(napi_env env, const Args& a) { return numberOf(env, a.device().alloc(a.count(1))); }
napi_value release(napi_env, const Args& a) {
  a.device().free(a.integer(1));
  return nullptr;
}
napi_value read(napi_env, const Args& a) {
  size_t size;
  void* dst = a.words(3, &size);
  const size_t from = a.count(2);
  memcpy(dst, a.device().f32(a.integer(1), from + size) + from, size * 4);
  return nullptr;
}
napi_value write(napi_env, const Args& a) {
  size_t size;
  const void* src = a.words(3, &size);
  const size_t from = a.count(2);
  memcpy(a.device().f32(a.integer(1), from + size) + from, src, size * 4);
  return nullptr;
}
napi_value openFile(napi_env env, const Args& a) { return numberOf(env, a.device().openFile(a.text(1))); }
napi_value closeFile(napi_env, const Args& a) {
  a.device().closeFile(a.integer(1));
  return nullptr;
}
napi_value fileWeight(napi_env env, const Args& a) {
  return numberOf(env, a.device().weightFromFile(a.integer(1), Format(a.integer(2)), a.integer(3), a.integer(4), a.single(5), a.number(6), a.number(7)));
}
napi_value memoryWeight(napi_env env, const Args& a) {
  size_t size;
  const uint8_t* data = a.bytes(5, &size);
  return numberOf(env, a.device().weightFrom(Format(a.integer(1)), a.integer(2), a.integer(3), a.single(4), data, size));
}
napi_value createKv(napi_env env, const Args& a) {
  copse::KvLayout l{};
  l.type = copse::KvType(a.integer(1));
  l.layers = a.integer(2);
  l.kvHeads = a.integer(3);
  l.headDim = a.integer(4);
  l.pageTokens = a.integer(5);
  l.pages = a.integer(6);
  l.slots = a.integer(7);
  l.maxNodes = a.integer(8);
  return numberOf(env, a.device().createKv(l));
}
napi_value createState(napi_env env, const Args& a) {
  copse::StateLayout s{};
  int* fields[] = {&s.layers, &s.keyHeads, &s.valueHeads, &s.keyDim, &s.valueDim, &s.convKernel, &s.chunk, &s.hiddenDim, &s.slots, &s.maxNodes, &s.snapshots};
  for (size_t i = 0; i < 11; ++i) *fields[i] = a.integer(1 + i);
  return numberOf(env, a.device().createState(s));
}
napi_value pageBytes(napi_env env, const Args& a) { return numberOf(env, double(a.device().kv(a.integer(1)).pageBytes)); }
napi_value snapshotBytes(napi_env env, const Args& a) { return numberOf(env, 4.0 * double(a.device().state(a.integer(1)).snapshotFloats)); }
napi_value discardPages(napi_env, const Args& a) {
  const Ints ids = a.ints(2);
  a.device().discardPages(a.integer(1), ids.data, ids.size);
  return nullptr;
}
napi_value discardSnapshots(napi_env, const Args& a) {
  const Ints ids = a.ints(2);
  a.device().discardSnapshots(a.integer(1), ids.data, ids.size);
  return nullptr;
}
napi_value embed(napi_env, const Args& a) {
  const Ints ids = a.ints(3);
  a.device().embed(a.integer(1), a.integer(2), ids.data, ids.size);
  return nullptr;
}
napi_value rmsNorm(napi_env, const Args& a) {
  a.device().rmsNorm(a.integer(1), a.integer(2), a.integer(3), a.integer(4), a.integer(5), a.single(6));
  return nullptr;
}
napi_value linear(napi_env, const Args& a) {
  a.device().linear(a.integer(1), a.integer(2), a.integer(3), a.integer(4));
  return nullptr;
}
napi_value add(napi_env, const Args& a) {
  a.device().add(a.integer(1), a.integer(2), a.count(3));
  return nullptr;
}
napi_value siluMul(napi_env, const Args& a) {
  a.device().siluMul(a.integer(1), a.integer(2), a.integer(3), a.count(4));
  return nullptr;
}
napi_value sigmoidMul(napi_env, const Args& a) {
  a.device().sigmoidMul(a.integer(1), a.integer(2), a.integer(3), a.count(4));
  return nullptr;
}
napi_value gatherRows(napi_env, const Args& a) {
  const Ints rows = a.ints(3);
  a.device().gatherRows(a.integer(1), a.integer(2), rows.data, rows.size, a.integer(4));
  return nullptr;
}
napi_value concatRows(napi_env, const Args& a) {
  a.device().concatRows(a.integer(1), a.integer(2), a.integer(3), a.integer(4), a.integer(5), a.integer(6));
  return nullptr;
}
napi_value route(napi_env, const Args& a) {
  a.device().route(a.integer(1), a.integer(2), a.integer(3), a.integer(4), a.integer(5), a.integer(6), a.integer(7) != 0);
  return nullptr;
}
napi_value groupedLinear(napi_env, const Args& a) {
  const Ints weights = a.ints(4);
  a.device().groupedLinear(a.integer(1), a.integer(2), a.integer(3), weights.data, weights.size, a.integer(5), a.integer(6));
  return nullptr;
}
napi_value mixExperts(napi_env, const Args& a) {
  a.device().mixExperts(a.integer(1), a.integer(2), a.integer(3), a.integer(4), a.integer(5), a.integer(6));
  return nullptr;
}
napi_value addGated(napi_env, const Args& a) {
  a.device().addGated(a.integer(1), a.integer(2), a.integer(3), a.integer(4), a.integer(5));
  return nullptr;
}
napi_value prepareQkv(napi_env, const Args& a) {
  size_t half;
  const float* frequencies = a.floats(12, &half);
  copse::QkvArgs q{a.integer(1), a.integer(2), a.integer(3), a.integer(4), a.integer(5), a.integer(6), a.integer(7), a.integer(8), a.integer(9), a.integer(10), a.single(11), int(2 * half), frequencies, a.single(13)};
  if (q.rotaryDim > q.headDim) fail(q.rotaryDim, " rotated channels of ", q.headDim);
  a.device().prepareQkv(q, a.batch(14));
  return nullptr;
}
napi_value storeKv(napi_env, const Args& a) {
  a.device().storeKv(a.integer(1), a.integer(2), a.integer(3), a.integer(4), a.single(5), a.single(6), a.batch(7));
  return nullptr;
}
napi_value attention(napi_env, const Args& a) {
  a.device().attention(a.integer(1), a.integer(2), a.integer(3), a.integer(4), a.integer(5), a.single(6), a.single(7), a.batch(8));
  return nullptr;
}
napi_value conv(napi_env, const Args& a) {
  a.device().conv(a.integer(1), a.integer(2), a.integer(3), a.integer(4), a.integer(5), a.batch(6));
  return nullptr;
}
napi_value deltaRule(napi_env, const Args& a) {
  a.device().deltaRule(a.integer(1), a.integer(2), a.integer(3), a.integer(4), a.integer(5), a.integer(6), a.integer(7), a.integer(8), a.batch(9));
  return nullptr;
}
napi_value gatedRmsNorm(napi_env, const Args& a) {
  a.device().gatedRmsNorm(a.integer(1), a.integer(2), a.integer(3), a.integer(4), a.integer(5), a.integer(6), a.single(7));
  return nullptr;
}
napi_value argmax(napi_env, const Args& a) {
  a.device().argmax(a.integer(1), a.integer(2), a.integer(3), a.integer(4), a.integer(5));
  return nullptr;
}
napi_value topK(napi_env, const Args& a) {
  a.device().topK(a.integer(1), a.integer(2), a.integer(3), a.integer(4), a.integer(5), a.integer(6), a.integer(7));
  return nullptr;
}
napi_value commitKv(napi_env, const Args& a) {
  const Ints nodes = a.ints(4), pages = a.ints(5);
  a.device().commitKv(a.integer(1), a.integer(2), a.integer(3), nodes.data, nodes.size, pages.data, pages.size, a.integer(6), a.integer(7));
  return nullptr;
}
napi_value commitState(napi_env, const Args& a) {
  const Ints nodes = a.ints(4);
  a.device().commitState(a.integer(1), a.integer(2), a.integer(3), nodes.data, nodes.size);
  return nullptr;
}
napi_value copyPage(napi_env, const Args& a) {
  a.device().copyPage(a.integer(1), a.integer(2), a.integer(3));
  return nullptr;
}
napi_value resetState(napi_env, const Args& a) {
  a.device().resetState(a.integer(1), a.integer(2));
  return nullptr;
}
napi_value saveState(napi_env, const Args& a) {
  a.device().saveState(a.integer(1), a.integer(2), a.integer(3), a.integer(4));
  return nullptr;
}
napi_value restoreState(napi_env, const Args& a) {
  a.device().restoreState(a.integer(1), a.integer(2), a.integer(3), a.integer(4));
  return nullptr;
}
napi_value keepHidden(napi_env, const Args& a) {
  a.device().keepHidden(a.integer(1), a.integer(2), a.integer(3), a.integer(4));
  return nullptr;
}
napi_value loadHidden(napi_env, const Args& a) {
  a.device().loadHidden(a.integer(1), a.integer(2), a.integer(3), a.integer(4));
  return nullptr;
}

}  // namespace js

template <auto Body>
void define(napi_env env, napi_value exports, const char* name) {
  napi_value fn;
  napi_create_function(env, name, NAPI_AUTO_LENGTH, call<Body>, nullptr, &fn);
  napi_set_named_property(env, exports, name, fn);
}

}  // namespace

#define DEFINE(name) define<js::name>(env, exports, #name)

NAPI_MODULE_INIT() {
  DEFINE(open);
  DEFINE(close);
  DEFINE(detail);
  DEFINE(alloc);
  DEFINE(release);
  DEFINE(read);
  DEFINE(write);
  DEFINE(openFile);
  DEFINE(closeFile);
  DEFINE(fileWeight);
  DEFINE(memoryWeight);
  DEFINE(createKv);
  DEFINE(createState);
  DEFINE(pageBytes);
  DEFINE(snapshotBytes);
  DEFINE(discardPages);
  DEFINE(discardSnapshots);
  DEFINE(embed);
  DEFINE(rmsNorm);
  DEFINE(linear);
  DEFINE(add);
  DEFINE(siluMul);
  DEFINE(sigmoidMul);
  DEFINE(gatherRows);
  DEFINE(concatRows);
  DEFINE(route);
  DEFINE(groupedLinear);
  DEFINE(mixExperts);
  DEFINE(addGated);
  DEFINE(prepareQkv);
  DEFINE(storeKv);
  DEFINE(attention);
  DEFINE(conv);
  DEFINE(deltaRule);
  DEFINE(gatedRmsNorm);
  DEFINE(argmax);
  DEFINE(topK);
  DEFINE(commitKv);
  DEFINE(commitState);
  DEFINE(copyPage);
  DEFINE(resetState);
  DEFINE(saveState);
  DEFINE(restoreState);
  DEFINE(keepHidden);
  DEFINE(loadHidden);
  return exports;
}
