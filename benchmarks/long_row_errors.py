#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tells how far outputs and final states of long rows are from float64, ours and a rival's on the same inputs: the
rows that speeds are compared on. Truth is the library's reference, token by token in double on the host, for a few
value heads of each row; the largest absolute error and the relative L2 error of these heads are printed, --out
writes JSON.

    python benchmarks/long_row_errors.py --device cuda --rival fla,flashqla --out FILE
    python benchmarks/long_row_errors.py --rows 4096x2/4 --rival transformers            on a CPU

A row is tokens x key heads / value heads; K = V = 128, q and k with unit norm. Gates: easy, -U(0, 1), as published
benchmarks draw them; slow, -U(0, 0.002), under which a lost state shows. A rival that cannot run is a row that says
why. FLA calls FlashQLA where that is installed; the script turns that off. The record grows by the row.
"""

import argparse
import functools
import importlib
import os

import peer_record
import sluice
import torch

D = 128
ROWS = "32768x16/16,65536x16/16,131072x16/16,131072x32/32"
GATES = {"easy": 1.0, "slow": 0.002}
RIVALS = {
    "fla": ("fla.ops.gated_delta_rule", "chunk_gated_delta_rule"),
    "flashqla": ("flash_qla", "chunk_gated_delta_rule"),
    "transformers": ("transformers.models.qwen3_next.modeling_qwen3_next", "torch_chunk_gated_delta_rule"),
}
PACKAGES = ("torch", "triton", "flash-linear-attention", "flash-qla", "tilelang", "transformers")


@functools.lru_cache(maxsize=1)  # WHY: easy and slow gates share all draws, which take seconds for a long row
def drawn(tokens, heads, device, seed):
    """q, k, v in bfloat16, U(0, 1) for gates and for write strengths in float32."""
    H, HV = heads
    random = torch.Generator().manual_seed(seed)
    q, k = (torch.nn.functional.normalize(torch.randn(1, tokens, H, D, generator=random), dim=-1) for _ in "qk")
    v = torch.randn(1, tokens, HV, D, generator=random)
    g, beta = (torch.rand(1, tokens, HV, generator=random) for _ in "gb")
    return [x.bfloat16().to(device) for x in (q, k, v)] + [x.to(device) for x in (g, beta)]


def inputs(tokens, heads, gates, device, seed=1):
    """q, k, v in bfloat16, log gates and write strengths in float32."""
    q, k, v, g, beta = drawn(tokens, heads, device, seed)
    return [q, k, v, -GATES[gates] * g, beta]


def truth(tensors, heads, chosen):
    """o and final states of some value heads, in float32 rounded once from double."""
    ratio = heads[1] // heads[0]
    keys = [head // ratio for head in chosen]
    # Contiguous copies of these heads; each reads a key head of its own.
    parts = zip(tensors, (keys, keys, chosen, chosen, chosen))
    q, k, v, g, beta = (x[:, :, part].cpu().float().contiguous() for x, part in parts)
    return sluice.chunk_gated_delta_rule(q, k, v, g, beta, output_final_state=True, implementation="reference")


def ours(q, k, v, g, beta):
    return sluice.chunk_gated_delta_rule(q, k, v, g, beta, output_final_state=True)


def rival_of(name):
    """A function of another library with fla's arguments, its key heads repeated where it wants that."""
    module, function = RIVALS[name]
    # WHY: FLA hands the call to FlashQLA where it finds that, and the errors would be FlashQLA's.
    os.environ["FLA_FLASH_QLA"] = "0"

    def run(q, k, v, g, beta):
        call = getattr(importlib.import_module(module), function)
        if name == "transformers":
            q, k = (x.repeat_interleave(v.shape[2] // x.shape[2], dim=2) for x in (q, k))
        return call(q, k, v, g=g, beta=beta, output_final_state=True)

    return run


def errors(found, expected, chosen):
    """Largest absolute and relative L2 error of o and of the states."""
    o, state = found
    pairs = {"o": (o[:, :, chosen], expected[0]), "state": (state[:, chosen], expected[1])}
    out = {}
    for name, (x, reference) in pairs.items():
        difference = x.cpu().double() - reference.double()
        out[name] = {"max_abs": difference.abs().max().item(),
                     "relative_l2": (difference.norm() / reference.double().norm()).item()}
    return out


@torch.no_grad()
def measure(tokens, heads, gates, device, contenders, sampled):
    """One row: the errors of each contender, or why it could not run."""
    tensors = inputs(tokens, heads, gates, device)
    chosen = sorted({0, heads[1] - 1} if sampled > 1 else {0})
    expected = truth(tensors, heads, chosen)
    row = {"tokens": tokens, "H": heads[0], "HV": heads[1], "gates": gates, "heads": chosen, "errors": {}}
    for name, call in contenders.items():
        try:
            row["errors"][name] = errors(call(*tensors), expected, chosen)
        except Exception as error:  # a rival's failure is a result
            row["errors"][name] = {"failed": f"{type(error).__name__}: {str(error)[:200]}"}
    row["kernel"] = sluice.last_kernel()
    return row


def text(row):
    lines = []
    for name, found in row["errors"].items():
        what = found.get("failed") or "  ".join(
            f"{part} max {e['max_abs']:.1e}, relative {e['relative_l2']:.1e}" for part, e in found.items())
        lines.append(f"{row['tokens']:>7} {row['H']}/{row['HV']:<4} {row['gates']:<5} {name:<13} {what}")
    return "\n".join(lines)


def shapes(words):
    for word in words.split(","):
        tokens, heads = word.split("x")
        yield int(tokens), tuple(int(number) for number in heads.split("/"))


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=ROWS, help=f"({ROWS})")
    parser.add_argument("--gates", default="easy,slow")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rival", default="fla", help=f"some of {', '.join(RIVALS)}, or none (%(default)s)")
    parser.add_argument("--sampled", type=int, default=2, help="value heads of a row that are compared: 1 or 2")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--out")
    arguments = parser.parse_args(argv)
    rivals = [name for name in arguments.rival.split(",") if name != "none"]
    if unknown := set(rivals) - set(RIVALS):
        parser.error(f"--rival: {', '.join(sorted(unknown))} is none of {', '.join(RIVALS)}")
    if rivals and arguments.device == "cuda":
        from triton_tuning import compile_at_once

        compile_at_once()
    contenders = {"sluice": ours} | {name: rival_of(name) for name in rivals}
    device = torch.cuda.get_device_name() if arguments.device == "cuda" else "cpu"
    record = {"schema": "sluice.bench.long_row_errors/1", "device": device, "commit": arguments.commit,
              "sluice": sluice.__version__, "versions": peer_record.versions(PACKAGES), "rows": []}
    for tokens, heads in shapes(arguments.rows):
        for gates in arguments.gates.split(","):
            row = measure(tokens, heads, gates, arguments.device, contenders, arguments.sampled)
            record["rows"].append(row)
            print(text(row), flush=True)
            peer_record.write(record, arguments.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
