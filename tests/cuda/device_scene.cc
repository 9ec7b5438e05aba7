// Allocates the device memory of one prefill call, poisons it, makes the call, and reads the
// results.
// SPDX-License-Identifier: Apache-2.0
#include "device_scene.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace sluice::check {
namespace {

constexpr size_t kGuard = 4096;
constexpr int kGuardByte = 0x5a, kPoisonByte = 0xff;

/// WHY it throws: a test that goes on after a device error compares garbage.
void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorName(error));
}

Array offsets_of(const std::vector<int64_t>& lengths) {
  Array offsets({static_cast<int64_t>(lengths.size()) + 1});
  for (size_t n = 0; n < lengths.size(); ++n) {
    offsets.values[n + 1] = offsets.values[n] + static_cast<double>(lengths[n]);
  }
  return offsets;
}

/// `count` columns of dimension 2, from `first`, of the rows of sequences, one after the other.
Array cut_rows(const Array& from, const std::vector<int64_t>& offsets,
               const std::vector<int64_t>& sequences, int64_t first, int64_t count) {
  if (from.empty()) return {};
  std::vector<int64_t> shape = from.shape;
  shape[1] = 0, shape[2] = count;
  Array out(shape);
  const int64_t width = from.shape.size() > 3 ? from.shape[3] : 1;
  for (const int64_t n : sequences) {
    const auto i = static_cast<size_t>(n);
    for (int64_t t = offsets[i]; t < offsets[i + 1]; ++t) {
      const auto begin = from.values.begin() + (t * from.shape[2] + first) * width;
      out.values.insert(out.values.end(), begin, begin + count * width);
      ++out.shape[1];
    }
  }
  return out;
}

}  // namespace

DeviceTensor::DeviceTensor(sluice_dtype dtype, std::vector<int64_t> shape) {
  bytes_ = static_cast<size_t>(element_count(shape)) * (dtype.bits / 8u);
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes_ + 2 * kGuard));
  memory_ = static_cast<std::byte*>(memory);
  check(cudaMemset(memory_, kGuardByte, bytes_ + 2 * kGuard));
  view_.data = memory_ + kGuard;
  view_.device = {SLUICE_DEVICE_CUDA, 0};
  view_.dtype = dtype;
  view_.rank = static_cast<uint16_t>(shape.size());
  int64_t stride = 1;
  for (size_t axis = shape.size(); axis-- > 0; stride *= shape[axis]) {
    view_.shape[axis] = shape[axis];
    view_.stride[axis] = stride;
  }
  poison();
}

DeviceTensor::DeviceTensor(sluice_dtype dtype, const Array& values) {
  if (values.empty()) return;
  *this = DeviceTensor(dtype, values.shape);
  assign(values);
}

DeviceTensor::DeviceTensor(DeviceTensor&& other) noexcept { *this = std::move(other); }

DeviceTensor& DeviceTensor::operator=(DeviceTensor&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  std::swap(view_, other.view_);
  return *this;
}

DeviceTensor::~DeviceTensor() { cudaFree(memory_); }

void DeviceTensor::assign(const Array& values) {
  std::vector<std::byte> host(bytes_);
  sluice_tensor target = view_;
  target.data = host.data();
  for (size_t i = 0; i < values.values.size(); ++i) {
    store_element(target, static_cast<int64_t>(i), values.values[i]);
  }
  check(cudaMemcpy(view_.data, host.data(), bytes_, cudaMemcpyHostToDevice));
}

void DeviceTensor::poison() {
  if (memory_ != nullptr) check(cudaMemset(view_.data, kPoisonByte, bytes_));
}

std::vector<std::byte> DeviceTensor::bytes() const {
  check(cudaDeviceSynchronize());
  std::vector<std::byte> host(bytes_);
  check(cudaMemcpy(host.data(), view_.data, bytes_, cudaMemcpyDeviceToHost));
  return host;
}

Array DeviceTensor::values() const {
  if (memory_ == nullptr) return {};
  std::vector<std::byte> host = bytes();
  sluice_tensor source = view_;
  source.data = host.data();
  return to_array(source);
}

bool DeviceTensor::guards_intact() const {
  if (memory_ == nullptr) return true;
  std::vector<unsigned char> guard(2 * kGuard);
  check(cudaMemcpy(guard.data(), memory_, kGuard, cudaMemcpyDeviceToHost));
  check(
      cudaMemcpy(guard.data() + kGuard, memory_ + kGuard + bytes_, kGuard, cudaMemcpyDeviceToHost));
  return std::all_of(guard.begin(), guard.end(),
                     [](unsigned char byte) { return byte == kGuardByte; });
}

DeviceScene::DeviceScene(const GdnCase& c, const GdnInputs& in)
    : q(c.io, in.q),
      k(c.io, in.k),
      v(c.io, in.v),
      gate(c.gate_dtype, in.gate),
      beta(c.gate_dtype, in.beta),
      A_log(kF32, in.A_log),
      dt_bias(kF32, in.dt_bias),
      initial(c.state_dtype, in.initial),
      o(c.io, std::vector<int64_t>{c.B, c.T, c.HV, c.V}),
      final_state(c.state_dtype, std::vector<int64_t>{c.sequences(), c.HV, c.K, c.V}),
      case_(c) {
  if (!c.lengths.empty()) cu_seqlens = DeviceTensor(c.index_dtype, offsets_of(c.lengths));
  size_t bytes = 0;
  const sluice_chunk_forward_args call = args();
  if (sluice_workspace_size(SLUICE_OP_CHUNK_FORWARD, &call, &bytes) != SLUICE_OK) {
    throw std::runtime_error(sluice_last_error());
  }
  scratch_ = DeviceTensor({1, 8}, {static_cast<int64_t>(bytes)});
}

sluice_chunk_forward_args DeviceScene::args() const {
  sluice_chunk_forward_args call{};
  call.struct_size = sizeof call;
  call.q = q.view(), call.k = k.view(), call.v = v.view(), call.o = o.view();
  call.gate = gate.view(), call.beta = beta.view();
  call.A_log = A_log.view(), call.dt_bias = dt_bias.view();
  call.cu_seqlens = cu_seqlens.view();
  call.state.initial = initial.view(), call.state.final = final_state.view();
  call.options = case_.options.c();
  call.split = case_.split;
  call.split_value = case_.split_value;
  call.history = case_.history;
  call.implementation = SLUICE_IMPL_CUDA;
  return call;
}

sluice_workspace DeviceScene::workspace() const { return {scratch_.view().data, scratch_.size()}; }

int DeviceScene::enqueue(cudaStream_t stream, ChunkForward function) const {
  const sluice_chunk_forward_args call = args();
  return function(&call, workspace(), stream);
}

const char* DeviceScene::expected_kernel() {
  const char* forced = std::getenv("SLUICE_CUDA_KERNEL");
  return forced != nullptr && std::strcmp(forced, "generic") == 0 ? ".generic" : ".sm_90a.";
}

std::string DeviceScene::run(ChunkForward function) {
  poison_outputs();
  if (enqueue(nullptr, function) != SLUICE_OK) return sluice_last_error();
  const std::string kernel = sluice_last_kernel();
  if (function == sluice_chunk_forward && kernel.find(expected_kernel()) == std::string::npos) {
    return kernel + " ran, not " + expected_kernel();
  }
  const cudaError_t error = cudaDeviceSynchronize();
  if (error != cudaSuccess) return cudaGetErrorName(error);
  return guards_intact() ? "" : "memory beside a tensor was written";
}

void DeviceScene::poison_outputs() {
  o.poison(), final_state.poison(), scratch_.poison();
  check(cudaDeviceSynchronize());
}

void DeviceScene::set_lengths(const std::vector<int64_t>& lengths) {
  case_.lengths = lengths;
  cu_seqlens.assign(offsets_of(lengths));
}

bool DeviceScene::guards_intact() const {
  for (const DeviceTensor* tensor : {&q, &k, &v, &gate, &beta, &A_log, &dt_bias, &cu_seqlens,
                                     &initial, &o, &final_state, &scratch_}) {
    if (!tensor->guards_intact()) return false;
  }
  return true;
}

GdnOutputs DeviceScene::outputs() const {
  GdnOutputs out;
  out.kernel = sluice_last_kernel();
  out.o = o.values();
  out.final_state = final_state.values();
  out.memory_intact = guards_intact();
  return out;
}

std::vector<std::byte> DeviceScene::o_bits(int64_t begin, int64_t end, int64_t head) const {
  const auto element = static_cast<size_t>(case_.io.bits / 8);
  const auto row = static_cast<size_t>(case_.V) * element;
  const auto pitch = static_cast<size_t>(case_.HV) * row;
  const auto rows = static_cast<size_t>(end - begin);
  std::vector<std::byte> host(rows * row);
  const std::byte* first = static_cast<const std::byte*>(o.view().data) +
                           static_cast<size_t>(begin) * pitch + static_cast<size_t>(head) * row;
  check(cudaMemcpy2D(host.data(), row, first, pitch, row, rows, cudaMemcpyDeviceToHost));
  return host;
}

std::vector<std::byte> DeviceScene::state_bits(int64_t sequence, int64_t head) const {
  const auto size = static_cast<size_t>(case_.K * case_.V) * (case_.state_dtype.bits / 8u);
  std::vector<std::byte> host(size);
  const std::byte* first = static_cast<const std::byte*>(final_state.view().data) +
                           static_cast<size_t>(sequence * case_.HV + head) * size;
  check(cudaMemcpy(host.data(), first, size, cudaMemcpyDeviceToHost));
  return host;
}

Excerpt excerpt_of(const GdnCase& c, const GdnInputs& in, const std::vector<int64_t>& sequences,
                   int64_t first_key_head, int64_t key_heads) {
  const int64_t r = c.HV / c.H, first = first_key_head * r, heads = key_heads * r;
  const std::vector<int64_t> offsets = c.cu_seqlens();
  Excerpt out{c, {}};
  out.inputs.q = cut_rows(in.q, offsets, sequences, first_key_head, key_heads);
  out.inputs.k = cut_rows(in.k, offsets, sequences, first_key_head, key_heads);
  out.inputs.v = cut_rows(in.v, offsets, sequences, first, heads);
  out.inputs.gate = cut_rows(in.gate, offsets, sequences, first, heads);
  out.inputs.beta = cut_rows(in.beta, offsets, sequences, first, heads);
  out.gdn_case.lengths.clear();
  out.gdn_case.H = key_heads, out.gdn_case.HV = heads;
  out.gdn_case.T = out.inputs.v.shape[1];
  if (!in.initial.empty()) {
    out.inputs.initial.shape = {static_cast<int64_t>(sequences.size()), heads, c.K, c.V};
  }
  for (const int64_t n : sequences) {
    out.gdn_case.lengths.push_back(c.lengths[static_cast<size_t>(n)]);
    if (in.initial.empty()) continue;
    const int64_t size = c.K * c.V;
    const auto begin = in.initial.values.begin() + (n * c.HV + first) * size;
    out.inputs.initial.values.insert(out.inputs.initial.values.end(), begin, begin + heads * size);
  }
  return out;
}

GdnCase prefill_case(const std::string& name, const std::vector<int64_t>& lengths, int64_t H,
                     int64_t HV) {
  GdnCase c{.name = name, .T = 0, .H = H, .HV = HV, .K = 128, .V = 128};
  c.lengths = lengths;
  for (const int64_t length : lengths) c.T += length;
  c.gates = GateProfile::kMixed;
  c.io = kBF16;
  c.index_dtype = kI32;
  c.split = SLUICE_SPLIT_NEVER;  // no bit depends on the batch
  return c;
}

bool has_hopper_gpu() {
  int count = 0, major = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0 &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess &&
         major == 9;
}

}  // namespace sluice::check
