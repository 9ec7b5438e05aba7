# SPDX-License-Identifier: Apache-2.0
"""Measures that ranks which do not agree, or of which one fails, all get an error: processes over gloo."""

import pytest
from processes import together

torch = pytest.importorskip("torch", reason="torch is not installed: its tests are skipped")

from distributed_cases import inputs
from sluice.distributed import ContextParallel, Fragments


def other_table(rank, ranks):
    lengths = [64, 64] if rank == 1 else [128]
    fragments = Fragments.contiguous(lengths, ranks)
    x, options = inputs(fragments.tokens(rank), 1, initial=False)
    ContextParallel(None, fragments).chunk_forward(**x, **options)


def other_sizes(rank, ranks):
    fragments = Fragments.contiguous([128], ranks)
    x, options = inputs(fragments.tokens(rank), 1, initial=False)
    if rank == 1:
        x["v"] = x["v"][..., :8].contiguous()
    ContextParallel(None, fragments).chunk_forward(**x, **options)


def other_options(rank, ranks):
    fragments = Fragments.contiguous([128], ranks)
    x, options = inputs(fragments.tokens(rank), 1, initial=False)
    ContextParallel(None, fragments).chunk_forward(**x, **options, scale=0.5 if rank == 1 else 1.0)


def one_fails(rank, ranks):
    fragments = Fragments.contiguous([128], ranks)
    context = ContextParallel(None, fragments, check="always")
    x, options = inputs(fragments.tokens(rank), 1, initial=False)
    context.chunk_forward(**x, **options)
    if rank == 1:
        x["k"] = x["k"].double()
    context.chunk_forward(**x, **options)


def wrong_rows(rank, ranks):
    fragments = Fragments.contiguous([128], ranks)
    x, options = inputs(fragments.tokens(rank) - (rank == 0), 1, initial=False)
    ContextParallel(None, fragments).chunk_forward(**x, **options)


def halo_rows(rank, ranks):
    fragments = Fragments.contiguous([128], ranks)
    rows = fragments.tokens(rank) - (rank == 0)
    ContextParallel(None, fragments).causal_conv1d(torch.randn(1, rows, 6), torch.randn(6, 4))


def two_calls(rank, ranks):
    """One rank convolves while the others run the rule."""
    fragments = Fragments.contiguous([128], ranks)
    context = ContextParallel(None, fragments)
    x, options = inputs(fragments.tokens(rank), 1, initial=False)
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
