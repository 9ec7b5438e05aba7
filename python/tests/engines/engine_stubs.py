# SPDX-License-Identifier: Apache-2.0
"""Stands in for modules of serving engines: functions of recorded signatures, and a call that all of them take."""

import sys
import types

from engine_reference import L2, Rows
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


def unimport(monkeypatch, folder, path, engine, name):
    """Takes stub module `path` away and leaves a file in `folder` that importing it finds, with a function in it."""
    package, _, file = path.rpartition(".")
    text = RECORDED[engine]["functions"][name]
    (folder / f"{file}.py").write_text(f"def {name}({text}): return 'engine'\n")
    monkeypatch.setattr(sys.modules[package], "__path__", [str(folder)])
    monkeypatch.delitem(sys.modules, path)


def call_chunk(function):
    """What o is in float64, and what a chunk_gated_delta_rule says."""
    rows = Rows(5, H, HV, K, V, 1)
    return rows.truth()[0], function(*rows.packed(), **L2)
