# SPDX-License-Identifier: Apache-2.0
"""Measures a layer whose sequences, heads, or both are cut over processes against the layer of one process."""

from functools import partial

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: its tests are skipped")

import sluice
from distributed_cases import assert_near, tables, together
from sluice.distributed import ContextParallel, Fragments, TensorParallel

LENGTHS = [70, 2, 0, 97, 1, 30]
OFFSETS = torch.tensor([0, *LENGTHS]).cumsum(0).to(torch.int32)
SIZES = (24, 4, 8, 16, 12)  # hidden, key heads, value heads, their sizes


def whole_layer(packing):
    torch.manual_seed(5)
    layer = sluice.nn.GatedDeltaNet(*SIZES, packing=packing)
    with torch.no_grad():
        layer.dt_bias.normal_()
        layer.norm.weight.normal_()
    return layer


def rows():
    generator = torch.Generator().manual_seed(6)
    return [torch.randn(1, sum(LENGTHS), SIZES[0], generator=generator) for _ in range(2)]


def expected_of(layer, x, weight):
    """Output, gradient by x and gradients by parameters of the uncut layer."""
    x = x.clone().requires_grad_()
    out = layer(x, OFFSETS)
    (out * weight).sum().backward()
    return out.detach(), x.grad, {name: p.grad for name, p in layer.named_parameters()}


near = partial(assert_near, limit=3e-5, least=1e-2)


def check_rows(layer, run, expected, rows, reduce=None):
    """A layer's output and gradients: of `rows`, by x and by parameters, which are summed over ranks by `reduce`."""
    x, weight, out, d_x = rows
    own = x.clone().requires_grad_()
    found = run(own)
    near(found.detach(), out, f"{layer.packing} out")
    (found * weight).sum().backward()
    near(own.grad, d_x, f"{layer.packing} gradient by rows")
    for name, parameter in layer.named_parameters():
        if reduce:
            reduce(parameter.grad)
        near(parameter.grad, expected[name], f"{layer.packing} {name}")


def sequences(rank, ranks):
    """Sequences over ranks."""
    x, weight = rows()
    for number, fragments in enumerate(tables(LENGTHS, ranks)):
        layer = whole_layer(("flat", "interleaved")[number % 2])
        out, d_x, gradients = expected_of(layer, x, weight)
        layer.zero_grad()
        layer.context_parallel = ContextParallel(None, fragments)
        own = [fragments.take(t, rank) for t in (x, weight, out, d_x)]
        check_rows(layer, layer, gradients, own, torch.distributed.all_reduce)


def heads(rank, ranks):
    """Heads over ranks."""
    x, weight = rows()
    parallel = TensorParallel()
    for packing in ("flat", "interleaved"):
        whole = whole_layer(packing)
        out, d_x, gradients = expected_of(whole, x, weight)
        layer = parallel.gated_delta_net(*SIZES, packing=packing)
        layer.load_state_dict(parallel.take(layer, whole.state_dict()))
        for name, parameter in parallel.put(layer).items():
            assert torch.equal(parameter, whole.state_dict()[name]), name
        check_rows(layer, lambda rows: layer(rows, OFFSETS), parallel.take(layer, gradients), (x, weight, out, d_x))
        tokens = x[:, :3]
        expected = whole.step(tokens, whole.new_states(1))
        near(layer.step(tokens, layer.new_states(1)), expected, f"{packing} step")
        found, states = layer(tokens, return_states=True)
        near(found.detach(), expected, f"{packing} out beside states")
        assert states.recurrent.shape[1] == SIZES[2] // ranks
    with pytest.raises(sluice.InvalidArgument, match="num_k_heads = 5, expected a multiple of"):
        parallel.gated_delta_net(24, 5, 5 * ranks)


def both(rank, ranks):
    """Two by two: sequences over pairs of ranks, heads over pairs."""
    mesh = torch.distributed.init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("sequences", "heads"))
    x, weight = rows()
    whole = whole_layer("interleaved")
    out, d_x, gradients = expected_of(whole, x, weight)
    fragments = Fragments.zigzag(LENGTHS, 2)
    context = ContextParallel(mesh["sequences"].get_group(), fragments)
    parallel = TensorParallel(mesh["heads"].get_group())
    layer = parallel.gated_delta_net(*SIZES, context_parallel=context)
    layer.load_state_dict(parallel.take(layer, whole.state_dict()))
    own = [fragments.take(t, context.rank) for t in (x, weight, out, d_x)]
    reduce = partial(torch.distributed.all_reduce, group=mesh["sequences"].get_group())
    check_rows(layer, layer, parallel.take(layer, gradients), own, reduce)


def compiled(rank, ranks):
    """One graph of the layer, forward and backward, with the exchanges inside."""
    fragments = Fragments.contiguous(LENGTHS, ranks)
    x, weight = (fragments.take(t, rank) for t in rows())
    layer = whole_layer("flat")
    layer.context_parallel = ContextParallel(None, fragments, transitions=8)
    results = []
    for run in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        layer.zero_grad()
        own = x.clone().requires_grad_()
        out = run(own)
        (out * weight).sum().backward()
        results.append([out.detach(), own.grad, *(p.grad for p in layer.parameters())])
    for number, (eager, graph) in enumerate(zip(*results)):
        assert torch.equal(eager, graph), number


@pytest.mark.parametrize(
    "task, ranks",
    [(sequences, 2), (sequences, 3), (sequences, 4), (heads, 2), (heads, 4), (both, 4), (compiled, 2)],
)
def test_processes_give_what_one_gives(task, ranks):
    assert together(task, ranks) == dict.fromkeys(range(ranks))


def test_messages():
    layer = whole_layer("flat")
    layer.context_parallel = object()
    with pytest.raises(ValueError, match="cu_seqlens = given, expected None with context_parallel"):
        layer(rows()[0], torch.tensor([0, 3]))
    with pytest.raises(ValueError, match=r"hidden_states.shape = \(2, 3, 24\), expected \[1, T, hidden_size\]"):
        layer(torch.randn(2, 3, 24))
