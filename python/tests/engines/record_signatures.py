# SPDX-License-Identifier: Apache-2.0
"""Writes signatures.json: the signatures of the engines' functions, read from their wheels or
source archives without importing them, for test_engine_signatures.py.

Usage: python record_signatures.py ARCHIVE..., e.g. after `pip download --no-deps vllm sglang
flashinfer-python causal-conv1d fla-core`. Functions of engines that are not given are kept.
"""

import ast
import json
import pathlib
import re
import sys
import tarfile
import zipfile

OUT = pathlib.Path(__file__).with_name("signatures.json")

# engine namespace: {our function: file of the engine that defines it}
_VLLM = "vllm/third_party/flash_linear_attention/ops/"
_KIMI = "vllm/models/kimi_k3/nvidia/ops/third_party/kda/"
_SGLANG = "sglang/kernels/ops/attention/"
FUNCTIONS = {
    "fla": {
        "chunk_gated_delta_rule": "fla/ops/gated_delta_rule/chunk.py",
        "fused_recurrent_gated_delta_rule": "fla/ops/gated_delta_rule/fused_recurrent.py",
        "chunk_kda": "fla/ops/kda/chunk.py",
        "fused_recurrent_kda": "fla/ops/kda/fused_recurrent.py",
        "chunk_gla": "fla/ops/gla/chunk.py",
    },
    "vllm": {
        "chunk_gated_delta_rule": _VLLM + "chunk.py",
        "fused_recurrent_gated_delta_rule": _VLLM + "fused_recurrent.py",
        "fused_recurrent_gated_delta_rule_packed_decode": _VLLM + "fused_recurrent.py",
        "fused_sigmoid_gating_delta_rule_update": _VLLM + "fused_sigmoid_gating.py",
        "fused_gdn_decode_post_conv_mtp": "vllm/_custom_ops.py",
        "chunk_gated_delta_rule_cpu": "vllm/_custom_ops.py",
        "fused_sigmoid_gating_delta_rule_update_cpu": "vllm/_custom_ops.py",
        "causal_conv1d_fn": "vllm/model_executor/layers/mamba/ops/causal_conv1d.py",
        "causal_conv1d_update": "vllm/model_executor/layers/mamba/ops/causal_conv1d.py",
        "layer_norm_fwd": _VLLM + "layernorm_guard.py",
        "rmsnorm_fn": _VLLM + "layernorm_guard.py",
        "rms_norm_gated": _VLLM + "kda.py",
    },
    "vllm.kimi": {
        "chunk_kda_with_fused_gate": _KIMI + "chunk.py",
        "fused_recurrent_kda": _KIMI + "fused_recurrent.py",
        "fused_recurrent_kda_packed_decode": _KIMI + "fused_recurrent.py",
    },
    "vllm.v0_26": {
        "chunk_gated_delta_rule": _VLLM + "chunk.py",
        "fused_recurrent_gated_delta_rule": _VLLM + "fused_recurrent.py",
        "fused_recurrent_gated_delta_rule_packed_decode": _VLLM + "fused_recurrent.py",
        "fused_sigmoid_gating_delta_rule_update": _VLLM + "fused_sigmoid_gating.py",
        "causal_conv1d_fn": "vllm/model_executor/layers/mamba/ops/causal_conv1d.py",
        "causal_conv1d_update": "vllm/model_executor/layers/mamba/ops/causal_conv1d.py",
        "chunk_kda": _VLLM + "kda.py",
        "chunk_kda_with_fused_gate": _VLLM + "kda.py",
        "fused_recurrent_kda": _VLLM + "kda.py",
        "layer_norm_fwd": _VLLM + "layernorm_guard.py",
        "rmsnorm_fn": _VLLM + "layernorm_guard.py",
        "rms_norm_gated": _VLLM + "kda.py",
    },
    "sglang": {
        "chunk_gated_delta_rule": _SGLANG + "fla/chunk.py",
        "fused_recurrent_gated_delta_rule_packed_decode": _SGLANG + "fla/fused_recurrent.py",
        "fused_recurrent_gated_delta_rule_update": _SGLANG + "fla/fused_recurrent.py",
        "fused_sigmoid_gating_delta_rule_update": _SGLANG
        + "linear/fused_sigmoid_gating_recurrent.py",
        "chunk_kda": _SGLANG + "fla/kda.py",
        "fused_recurrent_kda_packed_decode": _SGLANG + "fla/fused_recurrent.py",
        "causal_conv1d_fn": "sglang/srt/layers/attention/mamba/causal_conv1d.py",
        "causal_conv1d_update": "sglang/kernels/ops/mamba/causal_conv1d_triton.py",
    },
    "flashinfer": {
        "chunk_gated_delta_rule": "flashinfer/gdn_prefill.py",
        "gated_delta_rule_decode": "flashinfer/gdn_decode.py",
        "gated_delta_rule_decode_pretranspose": "flashinfer/gdn_decode.py",
        "gated_delta_rule_mtp": "flashinfer/gdn_decode.py",
    },
    "causal_conv1d": {
        "causal_conv1d_fn": "causal_conv1d/causal_conv1d_interface.py",
        "causal_conv1d_update": "causal_conv1d/causal_conv1d_interface.py",
        "causal_conv1d_varlen_states": "causal_conv1d/causal_conv1d_varlen.py",
    },
}
PACKAGES = {
    "fla_core": "fla",
    "vllm": "vllm",
    "sglang": "sglang",
    "flashinfer_python": "flashinfer",
    "causal_conv1d": "causal_conv1d",
}
# Names that the engines use as defaults.
CONSTANTS = {"PAD_SLOT_ID": -1, "NULL_BLOCK_ID": 0}


def files(archive):
    """{path: source} of an archive's Python files."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as z:
            return {n: z.read(n) for n in z.namelist() if n.endswith(".py")}
    with tarfile.open(archive) as t:
        members = [m for m in t if m.name.endswith(".py")]
        # WHY: a source archive has everything below a folder of its own.
        return {m.name.partition("/")[2]: t.extractfile(m).read() for m in members}


def parameters(source, name):
    """The parameters as text, "a, b=None", and ", **kwargs" where the engine has it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            break
    else:
        raise SystemExit(f"{name} not found")
    names = [a.arg for a in node.args.args + node.args.kwonlyargs]
    defaults = [None] * (len(node.args.args) - len(node.args.defaults))
    defaults += node.args.defaults + node.args.kw_defaults
    rows = []
    for parameter, default in zip(names, defaults, strict=True):
        if default is not None:
            default = repr(eval(ast.unparse(default), {"__builtins__": {}}, dict(CONSTANTS)))
        rows.append(parameter if default is None else f"{parameter}={default}")
    return ", ".join(rows + (["**kwargs"] if node.args.kwarg else []))


def main(archives):
    table = json.loads(OUT.read_text()) if OUT.exists() else {}
    for archive in map(pathlib.Path, archives):
        package, version = re.match(r"(.+?)-(\d[^-]*?)(?:-|\.tar)", archive.name).groups()
        engine, sources = PACKAGES[package], files(archive)
        # Releases whose parameters differ have a module of their own.
        apart = f"{engine}.v{'_'.join(version.split('.')[:2])}"
        # So have functions of one release that share a name.
        engines = [apart] if apart in FUNCTIONS else [engine, f"{engine}.kimi"]
        for each in (each for each in engines if each in FUNCTIONS):
            functions = {}
            for name, path in FUNCTIONS[each].items():
                functions[name] = {"file": path, "parameters": parameters(sources[path], name)}
            table[each] = {"version": version, "functions": functions}
    OUT.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
