# SPDX-License-Identifier: Apache-2.0
"""Measures context parallelism: time of a call on one rank, on all ranks of a group, and of the parts of
simulated ranks on one device; bytes sent; the link.

    python -m sluice.distributed.bench --simulate 2,4,8 --tokens 32k,128k --heads 16/64
    torchrun --nproc-per-node 2 -m sluice.distributed.bench --tokens 32k,128k,512k --out cp.json
    torchrun --nproc-per-node 2 -m sluice.distributed.bench --device cpu --tokens 2k --heads 2/4

Times are medians of calls between two events on a GPU, of wall time on a CPU, ms; that of a group is the
slowest rank's. K = V = 128, l2 norm, raw gates as published models have them ("model": three of four
heads forget) or slow ones ("slow": no head does). Parts are those of the rank that needs longest:
`summary` (its maps), `fold` (the states that enter its pieces), `main` (its rows); `exchange` is an
all-gather of as many bytes. Both directions: `forward` alone, `both` with the gradients.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
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
    parser.add_argument("--gates", default="model", help="model, slow, or both: model,slow")
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
    x["gate"], x["beta"] = normal(1, T, HV), normal(1, T, HV)
    rate = torch.full((HV,), 1e-3)
    if gates == "model":
        rate = torch.where(torch.arange(HV) % 4 == 0, 1e-3, 0.5)
    x["A_log"] = rate.log().to(device)
    x["dt_bias"] = torch.zeros(HV, device=device)
    return x, {"gate_space": "raw", "beta_space": "logit", "qk_norm": "l2"}


def milliseconds(call: Callable[[], Any], device: torch.device, rounds: int) -> float:
    """Median time of a call."""
    times = []
    for at in range(rounds + 2):
        if device.type == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize(device)
            if torch.distributed.is_initialized():
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


def parts_of(calls: list[rule.Call], both: bool) -> dict[str, list[Callable[[], Any]]]:
    """What every simulated rank computes, part by part; all that a part reads is there already."""
    sent = gather([rule.begin(call) for call in calls])
    for call in calls:
        rule.finish(call, sent)
    parts = {
        "summary": [lambda call=call: rule.begin(call) for call in calls],
        "fold": [lambda call=call: rule.fold(call, False, sent, None, None) for call in calls],
        "main": [lambda call=call: rule.main(call) for call in calls],
    }
    if both:
        d_os = [torch.ones_like(call.tensors["v"]) for call in calls]
        back = gather([rule.begin_backward(call, d_o) for call, d_o in zip(calls, d_os)])
        needed = dict.fromkeys(rule.TENSORS, True)
        pairs = list(zip(calls, d_os))
        parts["summary, gradients"] = [lambda c=c, d=d: rule.begin_backward(c, d) for c, d in pairs]
        parts["fold and main, gradients"] = [
            lambda c=c, d=d: rule.finish_backward(c, back, d, None, needed) for c, d in pairs
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
    total = [0.0] * ranks
    for name, every in parts.items():
        found = {rank: milliseconds(every[rank], device, args.rounds) for rank in tried}
        row[name] = round(max(found.values()), 4)
        for rank, ms in found.items():
            total[rank] += ms
    row["ms"] = round(max(total), 4)
    route = calls[0].route(False)
    HV = x["v"].shape[2]
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
    ms = torch.tensor([milliseconds(call, device, args.rounds)], device=device, dtype=torch.float64)
    torch.distributed.all_reduce(ms, torch.distributed.ReduceOp.MAX)
    row = {"ranks": ranks, "simulated": False, "ms": round(float(ms), 4), "bytes sent": sent}
    if device.type == "cuda":
        row["peak MiB"] = torch.cuda.max_memory_allocated(device) >> 20
    return row


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
                    one = None
                    if first:
                        found = milliseconds_alone(one_rank(x, options, both), device, args.rounds)
                        one = round(found, 4)
                        rows.append({**what, "ranks": 1, "simulated": False, "ms": one, "kernel": last_kernel()})
                    made = [
                        simulated(args, x, options, int(n), both, device)
                        for n in filter(None, args.simulate.split(","))
                        if not grouped
                    ]
                    if grouped:
                        torch.distributed.barrier()
                        made.append(group_row(args, x, options, both, device))
                    for row in made:
                        if one is not None:
                            row["over one rank"] = round(row["ms"] / one, 4)
                        rows.append({**what, **row})
                        if first:
                            print(json.dumps(rows[-1]), flush=True)
                    del x
    return rows


def milliseconds_alone(call: Callable[[], Any], device: torch.device, rounds: int) -> float:
    """milliseconds() on one rank of a group, while the others wait at a barrier."""
    times = []
    for at in range(rounds + 2):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        if at >= 2:
            times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def main() -> None:
    args = arguments()
    device = torch.device(args.device)
    if "RANK" in os.environ:
        if device.type == "cuda":
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
            torch.cuda.set_device(device)
        torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    with torch.random.fork_rng(devices=[]):
        rows = rows_of(args, device)
    first = not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0
    record = {
        "schema": "sluice.bench.context/1",
        "command": " ".join(["python -m sluice.distributed.bench", *sys.argv[1:]]),
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
