#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures a layer that trains on a GPU beside flash-linear-attention, in one process and with the same weights:
forward, backward and both through torch's autograd; the same with the host's time, a step at a time; what is kept for
the backward pass, in bytes a token; how far outputs and gradients are apart. Layers: transformers' of Qwen3-Next, as
transformers runs it with FLA's functions and patched by Sluice; fla.layers.GatedDeltaNet and sluice.nn.GatedDeltaNet.
Projections are part of a layer. What they alone take, forward and backward, is measured beside.

    python benchmarks/train_layer_peers.py [--shapes 8192x16x32,65536x16x32] [--layers transformers,fla] [--out FILE]

Shapes are tokens x H x HV; K = V = 128, hidden size 128 H, float32 weights under autocast to bfloat16, one document.
Calls are queued behind a kernel that waits, so that the host's time does not count, and find the L2 full of other
data. FLA's kernels tune themselves in their first calls, which are not timed.
"""

import copy
import itertools
import statistics
import time

import peer_record
import sluice.engines.transformers as sluice_hf
import sluice.nn
import torch
from graph_time import difference
from saved_bytes import saved_bytes
from triton_tuning import compile_at_once

D = 128
REPEAT = 9
AHEAD = 100_000_000  # cycles that the GPU waits while the host queues a call: 50 ms


def of_transformers(H, HV):
    """Layers with the same random weights: ours, theirs."""
    from transformers import Qwen3NextConfig
    from transformers.models.qwen3_next import modeling_qwen3_next as modeling

    config = Qwen3NextConfig(
        hidden_size=H * D, linear_num_key_heads=H, linear_num_value_heads=HV, linear_key_head_dim=D,
        linear_value_head_dim=D, num_hidden_layers=1, layer_types=["linear_attention"],
    )  # fmt: skip
    theirs = modeling.Qwen3NextGatedDeltaNet(config, 0).cuda()
    use_fla_convolution(modeling)
    ours = copy.deepcopy(theirs)
    sluice_hf.patch(ours)
    return ours, theirs


def use_fla_convolution(modeling):
    """transformers takes another package's; without that its torch function runs."""
    from fla.modules.causal_conv1d import causal_conv1d

    def convolve(x, weight, bias=None, activation=None, **_):
        out, _ = causal_conv1d(x.transpose(1, 2), weight, bias, activation=activation)
        return out.transpose(1, 2)

    modeling.causal_conv1d_fn = convolve


def of_fla(H, HV):
    from fla.layers import GatedDeltaNet

    theirs = GatedDeltaNet(hidden_size=H * D, expand_v=1, head_dim=D, num_heads=H, num_v_heads=HV).cuda()
    return sluice.nn.GatedDeltaNet.from_fla(theirs), theirs


LAYERS = {"transformers": of_transformers, "fla": of_fla}


class Side:
    """A layer that is trained on x."""

    def __init__(self, layer, x, d_out):
        self.layer, self.x, self.d_out = layer, x, d_out
        self.inputs = [x, *layer.parameters()]

    def __call__(self, x):
        with torch.autocast("cuda", torch.bfloat16):
            out = self.layer(x)
        return out[0] if isinstance(out, tuple) else out

    def parameters(self):
        return self.layer.parameters()

    def forward(self, _=None):
        return self(self.x)

    def backward(self, out):
        return torch.autograd.grad(out, self.inputs, self.d_out)

    def step(self, _=None):
        out = self.forward()
        return [out.detach(), *self.backward(out)]


class Projections:
    """The linear maps of a layer alone, with the gradients that they get from what lies between them."""

    def __init__(self, side):
        linear = {n: m for n, m in side.layer.named_modules() if isinstance(m, torch.nn.Linear)}
        self.last = linear.pop(next(name for name in linear if name in ("out_proj", "o_proj")))
        self.first, self.x = list(linear.values()), side.x
        like = dict(device=side.x.device, dtype=torch.bfloat16)
        rows = side.x.shape[:2]
        self.core = torch.randn(*rows, self.last.in_features, **like).requires_grad_()
        self.d_out = [*(torch.randn(*rows, m.out_features, **like) for m in self.first), side.d_out]
        self.inputs = [self.x, self.core, *(m.weight for m in (*self.first, self.last))]

    def step(self, _=None):
        with torch.autocast("cuda", torch.bfloat16):
            outs = [*(project(self.x) for project in self.first), self.last(self.core)]
        return torch.autograd.grad(outs, self.inputs, self.d_out)


def milliseconds(sides, part, before=False):
    """Median times of a part of a step on the GPU, of sides that take turns."""
    sweep = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
    pairs = [[] for _ in sides]
    # WHY: kernels that were not loaded yet are, which may wait for the GPU.
    torch.cuda._sleep(1)
    sweep.fill_(0)
    for side in sides:
        side.step()
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


def differences(sides):
    """Of outputs and gradients, of parameters that both have under one name."""
    found = []
    for side in sides:
        names = ["out", "x", *(name for name, _ in side.layer.named_parameters())]
        found.append(dict(zip(names, side.step())))
    return {name: difference(a, found[1][name]) for name, a in found[0].items() if name in found[1]}


def measure(layers, shape):
    """The row of a shape."""
    tokens, H, HV = map(int, shape.split("x"))
    ours, theirs = LAYERS[layers](H, HV)
    x, d_out = (torch.randn(1, tokens, H * D, device="cuda") for _ in range(2))
    sides = [Side(layer, x.requires_grad_(), d_out.bfloat16()) for layer in (ours, theirs)]
    found = {"layers": layers, "shape": shape}
    for side in sides:
        side.step()
    for part, name in (("forward", "forward_ms"), ("backward", "backward_ms"), ("step", "step_ms")):
        found[name], found[f"fla_{name}"] = milliseconds(sides, part, before=part == "backward")
    projections = [Projections(side) for side in sides]
    for side in projections:
        side.step()
    alone = milliseconds(projections, "step")
    found["projections_step_ms"], found["fla_projections_step_ms"] = alone
    found["times_fla"] = found["fla_step_ms"] / found["step_ms"]
    between = [found[name] - ms for name, ms in zip(("step_ms", "fla_step_ms"), alone)]
    found["times_fla_between_projections"] = between[1] / between[0]
    del projections
    found["host_step_ms"], found["fla_host_step_ms"] = map(with_the_host, sides)
    found["saved_bytes"], found["fla_saved_bytes"] = (saved_bytes(side, x) for side in sides)
    found["difference"] = differences(sides)
    return found


def main():
    parser = peer_record.parser(__doc__)
    parser.add_argument("--shapes", default="8192x16x32,65536x16x32", help="default: %(default)s")
    parser.add_argument("--layers", default="transformers,fla", help="default: %(default)s")
    options = parser.parse_args()
    packages = ("torch", "transformers", "triton", "flash-linear-attention", "tilelang")
    record = peer_record.start("train_layer_peers", options.commit, packages)
    torch.set_grad_enabled(True)
    compile_at_once()
    for shape, layers in itertools.product(options.shapes.split(","), options.layers.split(",")):
        try:
            row = measure(layers, shape)
        except Exception as error:
            row = {"layers": layers, "shape": shape, "failure": f"{type(error).__name__}: {error}"}
        record["rows"].append(row)
        shown = [f"{name} {x:.4g}" if isinstance(x, float) else f"{name} {x}" for name, x in row.items()]
        print("  ".join(shown), flush=True)
        torch.cuda.empty_cache()
        peer_record.write(record, options.out)


if __name__ == "__main__":
    main()
