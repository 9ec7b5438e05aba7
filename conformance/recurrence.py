# SPDX-License-Identifier: Apache-2.0
"""Computes the answers of case files in float64: prefill, decode and gradients token by token, stages
chunk by chunk. A second opinion on the recorded answers, which shares nothing with Sluice."""

import numpy as np


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
        a = g + parameter(case, "dt_bias")
        rate = np.exp(parameter(case, "A_log", g.ndim == 4))
        g = -rate * np.where(a > 20, a, np.log1p(np.exp(np.minimum(a, 20))))
    elif space == "raw_bounded":
        g = fields["gate_lower_bound"] / (1 + np.exp(-bounded_argument(case, g)[1]))
    beta = np.ones(shape) if beta is None else beta
    if fields.get("beta_space", "value") == "logit" and case.get("beta") is not None:
        beta = 1 / (1 + np.exp(-beta))
    return g, beta * (2 if fields.get("eigenvalues") == "negative" else 1)


def bounded_argument(case, a):
    """exp(A_log) and exp(A_log) (a + dt_bias), with zeros for what is absent."""
    rate = np.exp(parameter(case, "A_log", a.ndim == 4))
    return rate, rate * (a + parameter(case, "dt_bias"))


def parameter(case, name, by_channel=False):
    """A_log or dt_bias, zero where absent; by_channel: for gates of channels."""
    value = case.get(name)
    if value is None:
        return 0
    return value[:, None] if by_channel else value


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
    for n, (b, first, end) in enumerate(case.sequences(*v.shape[:2])):
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
    if space == "raw_bounded":
        rate, y = bounded_argument(case, case.get("g"))
        slope = dg * g / (1 + np.exp(y))
        out["dA_log"], dg = (slope * y).sum((0, 1)), slope * rate
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
        found = compute(type(case)(case.name, fields, {**tensors, prefix + name: x}))
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
    entry = 0
    for n, (b, first, end) in enumerate(case.sequences(*rows.shape[:2])):
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


def decayed_products(left, right, G):
    """exp(G_i - G_j) (left_i . right_j) for j <= i, else 0; key-wise G [C,K] inside the product."""
    if G.ndim == 1:
        with np.errstate(over="ignore"):
            gamma = np.tril(np.exp(np.minimum(G[:, None] - G[None, :], 700)))
        return gamma * (left @ right.T)
    out = np.zeros((len(G), len(G)))
    for i in range(len(G)):
        out[i, : i + 1] = (np.exp(G[i] - G[: i + 1]) * right[: i + 1]) @ left[i]
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
            by_channel = G if G.ndim == 2 else G[:, None]
            kh, w, strength = k[b, s:e, heads[h]], None, np.ones(size)
            if beta is not None:
                strength = beta[row]
            values = v[row]
            if delta:
                out["A"][row] = 0
                products = decayed_products(kh, kh, G)
                out["A"][row][:, :size] = np.tril(strength[:, None] * products, -1)
                weighted = inverse[row][:, :size] * strength
                out["u"][row] = weighted @ v[row]
                out["w"][row] = weighted @ (np.exp(by_channel) * kh)
                values, w = case.get("v_new")[row], case.get("w")[row]
            S = turn(states[n, h])
            if "h" in wanted:
                out["h"][b, entry, h] = turn(S)
            new = case.get("u")[row] - w @ S if delta else values
            if delta:
                out["v_new"][row] = new
            given = turn(case.get("h")[b, entry, h]) if "h" in wanted else S
            qh = q[b, s:e, heads[h]]
            inside = decayed_products(qh, kh, G) @ values
            out["o"][row] = scale * ((np.exp(by_channel) * qh) @ given + inside)
            last = by_channel[-1]
            S = np.exp(last)[:, None] * S + (kh * np.exp(last - by_channel)).T @ new
            states[n, h] = turn(S)
    return out


def answers(case):
    """(results of the case by tensor, how many gradients are no slopes); results None for operators
    that this does not compute."""
    op = case.fields["op"]
    if op in ("prefill", "decode"):
        return compute(case), 0
    if op == "stages":
        return compute_stages(case), 0
    if op == "gradients":
        results = gradients(case)
        return results, check_slopes(case, results)
    return None, 0
