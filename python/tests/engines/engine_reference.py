# SPDX-License-Identifier: Apache-2.0
"""Computes what the shims' tests compare with: the recurrence and the convolution, token by token
in float64, written from the formulas of include/sluice/sluice.h on plain [tokens, ..] sequences."""

import torch


def random_rows(tokens, H, HV, K, V, seed, dtype=torch.float32):
    """q, k, v, g (log), beta of one packed batch without a batch dimension."""
    torch.manual_seed(seed)
    q, k = torch.randn(2, tokens, H, K, dtype=dtype)
    v = torch.randn(tokens, HV, V, dtype=dtype)
    g = -torch.rand(tokens, HV)
    beta = torch.rand(tokens, HV)
    return q, k, v, g, beta


def raw_gates(tokens, HV, seed):
    """a, b, A_log, dt_bias."""
    torch.manual_seed(seed)
    return (
        torch.randn(tokens, HV),
        torch.randn(tokens, HV),
        torch.rand(HV) * 2,
        torch.randn(HV),
    )


def log_gate(a, A_log, dt_bias):
    """g = -exp(A_log) softplus(a + dt_bias)."""
    return -A_log.double().exp() * torch.nn.functional.softplus(a.double() + dt_bias.double())


def unit(x):
    """x / sqrt(sum x^2 + 1e-6)."""
    x = x.double()
    return x / (x.pow(2).sum(-1, keepdim=True) + 1e-6).sqrt()


def recurrence(q, k, v, g, beta, S=None, scale=None, l2=False):
    """One sequence: q, k [T,H,K], v [T,HV,V], g [T,HV] or key-wise [T,HV,K], beta [T,HV], both or None, S [HV,K,V].

    Returns o [T,HV,V] and the T states [T,HV,K,V], all float64."""
    (T, H, K), (HV, V) = q.shape, v.shape[1:]
    q, k, v = (unit(q), unit(k), v.double()) if l2 else (q.double(), k.double(), v.double())
    S = torch.zeros(HV, K, V).double() if S is None else S.double().clone()
    scale = K**-0.5 if scale is None else scale
    outputs, states = torch.zeros(T, HV, V).double(), torch.zeros(T, HV, K, V).double()
    for t in range(T):
        for h in range(HV):
            key, query = k[t, h // (HV // H)], q[t, h // (HV // H)]
            alpha = 1.0 if g is None else g[t, h].double().exp().reshape(-1, 1)
            write = 1.0 if beta is None else float(beta[t, h])
            decayed = alpha * S[h]
            S[h] = decayed + torch.outer(key, write * (v[t, h] - decayed.T @ key))
            outputs[t, h] = scale * (S[h].T @ query)
        states[t] = S
    return outputs, states


def convolution(x, weight, bias, history, silu=True):
    """One sequence: x [T,D], weight [D,W], history [D,W-1] oldest first. Returns y [T,D]
    float64."""
    full = torch.cat([history.double(), x.double().T], dim=1)
    W = weight.shape[1]
    rows = [(full[:, t : t + W] * weight.double()).sum(1) for t in range(x.shape[0])]
    y = torch.stack(rows) if rows else torch.zeros(0, x.shape[1]).double()
    y = y if bias is None else y + bias.double()
    return torch.nn.functional.silu(y) if silu else y


def close(found, expected, tolerance=2e-5):
    """Equal within tolerance times the size of the expected values, NaN nowhere."""
    found, expected = found.double(), expected.double()
    assert found.shape == expected.shape, (found.shape, expected.shape)
    assert torch.isfinite(found).all()
    size = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
    error = float((found - expected).abs().max()) if expected.numel() else 0.0
    assert error <= tolerance * size, f"error {error} of {size}"


def relative_error(found, expected):
    """||found - expected|| / ||expected||; infinite where one is not finite."""
    found, expected = found.double(), expected.double()
    assert found.shape == expected.shape, (found.shape, expected.shape)
    if not (torch.isfinite(found).all() and torch.isfinite(expected).all()):
        return float("inf")
    return float((found - expected).norm() / expected.norm())


def poisoned(shape, dtype=torch.float32):
    """An output that was not written shows as NaN."""
    return torch.full(shape, float("nan"), dtype=dtype)
