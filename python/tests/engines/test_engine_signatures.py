# SPDX-License-Identifier: Apache-2.0
"""Measures whether every shim has its engine's parameters: names, order and defaults.
Compares inspect.signature with signatures.json, recorded from the released packages named there."""

import importlib
import inspect

import pytest
from record_signatures import recorded

RECORDED = recorded()
CASES = [(e, f) for e, entry in sorted(RECORDED.items()) for f in sorted(entry["functions"])]


def ours(engine, name):
    """The parameters without their annotations."""
    function = getattr(importlib.import_module(f"sluice.engines.{engine}"), name)
    bare = inspect.Parameter.empty
    found = inspect.signature(function).parameters
    return {name: p.replace(annotation=bare) for name, p in found.items()}


@pytest.mark.parametrize("engine, name", CASES)
def test_same_names_in_the_same_order_with_the_same_defaults(engine, name):
    text = RECORDED[engine]["functions"][name]
    more = text.endswith(", **kwargs")
    found = list(ours(engine, name).values())
    assert all(p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for p in found)
    expected = text.removesuffix(", **kwargs").split(", ")
    assert [str(p) for p in found][: len(expected)] == expected
    # What the engine reads from **kwargs is named here, and optional; else there is nothing more.
    extra = found[len(expected) :]
    assert more or not extra
    assert all(p.default is not inspect.Parameter.empty for p in extra)


def test_fla_names_what_fla_reads_from_keywords():
    chunk = ours("fla", "chunk_gated_delta_rule")
    names = ("use_gate_in_kernel", "A_log", "dt_bias", "chunk_size", "transpose_state_layout")
    assert all(name in chunk for name in names)


# What no released package has: sgl-kernel-npu's, and vllm-project/vllm 055e47c,
# vllm/third_party/flash_linear_attention/ops/kda.py.
CONTRACTS = {
    ("sgl_npu", "chunk_gated_delta_rule_npu"):
        "q, k, v, g, beta, scale=None, initial_state=None, output_final_state=True, "
        "cu_seqlens=None, head_first=False, use_qk_l2norm_in_kernel=False",
    ("vllm", "chunk_kda"):
        "q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False, "
        "use_qk_l2norm_in_kernel=False, cu_seqlens=None",
    ("vllm", "chunk_kda_with_fused_gate"):
        "q, k, v, raw_g, beta, A_log, g_bias, scale=None, initial_state=None, "
        "output_final_state=False, lower_bound=None, use_qk_l2norm_in_kernel=False, "
        "cu_seqlens=None",
    ("vllm", "fused_recurrent_kda"):
        "q, k, v, g, beta=None, scale=None, initial_state=None, inplace_final_state=True, "
        "use_qk_l2norm_in_kernel=True, cu_seqlens=None, ssm_state_indices=None",
}


@pytest.mark.parametrize("engine, name", CONTRACTS)
def test_the_contracts_of_repositories(engine, name):
    assert ", ".join(map(str, ours(engine, name).values())) == CONTRACTS[engine, name]


def test_unknown_keywords_are_type_errors():
    vllm = importlib.import_module("sluice.engines.vllm")
    with pytest.raises(TypeError, match="nonsense"):
        vllm.causal_conv1d_update(None, None, None, nonsense=1)
