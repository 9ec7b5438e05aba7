# SPDX-License-Identifier: Apache-2.0
"""Measures context parallelism: tables of fragments, ranks simulated in one process, and real groups of
2, 3 and 4 processes over gloo, against one rank; and that ranks which do not agree, or of which one fails, all get an
error."""

import dataclasses
import json
import sys

import pytest
from conftest import causal_conv

torch = pytest.importorskip("torch", reason="torch is not installed: its tests are skipped")

import distributed_cases as cases
import sluice
from distributed_cases import LAYOUTS, LENGTHS, RULES, assert_near, inputs, together
from sluice.distributed import ContextParallel, Fragment, Fragments, SimulatedRanks, bench
from sluice.distributed.rule import OPTIONS, TENSORS
from sluice.engines import fla


def test_fragments_hold_every_token_once():
    with pytest.raises(sluice.InvalidArgument, match="expected to begin at 4"):
        Fragments([10], [[Fragment(0, 0, 4)], [Fragment(0, 5, 10)]])
    with pytest.raises(sluice.InvalidArgument, match="expected 10"):
        Fragments([10], [[Fragment(0, 0, 4)], [Fragment(0, 4, 9)]])
    with pytest.raises(sluice.InvalidArgument, match="sequence 1, expected 0 to 0"):
        Fragments([10], [[Fragment(0, 0, 10)], [Fragment(1, 0, 3)]])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 16])
def test_tables_are_whole_and_rows_return(layout, ranks):
    fragments = LAYOUTS[layout](ranks)
    assert sum(fragments.tokens(r) for r in range(ranks)) == sum(LENGTHS)
    x = torch.arange(sum(LENGTHS)).view(1, -1, 1)
    assert torch.equal(fragments.put([fragments.take(x, r) for r in range(ranks)]), x)
    sizes = [fragments.tokens(r) for r in range(ranks)]
    assert max(sizes) - min(sizes) <= (64 if layout == "balanced" else 2)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_simulated_ranks_give_what_one_gives(rule, ranks, layout):
    x, options = inputs(sum(LENGTHS), len(LENGTHS), **RULES[rule])
    d_o, d_final = cases.loss_weights(x, options, len(LENGTHS))
    found = cases.simulated_ranks(SimulatedRanks(LAYOUTS[layout](ranks)), x, options, d_o, d_final)
    cases.assert_all_near(found, cases.one_rank(x, options, LENGTHS, d_o, d_final))


def assert_all_equal(results):
    for other in results[1:]:
        for name, expected in results[0].items():
            assert torch.equal(other[name], expected), name


def test_bits_depend_on_no_rank_count():
    """Leaves of fixed length: the same bits for any table."""
    lengths, leaf = [640, 64, 256], 64
    x, options = inputs(sum(lengths), 3)
    d_o = torch.randn(1, sum(lengths), 4, 24)
    results = []
    for fragments in (
        Fragments.contiguous(lengths, 1),
        Fragments.contiguous(lengths, 3, multiple=leaf),
        Fragments.zigzag(lengths, 2, multiple=leaf),
        Fragments.balanced(lengths, 4, multiple=leaf),
    ):
        simulated = SimulatedRanks(fragments, split="length", split_value=leaf)
        results.append(cases.simulated_ranks(simulated, x, options, d_o))
    assert_all_equal(results)


def forgetful(T):
    """Inputs of which two value heads of four forget what came 100 tokens before."""
    x, options = inputs(T, 1)
    x["gate"][..., ::2] -= 1
    x["gate"][..., 1::2] *= 0.01
    return x, options


def test_heads_that_forget_send_no_matrix():
    x, options = forgetful(400)
    d_o, d_final = cases.loss_weights(x, options, 1)
    fragments = Fragments.contiguous([400], 4)
    ranks = [SimulatedRanks(fragments, transitions=transitions) for transitions in (None, 4, 2)]
    assert_all_equal([cases.simulated_ranks(simulated, x, options, d_o, d_final) for simulated in ranks])
    for transitions in (0, 1):
        with pytest.raises(sluice.InvalidArgument, match=f"transitions = {transitions}, expected 2 at least"):
            SimulatedRanks(fragments, transitions=transitions).forward(x, **options)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_that_run_during_the_exchange_are_the_same(layout):
    x, options = inputs(sum(LENGTHS), len(LENGTHS), raw=True)
    d_o = torch.randn(1, sum(LENGTHS), 4, 24)
    results, early = [], 0
    for overlap in (False, True):
        simulated = SimulatedRanks(LAYOUTS[layout](3), overlap=overlap)
        o, _ = simulated.forward(x, **options)
        results.append({"o": o, **simulated.backward(d_o)})
        runs = [call.independent(reverse) for call in simulated.calls for reverse in (False, True)]
        early = sum(begin < end for begin, end in runs)
        assert overlap or early == 0
    assert early >= 3
    expected = cases.one_rank(x, options, LENGTHS, d_o)
    del expected["final"]
    for found in results:
        cases.assert_all_near(found, expected)


def test_leaves_must_end_where_fragments_do():
    with pytest.raises(sluice.InvalidArgument, match="multiples of 64"):
        SimulatedRanks(Fragments.contiguous([100], 2), split="length", split_value=64)


# ------------------------------------------------------------------------ processes ----


def same_as_one(rank, ranks):
    for layout, rule in zip([*LAYOUTS, *LAYOUTS], RULES):
        x, options = inputs(sum(LENGTHS), len(LENGTHS), **RULES[rule])
        weights = tuple(cases.loss_weights(x, options, len(LENGTHS)))
        context = ContextParallel(None, LAYOUTS[layout](ranks))
        expected = cases.part_of(cases.one_rank(x, options, LENGTHS, *weights), context.fragments, rank)
        cases.assert_all_near(cases.own_rank(context, x, options, *weights), expected, rule)


@dataclasses.dataclass
class FlaContext:
    """The fields of fla 0.6's FLACPContext that say what a rank holds."""

    group: object
    cu_seqlens: object
    cu_seqlens_cpu: object = None
    pre_num_ranks: int | None = None
    layout: str = "contiguous"
    front_num_seqs: int | None = None
    pre_num_ranks_by_part: tuple[int, int] | None = None


def fla_context(rank, ranks):
    """What build_cp_context makes of one sequence of 48 tokens a rank."""
    return FlaContext(torch.distributed.group.WORLD, torch.tensor([0, 48]), pre_num_ranks=rank)


def fla_zigzag(rank, ranks):
    return FlaContext(
        torch.distributed.group.WORLD, torch.tensor([0, 24, 48]), torch.tensor([0, 24, 48]), layout="zigzag",
        front_num_seqs=1, pre_num_ranks_by_part=(rank, 2 * ranks - 1 - rank),
    )  # fmt: skip


def fla_functions(rank, ranks):
    """The functions with fla's signatures, by our context and by one like fla's."""
    T = 48 * ranks
    x, kda = (inputs(T, 1, initial=False, key_wise=key_wise)[0] for key_wise in (False, True))
    linear = {name: t for name, t in x.items() if name != "beta"}
    cut, zigzag = Fragments.contiguous([T], ranks), Fragments.zigzag([T], ranks)
    ours, theirs = ContextParallel(None, cut), fla_context(rank, ranks)
    for call, rows, fragments, context in (
        (sluice.chunk_gated_delta_rule, x, cut, ours),
        (sluice.chunk_gated_delta_rule, x, cut, theirs),
        (fla.chunk_gated_delta_rule, x, cut, theirs),
        (fla.chunk_gated_delta_rule, x, zigzag, fla_zigzag(rank, ranks)),
        (sluice.chunk_simple_gla, linear, cut, ours),
        (sluice.chunk_kda, kda, cut, ours),
        (fla.chunk_kda, kda, cut, theirs),
    ):
        whole, _ = getattr(sluice, call.__name__)(*rows.values())
        o, state = call(*cases.part_of(rows, fragments, rank).values(), cp_context=context)
        assert state is None
        assert_near(o, fragments.take(whole, rank), call.__name__)
    off = FlaContext(group=None, cu_seqlens=None)
    o, _ = fla.chunk_gated_delta_rule(*x.values(), cp_context=off)
    assert_near(o, sluice.chunk_gated_delta_rule(*x.values())[0], "a context that cuts nothing")


def convolution(rank, ranks):
    lengths, D, W = [7, 2, 40, 1, 0, 11], 6, 4
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(1, sum(lengths), D, generator=generator)
    weight, bias = torch.randn(D, W, generator=generator), torch.randn(D, generator=generator)
    d_out = torch.randn(1, sum(lengths), D, generator=generator)
    expected_x = x.clone().requires_grad_()
    parts = expected_x.split(lengths, 1)
    expected = torch.cat([causal_conv(part, weight, bias, silu=True, xp=torch)[0] for part in parts], 1)
    (expected * d_out).sum().backward()
    for fragments in cases.tables(lengths, ranks):
        context = ContextParallel(None, fragments)
        own = fragments.take(x, rank).clone().requires_grad_()
        out = context.causal_conv1d(own, weight, bias, activation="silu")
        assert_near(out.detach(), fragments.take(expected.detach(), rank), "out")
        (out * fragments.take(d_out, rank)).sum().backward()
        assert_near(own.grad, fragments.take(expected_x.grad, rank), "dx")


def bytes_sent(rank, ranks):
    """Bytes on the wire: of all matrices, of those of two heads, and an error where these are too few."""
    x, options = forgetful(100 * ranks)
    fragments = Fragments.contiguous([100 * ranks], ranks)
    own = cases.part_of(x, fragments, rank)
    own["q"].requires_grad_()
    agreement = 12 * 8
    sent = {}
    for transitions in (None, 4, 2):
        context = ContextParallel(None, fragments, transitions=transitions)
        o, _ = context.chunk_forward(**own, **options)
        o.sum().backward()
        sent[transitions] = context.sent_bytes - 2 * agreement
        if transitions is not None:
            assert context.remembered == 2
    addends, matrix = 4 * 16 * 24 * 4, 16 * 16 * 4
    assert sent == {
        None: 2 * (addends + 4 * matrix),
        4: 2 * (addends + 4 * matrix + 4 * 4),
        2: 2 * (addends + 2 * matrix + 4 * 4),
    }
    x = torch.randn(1, fragments.tokens(rank), 6)
    context = ContextParallel(None, fragments)
    context.halo(x.requires_grad_(), 4).sum().backward()
    assert context.sent_bytes == agreement + 3 * 6 * 4 + ranks * 3 * 6 * 4
    with pytest.raises(sluice.InvalidArgument, match="transitions = 1, expected 2 at least"):
        ContextParallel(None, fragments, transitions=1).chunk_forward(**own, **options)


def operators(rank, ranks):
    """What torch asks of operators."""
    from torch.library import opcheck

    fragments = Fragments.zigzag(LENGTHS, ranks)
    context = ContextParallel(None, fragments, transitions=4)
    x, options = inputs(sum(LENGTHS), len(LENGTHS), raw=True)
    own = cases.part_of(x, fragments, rank)
    tensors = [own[name].requires_grad_() for name in TENSORS]
    chosen = [options.get(name) for name in OPTIONS]
    ops = torch.ops.sluice
    name = context._name
    opcheck(ops.context_rule.default, (*tensors, name, True, "kv", *chosen))
    rows = torch.randn(1, fragments.tokens(rank), 6, requires_grad=True)
    before = torch.randn(len(fragments.ranks[rank]), 3, 6, requires_grad=True)
    weight, bias = torch.randn(6, 4, requires_grad=True), torch.randn(6, requires_grad=True)
    opcheck(ops.context_conv.default, (rows, before, weight, bias, name, "silu"))


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("task", [same_as_one, fla_functions, convolution, bytes_sent])
def test_processes_give_what_one_gives(task, ranks):
    assert together(task, ranks) == dict.fromkeys(range(ranks))


def test_operators_are_what_torch_asks_for():
    assert together(operators, 1) == {0: None}


# ------------------------------------------------------------------------ ranks that do not agree ----


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


def test_the_benchmark_writes_its_record_as_a_whole(tmp_path, monkeypatch):
    words = "bench --simulate 2 --tokens 64 --heads 1/1 --device cpu --rounds 1 --directions forward --out"
    record, link = tmp_path / "record.json", tmp_path / "link.json"
    link.symlink_to(record)
    monkeypatch.setattr(sys, "argv", [*words.split(), str(link)])
    with pytest.raises(OSError, match="links are not followed"):
        bench.main()
    monkeypatch.setattr(sys, "argv", [*words.split(), str(record)])
    bench.main()
    assert json.loads(record.read_text())["schema"] == "sluice.bench.context/1"
