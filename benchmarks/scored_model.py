# SPDX-License-Identifier: Apache-2.0
"""Builds the model of benchmarks/task_scores.py and runs it on one implementation or another."""

import contextlib
import inspect
import math
import sys

import scored_tasks
import torch
import transformers
from sluice.engines import transformers as sluice_hf

WAYS = ("torch-float32", "torch", "sluice", "sluice-ops", "forgetful", "fla")
# What a modeling module of transformers looks up in itself.
FUNCTIONS = ("torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule", "causal_conv1d_fn",
             "causal_conv1d_update")


def build(size, seed, device):
    heads = max(2, size["hidden"] // 128)
    config = transformers.Qwen3NextConfig(
        vocab_size=scored_tasks.SYMBOL + size["symbols"], hidden_size=size["hidden"],
        intermediate_size=2 * size["hidden"], num_hidden_layers=4, num_attention_heads=heads, num_key_value_heads=2,
        head_dim=size["head"], linear_num_key_heads=size["key_heads"], linear_num_value_heads=size["value_heads"],
        linear_key_head_dim=size["head"], linear_value_head_dim=size["head"], mlp_only_layers=list(range(4)),
        layer_types=["linear_attention"] * 3 + ["full_attention"], bos_token_id=None, eos_token_id=None,
        pad_token_id=None)
    torch.manual_seed(seed)
    model = transformers.Qwen3NextForCausalLM(config)
    for layer in delta_layers(model):
        remember(layer)
    return model.to(device)


def delta_layers(model):
    return [module for module in model.modules() if type(module).__name__.endswith("GatedDeltaNet")]


@torch.no_grad()
def remember(layer):
    """Gates that keep a state for up to a thousand tokens at the start, as Mamba's do. With transformers' own first
    values, made for loading a checkpoint, most heads forget within two tokens, and learn it slowly."""
    step = torch.empty_like(layer.dt_bias).uniform_(math.log(1e-3), math.log(0.1)).exp()
    layer.dt_bias.copy_(step + torch.log(-torch.expm1(-step)))
    layer.A_log.copy_(torch.empty_like(step).uniform_(1, 16).log())


@contextlib.contextmanager
def functions(model, change):
    """The functions of the modeling module, each replaced by change(name, function) within the block."""
    module = sys.modules[type(model).__module__]
    before = {name: getattr(module, name) for name in FUNCTIONS}
    for name, function in before.items():
        setattr(module, name, change(name, function))
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(module, name, function)


def inputs_changed(model, change):
    """The delta rule with other keywords: change(keywords) may alter g and beta."""
    def changed(name, function):
        if "delta_rule" not in name:
            return function

        def call(*args, **keywords):
            return function(*args, **change(name, keywords))

        return call

    return functions(model, changed)


def forget(name, keywords):
    """A gate next to zero at every 64th token of a prompt; steps of generation keep what is left."""
    g = keywords["g"].clone()
    if "chunk" in name:
        g[:, ::64] -= 50
    return {**keywords, "g": g}


@contextlib.contextmanager
def running(model, way):
    """The model on an implementation; yields what tells afterwards how often Sluice ran."""
    with contextlib.ExitStack() as stack:
        report = dict
        if way.startswith("torch"):  # where fla is installed its functions are in their place
            stack.enter_context(functions(model, lambda name, function: inspect.unwrap(function)))
        elif way != "fla":
            handle = stack.enter_context(sluice_hf.patched(model, "layer" if way == "sluice" else "ops"))
            report = handle.report
        if way == "forgetful":
            stack.enter_context(inputs_changed(model, forget))
        yield report


def own_path(model):
    """The module of the delta rule that transformers itself runs: without an error its own where fla's is not found."""
    function = getattr(sys.modules[type(model).__module__], FUNCTIONS[0])
    return inspect.unwrap(inspect.getclosurevars(function).nonlocals["implementation"]).__module__


def told(report):
    """A patch's report as JSON has it."""
    back = report.get("handed back", {})
    return {"ran": report.get("ran", {}), "handed_back": sorted(f"{hook}: {why}" for hook, why in back)}
