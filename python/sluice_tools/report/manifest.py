# SPDX-License-Identifier: Apache-2.0
"""Reads the op manifest (ops/manifest.json): every operator's tensors, rules, costs and workloads.

Needs the standard library alone, so that checks of the source tree can load this file by its path.
Formulas are arithmetic on the manifest's symbols, evaluated without eval().
"""

import ast
import json
import operator
import pathlib
from collections.abc import Callable
from typing import Any

_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.FloorDiv: operator.floordiv,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def path() -> pathlib.Path:
    """Where the manifest is: beside this file in an installed package, else in the source tree."""
    here = pathlib.Path(__file__).resolve()
    installed = here.with_name("manifest.json")
    return installed if installed.exists() else here.parents[3] / "ops" / "manifest.json"


def load() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path().read_text(encoding="ascii"))
    return content


def find(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    """The operator of that name; KeyError without one."""
    for entry in manifest["operators"]:
        if entry["name"] == name:
            return dict(entry)
    raise KeyError(name)


def evaluate(formula: str, symbols: dict[str, float]) -> float:
    """The value of a formula or rule; ValueError for what is no arithmetic, KeyError for a symbol
    that is not given."""

    def value(node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=number) if isinstance(number, int | float):
                return number
            case ast.Name(id=name):
                return symbols[name]
            case (
                ast.BinOp(left=left, op=op, right=right)
                | ast.Compare(left=left, ops=[op], comparators=[right])
            ) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value(left), value(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -value(operand)
            case ast.BoolOp(op=ast.And(), values=values):
                return all(value(v) for v in values)
            case ast.BoolOp(op=ast.Or(), values=values):
                return any(value(v) for v in values)
        raise ValueError(f"manifest: '{formula}' is no arithmetic on symbols")

    return value(ast.parse(formula, mode="eval").body)


def cost(
    manifest: dict[str, Any], op: str, model: str, what: str, **symbols: float
) -> float | None:
    """FLOP or bytes (`what`) of operator `op` by one of its cost models; None where the model does
    not say."""
    formula = find(manifest, op)["costs"][model][what]
    if formula is None:
        return None
    return float(evaluate(formula, {**manifest["constants"], **symbols}))
