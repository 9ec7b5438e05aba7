# SPDX-License-Identifier: Apache-2.0
"""Cases of context parallelism: lengths, layouts, rules, random inputs, and what one rank makes of them."""

import sluice
import torch
from sluice.distributed import Fragments

LENGTHS = [150, 1, 0, 293, 68]
LAYOUTS = {
    "contiguous": lambda ranks: Fragments.contiguous(LENGTHS, ranks),
    "zigzag": lambda ranks: Fragments.zigzag(LENGTHS, ranks),
    "balanced": lambda ranks: Fragments.balanced(LENGTHS, ranks),
}
RULES = {
    "gated delta": {},
    "key-wise": {"key_wise": True},
    "raw": {"raw": True},
    "linear": {"linear": True},
    "l2, V first": {"options": {"qk_norm": "l2", "state_layout": "vk"}},
    "from zeros": {"initial": False},
}


def inputs(T, N, key_wise=False, raw=False, linear=False, initial=True, options=None, seed=0):
    """(tensors by name, options) of chunk_forward; keys have length 1 unless l2 norms them."""
    H, HV, K, V = 2, 4, 16, 24
    r = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=r)

    options = dict(options or {})
    x = {name: torch.nn.functional.normalize(normal(1, T, H, K), dim=-1) for name in "qk"}
    x["v"] = normal(1, T, HV, V)
    gates = (1, T, HV, K) if key_wise else (1, T, HV)
    x["gate"] = normal(*gates) if raw else -0.3 * torch.rand(*gates, generator=r)
    if not linear:
        x["beta"] = torch.rand(1, T, HV, generator=r)
    if raw:
        x["A_log"], x["dt_bias"] = normal(HV), normal(HV)
        options["gate_space"] = "raw"
    if linear:
        options["rule"] = "linear_attention"
    if initial:
        inner = (V, K) if options.get("state_layout") == "vk" else (K, V)
        x["initial_state"] = normal(N, HV, *inner)
    return x, options


def one_rank(x, options, lengths, d_o, d_final):
    """o, final states and gradients of the uncut sequences."""
    x = {name: t.clone().requires_grad_() for name, t in x.items()}
    cu = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    layout = options.get("state_layout", "kv")
    HV, K, V = x["v"].shape[2], x["q"].shape[3], x["v"].shape[3]
    final = torch.empty(len(lengths), HV, *((K, V) if layout == "kv" else (V, K)))
    o = sluice.ops.chunk_forward(**x, cu_seqlens=cu, final_state=final, **options)
    ((o * d_o).sum() + (final * d_final).sum()).backward()
    return o.detach(), final.detach(), {name: t.grad for name, t in x.items()}


def assert_near(found, expected, what):
    limit = 2e-5 * max(float(expected.norm()), 1e-3)
    assert float((found - expected).norm()) <= limit, what
