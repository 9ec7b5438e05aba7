# SPDX-License-Identifier: Apache-2.0
"""Measures the rows of the benchmark of context parallelism: one rank, a group, simulated ranks, fla, the link."""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from .. import last_kernel, ops
from . import rule
from .context import ContextParallel
from .fragments import Fragments
from .simulate import SimulatedRanks, gather

D = 128


def say(text: str) -> None:
    """Progress, by the first rank."""
    if not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
        print(text, file=sys.stderr, flush=True)


def make_inputs(T: int, H: int, HV: int, gates: str, device: torch.device) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tensors by the names of rule.TENSORS, and options; the same on every rank."""
    generator = torch.Generator(device).manual_seed(1)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, device=device, dtype=io)

    io = torch.bfloat16 if device.type == "cuda" else torch.float32
    x: dict[str, Any] = {"q": normal(1, T, H, D), "k": normal(1, T, H, D), "v": normal(1, T, HV, D)}
    x["beta"] = normal(1, T, HV)
    gate = torch.randn(1, T, HV, generator=generator, device=device)
    if gates == "published":
        x["gate"] = torch.nn.functional.logsigmoid(gate) / 16
        x["gate"][..., ::4] = 0
    else:
        x["gate"] = -1e-3 * gate.abs()
    return x, {"beta_space": "logit", "qk_norm": "l2"}


def milliseconds(call: Callable[[], Any], device: torch.device, rounds: int, alone: bool = False) -> float:
    """Median time of a call. alone: on one rank of a group, while the others wait at a barrier."""
    times = []
    for at in range(rounds + 2):
        if device.type == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize(device)
            if torch.distributed.is_initialized() and not alone:
                torch.distributed.barrier()
            begin.record()
            call()
            end.record()
            torch.cuda.synchronize(device)
            found = begin.elapsed_time(end)
        else:
            start = time.perf_counter()
            call()
            found = (time.perf_counter() - start) * 1e3
        if at >= 2:
            times.append(found)
    return statistics.median(times)


def one_rank(x: dict[str, Any], options: dict[str, Any], both: bool) -> Callable[[], Any]:
    o = torch.empty_like(x["v"])
    d_o = torch.ones_like(o)
    made = {f"d{name}": torch.empty_like(t) for name, t in x.items()}

    def call() -> None:
        ops.chunk_forward(**x, o=o, **options)
        if both:
            ops.chunk_backward(**x, d_o=d_o, **made, **options)

    return call


def one_row(args: argparse.Namespace, x: Any, options: Any, both: bool, device: Any) -> dict[str, Any]:
    """A row of one rank, with the FLOP and bytes of the operators that it would be cut into."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    call = one_rank(x, options, both)
    row: dict[str, Any] = {"ranks": 1, "simulated": False}
    row["ms"] = round(milliseconds(call, device, args.rounds, True), 4)
    row["kernel"] = last_kernel()
    if device.type == "cuda":
        row["peak MiB"] = torch.cuda.max_memory_allocated(device) >> 20
        if not both:
            row["graph ms"] = round(milliseconds(recorded(call), device, args.rounds, True), 4)
    return row


def recorded(call: Callable[[], Any]) -> Callable[[], Any]:
    """The replay of a graph of a call: its time is the device's alone."""
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        call()
    return graph.replay


def parts_of(calls: list[rule.Call], both: bool, sent: Any, received: Any) -> dict[str, list[Callable[[], Any]]]:
    """What ranks compute, part by part; all that a part reads is there already. received(parts): what all have sent."""
    needed = dict.fromkeys(rule.TENSORS, True)
    for call in calls:
        rule.early(call)
        rule.finish(call, sent)
    parts: dict[str, list[Callable[[], Any]]] = {
        "summary": [partial(rule.begin, call) for call in calls],
        "fold": [partial(rule.fold, call, False, sent, None, None) for call in calls],
        "main": [partial(rule.main, call, (0, call.pieces), call.entering) for call in calls],
    }
    if both:
        d_os = [torch.ones_like(call.tensors["v"]) for call in calls]
        back = received([rule.begin(call, d_o) for call, d_o in zip(calls, d_os)])

        def rows(call: rule.Call, d_o: Any) -> None:
            rule.early_backward(call, d_o, needed)
            rule.finish_backward(call, back, d_o, None, needed)

        pairs = list(zip(calls, d_os))
        parts["summary, gradients"] = [partial(rule.begin, c, d) for c, d in pairs]
        parts["fold and main, gradients"] = [partial(rows, c, d) for c, d in pairs]
    return parts


def simulated(
    args: argparse.Namespace, x: Any, options: Any, ranks: int, transitions: Any, both: bool, device: Any
) -> dict[str, Any]:
    T = x["q"].shape[1]
    fragments = getattr(Fragments, args.layout)([T], ranks, multiple=64)
    calls = SimulatedRanks(fragments, transitions=transitions).make_calls(x, **options)
    row: dict[str, Any] = {"ranks": ranks, "simulated": True}
    # The ranks at both ends and in the middle are unlike, all others are like the middle one.
    tried = sorted({0, ranks // 2, ranks - 1})
    sent = gather([rule.begin(call) for call in calls])
    parts = parts_of(calls, both, sent, gather)
    H, HV = x["q"].shape[2], x["v"].shape[2]
    own, size = fragments.tokens(0), x["k"].element_size()
    row["flops of a fold"] = 2 * (ranks - 1) * HV * D**3
    row["bytes of a summary"] = own * (size * (H + HV) * D + 8 * HV) + 8 * HV * D * D
    row["tokens of a rank"] = own
    total = [0.0] * ranks
    for name, every in parts.items():
        found = {rank: milliseconds(every[rank], device, args.rounds, True) for rank in tried}
        row[name] = round(max(found.values()), 4)
        for rank, ms in found.items():
            total[rank] += ms
    row["ms"] = round(max(total), 4)
    row["bytes a direction"] = 0 if sent is None else sent.numel() * 4 // ranks
    return row


def group_row(
    args: argparse.Namespace, x: Any, options: Any, transitions: Any, both: bool, device: Any
) -> dict[str, Any]:
    """A row of the processes that there are."""
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    fragments = getattr(Fragments, args.layout)([x["q"].shape[1]], ranks, multiple=64)
    context = ContextParallel(None, fragments, transitions=transitions)
    own = {n: t if n in rule.SHARED else fragments.take(t, rank).contiguous() for n, t in x.items()}
    for t in own.values():
        t.requires_grad_(both)
    d_o = torch.ones_like(own["v"])

    def call() -> None:
        o, _ = context.chunk_forward(**own, **options)
        if both:
            o.backward(d_o)
            for t in own.values():
                t.grad = None

    call()
    before = context.sent_bytes
    row: dict[str, Any] = {"ranks": ranks, "simulated": False}
    row.update(timed(args, call, both, device))
    row["bytes sent"] = (context.sent_bytes - before) // row.pop("calls")
    with torch.no_grad():
        given = {**dict.fromkeys(rule.TENSORS), **own}
        alone = rule.make_call(context.settings, given, options)
        part = rule.begin(alone)
        sent = None if part is None else context.exchange.gather(part)

        def received(parts: list[Any]) -> Any:
            return None if parts[0] is None else context.exchange.gather(parts[0])

        for name, every in parts_of([alone], both, sent, received).items():
            row[name] = slowest(milliseconds(every[0], device, args.rounds), device)
        if part is not None:
            row["exchange"] = slowest(milliseconds(partial(context.exchange.gather, part), device, args.rounds), device)
    return row


def timed(args: argparse.Namespace, call: Callable[[], Any], both: bool, device: Any) -> dict[str, Any]:
    """Times and memory of a group's call, those of the slowest rank; `calls`: how often it ran through Python."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    row: dict[str, Any] = {"ms": slowest(milliseconds(call, device, args.rounds), device), "calls": args.rounds + 2}
    if device.type == "cuda" and not both:
        row["graph ms"] = slowest(milliseconds(recorded(call), device, args.rounds), device)
        row["calls"] += 1
    if device.type == "cuda":
        row["peak MiB"] = torch.cuda.max_memory_allocated(device) >> 20
    return row


def fla_row(args: argparse.Namespace, x: Any, both: bool, device: Any) -> dict[str, Any] | None:
    """fla's context parallelism over the same processes; None where there is none."""
    try:
        from fla import __version__ as version
        from fla.ops.cp import build_cp_context
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    except Exception as missing:  # an installation may break in many ways
        say(f"fla is not timed: {type(missing).__name__}: {missing}")
        return None
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    T = x["q"].shape[1]
    fragments = Fragments.contiguous([T], ranks)
    own = {n: fragments.take(t, rank).contiguous().requires_grad_(both) for n, t in x.items()}
    d_o = torch.ones_like(own["v"])
    offsets = torch.tensor([0, T], dtype=torch.int64, device=device)
    context = build_cp_context(cu_seqlens=offsets, group=torch.distributed.group.WORLD)

    def call() -> None:
        o, _ = chunk_gated_delta_rule(
            own["q"], own["k"], own["v"], own["gate"], own["beta"], use_qk_l2norm_in_kernel=True,
            use_beta_sigmoid_in_kernel=True, cu_seqlens=context.cu_seqlens, cp_context=context,
        )  # fmt: skip
        if both:
            o.backward(d_o)
            for t in own.values():
                t.grad = None

    row = timed(args, call, True, device)  # its calls are not captured in a graph
    del row["calls"]
    return {"ranks": ranks, "simulated": False, "library": f"fla {version}", **row}


def slowest(ms: float, device: Any) -> float:
    """The largest of the ranks' numbers."""
    every = torch.tensor([ms], device=device, dtype=torch.float64)
    torch.distributed.all_reduce(every, torch.distributed.ReduceOp.MAX)
    return round(float(every), 4)


def link_rows(device: torch.device, rounds: int) -> list[dict[str, Any]]:
    """All-gathers of 1, 8 and 64 MiB a rank."""
    ranks = torch.distributed.get_world_size()
    rows = []
    for mib in (1, 8, 64):
        part = torch.ones(mib << 18, device=device)
        out = torch.empty(ranks * len(part), device=device)

        def call(part: Any = part, out: Any = out) -> None:
            torch.distributed.all_gather_into_tensor(out, part)

        ms = milliseconds(call, device, rounds)
        gb = (ranks - 1) * part.numel() * 4 / ms / 1e6
        rows.append({"all-gather": mib, "ranks": ranks, "ms": round(ms, 4), "GB/s": round(gb, 1)})
    return rows
