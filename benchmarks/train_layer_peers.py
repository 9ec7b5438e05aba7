#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures a layer of Qwen3-Next that trains on a GPU, as transformers has it with flash-linear-attention's functions
and patched by Sluice, in one process and with the same weights: forward, backward and both through torch's autograd;
the same with the host's time, a step at a time; what is kept for the backward pass, in bytes a token; how far outputs
and gradients are apart. Projections are part of the layer, and the same on both sides.

    python benchmarks/train_layer_peers.py [--shapes 8192x16x32,65536x16x32] [--out FILE]

Shapes are tokens x H x HV; K = V = 128, hidden size 128 H, float32 weights under autocast to bfloat16, one document.
Calls are queued behind a kernel that waits, so that the host's time does not count, and find the L2 full of other
data. FLA's kernels tune themselves in their first calls, which are not timed.
"""

import copy
import statistics
import time

import peer_record
import sluice.engines.transformers as sluice_hf
import torch
from graph_time import difference
from saved_bytes import saved_bytes
from triton_tuning import compile_at_once

D = 128
REPEAT = 9
AHEAD = 60_000_000  # cycles that the GPU waits while the host queues a call: 30 ms


def layer_of(H, HV):
    """The layer with random weights."""
    from transformers import Qwen3NextConfig
    from transformers.models.qwen3_next import modeling_qwen3_next as modeling

    config = Qwen3NextConfig(
        hidden_size=H * D, linear_num_key_heads=H, linear_num_value_heads=HV, linear_key_head_dim=D,
        linear_value_head_dim=D, num_hidden_layers=1, layer_types=["linear_attention"],
    )  # fmt: skip
    return modeling.Qwen3NextGatedDeltaNet(config, 0).cuda()


def use_fla_convolution():
    """transformers takes another package's; without that its torch function runs."""
    from fla.modules.causal_conv1d import causal_conv1d
    from transformers.models.qwen3_next import modeling_qwen3_next as modeling

    def convolve(x, weight, bias=None, activation=None, cu_seq_lens_q=None, **_):
        out, _ = causal_conv1d(x.transpose(1, 2), weight, bias, activation=activation, cu_seqlens=cu_seq_lens_q)
        return out.transpose(1, 2)

    modeling.causal_conv1d_fn = convolve


class Side:
    """A layer that is trained on x."""

    def __init__(self, layer, x, d_out):
        self.layer, self.x, self.d_out = layer, x, d_out
        self.offsets = torch.tensor([0, x.shape[1]], dtype=torch.int32, device="cuda")
        self.inputs = [x, *layer.parameters()]

    def __call__(self, x):
        with torch.autocast("cuda", torch.bfloat16):
            return self.layer(x, cu_seq_lens_q=self.offsets)

    def parameters(self):
        return self.layer.parameters()

    def forward(self, _=None):
        return self(self.x)

    def backward(self, out):
        return torch.autograd.grad(out, self.inputs, self.d_out)

    def step(self, _=None):
        out = self.forward()
        return [out.detach(), *self.backward(out)]


def milliseconds(sides, part, before):
    """Median times of a part of a step on the GPU, of sides that take turns."""
    sweep = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
    pairs = [[] for _ in sides]
    for i in range(REPEAT):
        for side, found in zip(sides, pairs):
            given = side.forward() if before else None
            torch.cuda.synchronize()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(AHEAD)
            sweep.fill_(i)
            begin.record()
            getattr(side, part)(given)
            if begin.query():
                raise RuntimeError(f"{part}: the host is slower than the wait")
            end.record()
            found.append((begin, end))
            torch.cuda.synchronize()
    return [statistics.median(a.elapsed_time(b) for a, b in found) for found in pairs]


def with_the_host(side):
    """Milliseconds of a step that begins when the one before is over."""
    times = []
    for _ in range(2 * REPEAT):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        side.step()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times)


def measure(shape):
    """The row of a shape."""
    tokens, H, HV = map(int, shape.split("x"))
    theirs = layer_of(H, HV)
    ours = copy.deepcopy(theirs)
    sluice_hf.patch(ours)
    x, d_out = (torch.randn(1, tokens, H * D, device="cuda") for _ in range(2))
    sides = [Side(layer, x.requires_grad_(), d_out.bfloat16()) for layer in (ours, theirs)]
    found = {"shape": shape}
    for side in sides:
        side.step()
    for part, name in (("forward", "forward_ms"), ("backward", "backward_ms"), ("step", "step_ms")):
        found[name], found[f"fla_{name}"] = milliseconds(sides, part, before=part == "backward")
    found["times_fla"] = found["fla_step_ms"] / found["step_ms"]
    found["host_step_ms"], found["fla_host_step_ms"] = map(with_the_host, sides)
    found["saved_bytes"], found["fla_saved_bytes"] = (saved_bytes(side, x) for side in sides)
    names = ["out", "x", *(name for name, _ in ours.named_parameters())]
    found["difference"] = {n: difference(a, b) for n, a, b in zip(names, *(side.step() for side in sides))}
    return found


def main():
    parser = peer_record.parser(__doc__)
    parser.add_argument("--shapes", default="8192x16x32,65536x16x32", help="default: %(default)s")
    options = parser.parse_args()
    packages = ("torch", "transformers", "triton", "flash-linear-attention", "tilelang")
    record = peer_record.start("train_layer_peers", options.commit, packages)
    torch.set_grad_enabled(True)
    compile_at_once()
    use_fla_convolution()
    for shape in options.shapes.split(","):
        try:
            row = measure(shape)
        except Exception as error:
            row = {"shape": shape, "failure": f"{type(error).__name__}: {error}"}
        record["rows"].append(row)
        shown = [f"{name} {x:.4g}" if isinstance(x, float) else f"{name} {x}" for name, x in row.items()]
        print("  ".join(shown), flush=True)
        torch.cuda.empty_cache()
    peer_record.write(record, options.out)


if __name__ == "__main__":
    main()
