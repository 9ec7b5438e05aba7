# SPDX-License-Identifier: Apache-2.0
"""Measures a whole layer as one operator of torch: gradients through carried states, generation token by token, what
is kept for the backward pass, and what torch asks of operators."""

import pytest
from conftest import error

torch = pytest.importorskip("torch", reason="torch is not installed: its tests are skipped")

import sluice.nn
from operator_scenes import as_tensors, layer_inputs
from sluice.nn import _weights, functional
from torch_checks import DEVICES, PACKINGS, assert_near, check_layer_operator, check_operators, small

SIZES = dict(num_k_heads=2, num_v_heads=4, head_k_dim=16, head_v_dim=24)


def gradients(layer):
    """Those of the parameters, which have none then."""
    found = [p.grad for p in layer.parameters()]
    layer.zero_grad()
    return found


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("save_core", [False, True])
@pytest.mark.parametrize("packing", PACKINGS)
def test_pieces_of_a_sequence_are_the_sequence(packing, save_core, device):
    layer = small(packing, save_core=save_core).to(device)
    x, weight = torch.randn(2, 70, 32, device=device), torch.randn(2, 70, 32, device=device)
    whole_x, piece_x = x.clone().requires_grad_(), x.clone().requires_grad_()
    whole = layer(whole_x)
    (whole * weight).sum().backward()
    expected = [whole_x.grad, *gradients(layer)]
    states, pieces = layer.new_states(2), []
    for piece in piece_x.split([33, 2, 35], 1):
        out, states = layer(piece, states=states, return_states=True)
        pieces.append(out)
    (torch.cat(pieces, 1) * weight).sum().backward()
    assert_near([torch.cat(pieces, 1), piece_x.grad, *gradients(layer)], [whole, *expected], 2e-5)


@pytest.mark.parametrize("packing", PACKINGS)
def test_gradients_of_the_states_themselves(packing):
    layer, x = small(packing), torch.randn(2, 5, 32)
    states = sluice.nn.States(*(torch.randn_like(t).requires_grad_() for t in layer.new_states(2)))
    _, final = layer(x, states=states, return_states=True)
    weight = torch.randn_like(final.recurrent)
    (final.recurrent * weight).sum().backward()
    step = 1e-2
    assert not layer.norm.weight.grad.any() and not layer.out_proj.weight.grad.any()
    for state in states:
        direction = torch.randn_like(state)
        sides = []
        for sign in (step, -step):
            moved = [t + sign * direction if t is state else t for t in states]
            _, final = layer(x, states=sluice.nn.States(*moved), return_states=True)
            sides.append((final.recurrent.double() * weight).sum())
        assert abs((sides[0] - sides[1]) / (2 * step) - (state.grad * direction).sum()) < 2e-3 * abs(sides[0])


@pytest.mark.parametrize("packing", PACKINGS)
def test_token_by_token(packing):
    layer, x = small(packing), torch.randn(3, 20, 32)
    with torch.no_grad():
        expected, last = layer(x, return_states=True)
        _, states = layer(x[:, :15], return_states=True)
        rows = [layer.step(piece, states) for piece in x[:, 15:].split([1, 1, 3], 1)]
    assert_near([torch.cat(rows, 1), *states], [expected[:, 15:], *last], 1e-5)


def test_packed_documents_are_documents():
    layer, x = small(), torch.randn(1, 50, 32)
    apart = torch.cat([layer(x[:, :20]), layer(x[:, 20:])], 1)
    assert_near([layer(x, torch.tensor([0, 20, 50]))], [apart], 1e-5)


def test_packed_documents_with_states_and_rows_behind_them():
    layer, x, offsets = small(), torch.randn(1, 50, 32), torch.tensor([0, 20, 20, 45])
    x.requires_grad_()
    out, states = layer(x, offsets, states=layer.new_states(3), return_states=True)
    assert not out[:, 45:].any() and states.recurrent.shape[0] == 3
    out.sum().backward()
    assert not x.grad[:, 45:].any() and x.grad[:, :45].any()
    assert not states.recurrent[1].any(), "an empty document keeps its state"


def separate(device="cpu"):
    """Inputs of a KDA layer: what comes from three projections, and the rest."""
    given = as_tensors(layer_inputs(packing="separate", B=2, T=40, H=2, HV=4, K=16, V=24), device)
    leaves = {name: t.requires_grad_() for name, t in given.items() if torch.is_tensor(t)}
    three = {name: leaves.pop(name) for name in list(leaves) if name in ("qkv", "k", "v") or "conv" in name}
    return three, leaves | dict(initial_state=torch.randn(2, 4, 16, 24, device=device, requires_grad=True))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bound", [0.0, -5.0])
def test_three_projections_are_one_cut_in_three(bound, device):
    three, rest = separate(device)
    one = {
        name: torch.cat([three[n] for n in names], axis)
        for name, names, axis in (
            ("qkv", ("qkv", "k", "v"), -1), ("conv_weight", ("conv_weight", "k_conv_weight", "v_conv_weight"), 0),
            ("conv_bias", ("conv_bias", "k_conv_bias", "v_conv_bias"), 0),
        )
    }  # fmt: skip
    found = []
    for packing, given in (("flat", one), ("separate", three)):
        options = dict(packing=packing, rounding="input", gate_activation="sigmoid", gate_lower_bound=bound)
        out, conv, final = functional.gated_delta_net(
            **given, **rest, **SIZES, **options, conv_columns=3, output_final_state=True
        )
        loss = out.square().sum() + final.sum() + sum(state.sum() for state in conv)
        inputs = [*three.values(), *rest.values()]
        found.append([out, final, torch.cat(conv, 1), *torch.autograd.grad(loss, inputs)])
    assert_near(*found, 1e-6)


def test_what_is_not_an_argument_is_named():
    three, rest = separate()
    with pytest.raises(TypeError, match="gated_delta_net: bias = given, expected one of qkv, k, v"):
        functional.gated_delta_net(**three, **rest, **SIZES, packing="separate", bias=None)


def test_operators_are_in_order():
    check_operators("cpu")


@pytest.mark.parametrize("more", [(False, 0, False), (True, 3, True)])
def test_the_operator_is_in_order(more):
    layer, x = small(conv_bias=True), torch.randn(1, 9, 32, requires_grad=True)
    states = dict(initial_state=torch.randn(1, 4, 16, 24), conv_initial=torch.randn(1, 160, 3))
    check_layer_operator(layer, x, *more, out_weight=torch.randn(8, 96), **states)


@pytest.mark.parametrize("packing, save_core, states", [
    ("interleaved", False, False), ("flat", False, False), ("interleaved", False, True), ("interleaved", True, True),
])  # fmt: skip
def test_compiled_whole(packing, save_core, states):
    layer, x = small(packing, save_core=save_core), torch.randn(1 if states else 2, 40, 32)
    given = (torch.tensor([0, 20, 40]), layer.new_states(2), True) if states else ()

    def run(call):
        out, final = call(x, *given) if states else (call(x), None)
        (out.square().sum() + (final.recurrent.sum() if states else 0)).backward()
        return gradients(layer)

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert_near(run(compiled), run(layer), 1e-6)


def test_saved_bytes_a_token():
    """What docs/training.md says is kept: the input, the projections, and the core if asked to."""

    def saved(layer, x):
        own = {p.data_ptr() for p in layer.parameters()}
        kept = {}

        def pack(t):
            if t.untyped_storage().data_ptr() not in own:
                kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            layer(x)
        return sum(kept.values()) / x.shape[1]

    values, projections = 4 * 24, 2 * 2 * 16 + 2 * 4 * 24 + 2 * 4
    for packing in PACKINGS:
        x = torch.randn(1, 50, 32)
        assert saved(small(packing), x) == 4 * (32 + projections)
        assert saved(small(packing, save_core=True), x) == 4 * (32 + projections + values)


def test_hooks_of_the_output_projection_are_called():
    layer, x, seen = small(), torch.randn(1, 5, 32), []
    expected = layer(x)
    layer.out_proj.register_forward_hook(lambda module, inputs, out: seen.append(out.shape))
    assert_near([layer(x)], [expected], 1e-6)
    assert seen == [expected.shape]


def test_autocast_and_the_deterministic_flag():
    layer, x = small(), torch.randn(2, 30, 32)

    def run():
        with torch.autocast("cpu", torch.bfloat16):
            loss = layer(x).float().square().sum()
        loss.backward()
        return gradients(layer)

    first = run()
    torch.use_deterministic_algorithms(True)
    try:
        again = run()
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(a, b) for a, b in zip(first, again))
    layer(x).square().sum().backward()
    assert_near(first, gradients(layer), 5e-2)


@pytest.mark.parametrize("packing, states", [("flat", False), ("interleaved", True)])
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed(packing, states, reentrant):
    layer, x = small(packing), torch.randn(2, 30, 32, requires_grad=True)
    given = (x, None, layer.new_states(2)) if states else (x,)
    layer(*given).sum().backward()
    expected = gradients(layer)
    torch.utils.checkpoint.checkpoint(layer, *given, use_reentrant=reentrant).sum().backward()
    assert all(torch.equal(a, b) for a, b in zip(gradients(layer), expected, strict=True))


def test_states_of_empty_documents_hand_their_gradient_on():
    layer, offsets = small("interleaved"), torch.tensor([0, 20, 20, 45])
    states = sluice.nn.States(*(torch.randn_like(t).requires_grad_() for t in layer.new_states(3)))
    _, final = layer(torch.randn(1, 45, 32), offsets, states, True)
    weights = [torch.randn_like(t) for t in final]
    sum((t * w).sum() for t, w in zip(final, weights)).backward()
    for state, weight in zip(states, weights):
        assert torch.equal(state.grad[1], weight[1])
        assert not torch.equal(state.grad[0], weight[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("logit, raw", [(-120.0, 0.0), (-23.0, 0.0), (3.0, 60.0), (3.0, -200.0)])
def test_gradients_at_the_edges_are_finite(dtype, logit, raw):
    """beta of 0 and of 1e-10, decay to nothing in a token, no decay at all."""
    given = as_tensors(layer_inputs(T=70, H=2, HV=4, K=16, V=24))
    given = {name: 2 * t for name, t in given.items() if torch.is_tensor(t) and name != "conv_bias"}
    for name, value in (("b", logit), ("a", raw), ("A_log", 0), ("dt_bias", 0)):
        given[name].fill_(value)

    # What all three types hold.
    given = {name: t.half().bfloat16().half().float() for name, t in given.items()}

    def run(kind):
        leaves = {name: t.clone().to(kind).requires_grad_() for name, t in given.items()}
        out, _, final = functional.gated_delta_net(**leaves, **SIZES, output_final_state=True)
        (out.float() * given["z"].unflatten(-1, (4, 24))).sum().backward()
        return {name: t.grad.float() for name, t in leaves.items()}

    found, exact = run(dtype), run(torch.float32)
    assert all(t.isfinite().all() for t in found.values())
    if logit > 0:  # else outputs are too small for 16 bits
        for name in ("qkv", "z", "conv_weight", "norm_weight"):
            assert error(found[name].numpy(), exact[name].numpy()) < 3e-2, name


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("save_core", [False, True])
@pytest.mark.parametrize("rounding", ["once", "hf"])
def test_both_packings_have_the_same_gradients(rounding, save_core, frozen, device):
    """layer_backward beside the gradients of the norm, of the delta rule and of the convolution one after the other."""
    layers = [small(p, rounding=rounding, save_core=save_core, conv_bias=True) for p in PACKINGS]
    layers[0].load_state_dict(_weights.interleaved(layers[1].state_dict(), tuple(SIZES.values())))
    x, offsets, found = torch.randn(1, 50, 32), torch.tensor([0, 20, 20, 45], device=device), []
    for layer in layers:
        rows = x.to(device).requires_grad_()
        layer.to(device).out_proj.requires_grad_(not frozen)
        out, states = layer(rows, offsets, states=layer.new_states(3), return_states=True)
        loss = out.square().sum() + states.recurrent.sum() + states.conv.square().sum()
        named = {n: p for n, p in layer.named_parameters() if p.requires_grad and "in_proj" not in n}
        assert ("out_proj.weight" in named) != frozen
        found.append([out, *states, *torch.autograd.grad(loss, [rows, *named.values()])])
    assert_near(*found, 2e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_autocast_converts_the_convolution_s_weights(device):
    """The fast convolutions of 16 bits have weights of 16 bits; torch's autocast converts those of its own."""
    layer, x = small(conv_bias=True).to(device), torch.randn(2, 50, 32, device=device)
    found = []
    for rounded in (False, True):
        with torch.autocast(device, torch.bfloat16):
            arguments = layer._arguments(x)
            if rounded:
                names = ("conv_weight", "conv_bias")
                arguments |= {name: arguments[name].detach().bfloat16().requires_grad_() for name in names}
            out, _, _ = functional.gated_delta_net(**arguments)
        own = layer.conv1d
        leaves = [arguments["conv_weight"], arguments["conv_bias"]] if rounded else [own.weight, own.bias]
        gradients = torch.autograd.grad(out.float().square().sum(), leaves)
        assert all(g.dtype == (torch.bfloat16 if rounded else torch.float32) for g in gradients)
        found.append([out, *(g.squeeze() for g in gradients)])
    for one, other in zip(*found):
        assert torch.equal(one.float(), other.float())


def test_bounded_gates_of_an_interleaved_layer_have_no_gradients():
    layer, x = small("interleaved"), torch.randn(1, 9, 32)
    arguments = layer._arguments(x) | dict(gate_lower_bound=-5.0)
    with torch.no_grad():
        functional.gated_delta_net(**arguments)
    with pytest.raises(sluice.Unsupported, match="gate_lower_bound = -5.0, expected 0 with packing interleaved"):
        functional.gated_delta_net(**arguments)
