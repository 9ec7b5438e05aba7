#!/usr/bin/env python3
"""Writes wgmma_shapes.cuh, or wgmma_shared_shapes.cuh, whose operands lie in shared memory: one function per
wgmma shape and operand source that the kernels use.

Usage: python3 gen_wgmma.py > wgmma_shapes.cuh
       python3 gen_wgmma.py shared > wgmma_shared_shapes.cuh
"""
# SPDX-License-Identifier: Apache-2.0

import sys

HEADER = """\
// Issues warpgroup matrix products, one function per shape (PTX ISA 9.7.15.5, wgmma.mma_async).
// Written by gen_wgmma.py: edit that. D is float32 [64, N]; A and B are 16 bits wide.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_WGMMA_SHAPES_CUH_
#define SLUICE_CUDA_PTX_WGMMA_SHAPES_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

namespace sluice::cuda::ptx {
"""
FOOTER = """
}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_WGMMA_SHAPES_CUH_
"""
TYPES = {"__nv_bfloat16": "bf16", "__half": "f16"}
# (N, A in registers, B transposed i.e. MN-major, A likewise)
SHAPES = [(64, True, 0, 0), (64, True, 1, 0), (128, True, 1, 0), (64, False, 0, 0)]
SHARED_SHAPES = [(64, False, 1, 0), (128, False, 1, 0), (128, False, 0, 0), (128, False, 1, 1)]


def rows(items, per_line, indent):
    lines = [", ".join(items[i:i + per_line]) for i in range(0, len(items), per_line)]
    return (",\n" + indent).join(lines)


def quoted(items, per_line):
    lines = [", ".join(items[i:i + per_line]) for i in range(0, len(items), per_line)]
    return "\n".join(f'      "{line}{"," if i + 1 < len(lines) else ""}"'
                     for i, line in enumerate(lines))


def function(ctype, ptype, n, a_regs, trans_b, trans_a):
    count = n // 2
    d = quoted([f"%{i}" for i in range(count)], 16)
    dops = rows([f'"+f"(d[kD + {i}])' for i in range(count)], 4, "        ")
    name = f"wgmma_{'rs' if a_regs else 'ss'}_n{n}" + ("_mn" if trans_b else "")
    name += "_turned" if trans_a else ""
    major = "B MN-major" if trans_b else "B K-major"
    out = [f"\n/// D[64,{n}] (+)= A[64,16] B[16,{n}]; A in "
           f"{'registers' if a_regs else 'shared memory, MN-major' if trans_a else 'shared memory, K-major'};"
           f" {major}."]
    if a_regs:
        out.append("template <int kD, int kA, size_t kDSize, size_t kASize>")
        out.append(f"__device__ __forceinline__ void {name}({ctype}, float (&d)[kDSize],\n"
                   f"    const uint32_t (&a)[kASize], uint64_t b, int accumulate) {{")
        out.append(f"  static_assert(kD + {count} <= kDSize && kA + 4 <= kASize);")
        a = ", ".join(f"%{count + i}" for i in range(4))
        tail = f"{{{a}}}, %{count + 4}, p, 1, 1, {trans_b};"
        ins = ", ".join(f'"r"(a[kA + {i}])' for i in range(4)) + ', "l"(b), "r"(accumulate)'
        pred = count + 5
    else:
        out.append("template <int kD, size_t kDSize>")
        out.append(f"__device__ __forceinline__ void {name}({ctype}, float (&d)[kDSize], uint64_t a,"
                   f"\n    uint64_t b, int accumulate) {{")
        out.append(f"  static_assert(kD + {count} <= kDSize);")
        tail = f"%{count}, %{count + 1}, p, 1, 1, {trans_a}, {trans_b};"
        ins = '"l"(a), "l"(b), "r"(accumulate)'
        pred = count + 2
    out.append(f'  asm volatile(\n      "{{.reg .pred p; setp.ne.b32 p, %{pred}, 0;\\n"')
    out.append(f'      "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{ptype}.{ptype} {{"')
    out.append(d)
    out.append(f'      "}}, {tail}}}\\n"')
    out.append(f"      : {dops}")
    out.append(f"      : {ins});\n}}")
    return "\n".join(out)


def main():
    shared = sys.argv[1:] == ["shared"]
    shapes = SHARED_SHAPES if shared else SHAPES
    text = HEADER + "\n".join(function(c, p, *s) for c, p in TYPES.items() for s in shapes) + FOOTER
    if shared:
        text = text.replace("WGMMA_SHAPES", "WGMMA_SHARED_SHAPES")
    print(text, end="")


if __name__ == "__main__":
    main()
