// Makes tensors and takes checksums of them.
// SPDX-License-Identifier: Apache-2.0
#include "scene.hpp"

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <utility>

namespace sluice::checksums {
namespace {

constexpr uint64_t kBasis = 0xcbf29ce484222325u, kPrime = 0x100000001b3u;
constexpr int kFine = 12;  ///< bits of a float32 below a 16-bit type's

/// FNV-1a, eight bytes at a time.
uint64_t checksum(const void* data, size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
  uint64_t hash = kBasis;
  for (; bytes >= 8; at += 8, bytes -= 8) {
    uint64_t word = 0;
    std::memcpy(&word, at, 8);
    hash = (hash ^ word) * kPrime;
    hash ^= hash >> 32;
  }
  for (; bytes > 0; ++at, --bytes) hash = (hash ^ *at) * kPrime;
  return hash;
}

/// Splitmix64.
uint64_t next(uint64_t* state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

float power_of_two(int exponent) {
  float value = 1;
  for (; exponent < 0; ++exponent) value *= 0.5f;
  for (; exponent > 0; --exponent) value *= 2.0f;
  return value;
}

/// Of a value that the type holds: no rounding.
uint16_t bfloat16_bits(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, 4);
  return static_cast<uint16_t>(bits >> 16);
}

uint16_t float16_bits(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, 4);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  if (value == 0) return static_cast<uint16_t>(sign);
  const uint32_t exponent = ((bits >> 23) & 0xffu) - 127 + 15;
  return static_cast<uint16_t>(sign | exponent << 10 | ((bits >> 13) & 0x3ffu));
}

int64_t elements(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

}  // namespace

bool same(DType a, DType b) { return a.code == b.code && a.bits == b.bits; }

Scene::Scene(Device& device, std::string name)
    : device_(device), name_(std::move(name)), random_(checksum(name_.data(), name_.size())) {}

Scene::~Scene() {
  for (const Memory& memory : memory_) device_.release(memory.data);
}

std::vector<std::byte> Scene::draw(DType dtype, const Shape& shape, Range range) {
  const auto count = static_cast<size_t>(elements(shape)), width = size_t{dtype.bits} / 8;
  std::vector<std::byte> bytes(count * width);
  const bool fine = same(dtype, kFloat32) && range.low != range.high;
  const float unit = power_of_two(range.exponent - (fine ? kFine : 0));
  const auto span = static_cast<uint64_t>(range.high - range.low + 1) << (fine ? kFine : 0);
  const int64_t first = fine ? int64_t{range.low} * (1 << kFine) : range.low;
  for (size_t i = 0; i < count; ++i) {
    const int64_t n = first + static_cast<int64_t>((next(&random_) >> 32) * span >> 32);
    const float value = static_cast<float>(n) * unit;
    const uint16_t half = same(dtype, kBFloat16) ? bfloat16_bits(value) : float16_bits(value);
    std::memcpy(&bytes[i * width],
                width == 4 ? static_cast<const void*>(&value) : static_cast<const void*>(&half),
                width);
  }
  return bytes;
}

TensorView Scene::view_of(const std::vector<std::byte>& bytes, DType dtype, const Shape& shape,
                          const std::string& tensor) {
  const size_t room = bytes.size() + 256;  // never empty
  void* data = device_.allocate(room);
  device_.upload(data, bytes.data(), bytes.size());
  memory_.push_back({data, bytes.size(), tensor, ""});
  TensorView view;
  view.data = data;
  view.device = device_.name();
  view.dtype = dtype;
  return shaped(view, shape);
}

TensorView Scene::in(DType dtype, const Shape& shape, Range range) {
  return view_of(draw(dtype, shape, range), dtype, shape, "");
}

TensorView Scene::integers(const std::vector<int64_t>& values, DType dtype) {
  return index_view("", values, dtype);
}

TensorView Scene::cursors(const std::string& tensor, const std::vector<int64_t>& values) {
  return index_view(tensor, values, kInt32);
}

TensorView Scene::index_view(const std::string& tensor, const std::vector<int64_t>& values,
                             DType dtype) {
  const size_t width = size_t{dtype.bits} / 8;
  std::vector<std::byte> bytes(values.size() * width);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto narrow = static_cast<int32_t>(values[i]);
    std::memcpy(
        &bytes[i * width],
        width == 8 ? static_cast<const void*>(&values[i]) : static_cast<const void*>(&narrow),
        width);
  }
  return view_of(bytes, dtype, {static_cast<int64_t>(values.size())}, tensor);
}

TensorView Scene::flags(const std::vector<uint8_t>& values) {
  std::vector<std::byte> bytes(values.size());
  std::memcpy(bytes.data(), values.data(), values.size());
  return view_of(bytes, kBool, {static_cast<int64_t>(values.size())}, "");
}

TensorView Scene::out(const std::string& tensor, DType dtype, const Shape& shape) {
  const auto bytes = static_cast<size_t>(elements(shape)) * (dtype.bits / 8);
  return view_of(std::vector<std::byte>(bytes, std::byte{0xa5}), dtype, shape, tensor);
}

TensorView Scene::both(const std::string& tensor, DType dtype, const Shape& shape, Range range) {
  return view_of(draw(dtype, shape, range), dtype, shape, tensor);
}

void Scene::run_with(int op, const void* args, const std::function<Status(Workspace)>& call) {
  if (!refused_.empty()) return;
  size_t bytes = 0;
  Workspace workspace;
  Status status = detail::last_status(sluice_workspace_size(op, args, &bytes));
  if (status.ok() && bytes > 0) {
    workspace = {device_.allocate(bytes), bytes};
    device_.fill(workspace.data, 0xff, bytes);
  }
  if (status.ok()) status = call(workspace);
  const std::string trouble = device_.wait();
  if (workspace.data != nullptr) device_.release(workspace.data);
  if (!status.ok() || !trouble.empty()) {
    refused_ = status.ok() ? trouble : status.message;
    std::fprintf(stderr, "%s: %s\n", name_.c_str(), refused_.c_str());
    return;
  }
  for (Memory& memory : memory_) {
    if (memory.kernel.empty()) memory.kernel = sluice_last_kernel();
  }
}

std::vector<Line> Scene::finish(const std::string& backend) {
  if (!refused_.empty()) return {{backend, "-", name_, "-", "refused"}};
  std::vector<Line> lines;
  for (const Memory& memory : memory_) {
    if (memory.tensor.empty()) continue;
    std::vector<std::byte> bytes(memory.bytes);
    device_.download(bytes.data(), memory.data, memory.bytes);
    char text[24];
    std::snprintf(text, sizeof text, "%016" PRIx64, checksum(bytes.data(), bytes.size()));
    lines.push_back({backend, memory.kernel, name_, memory.tensor, text});
  }
  return lines;
}

TensorView shaped(const TensorView& view, const Shape& shape) {
  TensorView other = view;
  other.rank = static_cast<uint16_t>(shape.size());
  int64_t stride = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    other.shape[axis] = shape[axis];
    other.stride[axis] = stride;
    stride *= shape[axis];
  }
  return other;
}

TensorView entry(const TensorView& view, int64_t i) {
  TensorView part = view.sliced(0, i, 1);
  for (int axis = 1; axis < view.rank; ++axis) {
    part.shape[axis - 1] = view.shape[axis];
    part.stride[axis - 1] = view.stride[axis];
  }
  --part.rank;
  return part;
}

TensorView heads(const TensorView& rows, int64_t first, int64_t count, int64_t D) {
  TensorView part = rows.sliced(2, first, count);
  part.rank = 4;
  part.stride[2] = D;
  part.shape[3] = D;
  part.stride[3] = 1;
  return part;
}

std::vector<int64_t> offsets(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> all{0};
  for (const int64_t length : lengths) all.push_back(all.back() + length);
  return all;
}

int64_t sum(const std::vector<int64_t>& values) {
  int64_t total = 0;
  for (const int64_t value : values) total += value;
  return total;
}

std::string word(DType dtype) {
  if (same(dtype, kBFloat16)) return "bf16";
  return same(dtype, kFloat16) ? "fp16" : "fp32";
}

void Run::scene(const std::string& name, const std::function<void(Scene&)>& fill) const {
  const std::string full = pass.empty() ? name : pass + ":" + name;
  if (full.find(only) == std::string::npos) return;
  Scene scene(device, full);
  fill(scene);
  done(scene);
}

}  // namespace sluice::checksums
