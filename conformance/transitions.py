# SPDX-License-Identifier: Apache-2.0
"""Computes with the transitions of gated linear attention alone, in float64 and with NumPy: what tokens do to a state,
before any state is known.

A token of the gated delta rule takes the state S [K,V] to A S + B with

    A = diag(alpha) - k (beta (alpha k))^T,   B = beta k v^T,

of linear attention without the second term of A. So a run of tokens is a pair (A, B), and runs compose:
(A2, B2) after (A1, B1) is (A2 A1, A2 B1 + B2), which is associative: any grouping gives the same state, and pieces
of a sequence may be made apart and joined by a prefix scan. A is kept in one of two forms, the shorter one:

    dense       [K,K]
    structured  diag(d) + U W^T with U, W [K,r], one column a token: r numbers a row for r tokens
"""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Structured:
    """A = diag(d) + U W^T, B: what r tokens do."""

    d: np.ndarray
    U: np.ndarray
    W: np.ndarray
    B: np.ndarray

    def dense(self):
        return Dense(np.diag(self.d) + self.U @ self.W.T, self.B)

    def apply(self, S):
        return self.d[:, None] * S + self.U @ (self.W.T @ S) + self.B

    def after(self, first):
        """This transition behind `first`, in the same form: ranks add up.

        (D2 + U2 W2^T)(D1 + U1 W1^T) = D2 D1 + [D2 U1 + U2 (W2^T U1), U2] [W1, D1 W2]^T
        """
        U = np.concatenate([self.d[:, None] * first.U + self.U @ (self.W.T @ first.U), self.U], axis=1)
        W = np.concatenate([first.W, first.d[:, None] * self.W], axis=1)
        return Structured(self.d * first.d, U, W, self.apply(first.B))


@dataclasses.dataclass(frozen=True)
class Dense:
    """A [K,K], B [K,V]."""

    A: np.ndarray
    B: np.ndarray

    def apply(self, S):
        return self.A @ S + self.B

    def after(self, first):
        return Dense(self.A @ first.A, self.apply(first.B))


def identity(K, V):
    return Structured(np.ones(K), np.zeros((K, 0)), np.zeros((K, 0)), np.zeros((K, V)))


def of_token(k, v, alpha=1.0, beta=1.0, linear=False):
    """The transition of one token: k [K], v [V], alpha a number or, key-wise, [K]."""
    k, v = np.asarray(k, np.float64), np.asarray(v, np.float64)
    d = np.broadcast_to(np.asarray(alpha, np.float64), k.shape).copy()
    if linear:
        none = np.zeros((len(k), 0))
        return Structured(d, none, none, np.outer(k, v))
    return Structured(d, -k[:, None], (beta * d * k)[:, None], beta * np.outer(k, v))


def of_tokens(k, v, alpha, beta, linear=False):
    """The transition of a run of tokens, k [T,K], v [T,V], alpha [T] or [T,K], beta [T]; dense as soon as its rank is
    that of a dense matrix."""
    total = identity(k.shape[1], v.shape[1])
    for row in zip(k, v, alpha, beta):
        total = shorter(compose(of_token(*row, linear=linear), total))
    return total


def shorter(transition):
    """The form with fewer numbers."""
    full = isinstance(transition, Structured) and 2 * transition.U.shape[1] >= len(transition.d)
    return transition.dense() if full else transition


def compose(later, earlier):
    """later after earlier, whatever their forms."""
    if type(later) is not type(earlier):
        later, earlier = (x.dense() if isinstance(x, Structured) else x for x in (later, earlier))
    return later.after(earlier)


def scan(pieces):
    """Transitions of all prefixes, by doubling: log2(n) rounds in which every composition is independent."""
    found, step = list(pieces), 1
    while step < len(found):
        found = [compose(found[i], found[i - step]) if i >= step else found[i] for i in range(len(found))]
        step *= 2
    return found
