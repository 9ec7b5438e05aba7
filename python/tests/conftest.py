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


def wide(x, xp):
    """NumPy's arrays in float64; torch's tensors are what autograd records."""
    return x if x is None or xp is not np else np.asarray(x, np.float64)


def delta_rule(q, k, v, g=None, beta=None, scale=None, state=None, l2=False, linear=False, xp=np):
    """(o, final state [B,HV,K,V]) in float64; g is the log gate, [B,T,HV] or key-wise [B,T,HV,K]."""
    q, k, v, g, beta, s = (wide(x, xp) for x in (q, k, v, g, beta, state))
    scale = q.shape[3] ** -0.5 if scale is None else scale
    if l2:
        q, k = (x / ((x * x).sum(-1) + 1e-6)[..., None] ** 0.5 for x in (q, k))
    key_heads = [h * q.shape[2] // v.shape[2] for h in range(v.shape[2])]
    q, k = q[:, :, key_heads], k[:, :, key_heads]
    if s is None:
        s = xp.zeros((q.shape[0], len(key_heads), q.shape[3], v.shape[3]), dtype=q.dtype)
    rows = []
    for t in range(q.shape[1]):
        if g is not None:
            alpha = xp.exp(g[:, t])
            s = s * (alpha[..., None] if g.ndim == 4 else alpha[..., None, None])
        write = v[:, t]
        if not linear:
            write = write - xp.einsum("bhkv,bhk->bhv", s, k[:, t])
            write = write if beta is None else beta[:, t, :, None] * write
        s = s + k[:, t, :, :, None] * write[:, :, None]
        rows.append(scale * xp.einsum("bhkv,bhk->bhv", s, q[:, t]))
    return xp.stack(rows, 1) if rows else v, s


def causal_conv(x, weight, bias=None, state=None, silu=False, xp=np):
    """(out, the last columns of inputs, as many as `state` [B,D,L] has) in float64."""
    x, weight, bias, state = (wide(t, xp) for t in (x, weight, bias, state))
    width, tokens = weight.shape[1], x.shape[1]
    if state is None:
        state = xp.zeros((x.shape[0], x.shape[2], width - 1), dtype=x.dtype)
    rows = xp.concatenate([state.swapaxes(1, 2), x], 1)
    begin = state.shape[2] - (width - 1)
    out = sum(rows[:, begin + w : begin + w + tokens] * weight[:, w] for w in range(width))
    out = out if bias is None else out + bias
    return out / (1 + xp.exp(-out)) if silu else out, rows[:, tokens:].swapaxes(1, 2)


def norm_gated(x, z, weight, eps=1e-6, activation="silu", xp=np):
    """Gated RMSNorm in float64."""
    x, z = wide(x, xp), wide(z, xp)
    gate = (z if activation == "silu" else 1) / (1 + xp.exp(-z))
    return x / ((x * x).mean(-1) + eps)[..., None] ** 0.5 * weight * gate


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
