# SPDX-License-Identifier: Apache-2.0
"""Tests what serving_trace.py makes of a profiler's trace: kernels by what they are for, and nothing but kernels."""

import serving_trace


def event(name, start, duration, kind="kernel"):
    return {"cat": kind, "name": name, "ts": start, "dur": duration}


def test_kernels_are_added_up_by_what_they_are_for():
    row = serving_trace.summary([
        event("void sluice::cuda::conv1d::block_kernel<..>", 0, 1000),
        event("void sluice::cuda::decode::decode_kernel<..>", 2000, 3000),
        event("kernel_cutlass_kernel_flashinfergdn_kernelsdelta_rule_dsl", 6000, 500),
        event("nvjet_tst_128x64", 7000, 2000),
        event("nvjet_tst_128x64", 9500, 500),
        event("triton_red_fused_add_rms_norm", 11000, 250),
        event("Memcpy HtoD", 12000, 100, "gpu_memcpy"),
        event("aten::mm", 0, 9999, "cpu_op"),
        {"name": "no category", "ph": "M"},
    ])
    assert row["gpu_ms"] == 7.35 and row["launches"] == 7 and row["from first to last_ms"] == 12.1
    assert row["groups_ms"] == {"recurrence": 3.5, "matrix products": 2.5, "convolution": 1.0,
                                "joined by torch.compile": 0.25, "copies": 0.1}
    assert row["kernels"][1] == [2.5, 2, "matrix products", "nvjet_tst_128x64"]


def test_a_trace_without_kernels_is_empty():
    assert serving_trace.summary([event("aten::mm", 0, 1, "cpu_op")])["launches"] == 0
