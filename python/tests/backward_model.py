# SPDX-License-Identifier: Apache-2.0
"""Provides gradients of the gated delta rule and of simple GLA in float64, for sequences too long for a recurrence:
`exact` by torch's autograd of the chunk form, `rounded` by the equations of docs/math.md 8 with the roundings that
kernels on tensor cores declare (docs/kernels/backward.md). On any device of torch; nothing of the library is in it.

Inputs are one sequence's: q, k [T,H,K], v, d_o [T,HV,V], g, beta [T,HV], states [HV,K,V]. Gradients are a dict of the
same shapes: dq, dk, dv, dg, dbeta, dinitial."""

import torch

CHUNK = 64
EPS = 1e-6
NAMES = ("dq", "dk", "dv", "dg", "dbeta", "dinitial")


def normalised(x):
    return x * (x.square().sum(-1, keepdim=True) + EPS).rsqrt()


def in_chunks(x, heads):
    """[T,heads of its own,..] as [heads,chunks,64,..]: value heads read their key head, rows past the end are zeros."""
    x = x.repeat_interleave(heads // x.shape[1], 1)
    rows = torch.cat([x, x.new_zeros(-len(x) % CHUNK, *x.shape[1:])])
    return rows.unflatten(0, (-1, CHUNK)).movedim(2, 0)


def in_rows(x, tokens):
    """The reverse for value heads."""
    return x.movedim(0, 2).flatten(0, 1)[:tokens]


def decays(G):
    """exp(G_i - G_j) where i >= j, else 0."""
    return (G[..., :, None] - G[..., None, :]).tril().exp().tril()


def chunk_form(q, k, v, g, beta, initial):
    """(o, final state) of normalised q and k; beta None: simple GLA."""
    heads, scale = v.shape[1], q.shape[-1] ** -0.5
    Q, K, V, G = in_chunks(q, heads), in_chunks(k, heads), in_chunks(v, heads), in_chunks(g, heads).cumsum(-1)
    gamma, end = decays(G), G[..., -1:]
    write, read = K * (end - G).exp()[..., None], K * G.exp()[..., None]
    if beta is not None:
        b = in_chunks(beta, heads)[..., None]
        A = (gamma * (b * K @ K.mT)).tril(-1)
        V, read = torch.linalg.solve_triangular(A, torch.cat([b * V, b * read], -1), upper=False, unitriangular=True
                                                ).split([V.shape[-1], K.shape[-1]], -1)  # fmt: skip
    S, states, values = initial, [], []
    for v_n, read_n, write_n, last in zip(*(x.unbind(1) for x in (V, read, write, end.exp()[..., None]))):
        states.append(S)
        values.append(v_n if beta is None else v_n - read_n @ S)
        S = last * S + write_n.mT @ values[-1]
    inside = (gamma * (Q @ K.mT)) @ torch.stack(values, 1)
    o = scale * (G.exp()[..., None] * Q @ torch.stack(states, 1) + inside)
    return in_rows(o, len(v)), S


def exact(q, k, v, g, beta, d_o, initial, d_final):
    given = [None if x is None else x.double().requires_grad_() for x in (q, k, v, g, beta, initial)]
    q, k, v, g, beta, initial = given
    o, final = chunk_form(normalised(q), normalised(k), v, g, beta, initial)
    wanted = [x for x in given if x is not None]
    found = iter(torch.autograd.grad([o, final], wanted, [d_o.double(), d_final.double()]))
    return {name: next(found) for name, x in zip(NAMES, given) if x is not None}


class Rounded:
    """The passes of the kernels, letters as on their page. `io`: the type that operands are rounded to."""

    def __init__(self, q, k, v, g, beta, d_o, io):
        heads = v.shape[1]
        self.near, self.scale = lambda x: x.to(io).double(), q.shape[-1] ** -0.5
        self.q, self.k = (self.near(in_chunks(normalised(x), heads)) for x in (q, k))
        self.v, self.d_o = in_chunks(v, heads), in_chunks(d_o, heads)
        self.delta = beta is not None
        self.beta = in_chunks(beta, heads) if self.delta else torch.ones_like(self.v[..., 0])
        G = in_chunks(g, heads).cumsum(-1)
        self.gamma, self.grown, self.left = decays(G), G.exp()[..., None], (G[..., -1:] - G).exp()[..., None]
        self.last = G[..., -1].exp()[..., None, None]

    def chunks(self, *tensors):
        return list(zip(*(x.unbind(1) for x in tensors)))

    def states(self, S):
        """S as stored before every chunk, and e."""
        strength, near = self.beta[..., None], self.near
        M = (self.gamma * (self.k @ self.k.mT)).tril(-1)
        A = M * self.beta[..., None, :]
        self.B = near(torch.linalg.solve_triangular(A, M, upper=False, unitriangular=True))
        stored, values = [], []
        given = self.chunks(self.k, self.v, self.grown, self.left, self.last, strength, self.B)
        for k, v, grown, left, last, b, B in given:
            stored.append(near(S))
            e = v
            if self.delta:
                e = v - grown * (k @ stored[-1])
                e = e - B @ near(b * e)
            S = last * S + k.mT @ near(b * left * e)
            values.append(near(e))
        self.S, self.e = torch.stack(stored, 1), torch.stack(values, 1)

    def back(self, D):
        """D' as stored, dN or dv before it is rounded; the gradient of the initial state."""
        near, strength = self.near, self.beta[..., None]
        P_d_o = near(self.scale * self.gamma * (self.q @ self.k.mT)).mT @ self.d_o
        reads = near(self.scale * self.grown * self.d_o)
        stored, values = [], []
        given = self.chunks(self.q, self.k, P_d_o, reads, self.grown, self.left, self.last, strength, self.B)
        for q, k, P_d, read, grown, left, last, b, B in reversed(given):
            stored.append(near(D))
            dN = P_d + left * (k @ stored[-1])
            D = last * D + q.mT @ read
            if self.delta:
                dN = dN - B.mT @ near(b * dN)
                D = D - k.mT @ near(grown * b * dN)
            values.append(dN)
        self.D, self.Y = torch.stack(stored[::-1], 1), torch.stack(values[::-1], 1)
        return D

    def rows(self):
        """dq, dk of value heads, dv, dg, dbeta by chunks."""
        near, beta = self.near, self.beta[..., None, :]
        X = near((self.scale * self.gamma * beta * (self.d_o @ self.e.mT)).tril())
        dq = self.scale * self.grown * (self.d_o @ self.S.mT) + X @ self.k
        W = self.beta[..., None] * self.left * (self.e @ self.D.mT)
        dk, dv = W + X.mT @ self.q, self.beta[..., None] * self.Y
        dg = torch.zeros_like(self.beta)
        if self.delta:
            Z = near(-(self.gamma * beta * (near(dv) @ self.e.mT)).tril(-1))
            dk, R = dk + Z.mT @ self.k, Z @ self.k - self.grown * (near(dv) @ self.S.mT)
            dg = dg + (self.k * R).sum(-1)
        dg = dg + (self.q * dq).sum(-1) - (self.k * dk).sum(-1)
        dg[..., -1] += (self.k * W).sum((-1, -2)) + (self.last * self.S * self.D).sum((-1, -2))
        dg = dg.flip(-1).cumsum(-1).flip(-1)
        return dq, dk + R if self.delta else dk, dv, dg, (near(self.Y) * self.e).sum(-1)


def through_norm(x, gradient, heads):
    """By raw rows of key heads, from value heads' gradients by normalised ones."""
    d = in_rows(gradient, len(x)).unflatten(1, (heads, -1)).sum(2)
    factor, unit = (x.square().sum(-1, keepdim=True) + EPS).rsqrt(), normalised(x)
    return factor * (d - unit * (unit * d).sum(-1, keepdim=True))


def rounded(q, k, v, g, beta, d_o, initial, d_final, io):
    """io float64: no rounding, so that this is `exact`."""
    q, k, v, g, d_o = (x.double() for x in (q, k, v, g, d_o))
    passes = Rounded(q, k, v, g, None if beta is None else beta.double(), d_o, io)
    passes.states(initial.double())
    dinitial = passes.back(d_final.double())
    dq, dk, dv, dg, dbeta = passes.rows()
    stored = passes.near
    found = {
        "dq": stored(through_norm(q, dq, q.shape[1])), "dk": stored(through_norm(k, dk, q.shape[1])),
        "dv": stored(in_rows(dv, len(v))), "dg": in_rows(dg, len(v)), "dbeta": in_rows(dbeta, len(v)),
        "dinitial": dinitial,
    }  # fmt: skip
    if beta is None:
        del found["dbeta"]
    return found


def rounded_at(factor, q, k, v, g, beta, d_o, initial, d_final, io):
    """`rounded` with other roundings of the same: gradients are linear in (v, initial) and in (d_o, d_final)."""
    v, initial, d_o, d_final = (factor * x.double() for x in (v, initial, d_o, d_final))
    found = rounded(q, k, v, g, beta, d_o, initial, d_final, io)
    return {name: x / (factor if name in ("dv", "dinitial") else factor**2) for name, x in found.items()}
