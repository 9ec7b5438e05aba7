# SPDX-License-Identifier: Apache-2.0
"""Tunes vLLM's own prefill kernels on an idle GPU and leaves Triton's choices in its cache, where servers that are
started together find them instead of timing each other. Compiles in several processes first, because Triton
compiles one form after the other.

    TRITON_CACHE_AUTOTUNING=1 TRITON_CACHE_DIR=FOLDER python vllm_tune.py 16,32 2,8 kda,32
"""

import subprocess
import sys
import time

COMPILERS = 6


def compile_only(share):
    """Makes Triton compile, of every kernel's forms, one in COMPILERS, and launch nothing."""
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    launch = JITFunction.run
    count = 0

    def compiled(self, *arguments, **options):
        return launch(self, *arguments, **{**options, "warmup": True})

    def forms(self, *arguments, **options):
        nonlocal count
        self.nargs = dict(zip(self.arg_names, arguments))
        for config in self.configs:
            count += 1
            if count % COMPILERS == share:
                self.fn.run(*arguments, **{**options, **config.all_kwargs(), "warmup": True})

    JITFunction.run = compiled
    Autotuner.run = forms


def prefill(key_heads, value_heads):
    """What vLLM 0.26.0 calls to warm its prefill up."""
    import torch
    from vllm.third_party.flash_linear_attention.ops import chunk_gated_delta_rule

    tokens, options = 64, dict(device="cuda", dtype=torch.bfloat16)
    q, k = (torch.randn(1, tokens, key_heads, 128, **options) for _ in range(2))
    v = torch.randn(1, tokens, value_heads, 128, **options)
    g, beta = (-torch.rand(1, tokens, value_heads, device="cuda") for _ in range(2))
    state = torch.zeros(1, value_heads, 128, 128, **options)
    rows = torch.tensor([0, tokens], device="cuda", dtype=torch.int32)
    chunk_gated_delta_rule(q=q, k=k, v=v, g=g, beta=-beta, initial_state=state, output_final_state=True,
                           cu_seqlens=rows, use_qk_l2norm_in_kernel=False)
    torch.cuda.synchronize()


def prefill_kda(heads):
    """The same of Kimi-Linear's layers, from raw gates, and the gates of their steps."""
    import torch
    from vllm.third_party.flash_linear_attention.ops import kda

    tokens, options = 64, dict(device="cuda", dtype=torch.bfloat16)
    q, k, v, g = (torch.randn(1, tokens, heads, 128, **options) for _ in range(4))
    beta = torch.rand(1, tokens, heads, device="cuda")
    state = torch.zeros(1, heads, 128, 128, device="cuda")
    A_log, bias = torch.zeros(1, 1, heads, 1, device="cuda"), torch.zeros(heads * 128, device="cuda")
    rows = torch.tensor([0, tokens], device="cuda", dtype=torch.int32)
    kda.chunk_kda_with_fused_gate(q=q, k=k, v=v, raw_g=g, beta=beta, A_log=A_log, g_bias=bias, initial_state=state,
                                  output_final_state=True, use_qk_l2norm_in_kernel=True, cu_seqlens=rows)
    kda.fused_kda_gate(g.reshape(tokens, -1), A_log, 128, g_bias=bias)
    torch.cuda.synchronize()


def main():
    share, heads = None, sys.argv[1:]
    if heads[0].startswith("share="):
        share, heads = int(heads[0][6:]), heads[1:]
        compile_only(share)
    begin = time.monotonic()
    others = [] if share is not None else [
        subprocess.Popen([sys.executable, __file__, f"share={i}", *heads]) for i in range(COMPILERS)]
    import vllm.third_party.flash_linear_attention.ops  # noqa: F401  (while the others compile)

    for process in others:
        process.wait()
    print(f"share {share}: ready after {time.monotonic() - begin:.1f} s", flush=True)
    for pair in heads:
        if pair.startswith("kda,"):
            prefill_kda(int(pair[4:]))
        else:
            prefill(*map(int, pair.split(",")))
        print(f"share {share}: {pair} done after {time.monotonic() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main()
