# SPDX-License-Identifier: Apache-2.0
"""Provides the float64 recurrence that results are judged by, and inputs: token by token, one
equation a line, sharing nothing with the library."""

import importlib
import os
import pathlib
import sys

import numpy as np
import pytest

# Where the engines' tests have their tensors: scripts/test_python_cuda.sh says cuda.
ENGINES_DEVICE = os.environ.get("SLUICE_TEST_DEVICE")
L2 = dict(use_qk_l2norm_in_kernel=True)
BENCHMARKS = pathlib.Path(__file__).parents[2] / "benchmarks"


def benchmark(name):
    """A script of benchmarks/ as a module."""
    if not BENCHMARKS.exists():
        pytest.skip("tests are not in the source tree", allow_module_level=True)
    if str(BENCHMARKS) not in sys.path:
        sys.path.append(str(BENCHMARKS))
    return importlib.import_module(name)


@pytest.fixture(autouse=True)
def device_of_the_engines(request):
    if not ENGINES_DEVICE or request.path.parent.name != "engines":
        yield
        return
    torch = pytest.importorskip("torch")
    torch.set_default_device(ENGINES_DEVICE)
    yield
    torch.set_default_device(None)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    return np.where(x > 20, x, np.log1p(np.exp(np.minimum(x, 20))))


def log_gates(a, A_log=None, dt_bias=None, bound=None):
    """Log gates of raw ones in float64; the parameters have axes that meet those of a."""
    a = np.asarray(a, np.float64) + (0 if dt_bias is None else dt_bias)
    rate = 1 if A_log is None else np.exp(np.asarray(A_log, np.float64))
    g = -rate * softplus(a) if bound is None else bound * sigmoid(rate * a)
    return np.maximum(g, -128)


def delta_rule(q, k, v, g=None, beta=None, scale=None, state=None, l2=False, linear=False):
    """(o, final state [B,HV,K,V]) in float64; g is the log gate, [B,T,HV] or key-wise [B,T,HV,K]."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    batch, tokens, heads, key_dim = q.shape
    value_heads, value_dim = v.shape[2:]
    ratio = value_heads // heads
    if l2:
        q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6) for x in (q, k))
    scale = key_dim**-0.5 if scale is None else scale
    alpha = np.ones(v.shape[:3]) if g is None else np.exp(np.asarray(g, np.float64))
    beta = np.ones(v.shape[:3]) if beta is None else np.asarray(beta, np.float64)
    s = np.zeros((batch, value_heads, key_dim, value_dim))
    if state is not None:
        s = np.array(state, np.float64)
    o = np.zeros(v.shape)
    for b in range(batch):
        for h in range(value_heads):
            for t in range(tokens):
                key, query = k[b, t, h // ratio], q[b, t, h // ratio]
                s[b, h] *= np.reshape(alpha[b, t, h], (-1, 1))
                write = v[b, t, h] if linear else beta[b, t, h] * (v[b, t, h] - s[b, h].T @ key)
                s[b, h] += np.outer(key, write)
                o[b, t, h] = scale * s[b, h].T @ query
    return o, s


def causal_conv(x, weight, bias=None, state=None, silu=False):
    """(out, last W-1 inputs [B,D,W-1]) in float64."""
    x, weight = np.asarray(x, np.float64), np.asarray(weight, np.float64)
    batch, tokens, channels = x.shape
    width = weight.shape[1]
    history = np.zeros((batch, width - 1, channels))
    if state is not None:
        history = np.asarray(state, np.float64)[:, :, -(width - 1) :].transpose(0, 2, 1)
    padded = np.concatenate([history, x], axis=1)
    out = sum(padded[:, w : w + tokens] * weight[:, w] for w in range(width))
    if bias is not None:
        out = out + bias
    if silu:
        out = out * sigmoid(out)
    return out, padded[:, tokens:].transpose(0, 2, 1)


def norm_gated(x, z, weight, eps=1e-6, activation="silu"):
    """Gated RMSNorm in float64."""
    x, z = np.asarray(x, np.float64), np.asarray(z, np.float64)
    gate = z * sigmoid(z) if activation == "silu" else sigmoid(z)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight * gate


def error(value, expected):
    """Relative L2 error; infinite where one has a NaN."""
    value, expected = np.asarray(value, np.float64), np.asarray(expected, np.float64)
    assert value.shape == expected.shape
    if not (np.isfinite(value).all() and np.isfinite(expected).all()):
        return np.inf
    return np.linalg.norm(value - expected) / max(np.linalg.norm(expected), 1e-30)


class Inputs:
    """Random arguments of the delta rule, float32."""

    def __init__(self, B=2, T=70, H=2, HV=4, K=64, V=32, N=None, seed=0):
        r = np.random.default_rng(seed)

        def normal(*shape):
            return r.standard_normal(shape).astype(np.float32)

        self.q, self.k, self.v = normal(B, T, H, K), normal(B, T, H, K), normal(B, T, HV, V)
        self.g = -r.random((B, T, HV)).astype(np.float32)
        self.beta = r.random((B, T, HV)).astype(np.float32)
        self.state = 0.3 * normal(N or B, HV, K, V)

    def arguments(self):
        return self.q, self.k, self.v, self.g, self.beta


@pytest.fixture
def inputs():
    return Inputs()
