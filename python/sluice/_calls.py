# SPDX-License-Identifier: Apache-2.0
"""Finds the extension's function of each operator, of which it also has one that is recorded: NAME_recorded."""

from . import _core

CALLS = {name: getattr(_core, name) for name in dir(_core) if hasattr(_core, f"{name}_recorded")}
