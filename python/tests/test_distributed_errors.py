# SPDX-License-Identifier: Apache-2.0
"""Measures that ranks which do not agree, or of which one fails, all get an error: processes over gloo."""

import pytest
from processes import together

torch = pytest.importorskip("torch", reason="torch is not installed: its tests are skipped")

from distributed_cases import inputs
from sluice.distributed import ContextParallel, Fragments


def start(rank, ranks, lengths=(128,), missing=0, **settings):
    """(context, tensors, options) of a rank, which lacks some rows."""
    fragments = Fragments.contiguous(list(lengths), ranks)
    return ContextParallel(None, fragments, **settings), *inputs(fragments.tokens(rank) - missing, 1, initial=False)


def other_table(rank, ranks):
    context, x, options = start(rank, ranks, [64, 64] if rank == 1 else [128])
    context.chunk_forward(**x, **options)


def other_sizes(rank, ranks):
    context, x, options = start(rank, ranks)
    if rank == 1:
        x["v"] = x["v"][..., :8].contiguous()
    context.chunk_forward(**x, **options)


def other_options(rank, ranks):
    context, x, options = start(rank, ranks)
    context.chunk_forward(**x, **options, scale=0.5 if rank == 1 else 1.0)


def one_fails(rank, ranks):
    context, x, options = start(rank, ranks, check="always")
    context.chunk_forward(**x, **options)
    if rank == 1:
        x["k"] = x["k"].double()
    context.chunk_forward(**x, **options)


def wrong_rows(rank, ranks):
    context, x, options = start(rank, ranks, missing=rank == 0)
    context.chunk_forward(**x, **options)


def halo_rows(rank, ranks):
    context, x, _ = start(rank, ranks, missing=rank == 0)
    context.causal_conv1d(torch.randn(1, x["v"].shape[1], 6), torch.randn(6, 4))


def two_calls(rank, ranks):
    """One rank convolves while the others run the rule."""
    context, x, options = start(rank, ranks)
    if rank == 1:
        context.halo(x["v"].flatten(2), 4)
    else:
        context.chunk_forward(**x, **options)


@pytest.mark.parametrize(
    "task, own, others",
    [
        (other_table, "InvalidArgument: ContextParallel: fragments = ", "fragments = "),
        (other_sizes, "InvalidArgument: ContextParallel: V = ", "V = 8 on rank 1, expected 24"),
        (other_options, "InvalidArgument: ContextParallel: options = ", "options = "),
        (one_fails, "InvalidArgument: chunk_summary: k ", "rank 1 = failed"),
        (wrong_rows, "", "failed"),
        (halo_rows, "InvalidArgument: ContextParallel: x.shape, width = (1, 41, 6), 4, expected [1, 42, D]", "failed"),
        (two_calls, "InvalidArgument: ContextParallel: call ", "ContextParallel: call "),
    ],
)
def test_a_mismatch_is_an_error_on_all_ranks(task, own, others):
    found = together(task, 3)
    assert all(message is not None for message in found.values()), found
    failing = 0 if task in (wrong_rows, halo_rows) else 1
    assert found[failing].startswith(own), found
    assert others in found[2], found
