# SPDX-License-Identifier: Apache-2.0
"""Lets SGLang 0.5.17 believe that it has a Hopper, while its tensors lie in host memory: sglang_no_gpu.py puts this
into every process of the server. Streams do nothing, devices are the CPU, layers take their own torch forms."""

import contextlib
import sys

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from hopper_stand_in import Anything, Card, stand_in_for_driver
from sluice.engines.imports import Imports
from torch.overrides import TorchFunctionMode

# Of little memory, which pools are sized by.
CARD = Card(6 << 30)


def on_host(value):
    named = isinstance(value, str) and value.startswith("cuda")
    return "cpu" if named or isinstance(value, torch.device) and value.type == "cuda" else value


class OnHost(TorchFunctionMode):
    """Tensors that are asked for on the GPU are made in host memory."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        kwargs = {name: on_host(value) for name, value in (kwargs or {}).items()}
        if "pin_memory" in kwargs:
            kwargs["pin_memory"] = False
        return function(*map(on_host, args), **kwargs)


def stand_in_for_cuda():
    answers = dict(is_available=True, device_count=1, current_device=0, get_device_capability=(9, 0),
                   get_device_name=CARD.name, get_device_properties=CARD, mem_get_info=(5 << 30, CARD.total_memory),
                   memory_allocated=0, memory_reserved=0, max_memory_allocated=0)
    for name in ("set_device", "synchronize", "empty_cache", "reset_peak_memory_stats", "manual_seed",
                 "manual_seed_all", "set_stream", "_lazy_init"):
        answers[name] = None
    for name, value in answers.items():
        setattr(torch.cuda, name, lambda *_, answer=value, **__: answer)
    for module in (torch.cuda, torch.cpu):
        module.Stream = module.Event = module.current_stream = module.default_stream = Anything
        module.stream = lambda _: contextlib.nullcontext()
        module.synchronize = module.empty_cache = lambda *_, **__: None
    torch.cuda.device = torch.Stream = torch.Event = Anything
    stand_in_for_driver()
    # Launches that wait for each other are a GPU's alone.
    for name in ("gdc_launch_dependents", "gdc_wait"):
        setattr(tl.extra.cuda, name, lambda *_, **__: None)


def stand_in_for_nccl():
    begin, group = dist.init_process_group, dist.new_group
    other = ("backend", "pg_options", "device_id")

    def with_gloo(call, kwargs):
        return call("gloo", **kwargs) if call is begin else group(backend="gloo", **kwargs)

    dist.init_process_group = lambda *_, **kwargs: with_gloo(
        begin, {name: value for name, value in kwargs.items() if name not in other})
    dist.new_group = lambda ranks=None, **kwargs: with_gloo(
        group, {"ranks": ranks, **{name: value for name, value in kwargs.items() if name not in other}})


def layers_in_torch():
    base = sys.modules["sglang.srt.layers.utils.multi_platform"].MultiPlatformOp
    base.dispatch_forward = lambda self: self.forward_native


def no_experts():
    block = sys.modules["sglang.srt.models.qwen2_moe"].Qwen2MoeSparseMoeBlock
    block.forward = lambda self, x, *_, **__: torch.zeros_like(x)


def pools_in_torch():
    sys.modules["sglang.srt.mem_cache.memory_pool"].can_use_store_cache = lambda *_: False


def positions_in_torch():
    module = sys.modules["sglang.kernels.ops.attention.clamp_position"]
    module.clamp_position_cuda = lambda lengths: torch.clamp(lengths - 1, min=0).to(torch.int64)


def trees_in_triton():
    """Trees of drafts are built and judged by SGLang's own Triton kernels in place of its CUDA ones."""
    module = sys.modules["sglang.srt.speculative.eagle_utils"]
    module.sgl_build_tree_kernel_efficient = module.sgl_build_tree_kernel_triton
    sys.modules["sgl_kernel"].verify_tree_greedy = lambda **tensors: module.verify_tree_greedy_triton(
        **{name.replace("retrive", "retrieve"): tensor for name, tensor in tensors.items()})


def put_accepted(pool, drafts, slots, steps):
    """The state after the last accepted draft of each request goes to the request's slot."""
    for request, (slot, step) in enumerate(zip(slots.tolist(), steps.tolist(), strict=True)):
        if step >= 0:
            pool[:, slot] = drafts[:, request, step]


def states_in_torch():
    module = sys.modules["sglang.kernels.ops.mamba.mamba_state_scatter_triton"]
    module.fused_mamba_state_scatter_with_mask = module.fused_conv_window_scatter_with_mask = put_accepted


def without_deep_gemm():
    sys.modules["sglang.srt.layers.deep_gemm_wrapper"].update_deep_gemm_config = lambda *_: None


def install():
    stand_in_for_cuda()
    stand_in_for_nccl()
    OnHost().__enter__()
    imports = Imports()
    imports.after("sglang.srt.layers.utils.multi_platform", layers_in_torch)
    imports.after("sglang.srt.models.qwen2_moe", no_experts)
    imports.after("sglang.srt.layers.deep_gemm_wrapper", without_deep_gemm)
    imports.after("sglang.srt.speculative.eagle_utils", trees_in_triton)
    imports.after("sglang.kernels.ops.mamba.mamba_state_scatter_triton", states_in_torch)
    imports.after("sglang.srt.mem_cache.memory_pool", pools_in_torch)
    imports.after("sglang.kernels.ops.attention.clamp_position", positions_in_torch)


assert triton.knobs.runtime.interpret, "TRITON_INTERPRET=1"
install()
