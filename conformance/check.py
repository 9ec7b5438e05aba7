#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks results of the gated delta rule against a case file, with NumPy and nothing else.

Usage: check.py CASES.safetensors [--against RESULTS.safetensors] [--filter TEXT]

With --against, the tensors of RESULTS are compared with the expected ones of CASES by name.
Without, this script computes prefill, decode and gradient cases (token by token) and stages itself,
in float64: a second opinion on the recorded answers; its gradients must also be the slopes of its
forward pass. The format is described in docs/case-format.md.
Exit status 1 if a result is wrong.
"""

import argparse
import json
import struct
import sys

import numpy as np

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4"}
WINDOW = 64
STAGE_ROWS = ("g_cumsum", "A", "A_inverse", "u", "w", "v_new")
GRADIENT_ROWS = ("dq", "dk", "dv", "dg", "dbeta")


def read_safetensors(path):
    """Tensors by name, floating ones as float64, and the metadata."""
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        array = np.frombuffer(data[begin:end], DTYPES[entry["dtype"]])
        if entry["dtype"] == "BF16":
            array = (array.astype("<u4") << 16).view("<f4")
        integer = entry["dtype"][0] == "I"
        tensors[name] = array.reshape(entry["shape"]).astype(np.int64 if integer else np.float64)
    return tensors, metadata


class Case:
    """A description and its tensors; token tensors are token-first."""

    HEAD_FIRST = ("q", "k", "v", "g", "beta", "o", "d_o") + STAGE_ROWS + GRADIENT_ROWS

    def __init__(self, name, fields, tensors):
        self.name, self.fields, self.tensors = name, fields, tensors

    def get(self, tensor, source=None):
        array = (self.tensors if source is None else source).get(f"{self.name}.{tensor}")
        exchanged = self.fields.get("layout", "bthd") == "bhtd" and tensor in self.HEAD_FIRST
        return array.swapaxes(1, 2) if exchanged and array is not None else array

    def expected(self):
        """Names of the expected tensors, without the case's name."""
        ends = ("o", "out", "core_out", "norm_out", "output", "final_state", "final_conv_state")
        if self.fields["op"] == "stages":
            # A that was made up for the solve is an input, so are u and w with key-wise gates.
            made_up = () if self.get("k") is not None else ("A",)
            if self.get("g") is not None and self.get("g").ndim == 4:
                made_up = ("u", "w")
            ends += ("h",) + tuple(name for name in STAGE_ROWS if name not in made_up)
        if self.fields["op"] == "gradients":
            ends = GRADIENT_ROWS + ("dA_log", "ddt_bias", "d_initial_state")
        prefix = self.name + "."
        names = [name[len(prefix) :] for name in self.tensors if name.startswith(prefix)]
        return sorted(name for name in names if name.split(".")[-1] in ends)

    def sequences(self):
        """(batch entry, first row, end) of each sequence."""
        cu_seqlens = self.get("cu_seqlens")
        if cu_seqlens is not None:
            return [(0, a, b) for a, b in zip(cu_seqlens[:-1], cu_seqlens[1:])]
        v = self.get("v")
        return [(b, 0, v.shape[1]) for b in range(v.shape[0])]


def gates(case, shape):
    """Log gates [B,T,HV], key-wise ones [B,T,HV,K], and write strengths [B,T,HV]."""
    fields, g, beta = case.fields, case.get("g"), case.get("beta")
    space = fields.get("gate_space", "log")
    if g is None:
        g = np.zeros(shape)
    elif space == "linear":
        with np.errstate(divide="ignore"):
            g = np.log(g)
    elif space == "raw":
        a = g + case.get("dt_bias")
        g = -np.exp(case.get("A_log")) * np.where(a > 20, a, np.log1p(np.exp(np.minimum(a, 20))))
    beta = np.ones(shape) if beta is None else beta
    if fields.get("beta_space", "value") == "logit" and case.get("beta") is not None:
        beta = 1 / (1 + np.exp(-beta))
    return g, beta * (2 if fields.get("eigenvalues") == "negative" else 1)


def queries_and_keys(case):
    """q and k divided by their norms, the norms (1 without use_qk_l2norm), the scale of q."""
    fields, rows, norms = case.fields, (case.get("q"), case.get("k")), (1, 1)
    if fields.get("use_qk_l2norm", False):
        eps = fields.get("l2norm_eps", 1e-6)
        norms = tuple(np.sqrt((x * x).sum(-1, keepdims=True) + eps) for x in rows)
    scale = fields.get("scale")
    scale = rows[0].shape[3] ** -0.5 if scale is None else scale
    return rows[0] / norms[0], rows[1] / norms[1], norms, scale


def key_heads(case, H, HV):
    """The key head of each value head."""
    cyclic = case.fields.get("head_map", "block") == "cyclic"
    return np.arange(HV) % H if cyclic else np.arange(HV) // (HV // H)


def turn_of(case):
    """From states of the case's layout to [K,V] matrices and back."""
    vk = case.fields.get("state_layout", "kv") == "vk"
    return (lambda x: x.swapaxes(-1, -2)) if vk else (lambda x: x)


def compute(case, tape=None):
    """o [B,T,HV,V] and the final states, by the recurrence in float64. On the tape goes what each
    token leaves for the way back."""
    fields, v = case.fields, case.get("v")
    q, k, _, scale = queries_and_keys(case)
    g, beta = gates(case, v.shape[:3])
    H, K, HV = q.shape[2], q.shape[3], v.shape[2]
    heads = key_heads(case, H, HV)
    turn = turn_of(case)
    initial, delta = case.get("initial_state"), fields.get("rule", "gated_delta") == "gated_delta"
    o, states = np.full(v.shape, np.nan), []
    # One decay for all rows of a state, or one for each: key-wise gates.
    decay = np.exp(g[..., None] if g.ndim == 4 else g[..., None, None])
    for n, (b, first, end) in enumerate(case.sequences()):
        S = np.zeros((HV, K, v.shape[3])) if initial is None else turn(initial[n])
        for t in range(first, end):
            S = decay[b, t] * S
            qt, kt, error, kept = scale * q[b, t][heads], k[b, t][heads], v[b, t], S
            if delta:
                error = error - np.einsum("hkv,hk->hv", S, kt)
            write = beta[b, t][:, None] * error if delta else error
            S = S + kt[:, :, None] * write[:, None, :]
            o[b, t] = np.einsum("hkv,hk->hv", S, qt)
            if tape is not None:
                tape.append((n, b, t, qt, kt, kept, error, write, S))
        states.append(S)
    return {"o": o, "final_state": turn(np.array(states).reshape((-1, HV, K, v.shape[3])))}


def gradients(case):
    """Gradients of <o, d_o> + <final_state, d_final_state>: back through the operations of compute(),
    one token's after the other, then through what made q, k, gates and write strengths."""
    fields, v, d_o, tape = case.fields, case.get("v"), case.get("d_o"), []
    final = compute(case, tape)["final_state"]
    q, k, norms, scale = queries_and_keys(case)
    (g, beta), HV = gates(case, v.shape[:3]), v.shape[2]
    heads, delta = key_heads(case, q.shape[2], HV), fields.get("rule") != "linear_attention"
    turn, given = turn_of(case), case.get("d_final_state")
    dS = turn(np.zeros(final.shape) if given is None else given.copy())
    dq, dk, dv = np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape)
    dg, dbeta = np.zeros(g.shape), np.zeros(g.shape)
    for n, b, t, qt, kt, kept, error, write, S in reversed(tape):
        dS[n] += qt[:, :, None] * d_o[b, t][:, None, :]
        np.add.at(dq[b, t], heads, scale * np.einsum("hkv,hv->hk", S, d_o[b, t]))
        d_write, by_key = np.einsum("hkv,hk->hv", dS[n], kt), np.einsum("hkv,hv->hk", dS[n], write)
        dbeta[b, t] = (d_write * error).sum(-1)
        dv[b, t] = beta[b, t][:, None] * d_write if delta else d_write
        if delta:
            by_key = by_key - np.einsum("hkv,hv->hk", kept, dv[b, t])
            dS[n] -= kt[:, :, None] * dv[b, t][:, None, :]
        np.add.at(dk[b, t], heads, by_key)
        dg[b, t] = (dS[n] * kept).sum((1, 2))
        dS[n] *= np.exp(g[b, t])[:, None, None]
    out = {"dv": dv, "d_initial_state": turn(dS)}
    for name, x, dx, norm in (("dq", q, dq, norms[0]), ("dk", k, dk, norms[1])):
        along = (x * dx).sum(-1, keepdims=True) if np.ndim(norm) else 0
        out[name] = (dx - x * along) / norm
    dg, space = np.where(g < -128, 0, dg), fields.get("gate_space", "log")
    if space == "linear":
        dg = np.divide(dg, case.get("g"), out=np.zeros(g.shape), where=dg != 0)
    if space == "raw":
        a = case.get("g") + case.get("dt_bias")
        out["dA_log"] = (dg * g).sum((0, 1))
        dg = -np.exp(case.get("A_log")) * np.where(a > 20, 1, 1 / (1 + np.exp(-a))) * dg
        out["ddt_bias"] = dg.sum((0, 1))
    strength = 2 if fields.get("eigenvalues") == "negative" else 1
    if fields.get("beta_space", "value") == "logit":
        strength = beta * (1 - beta / strength)
    return {**out, "dg": dg, "dbeta": strength * dbeta}


def check_slopes(case, results):
    """Whether gradients are the forward pass' slopes: central differences along one random direction
    of every input. Prints and returns how many are not."""
    fields, rng, failed, step = {**case.fields, "layout": "bthd"}, np.random.default_rng(1), 0, 1e-5
    prefix, d_final = case.name + ".", case.get("d_final_state")
    own = [name[len(prefix) :] for name in case.tensors if name.startswith(prefix)]
    tensors = {prefix + name: case.get(name) for name in own}

    def loss(name, x):
        found = compute(Case(case.name, fields, {**tensors, prefix + name: x}))
        at_the_end = 0 if d_final is None else np.sum(found["final_state"] * d_final)
        return np.nansum(found["o"] * case.get("d_o")) + at_the_end

    for name in ("q", "k", "v", "g", "beta", "A_log", "dt_bias", "initial_state"):
        x, gradient = case.get(name), results.get(("d_" if name == "initial_state" else "d") + name)
        if x is None:
            continue
        towards = rng.standard_normal(x.shape)
        if name == "g" and fields.get("gate_space") == "linear":
            towards *= x  # alpha = 0 stays 0
        slope = (loss(name, x + step * towards) - loss(name, x - step * towards)) / (2 * step)
        error = abs(slope - np.sum(gradient * towards))
        if not error <= 1e-6 * np.linalg.norm(gradient * towards) + 1e-9:
            failed += 1
            print(f"{case.name}: slope by {name} {slope:.9e}, off by {error:.1e}  FAIL")
    return failed


def chunks(case):
    """(sequence, batch entry, entry of h, first row, end) of each chunk."""
    C, packed = case.fields["chunk_size"], case.get("cu_seqlens") is not None
    rows = next(case.get(n) for n in ("g", "k", "A", "v") if case.get(n) is not None)
    sequences = case.sequences() if packed else [(b, 0, rows.shape[1]) for b in range(len(rows))]
    entry = 0
    for n, (b, first, end) in enumerate(sequences):
        entry = entry if packed else 0
        for start in range(first, end, C):
            yield n, b, entry, start, min(start + C, end)
            entry += 1


def solve_chunks(case, out):
    """A_inverse by a general inverse of I + the triangle."""
    A, upper = case.get("A"), case.fields.get("triangle") == "upper"
    out["A_inverse"] = np.full(A.shape, np.nan)
    for _, b, _, s, e in chunks(case):
        out["A_inverse"][b, s:e] = 0
        for h in range(A.shape[2]):
            square = A[b, s:e, h, : e - s]
            strict = np.triu(square, 1) if upper else np.tril(square, -1)
            out["A_inverse"][b, s:e, h, : e - s] = np.linalg.inv(np.eye(e - s) + strict)


def compute_key_states(case, out):
    """The stage chunk_h with key-wise gates: S <- diag(e^{G_C}) S + (e^{G_C - G} k)^T v_new."""
    k, u, w, sums = (case.get(name) for name in ("k", "u", "w", "g_cumsum"))
    turn, initial = turn_of(case), case.get("initial_state")
    out["h"], final = np.full(case.get("h").shape, np.nan), np.zeros(case.get("final_state").shape)
    out["final_state"] = final if initial is None else initial.copy()
    values = case.get("v") if u is None else u
    if u is not None:
        out["v_new"] = np.full(u.shape, np.nan)
    HV = values.shape[2]
    heads = key_heads(case, k.shape[2], HV)
    for n, b, entry, s, e in chunks(case):
        for h in range(HV):
            S, G, new = turn(out["final_state"][n, h]), sums[b, s:e, h], values[b, s:e, h]
            out["h"][b, entry, h] = turn(S)
            if u is not None:
                new = out["v_new"][b, s:e, h] = new - w[b, s:e, h] @ S
            S = np.exp(G[-1])[:, None] * S + (k[b, s:e, heads[h]] * np.exp(G[-1] - G)).T @ new
            out["final_state"][n, h] = turn(S)
    return out


def compute_stages(case):
    """Every recorded stage from what is recorded of those before it, in float64."""
    wanted, out = case.expected(), {}
    if "A_inverse" in wanted:
        solve_chunks(case, out)
    g = case.get("g")
    if "g_cumsum" in wanted:
        out["g_cumsum"] = np.full(g.shape, np.nan)
        back = -1 if case.fields.get("direction") == "reverse" else 1
        for _, b, _, s, e in chunks(case):
            steps = np.maximum(g[b, s:e], -128)
            out["g_cumsum"][b, s:e] = np.cumsum(steps[::back], axis=0)[::back]
    if case.get("k") is None:
        return out
    if g is not None and g.ndim == 4:
        return compute_key_states(case, out)
    q, k, v, beta = (case.get(name) for name in ("q", "k", "v", "beta"))
    delta, HV, H, K = "u" in wanted, v.shape[2], k.shape[2], k.shape[3]
    heads, turn, initial = key_heads(case, H, HV), turn_of(case), case.get("initial_state")
    scale = case.fields.get("scale")
    scale = K**-0.5 if scale is None else scale
    shape = turn(np.empty((HV, K, v.shape[3]))).shape
    N = len(case.get("cu_seqlens")) - 1 if case.get("cu_seqlens") is not None else v.shape[0]
    states = np.zeros((N,) + shape) if initial is None else initial.copy()
    for name in wanted:
        if name not in out and name != "final_state":
            out[name] = np.full(case.get(name).shape, np.nan)
    if "final_state" in wanted:
        out["final_state"] = states
    sums, inverse = case.get("g_cumsum"), case.get("A_inverse")
    for n, b, entry, s, e in chunks(case):
        for h in range(HV):
            size, row = e - s, (b, slice(s, e), h)
            G = sums[row] if sums is not None else np.zeros(size)
            kh, w, strength = k[b, s:e, heads[h]], None, np.ones(size)
            if beta is not None:
                strength = beta[row]
            with np.errstate(over="ignore"):
                gamma = np.tril(np.exp(np.minimum(G[:, None] - G[None, :], 700)))
            values = v[row]
            if delta:
                out["A"][row] = 0
                out["A"][row][:, :size] = np.tril(strength[:, None] * gamma * (kh @ kh.T), -1)
                weighted = inverse[row][:, :size] * strength
                out["u"][row] = weighted @ v[row]
                out["w"][row] = (weighted * np.exp(G)) @ kh
                values, w = case.get("v_new")[row], case.get("w")[row]
            S = turn(states[n, h])
            if "h" in wanted:
                out["h"][b, entry, h] = turn(S)
            new = case.get("u")[row] - w @ S if delta else values
            if delta:
                out["v_new"][row] = new
            given = turn(case.get("h")[b, entry, h]) if "h" in wanted else S
            qh = q[b, s:e, heads[h]]
            inside = (gamma * (qh @ kh.T)) @ values
            out["o"][row] = scale * (np.exp(G)[:, None] * (qh @ given) + inside)
            S = np.exp(G[-1]) * S + (kh * np.exp(G[-1] - G)[:, None]).T @ new
            states[n, h] = turn(S)
    return out


def relative(x, reference):
    """||x - reference|| / ||reference||; infinite on NaN, or if only the reference is 0."""
    norm, distance = np.linalg.norm(reference), np.linalg.norm(x - reference)
    if norm == 0:
        return 0.0 if not np.any(x) else np.inf
    return distance / norm if np.isfinite(distance) else np.inf


def errors(case, tensor, x, reference):
    """Relative L2 of the whole, the worst head and the worst window."""
    last = tensor.split(".")[-1]
    if last in ("final_state", "d_initial_state") and reference.ndim == 4:
        parts = [(x[n, h], reference[n, h]) for n in range(x.shape[0]) for h in range(x.shape[1])]
        return relative(x, reference), max((relative(*part) for part in parts), default=0.0), 0.0
    conv1d = case.fields["op"] == "conv1d"
    if last not in ("o", "core_out", "norm_out") + STAGE_ROWS + GRADIENT_ROWS and not (conv1d and last == "out"):
        return relative(x, reference), 0.0, 0.0
    if x.ndim == 3:
        x, reference = x[:, :, None], reference[:, :, None]
    rows = [(b, 0, reference.shape[1]) for b in range(reference.shape[0])]
    if case.get("cu_seqlens") is not None:
        rows = case.sequences()
    pieces = [(x[b, s:e], reference[b, s:e]) for b, s, e in rows if e > s]
    if not pieces:
        return 0.0, 0.0, 0.0
    head = max(relative(a[:, h], r[:, h]) for a, r in pieces for h in range(r.shape[1]))
    window = max(
        relative(a[w : w + WINDOW, h], r[w : w + WINDOW, h])
        for a, r in pieces
        for h in range(r.shape[1])
        for w in range(0, r.shape[0], WINDOW)
    )
    whole = relative(*(np.concatenate([p[i].ravel() for p in pieces]) for i in (0, 1)))
    return whole, head, window


def limits(case, tensor, size):
    """Largest errors of the whole, a head and a window that pass; those of gradients are explained in
    docs/case-format.md."""
    tolerance = case.fields.get("tolerance_rel_l2", 1e-5)
    if case.fields["op"] != "gradients":
        return tolerance, 2 * tolerance, 2 * tolerance
    few = (10 if tensor in ("dA_log", "ddt_bias") else 2) * tolerance
    whole = few if size < 256 else tolerance
    return (whole, np.inf, np.inf) if tensor in ("dg", "dbeta") else (whole, few, 2 * few)


def check(case, results):
    """Prints a line per expected tensor; returns how many fail."""
    failed = 0
    for tensor in case.expected():
        reference, x = case.get(tensor), results.get(tensor)
        if x is None or x.shape != reference.shape:
            failed += 1
            reason = "missing" if x is None else f"shape {x.shape}, expected {reference.shape}"
            print(f"{case.name}.{tensor}  FAIL: {reason}")
            continue
        whole, head, window = errors(case, tensor, x, reference)
        allowed = limits(case, tensor, reference.size)
        passed = all(x <= limit for x, limit in zip((whole, head, window), allowed))
        failed += not passed
        print(
            f"{case.name}.{tensor}  whole {whole:.2e}  head {head:.2e}  window {window:.2e}  "
            f"(tolerance {allowed[0]:.0e})  {'PASS' if passed else 'FAIL'}"
        )
    return failed


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases")
    parser.add_argument("--against", help="results to check (safetensors)")
    parser.add_argument("--filter", default="", help="only cases whose name contains this")
    arguments = parser.parse_args()
    tensors, metadata = read_safetensors(arguments.cases)
    other = read_safetensors(arguments.against)[0] if arguments.against else None
    checked = failed = 0
    for name, fields in json.loads(metadata["sluice.cases"]).items():
        case = Case(name, fields, tensors)
        if arguments.filter not in name:
            continue
        if other is not None:
            results = {tensor: case.get(tensor, other) for tensor in case.expected()}
        elif fields["op"] in ("prefill", "decode"):
            results = compute(case)
        elif fields["op"] == "stages":
            results = compute_stages(case)
        elif fields["op"] == "gradients":
            results = gradients(case)
            failed += check_slopes(case, results)
        else:
            print(f"{name}  skipped: op {fields['op']} needs --against")
            continue
        checked += 1
        failed += check(case, results)
    print(f"{checked} cases checked, {failed} tensors failed")
    return 1 if failed or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
