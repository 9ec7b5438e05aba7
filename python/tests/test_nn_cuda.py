# SPDX-License-Identifier: Apache-2.0
"""Measures sluice.nn on a GPU, in the sizes and types for which Hopper has kernels of its own: against the CPU, under
torch.compile, in CUDA graphs, with checkpointing and deterministic algorithms. Run by scripts/test_python_cuda.sh."""

import copy

import pytest
from conftest import error
from cuda_checks import nothing_waits, recorded, torch

pytestmark = pytest.mark.cuda

import sluice.nn
from sluice.nn import functional
from torch_checks import PACKINGS, assert_near, check_layer_operator, check_operators

# NUM: of bfloat16 against float32 arithmetic on the same rounded values. Gradients of gates' parameters are sums of
# terms of both signs, of which rounding takes more.
LIMIT, GATES = 2e-2, 6e-2


def layer_and_input(packing="flat", dtype=torch.bfloat16, tokens=200, **options):
    torch.manual_seed(4)
    layer = sluice.nn.GatedDeltaNet(256, 2, 4, 128, 128, packing=packing, **options)
    return layer.cuda().to(dtype), torch.randn(2, tokens, 256, device="cuda", dtype=dtype, requires_grad=True)


def gradients(layer, x, call=None):
    out = (layer if call is None else call)(x)
    return [out, *torch.autograd.grad(out.float().square().sum(), [x, *layer.parameters()])]


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("save_core", [False, True])
@pytest.mark.parametrize("packing", PACKINGS)
def test_gradients_as_on_the_cpu(packing, save_core):
    layer, x = layer_and_input(packing, save_core=save_core)
    host = copy.deepcopy(layer).cpu().float()
    y = x.detach().cpu().float().requires_grad_()
    names = ["out", "x", *(name for name, _ in layer.named_parameters())]
    for name, found, expected in zip(names, gradients(layer, x), gradients(host, y), strict=True):
        limit = GATES if name in ("A_log", "dt_bias") else LIMIT
        assert error(found.detach().float().cpu().numpy(), expected.detach().numpy()) < limit, name


@pytest.mark.parametrize(
    ("packing", "backend"), [("interleaved", "aot_eager"), ("flat", "aot_eager"), ("flat", "inductor")]
)
def test_compiled_whole(packing, backend):
    layer, x = layer_and_input(packing)
    expected = gradients(layer, x)
    torch._dynamo.reset()
    found = gradients(layer, x, torch.compile(layer, fullgraph=True, backend=backend))
    assert_near(found, expected, LIMIT)


@pytest.mark.parametrize("packed", [False, True])
def test_graph_of_forward_and_backward(packed):
    layer, x = layer_and_input()
    offsets = torch.tensor([0, 70, 70, 200], device="cuda") if packed else None
    x = x[:1].detach().requires_grad_() if packed else x

    def step():
        return gradients(layer, x, lambda x: layer(x, offsets))

    expected, graph, found = recorded(step)
    for _ in range(2):
        for tensor in found:
            tensor.detach().fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        assert_same(found, expected)


def test_checkpointing_and_repeated_calls_give_the_same_bits():
    layer, x = layer_and_input()
    expected = gradients(layer, x)
    assert_same(gradients(layer, x), expected)
    again = gradients(layer, x, lambda x: torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False))
    assert_same(again, expected)


def test_deterministic_algorithms_are_the_same_kernels():
    layer, x = layer_and_input()
    expected = gradients(layer, x)
    torch.use_deterministic_algorithms(True, warn_only=False)
    try:
        assert_same(gradients(layer, x), expected)
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_sequence_s_gradients_do_not_depend_on_its_neighbours():
    layer, x = layer_and_input()
    both = gradients(layer, x)[1]
    alone = torch.cat([gradients(layer, row)[1] for row in x.detach()[:, None].requires_grad_()])
    assert_near([both], [alone], 1e-2)


def test_no_step_waits_for_the_device():
    layer, x = layer_and_input()
    gradients(layer, x)
    with nothing_waits(200_000_000):
        gradients(layer, x)


def test_autocast_trains():
    layer, x = layer_and_input(dtype=torch.float32)
    expected = gradients(layer, x)
    with torch.autocast("cuda", torch.bfloat16):
        found = gradients(layer, x)
    assert found[0].dtype == torch.bfloat16
    for (name, _), one, other in zip(layer.named_parameters(), found[2:], expected[2:], strict=True):
        assert one.dtype == torch.float32
        limit = GATES if name in ("A_log", "dt_bias") else 2 * LIMIT
        assert error(one.cpu().numpy(), other.cpu().numpy()) < limit, name


def test_operators_are_in_order():
    check_operators("cuda")


@pytest.mark.parametrize("save_core", [False, True])
@pytest.mark.parametrize("packing", PACKINGS)
def test_the_whole_layer_is_in_order(packing, save_core):
    layer, x = layer_and_input(packing, dtype=torch.float32, tokens=9)
    check_layer_operator(layer, x, save_core, 3, True, out_weight=torch.randn(8, 512, device="cuda"))


def test_pieces_are_the_sequence():
    layer, x = layer_and_input()
    whole = gradients(layer, x)

    def pieces(x):
        first, states = layer(x[:, :90], return_states=True)
        return torch.cat([first, layer(x[:, 90:], states=states)], 1)

    assert_near(gradients(layer, x, pieces), whole, LIMIT)


def test_the_rule_alone_in_a_graph():
    """torch's autograd of chunk_gated_delta_rule, recorded as training loops that capture whole steps do."""
    given = [torch.randn(1, 200, heads, 128, device="cuda", dtype=torch.bfloat16) for heads in (2, 2, 4)]
    given += [-torch.rand(1, 200, 4, device="cuda"), torch.rand(1, 200, 4, device="cuda")]
    given = [t.requires_grad_() for t in given]

    def step():
        o = functional.gated_delta_rule(*given)
        return torch.autograd.grad(o.float().square().sum(), given)

    expected, graph, found = recorded(step)
    graph.replay()
    torch.cuda.synchronize()
    assert_same(found, expected)
