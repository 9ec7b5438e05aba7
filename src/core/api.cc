// Implements the C interface: argument structs of any known size in, validation, dispatch, last
// error out.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "core/device_indices.hpp"
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

template <class Args, class Problem>
Status perform(const char* op, const void* pointer, Operator<Problem> Backend::* member,
               Call* request) noexcept {
  Args args;
  if (Status s = read_args(op, pointer, &args); !s.ok()) return s;
  const Depth depth = request->action == Action::kRun ? Depth::kContents : Depth::kShapes;
  Problem problem;
  const Validated call = validate(args, depth, &problem);
  if (call.status.ok() && request->action == Action::kRun) {
    if (Status s = check_memory(op, problem, request->workspace); !s.ok()) return s;
    const auto again = [](const Args& a, Depth by) {
      Problem other;
      return validate(a, by, &other);
    };
    if (Status s = check_device_indices(op, call, *request, args, again); !s.ok()) return s;
  }
  return dispatch(op, call, problem, member, request);
}

Status perform_layer(sluice_op op, const void* pointer, Operator<LayerProblem> Backend::* member,
                     Call* request) noexcept {
  const char* name = op == SLUICE_OP_LAYER_DECODE ? "layer_decode" : "layer_prefill";
  sluice_layer_args args;
  if (Status s = read_args(name, pointer, &args); !s.ok()) return s;
  const Depth depth = request->action == Action::kRun ? Depth::kContents : Depth::kShapes;
  LayerProblem problem;
  const Validated call = validate(op, args, depth, &problem);
  if (call.status.ok() && request->action == Action::kRun) {
    if (Status s = check_memory(name, args, problem, request->workspace); !s.ok()) return s;
    const auto again = [op](const sluice_layer_args& a, Depth by) {
      LayerProblem other;
      return validate(op, a, by, &other);
    };
    if (Status s = check_device_indices(name, call, *request, args, again); !s.ok()) return s;
  }
  return dispatch(name, call, problem, member, request);
}

Status perform_stage(const void* pointer, Call* request) noexcept {
  sluice_chunk_stage_args args;
  if (Status s = read_args("chunk_stage", pointer, &args); !s.ok()) return s;
  const Depth depth = request->action == Action::kRun ? Depth::kContents : Depth::kShapes;
  ChunkStageProblem problem;
  const Validated call = validate(args, depth, &problem);
  const char* const name = stage_name(problem.stage);
  if (call.status.ok() && request->action == Action::kRun) {
    if (Status s = check_memory(name, args, problem, request->workspace); !s.ok()) return s;
    const auto again = [](const sluice_chunk_stage_args& a, Depth by) {
      ChunkStageProblem other;
      return validate(a, by, &other);
    };
    if (Status s = check_device_indices(name, call, *request, args, again); !s.ok()) return s;
  }
  return dispatch(name, call, problem, &Backend::chunk_stage, request);
}

Status perform(int op, const void* args, Call* request) noexcept {
  switch (op) {
    case SLUICE_OP_CHUNK_FORWARD:
      return perform<sluice_chunk_forward_args>("chunk_forward", args, &Backend::chunk_forward,
                                                request);
    case SLUICE_OP_RECURRENT_STEP:
      return perform<sluice_recurrent_step_args>("recurrent_step", args, &Backend::recurrent_step,
                                                 request);
    case SLUICE_OP_CAUSAL_CONV1D:
      return perform<sluice_causal_conv1d_args>("causal_conv1d", args, &Backend::causal_conv1d,
                                                request);
    case SLUICE_OP_GATED_RMS_NORM:
      return perform<sluice_gated_rms_norm_args>("gated_rms_norm", args, &Backend::gated_rms_norm,
                                                 request);
    case SLUICE_OP_LAYER_PREFILL:
      return perform_layer(SLUICE_OP_LAYER_PREFILL, args, &Backend::layer_prefill, request);
    case SLUICE_OP_LAYER_DECODE:
      return perform_layer(SLUICE_OP_LAYER_DECODE, args, &Backend::layer_decode, request);
    case SLUICE_OP_CHUNK_STAGE:
      return perform_stage(args, request);
    case SLUICE_OP_CHUNK_BACKWARD:
      return perform<sluice_chunk_backward_args>("chunk_backward", args, &Backend::chunk_backward,
                                                 request);
    case SLUICE_OP_CHUNK_SUMMARY:
      return perform<sluice_chunk_summary_args>("chunk_summary", args, &Backend::chunk_summary,
                                                request);
    case SLUICE_OP_STATE_FOLD:
      return perform<sluice_state_fold_args>("state_fold", args, &Backend::state_fold, request);
    case SLUICE_OP_CAUSAL_CONV1D_BACKWARD:
      return perform<sluice_causal_conv1d_backward_args>("causal_conv1d_backward", args,
                                                         &Backend::causal_conv1d_backward, request);
    case SLUICE_OP_GATED_RMS_NORM_BACKWARD:
      return perform<sluice_gated_rms_norm_backward_args>(
          "gated_rms_norm_backward", args, &Backend::gated_rms_norm_backward, request);
    default:
      return Status::failure(Code::kInvalidArgument,
                             "sluice: op = %d, expected 0 to %d (sluice_op)", op,
                             SLUICE_OP_COUNT - 1);
  }
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

int sluice_chunk_forward(const sluice_chunk_forward_args* args, sluice_workspace workspace,
                         void* stream) {
  return run(SLUICE_OP_CHUNK_FORWARD, args, workspace, stream);
}

int sluice_chunk_stage(const sluice_chunk_stage_args* args, sluice_workspace workspace,
                       void* stream) {
  return run(SLUICE_OP_CHUNK_STAGE, args, workspace, stream);
}

int sluice_chunk_backward(const sluice_chunk_backward_args* args, sluice_workspace workspace,
                          void* stream) {
  return run(SLUICE_OP_CHUNK_BACKWARD, args, workspace, stream);
}

int sluice_chunk_summary(const sluice_chunk_summary_args* args, sluice_workspace workspace,
                         void* stream) {
  return run(SLUICE_OP_CHUNK_SUMMARY, args, workspace, stream);
}

int sluice_state_fold(const sluice_state_fold_args* args, sluice_workspace workspace,
                      void* stream) {
  return run(SLUICE_OP_STATE_FOLD, args, workspace, stream);
}

int sluice_recurrent_step(const sluice_recurrent_step_args* args, sluice_workspace workspace,
                          void* stream) {
  return run(SLUICE_OP_RECURRENT_STEP, args, workspace, stream);
}

int sluice_causal_conv1d(const sluice_causal_conv1d_args* args, sluice_workspace workspace,
                         void* stream) {
  return run(SLUICE_OP_CAUSAL_CONV1D, args, workspace, stream);
}

int sluice_gated_rms_norm(const sluice_gated_rms_norm_args* args, sluice_workspace workspace,
                          void* stream) {
  return run(SLUICE_OP_GATED_RMS_NORM, args, workspace, stream);
}

int sluice_causal_conv1d_backward(const sluice_causal_conv1d_backward_args* args,
                                  sluice_workspace workspace, void* stream) {
  return run(SLUICE_OP_CAUSAL_CONV1D_BACKWARD, args, workspace, stream);
}

int sluice_gated_rms_norm_backward(const sluice_gated_rms_norm_backward_args* args,
                                   sluice_workspace workspace, void* stream) {
  return run(SLUICE_OP_GATED_RMS_NORM_BACKWARD, args, workspace, stream);
}

int sluice_layer_prefill(const sluice_layer_args* args, sluice_workspace workspace, void* stream) {
  return run(SLUICE_OP_LAYER_PREFILL, args, workspace, stream);
}

int sluice_layer_decode(const sluice_layer_args* args, sluice_workspace workspace, void* stream) {
  return run(SLUICE_OP_LAYER_DECODE, args, workspace, stream);
}

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
