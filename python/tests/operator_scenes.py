# SPDX-License-Identifier: Apache-2.0
"""Makes calls of every operator, with every view that it takes: small, legal, of NumPy arrays."""

import numpy as np
from sluice import _core

N, T, H, HV, K, V, W, C, SLOTS = 3, 10, 1, 2, 8, 8, 4, 16, 9
KEYS, VALUES, D = H * K, HV * V, 2 * H * K + HV * V
SIZES = dict(num_k_heads=H, num_v_heads=HV, head_k_dim=K, head_v_dim=V, gate_activation="silu")
RAW = dict(gate_space="raw", beta_space="logit", qk_norm="l2")


class Arrays:
    """Random numbers, the same in every scene."""

    def __init__(self):
        self._random = np.random.default_rng(1)

    def __call__(self, *shape):
        return self._random.standard_normal(shape, np.float32) / 2


def integers(*values):
    return np.array(values, np.int32)


def offsets():
    return integers(0, 4, 4, 9)


def states(new):
    pool = (SLOTS, HV, K, V)
    return dict(initial_state=new(*pool), final_state=new(*pool), has_initial_state=np.array([1, 0, 1], bool),
                read_slots=integers(5, 1, 3), write_slots=integers(0, 2, 6))  # fmt: skip


def rows(new, batch=1, tokens=T, key_wise=False):
    gate, bias = ((batch, tokens, HV, K), (HV, K)) if key_wise else ((batch, tokens, HV), (HV,))
    return dict(q=new(batch, tokens, H, K), k=new(batch, tokens, H, K), v=new(batch, tokens, HV, V),
                gate=new(*gate), beta=new(batch, tokens, HV), A_log=new(HV), dt_bias=new(*bias))  # fmt: skip


def prefill(new, key_wise=False):
    return dict(rows(new, key_wise=key_wise), **states(new), **RAW, o=new(1, T, HV, V), cu_seqlens=offsets(),
                checkpoints=new(4, HV, K, V), checkpoint_slots=integers(2, -1, 0)[:, None],
                checkpoint_every=64)  # fmt: skip


def step(new):
    x = dict(rows(new, N, 2), **states(new), **RAW, o=new(N, 2, HV, V), num_accepted=integers(2, 1, 2))
    x["read_slots"] = np.array([[5, 1], [3, 6], [4, 4]], np.int32)
    x["write_slots"] = np.array([[0, 2], [7, -1], [-1, 8]], np.int32)
    return dict(x, state_writes="per_token")


def packed_step(new):
    return dict(rows(new), **states(new), **RAW, o=new(1, T, HV, V), cu_seqlens=offsets(), max_tokens=5)


def ring(new, entries=16):
    return dict(replay_k=new(SLOTS, entries, H, K), replay_delta=new(SLOTS, entries, HV, V),
                replay_decay=-abs(new(SLOTS, entries, HV)), replay_position=integers(9, 4, 7),
                replay_checkpoint=integers(5, 4, 6), replay_next_checkpoint=integers(0, 0, 0))  # fmt: skip


def ring_step(new):
    x = dict(rows(new, N, 2), **states(new), **RAW, **ring(new), o=new(N, 2, HV, V))
    del x["final_state"], x["write_slots"]
    return x


def convolution(new, columns=W - 1):
    pool = (SLOTS, D, columns)
    return dict(x=new(1, T, D), weight=new(D, W), bias=new(D), out=new(1, T, D), cu_seqlens=offsets(),
                initial_state=new(*pool), final_state=new(*pool), has_initial_state=np.array([1, 0, 1], bool),
                read_slots=integers(5, 1, 3), write_slots=integers(0, 2, 6), activation="silu")  # fmt: skip


def ring_convolution(new):
    return dict(convolution(new), ring_position=integers(7, 0, 3), conv_state_form="ring")


def accepted_convolution(new):
    x = dict(convolution(new, W), x=new(N, 2, D), out=new(N, 2, D), num_accepted=integers(1, 2, 1))
    del x["cu_seqlens"]
    return x


def norm(new):
    return dict(x=new(1, T, HV, V), z=new(1, T, HV, V), weight=new(V), out=new(1, T, HV, V), activation="silu")


def layer(new, batch=1, tokens=T, packed=True):
    pool = (SLOTS, D, W - 1)
    x = dict(qkv=new(batch, tokens, D), z=new(batch, tokens, VALUES), b=new(batch, tokens, HV),
             a=new(batch, tokens, HV), conv_weight=new(D, W), conv_bias=new(D), A_log=new(HV), dt_bias=new(HV),
             norm_weight=new(V), out=new(batch, tokens, HV, V), core_out=new(batch, tokens, HV, V),
             conv_initial=new(*pool), conv_final=new(*pool), **states(new), **SIZES)  # fmt: skip
    return dict(x, cu_seqlens=offsets()) if packed else x


def separate_layer(new, **more):
    """A layer of KDA: projections and convolutions apart, gates of key channels."""
    x = layer(new, **more)
    batch, tokens, _ = x["qkv"].shape
    x.update(qkv=new(batch, tokens, KEYS), k=new(batch, tokens, KEYS), v=new(batch, tokens, VALUES),
             a=new(batch, tokens, HV, K), dt_bias=new(HV, K), conv_weight=new(KEYS, W), conv_bias=new(KEYS),
             conv_initial=new(SLOTS, KEYS, W - 1), conv_final=new(SLOTS, KEYS, W - 1), packing="separate")  # fmt: skip
    for name, width in (("k", KEYS), ("v", VALUES)):
        x[f"{name}_conv_weight"], x[f"{name}_conv_bias"] = new(width, W), new(width)
        x[f"{name}_conv_initial"], x[f"{name}_conv_final"] = new(SLOTS, width, W - 1), new(SLOTS, width, W - 1)
    return x


def updated(x):
    """A layer's step in place: no final states."""
    return {name: value for name, value in x.items() if not name.endswith("final") and name != "final_state"}


def decode(new):
    x = dict(layer(new, N, 2, False), num_accepted=integers(1, 2, 1))
    x["conv_initial"], x["conv_final"] = new(SLOTS, D, W), new(SLOTS, D, W)
    x["read_slots"] = np.array([[5, 1], [3, 6], [4, 4]], np.int32)
    x["write_slots"] = np.array([[0, 2], [7, -1], [-1, 8]], np.int32)
    return dict(x, state_writes="per_token")


def ring_decode(new):
    x = dict(updated(layer(new, N, 2, False)), **ring(new))
    del x["write_slots"]
    return x


def position_layer(new):
    return dict(layer(new), ring_position=integers(7, 0, 3), conv_state_form="ring")


def stages(new):
    """(written names, arguments) of stages."""
    x = rows(new)
    x.update(g_cumsum=-abs(new(1, T, HV)), A=new(1, T, HV, C), A_inverse=new(1, T, HV, C), w=new(1, T, HV, K),
             u=new(1, T, HV, V), v_new=new(1, T, HV, V), h=new(1, 3, HV, K, V), o=new(1, T, HV, V),
             cu_seqlens=offsets(), **states(new))  # fmt: skip
    pools = "initial_state final_state read_slots write_slots has_initial_state"

    def stage(name, written, read, **options):
        given = {n: x[n] for n in f"{written} {read} cu_seqlens".split()}
        return written.split(), dict(given, stage=name, chunk_size=C, **options)

    return [
        stage("chunk_cumsum", "g_cumsum", "gate A_log dt_bias", gate_space="raw"),
        stage("scaled_dot_kkt", "A", "k beta g_cumsum"),
        stage("solve_tril", "A_inverse", "A"),
        stage("wy_fast", "w u", "k v beta g_cumsum A_inverse"),
        stage("chunk_h", "v_new h final_state", f"k w u g_cumsum {pools}"),
        stage("chunk_o", "o", "q k v_new g_cumsum h"),
        stage("cumsum_kkt", "g_cumsum A", "gate k beta"),
        stage("solve_wy", "A_inverse w u", "k v beta g_cumsum A"),
        stage("chunk_o", "o final_state", f"q k v gate {pools}", rule="linear_attention"),
    ]


def backward(new, key_wise=False):
    x = dict(rows(new, key_wise=key_wise), **RAW, cu_seqlens=offsets(), initial_state=new(N, HV, K, V),
             d_o=new(1, T, HV, V), d_final_state=new(N, HV, K, V))  # fmt: skip
    return dict(x, **gradients(x, "q k v gate beta A_log dt_bias"), d_initial_state=new(N, HV, K, V))


def gradients(x, names):
    made = {f"d{name}": np.ones_like(x[name]) for name in names.split() if name != "initial_state"}
    return dict(made, d_initial_state=np.ones_like(x["initial_state"])) if "initial_state" in names else made


def summary(new, direction):
    x = dict(rows(new), **RAW, cu_seqlens=offsets(), wanted=integers(3, 3, 1), transition=new(N, HV, K, K),
             addend=new(N, HV, K, V), forgotten=np.zeros((N, HV), bool), direction=direction)  # fmt: skip
    if direction == "reverse":
        return dict(x, d_o=new(1, T, HV, V))
    del x["q"]
    return x


def fold(new):
    return dict(transition=new(4, HV, K, K), addend=new(4, HV, K, V), forgotten=np.zeros((4, HV), bool),
                cu_chains=integers(0, 2, 5), route_pieces=integers(0, 3, 1, -1, 2),
                route_states=integers(1, 0, -1, 2, 3), initial=new(2, HV, K, V), entering=new(5, HV, K, V),
                final=new(2, HV, K, V))  # fmt: skip


def convolution_backward(new):
    x = dict(x=new(1, T, D), weight=new(D, W), bias=new(D), cu_seqlens=offsets(), initial_state=new(N, D, W - 1),
             d_out=new(1, T, D), d_final_state=new(N, D, W - 1), activation="silu")  # fmt: skip
    return dict(x, **gradients(x, "x weight bias initial_state"))


def norm_backward(new):
    x = dict(x=new(1, T, HV, V), z=new(1, T, HV, V), weight=new(V), d_out=new(1, T, HV, V), activation="silu")
    return dict(x, **gradients(x, "x z weight"))


def layer_backward(new, make):
    x = make(new)
    for name in [*states(new), "out", *(name for name in x if name.endswith("conv_final"))]:
        del x[name]
    names = "qkv z b a conv_weight conv_bias A_log dt_bias norm_weight"
    convs, x["initial_state"] = [""], new(N, HV, K, V)
    if "k" in x:
        convs, names = ["", "k_", "v_"], f"{names} k v k_conv_weight v_conv_weight k_conv_bias v_conv_bias"
    x.update(gradients(x, f"{names} initial_state"), d_out=new(1, T, HV, V), d_final_state=new(N, HV, K, V))
    for prefix in convs:
        width = x[f"{prefix}conv_weight"].shape[0]
        for name in (f"{prefix}conv_initial", f"d_{prefix}conv_final", f"d{prefix}conv_initial"):
            x[name] = new(N, width, W - 1)
    return x


def written(op, arguments):
    """What a call writes, by the roles of its arguments."""
    return [name for name, role, _, instead in _core.fields(op)
            if arguments.get(name) is not None
            and (role == "output" or (role == "update" and arguments.get(instead) is None))]  # fmt: skip


def scenes():
    """(name of the row, operator, names of what it writes, arguments)."""
    new = Arrays()
    made = [
        ("chunk_forward", prefill(new)), ("chunk_forward", prefill(new, True)),
        ("recurrent_step", step(new)), ("recurrent_step", packed_step(new)), ("recurrent_step", ring_step(new)),
        ("causal_conv1d", convolution(new)), ("causal_conv1d", ring_convolution(new)),
        ("causal_conv1d", accepted_convolution(new)), ("gated_rms_norm", norm(new)),
        ("layer_prefill", layer(new)), ("layer_prefill", separate_layer(new)), ("layer_prefill", position_layer(new)),
        ("layer_decode", decode(new)), ("layer_decode", dict(layer(new), max_tokens=5)),
        ("layer_decode", dict(position_layer(new), max_tokens=5)), ("layer_decode", ring_decode(new)),
        ("layer_decode", separate_layer(new, batch=N, tokens=2, packed=False)),
        ("layer_decode", updated(separate_layer(new, batch=N, tokens=2, packed=False))),
        ("chunk_backward", backward(new)), ("chunk_backward", backward(new, True)),
        ("chunk_summary", summary(new, "forward")), ("chunk_summary", summary(new, "reverse")),
        ("state_fold", fold(new)), ("causal_conv1d_backward", convolution_backward(new)),
        ("gated_rms_norm_backward", norm_backward(new)), ("layer_backward", layer_backward(new, layer)),
        ("layer_backward", layer_backward(new, separate_layer)),
    ]  # fmt: skip
    all_of = [(op, written(op, x), x) for op, x in made] + [("chunk_stage", *stage) for stage in stages(new)]
    return [(f"{number}_{op}", op, names, x) for number, (op, names, x) in enumerate(all_of)]
