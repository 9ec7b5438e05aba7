#!/usr/bin/env python3
"""Makes docs/support.md: which operator runs where, in which types and sizes, and what of it has been run. Its sources
are the op manifest, the table of CUDA kernels (docs/kernels/README.md, which is what `sluice info` prints), the GPUs
that src/cuda/CMakeLists.txt compiles for, the CPU's limits, and the devices of the committed records.

  tests/lint/check_support.py [--write]        without --write: exits 1 where the page is not what they say

SPDX-License-Identifier: Apache-2.0
"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/support.md"
# Compute capability: cards and chips of that number.
CARDS = {
    "8.0": "A100, A30",
    "8.6": "A10, A40, RTX A6000, RTX 3080 and 3090",
    "8.9": "L4, L40S, RTX 4080 and 4090, RTX 6000 Ada",
    "9.0": "H100, H200, H20, GH200",
    "10.0": "B200, GB200 (B300 and GB300, 10.3, run the same code)",
    "12.0": "RTX 5080 and 5090, RTX PRO 6000 Blackwell (GB10, 12.1, runs the same code)",
}
HOPPER = {"H100", "H200", "H20", "GH200"}
HALVES = "bfloat16, float16"
ALL = "float32, bfloat16, float16"
KERNELS = re.compile(r"^\| `([\w.]+)` \| (.*) \|$", re.M)


def kernels():
    """Operator -> kernels of the CUDA backend: name and what it takes, in the order in which they are asked."""
    text = (ROOT / "docs/kernels/README.md").read_text()
    text = text.split("<!-- kernels: begin -->")[1].split("<!-- kernels: end -->")[0]
    found = {}
    for name, takes in KERNELS.findall(text):
        op, _, kernel = name.partition(".")
        found.setdefault(op, []).append((kernel or op, takes))
    return found


def base_of(takes, siblings):
    """The sibling that a sentence refers to ("otherwise as gated_delta")."""
    found = re.search(r"otherwise as (?:recurrent_step\.)?(\w+)", takes)
    return siblings.get(found[1], "") if found else ""


def sizes(takes):
    """K and V of a sentence."""
    def of(letter):
        both = re.search(r"heads of (\d+) x \d+|K and V of (\d+)", takes)
        if both:
            return both[1] or both[2]
        limit = re.search(rf"\b{letter} <= (\d+)", takes)
        if limit:
            return f"up to {limit[1]}"
        if re.search(r"what chunk_forward takes|any layer without", takes):
            return "as chunk_forward"
        multiple = re.search(rf"\b(?:{letter}|K and V) (?:an?|any|of)? ?multiples? of (\d+)", takes)
        some = re.search(rf"\b{letter} (?:of )?(\d[\d, or]*\d|\d+)", takes)
        if some:
            return some[1].strip()
        return f"multiples of {multiple[1]}" if multiple else ""

    return of("K"), of("V")


def types(takes):
    return HALVES if re.search(r"bfloat16 or float16|16-bit tokens|16 bits", takes) else ALL


def compiled():
    """Compute capabilities that the generic kernels are compiled for."""
    text = (ROOT / "src/cuda/CMakeLists.txt").read_text()
    listed = re.search(r"sluice_cuda_generic PROPERTIES\s+CUDA_ARCHITECTURES \"([^\"]+)\"", text)[1]
    numbers = [int(re.match(r"\d+", item)[0]) for item in listed.split(";")]
    return [f"{number // 10}.{number % 10}" for number in numbers]


def recorded_gpus():
    """Names of GPUs that committed records were measured on."""
    names = set()
    for path in (ROOT / "benchmarks/results").glob("*/*.json"):
        record = json.loads(path.read_text())
        machine = record.get("machine") if isinstance(record, dict) else None
        name = record.get("device") if isinstance(record, dict) else None
        name = name or (machine.get("name") if isinstance(machine, dict) else None)
        if isinstance(name, str) and "NVIDIA" in name:
            names.add(name.removeprefix("NVIDIA ").split()[0])
    return names


def gpu_rows(ran):
    rows = ["| compute capability | cards | compiled | Hopper's own kernels | run |", "|---|---|---|---|---|"]
    for capability in compiled():
        cards = CARDS[capability]
        here = sorted(name for name in ran if name in re.findall(r"\w+", cards))
        state = f"tested on {', '.join(here)}" if here else "never"
        rows.append(f"| {capability} | {cards} | yes | {'yes' if capability == '9.0' else 'no'} | {state} |")
    newer = "newer ones | by the driver, from PTX of 12.0 | no | never |"
    return [*rows, f"| above | {newer}", "| below 8.0 | V100, T4 and older | no, refused by name | no | never |"]


def cuda_rows(known, ran):
    rows = ["| operator | kernel | types of q, k, v | K | V | GPUs | run |", "|---|---|---|---|---|---|---|"]
    for op, found in known.items():
        siblings = dict(found) | dict(known.get("recurrent_step", []))
        for kernel, takes in found:
            whole = takes + " " + base_of(takes, siblings)
            if kernel.startswith("replay_model"):
                whole = takes
            hopper = "9.0" in whole
            key_dim, value_dim = sizes(whole)
            rows.append(f"| `{op}` | `{kernel}` | {types(whole)} | {key_dim or 'any'} | {value_dim or 'any'} | "
                        f"{'9.0' if hopper else '8.0 and newer'} | "
                        f"{'tested' if hopper else 'tested on 9.0, elsewhere never'} |")
    return rows


def cpu_rows(operators):
    text = (ROOT / "src/cpu/kernels/size_limits.hpp").read_text()
    most = re.search(r"kMaxHeadDim = (\d+)", text)[1]
    rows = ["| operator | types | K, V |", "|---|---|---|"]
    for operator in operators:
        if "cpu" not in operator["backends"]:
            continue
        heads = any(field.get("name") in ("q", "qkv") for field in fields_of(operator))
        rows.append(f"| `{operator['name']}` | {ALL} | {f'up to {most}' if heads else 'any'} |")
    return rows


def fields_of(operator):
    fields = operator["fields"]
    if isinstance(fields, str):
        return json.loads((ROOT / "ops/manifest.json").read_text())["field lists"][fields]
    return fields


HEAD = """# What runs where

For users who ask whether Sluice runs on their machine, and with which kernels. `sluice doctor` says the same of the
machine that it runs on.

"Tested" means that the tests of that part ran there and its records are in `benchmarks/results`; "compiled" means that
the code is in the library and nobody has run it. `tests/lint/check_support.py --write` makes this page from the op
manifest, the catalogues of kernels, the list of GPUs that are compiled for, and the devices of the committed records.

"""

CPU_TEXT = """| instruction set | machines | state |
|---|---|---|
| `avx512-bf16` | AMD Zen 4 and newer, Intel Sapphire Rapids and newer | tested on Zen 4 and on a Xeon |
| `avx512`, `avx2`, `sse4` | other x86-64 | tested on Zen 4, where `SLUICE_CPU_ISA` forces them |
| `neon` (and SVE machines) | 64-bit Arm | results checked under emulation, speed never measured |
| none of these | anything else | compiled, never run |

All operators run on all of them; `reference` and `reference-chunked`, in double, take any size.
"""


def page():
    manifest = json.loads((ROOT / "ops/manifest.json").read_text())
    ran = recorded_gpus()
    text = HEAD + "## CPU\n\n" + CPU_TEXT + "\n" + "\n".join(cpu_rows(manifest["operators"]))
    text += "\n\n## NVIDIA GPUs\n\n" + "\n".join(gpu_rows(ran))
    text += "\n\n## CUDA kernels by operator\n\nThe first that takes a call runs it. Other conditions of each: "
    text += "[the kernels](kernels/README.md#the-cuda-kernels).\n\n" + "\n".join(cuda_rows(kernels(), ran))
    text += "\n\n## Not supported\n\nThere are no kernels for AMD and Intel GPUs, Ascend NPUs and Apple GPUs. "
    text += "To check a kernel of\n"
    return text + "your own there, use the [conformance kit](conformance.md).\n"


def main():
    wanted = page()
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(wanted)
    found = PAGE.read_text() if PAGE.exists() else ""
    same = found == wanted
    print("docs/support.md is what its sources say" if same
          else "docs/support.md is not what its sources say; tests/lint/check_support.py --write")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
