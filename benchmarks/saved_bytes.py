#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts what a gated delta rule layer keeps for its backward pass, in bytes a token, of ours and of others.

Measured: the storages that torch.autograd.graph.saved_tensors_hooks sees in one forward pass of a layer of
Qwen3-Next's sizes (hidden 2048, 16 key and 32 value heads of 128, bfloat16), parameters left out, the projections'
own inputs among them. flash-linear-attention runs on GPUs only: there it is measured, elsewhere its column is
counted from the tensors that its functions save (fla 0.6.0: ops/gated_delta_rule/chunk.py,
modules/causal_conv1d/ops.py, modules/norm/fused_norm_gate.py), which are listed below.

    python benchmarks/saved_bytes.py [--tokens 512] [--device cpu] [--json FILE]

Needs torch; rows of transformers need transformers.
"""

import argparse
import importlib.util
import json
import pathlib
from importlib.metadata import version

import sluice
import sluice.nn
import torch
from sluice_tools import whole_file

HIDDEN, H, HV, D, WIDTH = 2048, 16, 32, 128, 4
LIMIT = 32 * 1024
# Of a token: two bytes a number, four where float32 is said.
_KEYS, _VALUES = 2 * H * D, 2 * HV * D
FLA = {
    "input of the projections": 2 * HIDDEN,
    "convolution: q, k, v before it": 2 * _KEYS + _VALUES,
    "rule: q and k, normalised copies": 2 * _KEYS,
    "rule: 1 / norm of q and k, float32": 2 * 4 * H,
    "rule: v, a contiguous copy": _VALUES,
    "rule: sums of gates, float32": 4 * HV,
    "rule: raw gates, beta logits, beta": 3 * 2 * HV,
    "rule: inverse A, 64 columns": 2 * 64 * HV,
    "norm: the rule's output": _VALUES,
    "norm: z": _VALUES,
    "norm: 1 / rms, float32": 4 * HV,
    "input of the output projection": _VALUES,
}


def saved_bytes(layer, x):
    """Of a token, in one forward pass."""
    parameters = {p.untyped_storage().data_ptr() for p in layer.parameters()}
    kept = {}

    def pack(t):
        storage = t.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = (storage.nbytes(), t)  # the tensor, so that its address is not used again
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = layer(x)
    assert out is not None
    return sum(size for size, _ in kept.values()) / x.shape[1]


def ours(packing, save_core):
    return sluice.nn.GatedDeltaNet(HIDDEN, H, HV, D, D, packing=packing, save_core=save_core)


def of_transformers(kind):
    """A layer of transformers, Qwen3-Next's or Qwen3.5's."""
    sizes = dict(
        hidden_size=HIDDEN, linear_num_key_heads=H, linear_num_value_heads=HV, linear_key_head_dim=D,
        linear_value_head_dim=D, linear_conv_kernel_dim=WIDTH, num_hidden_layers=1, layer_types=["linear_attention"],
    )  # fmt: skip
    if kind == "qwen3_next":
        from transformers import Qwen3NextConfig
        from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

        return Qwen3NextGatedDeltaNet(Qwen3NextConfig(**sizes), 0)
    from transformers import Qwen3_5TextConfig
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5GatedDeltaNet

    return Qwen3_5GatedDeltaNet(Qwen3_5TextConfig(**sizes), 0)


def rows(options):
    """(what, bytes a token, how they are known)."""

    def measured(layer):
        layer = layer.to(options.device, torch.bfloat16)
        x = torch.randn(1, options.tokens, HIDDEN, device=options.device, dtype=torch.bfloat16)
        return saved_bytes(layer, x)

    for packing in ("interleaved", "flat"):
        yield f"sluice.nn.GatedDeltaNet, {packing}", measured(ours(packing, False)), "measured"
        yield f"the same, {packing}, save_core", measured(ours(packing, True)), "measured"
    if importlib.util.find_spec("transformers") is not None:
        from sluice.engines import transformers as sluice_hf

        for kind in ("qwen3_next", "qwen3_5"):
            for level in ("layer", "ops"):
                layer = of_transformers(kind)
                with sluice_hf.patched(layer, level):
                    yield f"transformers {kind}, patched ({level})", measured(layer), "measured"
        if importlib.util.find_spec("fla") is None:
            for kind in ("qwen3_next", "qwen3_5"):
                yield f"transformers {kind}, torch path", measured(of_transformers(kind)), "measured"
    if importlib.util.find_spec("fla") is not None and options.device != "cpu":
        from fla.layers import GatedDeltaNet

        layer = GatedDeltaNet(hidden_size=HIDDEN, expand_v=1, head_dim=D, num_heads=H, num_v_heads=HV)
        yield "fla.layers.GatedDeltaNet", measured(layer), "measured"
    else:
        yield "fla.layers.GatedDeltaNet", sum(FLA.values()), "counted from fla 0.6.0"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--json")
    options = parser.parse_args()
    torch.manual_seed(1)
    found = list(rows(options))
    base = found[0][1]
    print("| layer | bytes a token | KiB | times ours | how known |\n|---|---|---|---|---|")
    for name, size, known in found:
        print(f"| {name} | {size:.0f} | {size / 1024:.1f} | {size / base:.2f} | {known} |")
    print("\nflash-linear-attention's, a token:")
    for name, size in FLA.items():
        print(f"  {size:6d}  {name}")
    if options.json:
        record = {
            "schema": "sluice.saved_bytes/1", "commit": options.commit, "sluice": sluice.__version__,
            "versions": {"torch": version("torch")}, "device": options.device, "tokens": options.tokens,
            "sizes": dict(hidden=HIDDEN, H=H, HV=HV, K=D, V=D, dtype="bfloat16"), "limit_bytes": LIMIT,
            "rows": [dict(layer=name, bytes_a_token=size, known=known) for name, size, known in found],
            "fla_counted": FLA,
        }  # fmt: skip
        whole_file.write(pathlib.Path(options.json), json.dumps(record, indent=1) + "\n")
    assert base <= LIMIT, f"{base} bytes a token, expected <= {LIMIT}"


if __name__ == "__main__":
    main()
