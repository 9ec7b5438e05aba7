# SPDX-License-Identifier: Apache-2.0
"""Drives the engine of vLLM 0.26.0 as it would serve on a Hopper (scheduler, prefix cache, batches in which some
sequences decode and others prefill, drafts) without a GPU, and compares what it says with transformers.

Tensors lie in host memory, vLLM's own small Triton kernels are interpreted, the gated delta rule and its convolution
run on Sluice's CPU kernels through the plug-in. Everything is float32, and so is the truth: log-probabilities of the
generated tokens by transformers over the same weights. What a GPU adds is not seen: kernels, streams, CUDA graphs.

    TRITON_INTERPRET=1 python vllm_no_gpu.py [--drafts]

Wants vllm 0.26.0's CUDA wheel with torch 2.11.0, numpy < 2.3 and Sluice; minutes of one processor.
"""

import argparse
import contextlib
import os
import sys
import tempfile
import types

os.environ |= dict(SLUICE_VLLM="1", TORCHDYNAMO_DISABLE="1", VLLM_USE_FLASHINFER_SAMPLER="0", HF_HUB_OFFLINE="1",
                   VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_NO_USAGE_STATS="1")

import serving_no_gpu
import torch
from hopper_stand_in import Anything, Card, stand_in_for_driver

TOTAL = 141 << 30


class NoOperator:
    """vLLM's compiled operators: layers look them and their overloads up and call none of them here; what they are
    asked they deny."""

    def __getattr__(self, name):
        return self

    def __call__(self, *_):
        return False


def fake_cuda():
    """What vLLM and Triton ask of a GPU before any tensor is on it."""
    free, card = 100 << 30, Card(TOTAL)
    device = dict(
        Stream=Anything, Event=Anything, device=Anything, current_stream=Anything,
        stream=lambda _: contextlib.nullcontext(), is_available=lambda: True, current_device=lambda: 0,
        mem_get_info=lambda *_: (free, TOTAL), get_device_properties=lambda *_: card,
        get_device_capability=lambda *_: (9, 0), get_device_name=lambda *_: card.name,
        reset_peak_memory_stats=lambda *_: None, synchronize=lambda *_: None, empty_cache=lambda: None,
    )
    accelerator = dict(
        device_count=lambda: 1, empty_cache=lambda: None, synchronize=lambda *_: None, memory_stats=lambda *_: {},
        get_memory_info=lambda *_: (free, TOTAL), memory_allocated=lambda *_: 0,
    )
    for owner, names in ((torch.cuda, device), (torch.accelerator, accelerator)):
        for name, value in names.items():
            setattr(owner, name, value)
    torch.Event = Anything
    torch.Tensor.record_stream = lambda *_: None
    # Its compiled parts want a driver's library.
    for name in ("vllm._C_stable_libtorch", "vllm.vllm_flash_attn._vllm_fa3_C"):
        sys.modules[name] = types.ModuleType(name)

    stand_in_for_driver()


def fake_platform():
    """vLLM's CUDA platform, of a Hopper whose tensors lie in host memory."""
    import vllm.platforms
    import vllm.utils.torch_utils
    from vllm.platforms.cuda import NonNvmlCudaPlatform
    from vllm.platforms.interface import DeviceCapability

    class Platform(NonNvmlCudaPlatform):
        dispatch_key = "CPU"
        get_device_capability = classmethod(lambda *_, **__: DeviceCapability(9, 0))
        get_device_total_memory = classmethod(lambda *_, **__: TOTAL)
        get_device_name = classmethod(lambda *_, **__: Card.name)
        get_current_memory_usage = classmethod(lambda *_, **__: 0)
        is_pin_memory_available = classmethod(lambda *_: False)
        current_device = classmethod(lambda *_: "cpu")

    vllm.platforms._current_platform = Platform()
    import vllm._custom_ops  # registers what the operators' shapes are, if there are any

    torch.ops._C = NoOperator()
    vllm.utils.torch_utils.PIN_MEMORY = False


def init_device(worker):
    """Worker.init_device without a device."""
    from vllm.config import set_current_vllm_config
    from vllm.distributed import ensure_model_parallel_initialized, init_distributed_environment
    from vllm.utils.network_utils import get_open_port
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner
    from vllm.v1.worker.workspace import init_workspace_manager

    config, worker.device = worker.vllm_config, torch.device("cpu")
    config.device_config.device, config.device_config.device_type = worker.device, "cpu"
    with set_current_vllm_config(config):
        init_distributed_environment(1, 0, f"tcp://127.0.0.1:{get_open_port()}", 0, "gloo")
        ensure_model_parallel_initialized(1, 1)
    init_workspace_manager(worker.device, 1)
    worker.use_v2_model_runner = False
    worker.model_runner = GPUModelRunner(config, worker.device)


def engine(folder, drafts):
    import transformers.models.qwen3_next.modeling_qwen3_next as modeling
    import vllm
    import vllm.model_executor.models.qwen3_next as qwen3_next
    from vllm.v1.worker.gpu_worker import Worker
    from vllm.v1.worker.worker_base import CompilationTimes

    Worker.init_device = init_device
    Worker.determine_available_memory = lambda _: 1 << 28
    Worker.compile_or_warm_up_model = lambda _: CompilationTimes(0, 0)
    # Experts are kernels of CUDA alone; without them here and in the truth.
    for models in (qwen3_next, modeling):
        models.Qwen3NextSparseMoeBlock.forward = lambda _, x: torch.zeros_like(x)
    native = {"rms_norm": ["native"], "fused_add_rms_norm": ["native"]}
    more = dict(speculative_config={"method": "mtp", "num_speculative_tokens": 3, "attention_backend": "TRITON_ATTN"})
    return vllm.LLM(
        folder, dtype="float32", max_model_len=2048, max_num_seqs=8, max_num_batched_tokens=256, enforce_eager=True,
        enable_prefix_caching=True, kv_cache_memory_bytes=1 << 28, gdn_prefill_backend="triton",
        attention_backend="TRITON_ATTN", async_scheduling=False, compilation_config={"custom_ops": ["none"]},
        kernel_config={"ir_op_priority": native}, **(more if drafts else {}),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--drafts", action="store_true", help="with three drafts a step")
    arguments = parser.parse_args()
    prompts = serving_no_gpu.prompts()
    with tempfile.TemporaryDirectory() as folder:
        serving_no_gpu.write_model(folder)
        fake_cuda()
        fake_platform()
        import vllm
        from sluice.engines.vllm import plugin

        llm, tokens = engine(folder, arguments.drafts), serving_no_gpu.NEW_TOKENS
        sampling = vllm.SamplingParams(temperature=0, max_tokens=tokens, min_tokens=tokens, ignore_eos=True,
                                       logprobs=1, detokenize=False)
        rows, cached = [], 0
        for chosen in serving_no_gpu.ORDER:
            asked = [{"prompt_token_ids": prompts[i]} for i in chosen]
            for i, answer in zip(chosen, llm.generate(asked, sampling, use_tqdm=False), strict=True):
                ids, steps = list(answer.outputs[0].token_ids), answer.outputs[0].logprobs
                rows.append((prompts[i], ids, [step[token].logprob for token, step in zip(ids, steps, strict=True)]))
                cached += answer.num_cached_tokens
        tokens, best, worst = serving_no_gpu.compare(folder, rows)
    print(f"{tokens} tokens, {best} of them transformers' best; log-probabilities within {worst:.1e}; "
          f"{cached} tokens of prompts from the prefix cache")
    print("ran on Sluice:", plugin.tally.ran, "handed back:", plugin.tally.handed_back)
    if best < tokens or worst > serving_no_gpu.TOLERANCE or not cached or plugin.tally.handed_back:
        sys.exit("not what transformers says, or not all of it on Sluice")


if __name__ == "__main__":
    main()
