#!/usr/bin/env python3
"""Sums up the properties that tests/cuda/accuracy_test.cc records: worst errors and worst ratios to
the yardstick by dtype and keys, as JSON and as a table.

  scripts/prefill_accuracy.py DEVICE RESULTS.json GTEST_OUTPUT.json..."""

import json
import pathlib
import sys

PARTS = [(q, p) for q in ("o", "state") for p in ("whole", "head", "window")
         if (q, p) != ("state", "window")]


def read_cases(paths: list[str]) -> list[dict]:
    cases = []
    for path in paths:
        for suite in json.loads(pathlib.Path(path).read_text())["testsuites"]:
            for test in suite["testsuite"]:
                if "o_whole" not in test:
                    continue
                case = {"case": suite["name"].split("/")[0] + "/" + test["name"].split("/")[-1]}
                for quantity, part in PARTS:
                    case[f"{quantity}_{part}"] = float(test[f"{quantity}_{part}"])
                    case[f"{quantity}_{part}_yardstick"] = float(
                        test[f"{quantity}_yardstick_{part}"])
                cases.append(case)
    return sorted(cases, key=lambda case: case["case"])


def group_of(case: dict) -> str:
    """Suite, dtype, keys: Profiles/bf16_slow_cos75 -> Profiles bf16 cos75."""
    suite, name = case["case"].split("/")
    words = name.split("_")
    keys = {"Profiles": words[-1], "Correlated": words[1]}.get(suite, "unit")
    return f"{suite.lower()} {words[0]} {keys}"


def worst(cases: list[dict], key: str) -> tuple[float, float]:
    """Largest error, and largest ratio where the yardstick rounds at all."""
    errors = [case[key] for case in cases]
    ratios = [case[key] / case[key + "_yardstick"] for case in cases
              if case[key + "_yardstick"] > 1e-5]
    return max(errors), max(ratios, default=1.0)


def main() -> int:
    device, target, *paths = sys.argv[1:]
    cases = read_cases(paths)
    if not cases:
        print("prefill_accuracy: no accuracy test ran")
        return 1
    groups: dict[str, list[dict]] = {}
    for case in cases:
        groups.setdefault(group_of(case), []).append(case)
    print("| suite, dtype, keys | cases | o whole | x | worst head x | worst window x "
          "| state whole | x |\n|---|---|---|---|---|---|---|---|")
    for name, members in sorted(groups.items()):
        o, state = worst(members, "o_whole"), worst(members, "state_whole")
        print(f"| {name} | {len(members)} | {o[0]:.1e} | {o[1]:.2f} "
              f"| {worst(members, 'o_head')[1]:.2f} | {worst(members, 'o_window')[1]:.2f} "
              f"| {state[0]:.1e} | {state[1]:.2f} |")
    result = {"kernel": "chunk_forward sm_90a", "device": device,
              "metric": "relative L2 against the float64 recurrence; yardstick: chunk form in "
                        "float64, exact inverse, the kernel's operand roundings",
              "cases": cases}
    lines = json.dumps(result).replace('{"case"', '\n{"case"')
    pathlib.Path(target).write_text(lines + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
