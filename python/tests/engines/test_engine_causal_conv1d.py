# SPDX-License-Identifier: Apache-2.0
"""Measures whether sluice.engines.causal_conv1d computes what the causal-conv1d package promises.
Compares with the float64 convolution of engine_reference.py on channel-first tensors and states."""

import pytest

torch = pytest.importorskip("torch")

import sluice
from engine_reference import check_convolution, close, convolution, poisoned, side_by_side
from sluice.engines import causal_conv1d as conv

D = 6


@pytest.mark.parametrize("W", [2, 3, 4])
@pytest.mark.parametrize("activation", [None, "silu", "swish"])
def test_prefill(W, activation):
    torch.manual_seed(W)
    x, weight, bias = torch.randn(2, D, 9), torch.randn(D, W), torch.randn(D)
    history = torch.randn(2, D, W - 1)
    states = poisoned(2, D, W - 1)
    out, final = conv.causal_conv1d_fn(
        x,
        weight,
        bias,
        initial_states=history,
        return_final_states=True,
        final_states_out=states,
        activation=activation,
    )
    assert final is states
    silu = activation is not None
    check_convolution(
        side_by_side(x), weight, bias, (0, 9, 18), side_by_side(out), history, final, range(2), silu=silu)
    alone = conv.causal_conv1d_fn(x, weight, bias, activation=activation)
    close(alone[0].T, convolution(x[0].T, weight, bias, torch.zeros(D, W - 1), silu))


@pytest.mark.parametrize("columns", [3, 5])
def test_update_shifts(columns):
    torch.manual_seed(columns)
    state, x, weight = torch.randn(4, D, columns), torch.randn(2, D), torch.randn(D, 4)
    before = state.clone()
    out = conv.causal_conv1d_update(
        x, state, weight, activation="silu", conv_state_indices=torch.tensor([2, -1])
    )
    close(out[:1], convolution(x[:1], weight, None, before[2][:, -3:]))
    close(state[2], torch.cat([before[2][:, 1:], x[0][:, None]], 1))
    assert (out[1] == 0).all() and torch.equal(state[[0, 1, 3]], before[[0, 1, 3]])


def test_update_of_a_ring():
    torch.manual_seed(9)
    L, position = 5, 7
    state, x, weight = torch.randn(1, D, L), torch.randn(1, D, 2), torch.randn(D, 4)
    before = state.clone()
    out = conv.causal_conv1d_update(
        x, state, weight, cache_seqlens=torch.tensor([position], dtype=torch.int32)
    )
    history = before[0][:, [(position - 3 + i) % L for i in range(3)]]
    close(out[0].T, convolution(x[0].T, weight, None, history, silu=False))
    expected = before.clone()
    expected[0][:, [position % L, (position + 1) % L]] = x[0]
    assert torch.equal(state, expected)


def test_states_of_packed_rows():
    x = torch.randn(9, D)
    states = conv.causal_conv1d_varlen_states(x, torch.tensor([0, 5, 5, 9]), 4)
    assert states.shape == (3, D, 4)
    assert torch.equal(states[0], x[1:5].T) and (states[1] == 0).all()
    assert torch.equal(states[2], x[5:9].T)
    short = conv.causal_conv1d_varlen_states(x, torch.tensor([0, 2]), 4)
    assert torch.equal(short[0][:, 2:], x[:2].T) and (short[0][:, :2] == 0).all()


def test_refused_by_name():
    x, weight = torch.randn(1, D, 3), torch.randn(D, 4)
    with pytest.raises(sluice.Unsupported, match="seq_idx"):
        conv.causal_conv1d_fn(x, weight, seq_idx=torch.zeros(1, 3, dtype=torch.int32))
    with pytest.raises(sluice.Unsupported, match="activation"):
        conv.causal_conv1d_fn(x, weight, activation="relu")
    with pytest.raises(sluice.InvalidArgument, match="final_states_out"):
        conv.causal_conv1d_fn(x, weight, final_states_out=torch.zeros(1, D, 3))


def test_gradients_of_whole_rows_and_none_of_an_update():
    torch.manual_seed(5)
    x, weight = torch.randn(2, 6, 9, requires_grad=True), torch.randn(6, 4, requires_grad=True)
    initial = torch.randn(2, 6, 3, requires_grad=True)
    out, final = conv.causal_conv1d_fn(
        x, weight, initial_states=initial, return_final_states=True, activation="silu"
    )
    (out.square().sum() + final.sum()).backward()
    wide = [t.detach().double().requires_grad_() for t in (x, weight, initial)]
    rows = torch.cat([wide[2], wide[0]], 2)
    expected = torch.nn.functional.silu(torch.nn.functional.conv1d(rows, wide[1][:, None], groups=6))
    (expected.square().sum() + rows[:, :, -3:].sum()).backward()
    for tensor, other in zip((x, weight, initial), wide):
        close(tensor.grad, other.grad)
    with pytest.raises(sluice.Unsupported, match="final_state = initial_state, expected another tensor"):
        conv.causal_conv1d_update(x[:, :, :1], initial.detach(), weight)
