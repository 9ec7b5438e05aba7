# SPDX-License-Identifier: Apache-2.0
"""Calls the functions named as fla's, which take states alike, and says which recurrence each of them is."""

import numpy as np
import sluice
from conftest import delta_rule

RULES = ("gated_delta_rule", "simple_gla", "kda", "gla")
NAMES = [f"{form}_{rule}" for rule in RULES for form in ("chunk", "fused_recurrent")]
RECURRENT = [name for name in NAMES if name.startswith("fused_recurrent")]


def key_gates(x, seed=3):
    """Log gates of the channels of k; one channel is reset, one never forgets."""
    g = -np.random.default_rng(seed).random((*x.v.shape[:3], x.k.shape[3]), np.float32) * 0.2
    g[:, 2, :, 1] = -np.inf
    g[:, :, :, 2] = 0
    return g


def rows_of(name, x):
    """q, k, v, gates and write strengths of `x`; gates are those of the function: of heads or of channels."""
    of_channels = name.endswith(("kda", "_gla")) and "simple" not in name
    return x.q, x.k, x.v, key_gates(x) if of_channels else x.g, x.beta


def is_delta(name):
    return name.endswith(("delta_rule", "kda"))


def call(name, rows, **options):
    q, k, v, g, beta = rows
    delta = dict(beta=beta, use_qk_l2norm_in_kernel=True) if is_delta(name) else {}
    return getattr(sluice, name)(q, k, v, g, **delta, **options)


def chunk(rows, **options):
    return call("chunk_gated_delta_rule", rows, **options)


def steps(rows, **options):
    return call("fused_recurrent_gated_delta_rule", rows, **options)


def recurrence(name, rows, state=None):
    """(o, final state) in float64."""
    q, k, v, g, beta = rows
    if is_delta(name):
        return delta_rule(q, k, v, g, beta, state=state, l2=True)
    return delta_rule(q, k, v, g, state=state, linear=True)
