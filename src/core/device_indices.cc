// Brings offsets and slots of device memory to the host, for SLUICE_DEBUG=1.
// SPDX-License-Identifier: Apache-2.0
#include "core/device_indices.hpp"

#include <new>

namespace sluice::core {
namespace {

/// Bytes of the elements, and up to where the next view may begin.
size_t bytes_of(const Tensor& view) noexcept {
  constexpr size_t kAlignment = 8;
  size_t bytes = view.dtype.bits / 8u;
  for (int axis = 0; axis < view.rank; ++axis) bytes *= static_cast<size_t>(view.shape[axis]);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

const Backend* reader_of(int32_t device_type) noexcept {
  for (const Backend* backend : backends()) {
    const bool reads = backend->device_type == device_type && backend->read_indices != nullptr;
    if (reads && backend->available()) return backend;
  }
  return nullptr;
}

}  // namespace

IndexViews index_views(void* args, std::span<const ViewField> fields) noexcept {
  IndexViews out;
  for (const ViewField& field : fields) {
    Tensor* const view = field.in(args);
    if (field.holds == Holds::kFlags) *view = {};
    if (is_read_index(field) && present(*view)) out.views[out.count++] = view;
  }
  return out;
}

Status fetch_indices(const char* op, const Call& request, const IndexViews& views,
                     std::unique_ptr<std::byte[]>* memory, bool* read) noexcept {
  *read = false;
  const Backend* const backend = reader_of(SLUICE_DEVICE_CUDA);
  if (backend == nullptr || views.count == 0) return ok_status();
  size_t bytes = 0;
  for (size_t i = 0; i < views.count; ++i) bytes += bytes_of(*views.views[i]);
  memory->reset(new (std::nothrow) std::byte[bytes]);
  if (*memory == nullptr) {
    return Status::failure(Code::kUnsupported,
                           "%s: offsets and slots = %zu bytes, expected what fits into memory "
                           "(SLUICE_DEBUG check)",
                           op, bytes);
  }
  const IndexSource source{op, views.views[0]->device.index, request.stream};
  IndexCopy copies[IndexViews::kMost];
  std::byte* to = memory->get();
  for (size_t i = 0; i < views.count; ++i) {
    copies[i] = {views.views[i], to};
    to += bytes_of(*views.views[i]);
  }
  if (Status s = backend->read_indices(source, {copies, views.count}, read); !s.ok()) return s;
  for (size_t i = 0; i < views.count && *read; ++i) {
    Tensor& view = *views.views[i];
    view.data = copies[i].to;
    int64_t dense = 1;
    for (int axis = view.rank - 1; axis >= 0; --axis) {
      view.stride[axis] = dense;
      dense *= view.shape[axis];
    }
  }
  return ok_status();
}

}  // namespace sluice::core
