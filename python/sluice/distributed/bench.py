# SPDX-License-Identifier: Apache-2.0
"""Measures context parallelism: time of a call on one rank, on all ranks of a group, and of the parts of
simulated ranks on one device; bytes sent; the link.

    python -m sluice.distributed.bench --simulate 2,4,8 --tokens 32k,128k --heads 16/64
    torchrun --nproc-per-node 2 -m sluice.distributed.bench --all --out cp.json
    torchrun --nproc-per-node 2 -m sluice.distributed.bench --tokens 32k --transitions 16,all --json
    torchrun --nproc-per-node 2 -m sluice.distributed.bench --device cpu --tokens 2k --heads 2/4

--all: 32k, 128k, 512k and 1m tokens, heads 16/64, 16/32 and 2/8, both directions, and 4 and 8 simulated ranks
beside those that there are. Where fla can be imported (GPUs), its context parallelism is timed in the same run.

Times are medians of calls between two events on a GPU, of wall time on a CPU, ms; that of a group is
the slowest rank's; "graph ms" is that of a graph's replay, without the host's time. K = V = 128, l2
norm, log gates as peers measure with ("published": every fourth head 0, others logsigmoid(normal) / 16,
which forget) or slow ones ("slow": no head forgets). Parts are those of the rank that needs longest:
`summary` (its maps), `exchange` (real ranks), `fold` (the states that enter its pieces), `main` (its rows),
each by itself: in a call some of them run beside each other. Directions: `forward` alone, `both` with the
gradients. Progress goes to stderr. "all-gather" rows are the link's, MiB a rank.
"""

import argparse
import gc
import itertools
import json
import pathlib
import sys
import time
from typing import Any

import torch

from .. import __version__
from .bench_rows import D, fla_row, group_row, link_rows, make_inputs, one_row, say, simulated

ALL = {"tokens": "32k,128k,512k,1m", "heads": "16/64,16/32,2/8", "simulate": "4,8"}


def arguments() -> argparse.Namespace:
    what, examples, *rest = __doc__.split("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m sluice.distributed.bench",
        description=what,
        epilog="\n\n".join([f"examples:\n{examples}", *rest]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tokens", default="32k,128k", help="lengths of the sequence: 2048, 32k, 1m, ..")
    parser.add_argument("--heads", default="16/64", help="key heads/value heads, e.g. 16/64,16/32,2/8")
    parser.add_argument("--gates", default="published", help="published, slow, or both: published,slow")
    parser.add_argument("--transitions", default="all", help="matrices that a piece sends: all, or numbers of heads")
    parser.add_argument("--simulate", default="", help="numbers of ranks to simulate on one device: 2,4,8")
    parser.add_argument("--all", action="store_true", help="the whole table, in place of the defaults of these")
    parser.add_argument("--layout", default="contiguous", choices=("contiguous", "zigzag"))
    parser.add_argument("--directions", default="forward,both", help="forward, both")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=7, help="calls timed a row")
    parser.add_argument("--seconds", type=float, default=300.0, help="begin no row after so long")
    parser.add_argument("--json", action="store_true", help="print rows as JSON, one a line")
    parser.add_argument("--out", help="a JSON file for the rows")
    parser.set_defaults(**{name: value for name, value in ALL.items() if "--all" in sys.argv[1:]})
    return parser.parse_args()


def count(text: str) -> int:
    unit = {"k": 1024, "m": 1024 * 1024}.get(text[-1].lower())
    return int(text) if unit is None else int(text[:-1]) * unit


def is_late(args: argparse.Namespace, start: float, device: torch.device) -> bool:
    """Whether no row begins any more; the first rank's clock decides."""
    late = torch.tensor([time.monotonic() - start], device=device)
    if torch.distributed.is_initialized():
        torch.distributed.broadcast(late, 0)
    return float(late) > args.seconds


def rows_of(args: argparse.Namespace, device: torch.device) -> list[dict[str, Any]]:
    grouped = torch.distributed.is_initialized()
    start = time.monotonic()
    rows = link_rows(device, args.rounds) if grouped else []
    wanted = (args.gates, args.heads, args.tokens, args.directions)
    cases = list(itertools.product(*(text.split(",") for text in wanted)))
    for number, (gates, heads, tokens, direction) in enumerate(cases, 1):
        if is_late(args, start, device):
            say(f"{len(cases) - number + 1} of {len(cases)} cases are left out: --seconds {args.seconds:g} are over")
            break
        say(f"[{number}/{len(cases)}] {tokens} tokens, {heads} heads, {gates} gates, {direction}")
        H, HV = map(int, heads.split("/"))
        T = count(tokens)
        x, options = make_inputs(T, H, HV, gates, device)
        what = {"H": H, "HV": HV, "K": D, "V": D, "tokens": T, "gates": gates, "direction": direction}
        for row in case_rows(args, x, options, direction == "both", device):
            rows.append({**what, **row})
            show(args, rows[-1])
    return rows


def case_rows(args: argparse.Namespace, x: Any, options: Any, both: bool, device: Any) -> list[dict[str, Any]]:
    """Of one rank, of the ranks that there are, of fla over them, and of simulated ones, by the first rank."""
    grouped = torch.distributed.is_initialized()
    first = not grouped or torch.distributed.get_rank() == 0
    rows = [one_row(args, x, options, both, device)] if first else []
    sent = [None if text == "all" else int(text) for text in args.transitions.split(",")]
    if grouped:
        torch.distributed.barrier()
        rows += [{"transitions": n, **group_row(args, x, options, n, both, device)} for n in sent]
        theirs = fla_row(args, x, both, device) if device.type == "cuda" else None
        rows += [] if theirs is None else [theirs]
    if first:
        for ranks in filter(None, args.simulate.split(",")):
            rows += [{"transitions": n, **simulated(args, x, options, int(ranks), n, both, device)} for n in sent]
    if grouped:
        torch.distributed.barrier()
    for other in rows[1:] if first else []:
        for kind in ("ms", "graph ms"):
            if kind in rows[0] and kind in other:
                other[f"{kind} over one rank's"] = round(other[kind] / rows[0][kind], 4)
    return rows


def show(args: argparse.Namespace, row: dict[str, Any]) -> None:
    """A row on stdout, by the first rank."""
    if torch.distributed.is_initialized() and torch.distributed.get_rank() != 0:
        return
    if args.json:
        print(json.dumps(row), flush=True)
        return
    name = row.get("library", "simulated" if row["simulated"] else "sluice")
    left_out = ("H", "HV", "K", "V", "gates", "simulated", "ranks", "tokens", "direction", "library", "kernel")
    rest = ", ".join(f"{key} {value}" for key, value in row.items() if key not in left_out and value is not None)
    case = f"{row['H']}/{row['HV']} {row['tokens']} {row['direction']}"
    print(f"{case}: {name}, ranks {row['ranks']}: {rest}", flush=True)


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
        # WHY here: programs that import sluice leave sluice_tools alone.
        from sluice_tools import whole_file

        whole_file.write(pathlib.Path(args.out), json.dumps(record, indent=1) + "\n")
    if torch.distributed.is_initialized():
        gc.collect()  # what holds the group goes first: gloo's threads must end before Python does
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
