# SPDX-License-Identifier: Apache-2.0
"""Makes cases of context parallelism: lengths, layouts, rules, random inputs, what one rank makes of them and what a
rank of several does. And runs a test's function in several processes that form a group over gloo: processes that wait
for each other end by a timeout."""

import datetime
import gc
import os
import tempfile

import sluice
import torch
from sluice.distributed import Fragments
from sluice.distributed.rule import SHARED

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


def tables(lengths, ranks):
    """One of every layout, and one of ranks without rows."""
    nothing = Fragments(lengths, [*Fragments.contiguous(lengths, 1).ranks, *[[]] * (ranks - 1)])
    return [*(make(lengths, ranks) for make in (Fragments.contiguous, Fragments.zigzag, Fragments.balanced)), nothing]


def loss_weights(x, options, N):
    """Of o and of the final states."""
    generator = torch.Generator().manual_seed(7)
    (HV, V), K = x["v"].shape[2:], x["q"].shape[3]
    inner = (V, K) if options.get("state_layout") == "vk" else (K, V)
    return (torch.randn(shape, generator=generator) for shape in (x["v"].shape, (N, HV, *inner)))


def part_of(x, fragments, rank):
    """A rank's rows of tensors by name, and copies of what is the same on every rank."""
    return {n: t.clone() if n in (*SHARED, "final") else fragments.take(t, rank).contiguous() for n, t in x.items()}


def one_rank(x, options, lengths, d_o, d_final=None):
    """o, final states and gradients of the uncut sequences by name."""
    x = {name: t.clone().requires_grad_() for name, t in x.items()}
    cu = torch.tensor([0, *lengths], device=d_o.device).cumsum(0).to(torch.int32)
    HV, K, V = x["v"].shape[2], x["q"].shape[3], x["v"].shape[3]
    inner = (V, K) if options.get("state_layout") == "vk" else (K, V)
    final = torch.empty(len(lengths), HV, *inner, device=d_o.device)
    o = sluice.ops.chunk_forward(**x, cu_seqlens=cu, final_state=final, **options)
    ((o * d_o).sum() + (0 if d_final is None else (final * d_final).sum())).backward()
    return {"o": o.detach(), "final": final.detach(), **{name: t.grad for name, t in x.items()}}


def simulated_ranks(simulated, x, options, d_o, d_final=None):
    """The same of sequences cut over simulated ranks."""
    o, final = simulated.forward(x, output_final_state=True, **options)
    return {"o": o, "final": final, **simulated.backward(d_o, d_final)}


def own_rank(context, x, options, d_o, d_final=None):
    """The same of this rank of a group, with its part of a loss of the final states."""
    own = {name: t.requires_grad_() for name, t in part_of(x, context.fragments, context.rank).items()}
    o, final = context.chunk_forward(**own, output_final_state=True, **options)
    loss = (o * context.fragments.take(d_o, context.rank)).sum()
    if d_final is not None:
        loss = loss + (final * d_final).sum() / context.ranks
    loss.backward()
    for name in SHARED:
        if name in own:
            torch.distributed.all_reduce(own[name].grad)
    return {"o": o.detach(), "final": final.detach(), **{name: t.grad for name, t in own.items()}}


def assert_near(found, expected, what, limit=2e-5, least=1e-3):
    assert float((found - expected).norm()) <= limit * max(float(expected.norm()), least), what


def assert_all_near(found, expected, what=""):
    assert found.keys() == expected.keys()
    for name in expected:
        assert_near(found[name], expected[name], f"{what} {name}")


def start(rank, ranks, store, task, errors):
    """One process of a group."""
    torch.set_num_threads(1)
    try:
        torch.distributed.init_process_group(
            "gloo", f"file://{store}", rank=rank, world_size=ranks,
            timeout=datetime.timedelta(seconds=60),
        )
        task(rank, ranks)
        errors.put((rank, None))
    except BaseException as error:  # the parent reports it
        errors.put((rank, f"{type(error).__name__}: {error}"))
    finally:
        if torch.distributed.is_initialized():
            gc.collect()  # what holds the group goes first: gloo's threads must end before Python does
            torch.distributed.destroy_process_group()


def together(task, ranks):
    """Runs task(rank, ranks) in `ranks` processes; what each of them raised. The task is a function of a module that
    they can import."""
    context = torch.multiprocessing.get_context("spawn")
    errors = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        processes = [
            context.Process(target=start, args=(rank, ranks, store, task, errors))
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        found = dict(errors.get(timeout=240) for _ in processes)
        for rank, process in enumerate(processes):
            process.join(30)
            if found[rank] is None and process.exitcode != 0:
                found[rank] = f"ended with exit code {process.exitcode}"
    return found
