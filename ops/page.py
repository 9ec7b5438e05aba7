"""Writes docs/ops.md from ops/manifest.json, for ops/generate.py.
SPDX-License-Identifier: Apache-2.0
"""

import functools


def table(head, rows):
    cells = [[str(cell).replace("|", ",") for cell in row] for row in rows]
    return ["", *(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *cells])]


def row(manifest, expand, field):
    if "struct" in field:
        return f"`{manifest['structs'][field['struct']]['member']}`", f"`{field['struct']}`", "", "", "below"
    f = next(expand([field]))
    if f["type"] == "tensor":
        return f"`{f['name']}`", f"`{f['shape']}`", f["role"] + ", optional" * ("optional" in f), f["dtype"], f["doc"]
    return f"`{f['name']}`", f.get("enum", f["type"]), f["default"], "", f["doc"]


def page(manifest, made, expand, enumerators):
    page_row = functools.partial(row, manifest, expand)
    head = ["field", "shape or type", "role or default", "dtype", "what it is"]
    lines = ["# Operators", "",
             "For programmers who look up an argument: every operator with its tensors, options, costs and tests.",
             f"{made} CI compares it with `include/sluice/sluice.h`, which has the exact semantics.",
             *table(["symbol", "meaning"], [(f"`{name}`", text) for name, text in manifest["symbols"].items()]), "",
             "; ".join(f"`{name}` is " + " or ".join(names) for name, names in manifest["dtypes"].items()) + "."]
    for entry in manifest["operators"]:
        tests = [test.partition(":") for test in entry["tests"]]
        costs = [(name, *(f"`{cost[what]}`" if cost[what] else "-" for what in ("flops", "bytes")), cost["text"])
                 for name, cost in entry["costs"].items()]
        lines += ["", f"## `sluice_{entry['name']}`", "", entry["summary"][0].upper() + entry["summary"][1:]
                  + ". Implementations: " + ", ".join(entry["backends"]) + ".",
                  *table(head, map(page_row, entry["fields"])), "",
                  "Rules: " + "; ".join(f"`{rule}`" for rule in entry["rules"]) + ".",
                  *table(["cost model", "FLOP", "bytes", "what is counted"], costs), "",
                  "Source: " + ", ".join(f"[{path}](../{path})" for path in entry["source"]) + ".", "",
                  "Tests: " + ", ".join(f"`{t}` ([{p.split('/')[-1]}](../{p}))" for p, _, t in tests) + ".", "",
                  "Benchmarks: " + ", ".join(f"`{bench}`" for bench in entry["bench"]) + "."]
    for name, inner in manifest["structs"].items():
        lines += ["", f"## `{name}`", *table(head, map(page_row, inner["fields"]))]
    rows = [(name, v["word"], f"`{c}`", v["doc"])
            for name, enum in manifest["enums"].items() for _, c, v in enumerators(enum)]
    return "\n".join([*lines, "", "## Choices", *table(["choice", "word", "C", "meaning"], rows), ""])
