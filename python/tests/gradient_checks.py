# SPDX-License-Identifier: Apache-2.0
"""Compares results of torch calls and their gradients, on any device, with those of formulas in float64."""

import torch
from conftest import error

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
