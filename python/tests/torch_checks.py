# SPDX-License-Identifier: Apache-2.0
"""Compares results of torch calls and their gradients, on any device, with those of formulas in float64; makes small
layers of sluice.nn, compares what they give, and asks torch's opcheck about its operators."""

import sluice.nn
import torch
from conftest import error
from sluice.nn._layer import INPUTS, OPTIONS

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
LIMITS = {torch.float32: 2e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}


def check(arrays, ours, theirs, device="cpu", dtype=torch.float32, limit=None):
    """Results of both functions, and gradients of one random loss of them, near each other. What theirs does not read
    has none. Returns the leaves of ours."""
    limit = limit or LIMITS[dtype]
    given = [torch.from_numpy(a.copy()).to(device, dtype).requires_grad_() for a in arrays]
    wide = [t.detach().double().cpu().requires_grad_() for t in given]
    generator = torch.Generator().manual_seed(3)
    loss, expected = 0, 0
    for x, y in zip(ours(*given), theirs(*wide)):
        if x is None:
            continue
        assert error(x.detach().double().cpu().numpy(), y.detach().numpy()) < limit
        weight = torch.randn(x.shape, generator=generator, dtype=torch.float64)
        weight = weight.to(x.dtype)  # what reaches the backward pass
        loss = loss + (x * weight.to(x.device)).float().sum()
        expected = expected + (y * weight.double()).sum()
    loss.backward()
    expected.backward()
    for x, y in zip(given, wide):
        if y.grad is None:
            assert x.grad is None
            continue
        assert x.grad.dtype == x.dtype and x.grad.shape == x.shape
        assert error(x.grad.double().cpu().numpy(), y.grad.numpy()) < limit
    return given


PACKINGS = ["interleaved", "flat"]


def small(packing="flat", **options):
    torch.manual_seed(4)
    return sluice.nn.GatedDeltaNet(32, 2, 4, 16, 24, packing=packing, **options)


def assert_near(found, expected, limit):
    for x, y in zip(found, expected, strict=True):
        assert error(x.detach().double().cpu().numpy(), y.detach().double().cpu().numpy()) < limit


def check_layer_operator(layer, x, *more, **tensors):
    """The operator of a whole layer; `more`: whether the core is saved, columns of the convolution's state, whether
    there is a final state."""
    with torch.no_grad():
        given = layer._arguments(x)
    options = {name: given.pop(name) for name in list(given) if not torch.is_tensor(given[name])}
    options.setdefault("gate_lower_bound", 0.0)
    given = {name: t.detach().requires_grad_() for name, t in (given | tensors).items() if t is not None}
    call = (*map(given.get, INPUTS), None, *(options.get(name) for name in OPTIONS))
    torch.library.opcheck(torch.ops.sluice.train_layer.default, (*call, *more))


def check_operators(device):
    def rows(*shape):
        return torch.randn(*shape, device=device, requires_grad=True)

    ops = torch.ops.sluice
    torch.library.opcheck(ops.train_causal_conv1d.default, (rows(2, 9, 8), rows(8, 4), rows(8), None, "silu"))
    torch.library.opcheck(
        ops.train_gated_rms_norm.default, (rows(2, 5, 8), rows(2, 5, 8), rows(8), 1e-6, "silu", "once")
    )
    torch.library.opcheck(
        ops.train_gated_delta_rule.default,
        (rows(1, 9, 1, 8), rows(1, 9, 1, 8), rows(1, 9, 2, 8), rows(1, 9, 2), rows(1, 9, 2), rows(2), rows(2), None,
         "raw", "logit", "positive", "l2", None),
    )  # fmt: skip
