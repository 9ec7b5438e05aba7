# SPDX-License-Identifier: Apache-2.0
"""Computes what the shims' tests compare with, in float64 and written from the formulas of include/sluice/sluice.h: the
recurrence token by token, the convolution and the gated norm. Makes rows, and judges sequences that keep states in
pools. Sequences are plain [tokens, ..]."""

import itertools

import torch

L2 = dict(use_qk_l2norm_in_kernel=True)


def int32(*values):
    return torch.tensor(values, dtype=torch.int32)


def log_gate(a, A_log, dt_bias, bound=None):
    """g = -exp(A_log) softplus(a + dt_bias), or bound sigmoid(exp(A_log) (a + dt_bias)); a is [T,HV] or key-wise
    [T,HV,K]."""
    x = a.double() + dt_bias.double().view(a.shape[1:])
    rate = A_log.double().exp().view(-1, *[1] * (a.dim() - 2))
    return -rate * torch.nn.functional.softplus(x) if bound is None else bound * torch.sigmoid(rate * x)


def unit(x, eps=1e-6):
    """x / sqrt(sum x^2 + eps)."""
    x = x.double()
    return x / (x.pow(2).sum(-1, keepdim=True) + eps).sqrt()


def recurrence(q, k, v, g, beta, S=None, scale=None, l2=False, eps=1e-6):
    """One sequence: q, k [T,H,K], v [T,HV,V], g [T,HV] or key-wise [T,HV,K], beta [T,HV], both or None, S [HV,K,V].

    Returns o [T,HV,V] and the T states [T,HV,K,V], all float64."""
    (T, H, K), (HV, V) = q.shape, v.shape[1:]
    q, k = ((unit(x, eps) if l2 else x.double()).repeat_interleave(HV // H, 1) for x in (q, k))
    S = v.new_zeros(HV, K, V).double() if S is None else S.double()
    alpha = v.new_ones(T, HV).double() if g is None else g.double().exp()
    beta = v.new_ones(T, HV).double() if beta is None else beta.double()
    states = []
    for t in range(T):
        S = alpha[t].reshape(HV, -1, 1) * S
        wrong = v[t].double() - torch.einsum("hk,hkv->hv", k[t], S)
        S = S + torch.einsum("hk,h,hv->hkv", k[t], beta[t], wrong)
        states.append(S)
    states = torch.stack(states) if states else S.new_zeros(0, HV, K, V)
    scale = K**-0.5 if scale is None else scale
    return scale * torch.einsum("thk,thkv->thv", q, states), states


def convolution(x, weight, bias, history, silu=True):
    """One sequence: x [T,D], weight [D,W], history [D,W-1] oldest first. Returns y [T,D]
    float64."""
    full = torch.cat([history.double(), x.double().T], dim=1)
    W = weight.shape[1]
    rows = [(full[:, t : t + W] * weight.double()).sum(1) for t in range(x.shape[0])]
    y = torch.stack(rows) if rows else torch.zeros(0, x.shape[1]).double()
    y = y if bias is None else y + bias.double()
    return torch.nn.functional.silu(y) if silu else y


def gated_norm(x, z, weight, eps, activation="silu"):
    """x / sqrt(mean x^2 + eps) * weight, times silu(z) or sigmoid(z)."""
    x, z = x.double(), z.double()
    gate = torch.sigmoid(z) if activation == "sigmoid" else z * torch.sigmoid(z)
    return x * (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt() * weight.double() * gate


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


def poisoned(*shape, dtype=torch.float32):
    """An output that was not written shows as NaN."""
    return torch.full(shape, float("nan"), dtype=dtype)


class Rows:
    """Random rows of one packed batch: q, k, v, and gates as the recurrence takes them, log gates g and beta.

    Raw rows have what those are made of too: a, b, A_log, dt_bias. With `keys` every channel of k has a gate of its
    own, which `bound` bounds."""

    def __init__(self, tokens, H, HV, K, V, seed, raw=False, keys=False, bound=None, scale=None, dtype=torch.float32):
        torch.manual_seed(seed)
        self.q, self.k = torch.randn(2, tokens, H, K, dtype=dtype)
        self.v = torch.randn(tokens, HV, V, dtype=dtype)
        self.bound, self.scale = bound, K**-0.5 if scale is None else scale
        gates = (tokens, HV, K) if keys else (tokens, HV)
        if raw:
            self.a, self.b, self.A_log = torch.randn(gates), torch.randn(tokens, HV), torch.rand(HV) * 2
            self.dt_bias = torch.randn(gates[1:]).flatten()
            self.g, self.beta = log_gate(self.a, self.A_log, self.dt_bias, bound), self.b.double().sigmoid()
            self.given = (self.a, self.b)
        else:
            self.g, self.beta = -torch.rand(gates), torch.rand(tokens, HV)
            if keys:
                self.g[:, :, 1], self.g[1:2, :, 2] = 0, -float("inf")
            self.given = (self.g, self.beta)

    def packed(self, B=1):
        """q, k, v and the gates that operators are given, in a batch [B,T,..]."""
        return [x.unflatten(0, (B, -1)) for x in (self.q, self.k, self.v, *self.given)]

    def mixed(self):
        """[tokens, 2HK+HVV], as the convolution leaves them."""
        return torch.cat([x.flatten(1) for x in (self.q, self.k, self.v)], 1)

    def truth(self, part=slice(None), S=None, l2=True, **more):
        """o and the states of the sequence that is `part` of the rows."""
        rows = (x[part] for x in (self.q, self.k, self.v, self.g, self.beta))
        return recurrence(*rows, S=S, scale=self.scale, l2=l2, **more)


def check_sequences(rows, starts, o, before, after, slots, writes=None, pad_below=0, **more):
    """Judges sequences from starts[n] to starts[n + 1]: outputs o [tokens,HV,V], and value-first states [..,HV,V,K]
    before and after, of which sequence n read slots[n] and wrote the same one, or writes[n]; None is no slot. Below
    `pad_below` slots are padding, whose outputs are zeros. Nothing else is written."""
    assert len(o) == starts[-1] and after.shape == before.shape
    written = []
    for (begin, end), read, write in zip(itertools.pairwise(starts), slots, writes or slots, strict=True):
        if read < pad_below:
            assert (o[begin:end] == 0).all()
            continue
        expected, states = rows.truth(slice(begin, end), before[read].mT, **more)
        close(o[begin:end], expected)
        if write is None:
            continue
        if begin == end:
            assert torch.equal(after[write], before[read])
        else:
            close(after[write], states[-1].mT)
        written.append(write)
    check_others(before, after, written)


def check_others(before, after, written):
    """No other slot of a pool is written."""
    others = [slot for slot in range(len(before)) if slot not in written]
    assert torch.equal(after[others], before[others])


def side_by_side(x):
    """[N,D,T] as packed rows [D,NT]."""
    return x.transpose(0, 1).flatten(1)


def check_convolution(x, weight, bias, starts, out, before, after, slots, live=None, pad_below=0, silu=True):
    """Judges a convolution of packed rows, x and out [D,tokens], as check_sequences does a recurrence. The first W - 1
    columns of a slot's state are its history, oldest first, or zeros where not live[n]; columns behind them stay."""
    assert out.shape == x.shape
    W, expected = weight.shape[1], before.clone()
    for n, ((begin, end), slot) in enumerate(zip(itertools.pairwise(starts), slots, strict=True)):
        if slot < pad_below:
            assert (out[:, begin:end] == 0).all()
            continue
        history = before[slot, :, : W - 1] if live is None or live[n] else torch.zeros(len(x), W - 1)
        close(out[:, begin:end].T, convolution(x[:, begin:end].T, weight, bias, history, silu))
        expected[slot, :, : W - 1] = torch.cat([history, x[:, begin:end]], 1)[:, 1 - W :]
    assert torch.equal(after, expected)
