# SPDX-License-Identifier: Apache-2.0
"""Measures that steps with a replay ring, of the delta rule and of whole layers, decode what was
accepted of their drafts: sessions on NumPy arrays beside plain calls of the accepted tokens."""

import numpy as np
import pytest
import sluice
from conftest import Inputs, delta_rule, error
from operator_scenes import layer_inputs

TOLERANCE = 1e-5
L, DRAFTS = 8, 3
ACCEPTED = [1, 3, 0, 2, 3, 3, 1, 2]


class Ring:
    """Entries of one slot, and its cursors."""

    def __init__(self, heads, value_heads, key_dim, value_dim):
        self.position, self.checkpoint = np.array([7], np.int32), np.array([7], np.int32)
        self.next = np.zeros(1, np.int32)
        self.arguments = dict(
            replay_k=np.zeros((1, L, heads, key_dim), np.float32),
            replay_delta=np.zeros((1, L, value_heads, value_dim), np.float32),
            replay_decay=np.zeros((1, L, value_heads), np.float32),
            replay_position=self.position, replay_next_checkpoint=self.next,
        )

    def __call__(self):
        return dict(self.arguments, replay_checkpoint=self.checkpoint)

    def accept(self, tokens):
        self.checkpoint[:] = self.next
        self.position += tokens


def test_steps():
    x = Inputs(B=1, T=DRAFTS * len(ACCEPTED))
    pool, done = x.state.copy(), 0
    _, _, H, K = x.k.shape
    ring = Ring(H, x.v.shape[2], K, x.v.shape[3])
    expected, _ = delta_rule(*x.arguments(), state=x.state, l2=True)
    folds = 0
    for accepted in ACCEPTED:
        before = pool.copy()
        drafts = [a[:, done : done + DRAFTS] for a in x.arguments()]
        o = sluice.ops.recurrent_step(*drafts, qk_norm="l2", initial_state=pool, **ring())
        assert error(o, expected[:, done : done + DRAFTS]) < TOLERANCE
        folds += int(ring.next[0] != ring.checkpoint[0])
        assert ring.next[0] != ring.checkpoint[0] or np.array_equal(pool, before)
        ring.accept(accepted)
        done += accepted
    assert folds > 0
    nothing = [a[:, :0] for a in x.arguments()]
    sluice.ops.recurrent_step(*nothing, qk_norm="l2", initial_state=pool, replay_fold="always",
                              **ring())
    accepted = [a[:, :done] for a in x.arguments()]
    assert error(pool, delta_rule(*accepted, state=x.state, l2=True)[1]) < TOLERANCE


@pytest.mark.parametrize("form", ["ring", "shift"])
def test_layers(form):
    H, HV, K, V, W = 2, 4, 16, 12, 4
    D, tokens = 2 * H * K + HV * V, DRAFTS * len(ACCEPTED)
    parameters = layer_inputs(B=1, T=tokens, H=H, HV=HV, K=K, V=V)
    rows = [parameters.pop(name) for name in ("qkv", "z", "b", "a")]
    state = np.random.default_rng(9).standard_normal((1, HV, K, V), np.float32)
    plain = dict(conv_initial=np.zeros((1, D, W - 1), np.float32), initial_state=state.copy())
    pools = dict(conv_initial=np.zeros((1, D, W - 1 + DRAFTS), np.float32), initial_state=state)
    ring, done, last = Ring(H, HV, K, V), 0, 1
    for accepted in ACCEPTED:
        accepted = max(accepted, 1) if form == "shift" else accepted
        rollback = (dict(ring_position=ring.position) if form == "ring"
                    else dict(num_accepted=np.array([last], np.int32)))
        drafts = [a[:, done : done + DRAFTS] for a in rows]
        out = sluice.ops.layer_decode(*drafts, conv_state_form=form, **parameters, **pools,
                                      **rollback, **ring())
        for t in range(accepted):
            one = sluice.ops.layer_decode(*[a[:, t : t + 1] for a in drafts], **parameters, **plain)
            assert error(out[:, t : t + 1], one) < TOLERANCE
        ring.accept(accepted)
        done, last = done + accepted, accepted


def test_refusals():
    x = Inputs(B=1, T=2)
    ring = Ring(x.k.shape[2], x.v.shape[2], x.k.shape[3], x.v.shape[3])
    given = dict(ring(), initial_state=x.state)
    with pytest.raises(sluice.InvalidArgument, match="ring.k.shape"):
        sluice.ops.recurrent_step(*x.arguments(), **dict(given, replay_k=given["replay_k"][:, :3]))
