// Implements the C interface: argument structs of any known size in, validation, dispatch, last
// error out.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <iterator>

#include "core/device_indices.hpp"
#include "core/operators.hpp"
#include "core/overlap.hpp"

namespace {

using namespace sluice;        // Status, Code
using namespace sluice::core;  // the rest: this file is the seam between C and the core

/// Copies an argument struct of the caller's version into ours: what the caller lacks is zero, what
/// we lack must be zero.
template <class Args>
Status read_args(const char* op, const void* pointer, Args* args) noexcept {
  // WHY the floor: struct_size guards against uninitialised structs; no version was smaller.
  constexpr size_t kSmallest = sizeof(size_t) + sizeof(sluice_tensor);
  if (pointer == nullptr) {
    return Status::failure(Code::kInvalidArgument, "%s: args = null, expected a struct", op);
  }
  size_t size = 0;
  std::memcpy(&size, pointer, sizeof size);
  if (size < kSmallest || size > sizeof(Args) + 4096) {
    return Status::failure(Code::kInvalidArgument,
                           "%s: struct_size = %zu, expected sizeof the args struct (%zu here)", op,
                           size, sizeof(Args));
  }
  // PERF an args struct is kilobytes: only what the caller's lacks is cleared.
  const size_t given = std::min(size, sizeof(Args));
  std::memcpy(static_cast<void*>(args), pointer, given);
  std::memset(reinterpret_cast<std::byte*>(args) + given, 0, sizeof(Args) - given);
  const auto* bytes = static_cast<const unsigned char*>(pointer);
  for (size_t i = sizeof(Args); i < size; ++i) {
    if (bytes[i] != 0) {
      return Status::failure(Code::kUnsupported,
                             "%s: struct_size = %zu, expected %zu (a newer caller uses an option "
                             "that this library lacks)",
                             op, size, sizeof(Args));
    }
  }
  return ok_status();
}

/// Refuses arguments of which something that is written overlaps another view.
template <sluice_op kOp, class Args, class Problem>
Status check_views(const char* op, Args& args, const Problem& problem,
                   const sluice_workspace& workspace) noexcept {
  static_assert(std::size(kViews<Args>) <= kMostViews);
  if constexpr (kOp == SLUICE_OP_CHUNK_STAGE) {
    keep_named_views(problem, &args);
    return check_memory(op, {&args, kViews<Args>, 1u << problem.stage}, workspace);
  }
  bool in_place = false;
  if constexpr (kOp == SLUICE_OP_RECURRENT_STEP || kOp == SLUICE_OP_LAYER_DECODE) {
    in_place = args.state_writes != SLUICE_STATE_WRITE_NONE;
  }
  return check_memory(op, {&args, kViews<Args>, kAlways, in_place}, workspace);
}

/// Reads, checks and dispatches a call of an operator.
/// @tparam kMember its entry in a backend's table
template <sluice_op kOp, class Args, class Problem, Operator<Problem> Backend::* kMember>
Status perform(const void* pointer, Call* request) noexcept {
  const char* op = kOperatorNames[kOp];
  Args args;
  if (Status s = read_args(op, pointer, &args); !s.ok()) return s;
  settle_strides(&args, kViews<Args>);
  const bool runs = request->action == Action::kRun;
  Problem problem;
  const Validated call = validate(kOp, args, runs ? Depth::kContents : Depth::kShapes, &problem);
  if constexpr (kOp == SLUICE_OP_CHUNK_STAGE) op = stage_name(problem.stage);
  if (call.status.ok() && runs) {
    if (Status s = check_views<kOp>(op, args, problem, request->workspace); !s.ok()) return s;
    const auto again = [](const Args& a, Depth by) {
      Problem other;
      return validate(kOp, a, by, &other);
    };
    if (Status s = check_device_indices(op, call, *request, args, again); !s.ok()) return s;
  }
  return dispatch(op, call, problem, kMember, request);
}

template <sluice_op kOp, class Args, auto kMember>
constexpr auto perform_by() noexcept {
  return []<class Problem>(Operator<Problem> Backend::*) {
    return perform<kOp, Args, Problem, kMember>;
  }(kMember);
}

Status perform(int op, const void* args, Call* request) noexcept {
#define SLUICE_PERFORM(name, op, args) perform_by<op, args, &Backend::name>(),
  static constexpr Status (*kPerform[])(const void*,
                                        Call*) noexcept = {SLUICE_OPERATORS(SLUICE_PERFORM)};
#undef SLUICE_PERFORM
  if (op >= 0 && op < SLUICE_OP_COUNT) return kPerform[op](args, request);
  return Status::failure(Code::kInvalidArgument, "sluice: op = %d, expected 0 to %d (sluice_op)",
                         op, SLUICE_OP_COUNT - 1);
}

/// Remembers the status for sluice_last_error() and gives its code.
int finish(const Status& status) noexcept {
  last_status.code = status.code;
  // PERF a message is 256 bytes.
  if (status.ok()) {
    last_status.message[0] = '\0';
  } else {
    last_status = status;
  }
  return static_cast<int>(status.code);
}

int run(int op, const void* args, sluice_workspace workspace, void* stream) noexcept {
  Call request;
  request.workspace = workspace;
  request.stream = stream;
  const Status status = perform(op, args, &request);
  if (!status.ok() && verbose()) log_failure(status);
  return finish(status);
}

/// Copies text with its terminator into out[size], cut if need be; returns its length.
size_t copy_text(const char* text, char* out, size_t size) noexcept {
  const size_t length = std::strlen(text);
  if (out != nullptr && size > 0) {
    const size_t kept = std::min(length, size - 1);
    std::memcpy(out, text, kept);
    out[kept] = '\0';
  }
  return length;
}

}  // namespace

extern "C" {

#define SLUICE_ENTRY(name, op, args_type)                                              \
  int sluice_##name(const args_type* args, sluice_workspace workspace, void* stream) { \
    return run(op, args, workspace, stream);                                           \
  }
SLUICE_OPERATORS(SLUICE_ENTRY)
#undef SLUICE_ENTRY

int sluice_workspace_size(int op, const void* args, size_t* bytes) {
  if (bytes == nullptr) {
    return finish(Status::failure(Code::kInvalidArgument,
                                  "workspace_size: bytes = null, expected where to write"));
  }
  Call request;
  request.action = Action::kWorkspace;
  const Status status = perform(op, args, &request);
  if (status.ok()) *bytes = request.bytes;
  return finish(status);
}

int sluice_supported(int op, const void* args, char* kernel, size_t size) {
  Call request;
  request.action = Action::kSelect;
  const Status status = perform(op, args, &request);
  if (status.ok() && kernel != nullptr) copy_text(request.kernel, kernel, size);
  return finish(status);
}

int sluice_implementations(sluice_implementation_info* out, int capacity) {
  int count = 0;
  for (const Backend* backend : backends()) {
    if (out != nullptr && count < capacity) {
      out[count] = {backend->name, backend->description, backend->requirement, backend->id,
                    backend->available() ? 1 : 0};
    }
    ++count;
  }
  return count;
}

size_t sluice_capability(char* out, size_t size) {
  if (out == nullptr) size = 0;
  size_t length = 0;
  if (size > 0) out[0] = '\0';
  for (const Backend* backend : backends()) {
    if (backend->describe == nullptr) continue;
    const size_t used = std::min(length, size);
    length += backend->describe(size == 0 ? nullptr : out + used, size - used);
  }
  return length;
}

const char* sluice_last_kernel(void) { return last_kernel; }

const char* sluice_last_error(void) { return last_status.message; }

const char* sluice_status_name(int code) {
  switch (code) {
    case SLUICE_OK:
      return "ok";
    case SLUICE_INVALID_ARGUMENT:
      return "invalid argument";
    case SLUICE_UNSUPPORTED:
      return "unsupported";
    case SLUICE_WORKSPACE_TOO_SMALL:
      return "workspace too small";
    case SLUICE_DEVICE_ERROR:
      return "device error";
    case SLUICE_INTERNAL:
      return "internal error";
    default:
      return "unknown status";
  }
}

int sluice_warm_up(sluice_device device) {
  if (device.type != SLUICE_DEVICE_CPU && device.type != SLUICE_DEVICE_CUDA) {
    return finish(Status::failure(Code::kInvalidArgument,
                                  "warm_up: device type = %d, expected %d (CPU) or %d (CUDA)",
                                  device.type, SLUICE_DEVICE_CPU, SLUICE_DEVICE_CUDA));
  }
  int served = 0;
  for (const Backend* backend : backends()) {
    if (backend->device_type != device.type || backend->warm_up == nullptr) continue;
    if (const Status status = backend->warm_up(device.index); !status.ok()) return finish(status);
    ++served;
  }
  if (served == 0) {
    return finish(Status::failure(
        Code::kUnsupported, "warm_up: device = CUDA, expected CPU (the CUDA half was not built)"));
  }
  return finish(ok_status());
}

int sluice_set_executor(sluice_parallel_for function, void* user, int threads) {
  if (function != nullptr && (threads < 1 || threads > 4096)) {
    return finish(Status::failure(Code::kInvalidArgument,
                                  "set_executor: threads = %d, expected 1 to 4096", threads));
  }
  for (const Backend* backend : backends()) {
    if (backend->set_executor == nullptr) continue;
    if (const Status s = backend->set_executor(function, user, threads); !s.ok()) return finish(s);
  }
  return finish(ok_status());
}

uint32_t sluice_abi_version(void) { return SLUICE_ABI_VERSION; }

const char* sluice_version(void) { return SLUICE_VERSION_STRING; }

}  // extern "C"
