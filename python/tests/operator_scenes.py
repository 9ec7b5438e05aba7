# SPDX-License-Identifier: Apache-2.0
"""Makes calls of every operator, with every view that it takes: small, legal, of NumPy arrays, in the shapes that the
manifest of operators says."""

import re

import numpy as np
from sluice import _core
from sluice_tools.report import manifest

MANIFEST = manifest.load()
SIZES = dict(B=1, N=3, T=10, H=1, HV=2, K=8, V=8, W=4, L=3, C=16, M=1, P=4, S=5, E=5, slots=9, chunks=3)
STEP, ENTRIES = dict(B=3, T=2), 16
INDICES = dict(
    cu_seqlens=[0, 4, 4, 9], read_slots=[5, 1, 3], write_slots=[0, 2, 6], has_initial_state=[1, 0, 1],
    checkpoint_slots=[[2], [-1], [0]], num_accepted=[1, 2, 1], ring_position=[7, 0, 3], replay_position=[9, 4, 7],
    replay_checkpoint=[5, 4, 6], replay_next_checkpoint=[0, 0, 0], wanted=[3, 3, 1], cu_chains=[0, 2, 5],
    route_pieces=[0, 3, 1, -1, 2], route_states=[1, 0, -1, 2, 3],
)  # fmt: skip
PER_TOKEN = dict(read_slots=np.array([[5, 1], [3, 6], [4, 4]], np.int32), state_writes="per_token",
                 write_slots=np.array([[0, 2], [7, -1], [-1, 8]], np.int32))  # fmt: skip
RAW = dict(gate_space="raw", beta_space="logit", qk_norm="l2")
OF_CHANNELS = re.compile("d?(gate|a|dt_bias)")  # what has an axis more where gates are key-wise
OF_SEPARATE = re.compile(r"d?_?[kv](_conv_\w+)?")  # what layers have with packing separate alone
RING = " ".join(field["python"] for field in MANIFEST["structs"]["sluice_replay_ring"]["fields"] if "shape" in field)


def shapes(op):
    """The shape and the type of every view by its name in Python."""
    fields = manifest.find(MANIFEST, op)["fields"]
    for field in MANIFEST["field lists"][fields] if isinstance(fields, str) else fields:
        for one in MANIFEST["structs"][field["struct"]]["fields"] if "struct" in field else [field]:
            if "shape" in one and field.get("only", op) == one.get("only", op) == op:
                yield one.get("python", one["name"]), one["shape"].split(" or ")[0], one["dtype"]


class Views:
    """Makes arguments of operators: random numbers, the same in every run."""

    def __init__(self):
        self._random = np.random.default_rng(1)

    def __call__(self, op, without="", key_wise=False, sizes=(), **options):
        """All views of the operator but those named, and options."""
        sizes, absent, layer = {**SIZES, **dict(sizes)}, without.split(), op.startswith("layer")
        H, HV, K, V = (sizes[axis] for axis in ("H", "HV", "K", "V"))
        separate = options.get("packing") == "separate"
        sizes |= dict(HK=H * K, HVV=HV * V, D=H * K if separate else 2 * H * K + HV * V)
        key_wise, made = key_wise or separate, {}
        for name, shape, dtype in shapes(op):
            if name in absent or layer and not separate and OF_SEPARATE.fullmatch(name):
                continue
            if name in INDICES:
                made[name] = np.array(INDICES[name], bool if dtype == "mask" else np.int32)
                continue
            axes = shape.strip("[]").replace("..", "B,T,HV").split(",")
            axes += ["K"] if key_wise and OF_CHANNELS.fullmatch(name) else []
            lengths = {**sizes, "L": ENTRIES} if name.startswith("replay") else sizes
            made[name] = self.array(name, [lengths[axis] for axis in axes], dtype)
        if layer:
            options |= dict(num_k_heads=H, num_v_heads=HV, head_k_dim=K, head_v_dim=V, gate_activation="silu")
        return {**made, **options}

    def array(self, name, shape, dtype):
        if dtype == "mask":
            return np.zeros(shape, bool)
        x = self._random.standard_normal(shape, np.float32) / 2
        return -abs(x) if name in ("replay_decay", "g_cumsum") else x


def layer_inputs(packing="flat", key_wise=False, **sizes):
    """Rows, weights and sizes of a layer."""
    absent = [name for name, shape, dtype in shapes("layer_prefill")
              if dtype != "float" or "slots" in shape or name in ("out", "core_out")]  # fmt: skip
    return Views()("layer_prefill", " ".join(absent), key_wise, sizes, packing=packing)


def as_tensors(arguments, device="cpu"):
    """The same with torch's tensors."""
    import torch

    return {n: torch.from_numpy(x.copy()).to(device) if isinstance(x, np.ndarray) else x for n, x in arguments.items()}


def updated(x):
    """A layer's step in place: no final states."""
    return {name: value for name, value in x.items() if not name.endswith("final") and name != "final_state"}


def reading(x):
    """A step that leaves the states as they are."""
    return {name: value for name, value in updated(x).items() if name != "write_slots"} | {"state_writes": "none"}


def stages(new):
    """(written names, arguments) of stages."""
    x = new("chunk_stage")
    pools = "initial_state final_state read_slots write_slots has_initial_state"

    def stage(name, written, read, **options):
        given = {n: x[n] for n in f"{written} {read} cu_seqlens".split()}
        return written.split(), dict(given, stage=name, chunk_size=SIZES["C"], **options)

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


def written(op, arguments):
    """What a call writes, by the roles of its arguments."""
    updates = arguments.get("state_writes") != "none"
    return [name for name, role, _, instead in _core.fields(op)
            if arguments.get(name) is not None
            and (role == "output" or (updates and role == "update" and arguments.get(instead) is None))]  # fmt: skip


def steps(new):
    """(operator, arguments) of steps."""
    delta, layer, separate = "recurrent_step", "layer_decode", dict(packing="separate", sizes=STEP)
    packed = new(delta, f"num_accepted {RING}", **RAW, max_tokens=5)
    packed_layer = new(layer, f"num_accepted ring_position {RING}", max_tokens=5)
    apart = new(layer, f"cu_seqlens num_accepted ring_position {RING}", **separate)
    return [
        (delta, new(delta, f"cu_seqlens {RING}", sizes=STEP, **RAW) | PER_TOKEN),
        (delta, packed),
        (delta, reading(packed)),
        (delta, new(delta, "cu_seqlens num_accepted final_state write_slots", sizes=STEP, **RAW)),
        (layer, new(layer, f"cu_seqlens ring_position {RING}", sizes=dict(STEP, L=4)) | PER_TOKEN),
        (layer, packed_layer),
        (layer, reading(packed_layer)),
        (layer, new(layer, f"num_accepted {RING}", conv_state_form="ring", max_tokens=5)),
        (layer, updated(new(layer, "cu_seqlens num_accepted ring_position write_slots", sizes=STEP))),
        (layer, apart),
        (layer, updated(apart)),
    ]


def scenes():
    """(name of the row, operator, names of what it writes, arguments)."""
    new, silu = Views(), dict(activation="silu")
    made = [
        ("chunk_forward", new("chunk_forward", key_wise=key_wise, **RAW, checkpoint_every=64))
        for key_wise in (False, True)
    ]
    made += [
        *steps(new),
        ("causal_conv1d", new("causal_conv1d", "num_accepted ring_position", **silu)),
        ("causal_conv1d", new("causal_conv1d", "num_accepted", **silu, conv_state_form="ring")),
        ("causal_conv1d", new("causal_conv1d", "cu_seqlens ring_position", sizes=dict(STEP, L=4), **silu)),
        ("gated_rms_norm", new("gated_rms_norm", **silu)),
        ("layer_prefill", new("layer_prefill", "ring_position")),
        ("layer_prefill", new("layer_prefill", "ring_position", packing="separate")),
        ("layer_prefill", new("layer_prefill", conv_state_form="ring")),
        ("chunk_backward", new("chunk_backward", **RAW)),
        ("chunk_backward", new("chunk_backward", key_wise=True, **RAW)),
        ("chunk_summary", new("chunk_summary", "q d_o", **RAW, direction="forward")),
        ("chunk_summary", new("chunk_summary", **RAW, direction="reverse")),
        ("state_fold", new("state_fold", sizes=dict(N=2))),
        ("causal_conv1d_backward", new("causal_conv1d_backward", **silu)),
        ("gated_rms_norm_backward", new("gated_rms_norm_backward", **silu)),
        ("layer_backward", new("layer_backward")),
        ("layer_backward", new("layer_backward", packing="separate")),
    ]
    all_of = [(op, written(op, x), x) for op, x in made] + [("chunk_stage", *stage) for stage in stages(new)]
    return [(f"{number}_{op}", op, names, x) for number, (op, names, x) in enumerate(all_of)]
