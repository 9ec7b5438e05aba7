# SPDX-License-Identifier: Apache-2.0
"""Measures context parallelism: time of a call on one rank, on all ranks of a group, and of the parts of
simulated ranks on one device; bytes sent; the link.

    python -m sluice.distributed.bench --simulate 2,4,8 --tokens 32k,128k --heads 16/64
    torchrun --nproc-per-node 2 -m sluice.distributed.bench --tokens 32k,128k,512k --out cp.json
    torchrun --nproc-per-node 2 -m sluice.distributed.bench --device cpu --tokens 2k --heads 2/4

Times are medians of calls between two events on a GPU, of wall time on a CPU, ms; that of a group is
the slowest rank's; "graph ms" is that of a graph's replay, without the host's time. K = V = 128, l2
norm, log gates as peers measure with ("published": every fourth head 0, others logsigmoid(normal) / 16,
which forget) or slow ones ("slow": no head forgets). Parts are those of the rank that needs longest:
`summary` (its maps), `fold` (the states that enter its pieces), `main` (its rows). Directions:
`forward` alone, `both` with the gradients. "all-gather" rows are the link's, MiB a rank.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from .. import __version__, last_kernel, ops
from . import rule
from .context import ContextParallel
from .fragments import Fragments
from .simulate import SimulatedRanks, gather

D = 128
EPILOG = "\n".join(__doc__.split("\n\n")[1].split("\n"))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m sluice.distributed.bench",
        description=__doc__.split("\n\n")[0],
        epilog="examples:\n" + EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tokens", default="32k,128k", help="lengths of the sequence: 2048, 32k, 1m, ..")
    parser.add_argument("--heads", default="16/64", help="key heads/value heads, e.g. 16/64,16/32,2/8")
    parser.add_argument("--gates", default="published", help="published, slow, or both: published,slow")
    parser.add_argument("--simulate", default="", help="numbers of ranks to simulate on one device: 2,4,8")
    parser.add_argument("--layout", default="contiguous", help="contiguous or zigzag")
    parser.add_argument("--directions", default="forward,both", help="forward, both")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=7, help="calls timed a row")
    parser.add_argument("--seconds", type=float, default=300.0, help="begin no row after so long")
    parser.add_argument("--out", help="a JSON file for the rows")
    return parser.parse_args()


def count(text: str) -> int:
    unit = {"k": 1024, "m": 1024 * 1024}.get(text[-1].lower())
    return int(text) if unit is None else int(text[:-1]) * unit


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


def parts_of(calls: list[rule.Call], both: bool) -> dict[str, list[Callable[[], Any]]]:
    """What every simulated rank computes, part by part; all that a part reads is there already."""
    sent = gather([rule.begin(call) for call in calls])
    for call in calls:
        rule.finish(call, sent)
    parts: dict[str, list[Callable[[], Any]]] = {
        "summary": [partial(rule.begin, call) for call in calls],
        "fold": [partial(rule.fold, call, False, sent, None, None) for call in calls],
        "main": [partial(rule.main, call) for call in calls],
    }
    if both:
        d_os = [torch.ones_like(call.tensors["v"]) for call in calls]
        back = gather([rule.begin_backward(call, d_o) for call, d_o in zip(calls, d_os)])
        needed = dict.fromkeys(rule.TENSORS, True)
        pairs = list(zip(calls, d_os))
        parts["summary, gradients"] = [partial(rule.begin_backward, c, d) for c, d in pairs]
        parts["fold and main, gradients"] = [
            partial(rule.finish_backward, c, back, d, None, needed) for c, d in pairs
        ]
    return parts


def simulated(args: argparse.Namespace, x: Any, options: Any, ranks: int, both: bool, device: Any) -> dict[str, Any]:
    T = x["q"].shape[1]
    fragments = getattr(Fragments, args.layout)([T], ranks, multiple=64)
    calls = SimulatedRanks(fragments).make_calls(x, **options)
    row: dict[str, Any] = {"ranks": ranks, "simulated": True}
    # The ranks at both ends and in the middle are unlike, all others are like the middle one.
    tried = sorted({0, ranks // 2, ranks - 1})
    parts = parts_of(calls, both)
    H, HV = x["q"].shape[2], x["v"].shape[2]
    own, size = fragments.tokens(0), x["k"].element_size()
    row["flops of a fold"] = 2 * (ranks - 1) * HV * D**3
    row["bytes of a summary"] = own * (size * (H + HV) * D + 8 * HV) + 8 * HV * D * D
    row["tokens of a rank"] = own
    total = [0.0] * ranks
    for name, every in parts.items():
        found = {rank: milliseconds(every[rank], device, args.rounds) for rank in tried}
        row[name] = round(max(found.values()), 4)
        for rank, ms in found.items():
            total[rank] += ms
    row["ms"] = round(max(total), 4)
    route = calls[0].route(False)
    row["bytes a direction"] = route.slots * HV * D * D * 4 * (1 + route.has_transitions)
    return row


def group_row(args: argparse.Namespace, x: Any, options: Any, both: bool, device: Any) -> dict[str, Any]:
    """A row of the processes that there are."""
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    T = x["q"].shape[1]
    fragments = getattr(Fragments, args.layout)([T], ranks, multiple=64)
    context = ContextParallel(None, fragments)
    shared = ("A_log", "dt_bias")
    own = {n: t if n in shared else fragments.take(t, rank).contiguous() for n, t in x.items()}
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
    call()
    sent = context.sent_bytes - before
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    row: dict[str, Any] = {"ranks": ranks, "simulated": False, "bytes sent": sent}
    row["ms"] = slowest(milliseconds(call, device, args.rounds), device)
    if device.type == "cuda" and not both:
        row["graph ms"] = slowest(milliseconds(recorded(call), device, args.rounds), device)
    if device.type == "cuda":
        row["peak MiB"] = torch.cuda.max_memory_allocated(device) >> 20
    return row


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
            if device.type == "cuda":
                torch.distributed.all_gather_into_tensor(out, part)
            else:
                torch.distributed.all_gather(list(out.chunk(ranks)), part)

        ms = milliseconds(call, device, rounds)
        gb = (ranks - 1) * part.numel() * 4 / ms / 1e6
        rows.append({"all-gather": mib, "ranks": ranks, "ms": round(ms, 4), "GB/s": round(gb, 1)})
    return rows


def rows_of(args: argparse.Namespace, device: torch.device) -> list[dict[str, Any]]:
    grouped = torch.distributed.is_initialized()
    first = not grouped or torch.distributed.get_rank() == 0
    start = time.monotonic()
    rows = link_rows(device, args.rounds) if grouped else []
    for gates in args.gates.split(","):
        for heads in args.heads.split(","):
            for T in map(count, args.tokens.split(",")):
                for direction in args.directions.split(","):
                    late = torch.tensor([time.monotonic() - start], device=device)
                    if grouped:
                        torch.distributed.broadcast(late, 0)
                    if float(late) > args.seconds:
                        return rows
                    H, HV = map(int, heads.split("/"))
                    x, options = make_inputs(T, H, HV, gates, device)
                    what = {"H": H, "HV": HV, "K": D, "V": D, "tokens": T, "gates": gates, "direction": direction}
                    both = direction == "both"
                    row = None
                    if first:
                        row = one_row(args, x, options, both, device)
                        rows.append({**what, **row})
                        print(json.dumps(rows[-1]), flush=True)
                    made = [
                        simulated(args, x, options, int(n), both, device)
                        for n in filter(None, args.simulate.split(","))
                        if not grouped
                    ]
                    if grouped:
                        torch.distributed.barrier()
                        made.append(group_row(args, x, options, both, device))
                    for other in made:
                        for kind in ("ms", "graph ms"):
                            if row is not None and kind in row and kind in other:
                                other[f"{kind} over one rank's"] = round(other[kind] / row[kind], 4)
                        rows.append({**what, **other})
                        if first:
                            print(json.dumps(rows[-1]), flush=True)
                    del x
    return rows


def command() -> str:
    """What was called, without where the rows go."""
    given = list(sys.argv[1:])
    if "--out" in given:
        at = given.index("--out")
        del given[at : at + 2]
    start = "python -m"
    if torch.distributed.is_initialized():
        start = f"torchrun --nproc-per-node {torch.distributed.get_world_size()} -m"
    return " ".join([start, "sluice.distributed.bench", *given])


def main() -> None:
    args = arguments()
    device = torch.device(args.device)
    if torch.distributed.is_torchelastic_launched():
        if device.type == "cuda":
            device = torch.device("cuda", torch.distributed.get_node_local_rank())
            torch.cuda.set_device(device)
        torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    with torch.random.fork_rng(devices=[]):
        rows = rows_of(args, device)
    first = not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0
    record = {
        "schema": "sluice.bench.context/1",
        "command": command(),
        "library": __version__,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "dtype": "bf16" if device.type == "cuda" else "fp32",
        "rows": rows,
    }
    if first and args.out:
        with open(args.out, "w", encoding="ascii") as file:
            json.dump(record, file, indent=1)
            file.write("\n")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
