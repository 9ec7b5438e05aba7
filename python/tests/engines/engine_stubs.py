# SPDX-License-Identifier: Apache-2.0
"""Stands in for modules of serving engines: functions of recorded signatures, and a call that all of them take."""

import sys
import types

import torch
from engine_reference import random_rows
from record_signatures import recorded

RECORDED = recorded()
H, HV, K, V = 2, 4, 16, 24


def stub_function(engine, name, change=("", "")):
    """A function of the engine's recorded signature that returns its own name."""
    text = RECORDED[engine]["functions"][name].replace(*change)
    space = {}
    exec(f"def {name}({text}): return 'engine'", space)
    return space[name]


def stub_module(monkeypatch, path, **contents):
    """Puts module `path` and its packages into sys.modules."""
    for end in range(1, path.count(".") + 2):
        name = ".".join(path.split(".")[:end])
        if name not in sys.modules or not hasattr(sys.modules[name], "stub"):
            module = types.ModuleType(name)
            module.stub, module.__path__ = True, []
            monkeypatch.setitem(sys.modules, name, module)
    vars(sys.modules[path]).update(contents)
    return sys.modules[path]


def call_chunk(function, dtype=torch.float32, **more):
    rows = [t.unsqueeze(0) for t in random_rows(5, H, HV, K, V, 1)]
    rows[0] = rows[0].to(dtype)
    return rows, function(*rows, use_qk_l2norm_in_kernel=True, **more)
