# SPDX-License-Identifier: Apache-2.0
"""Asks torch's opcheck about the operators of sluice.nn, on any device."""


def check_operators(device):
    import torch

    def rows(*shape):
        return torch.randn(*shape, device=device, requires_grad=True)

    ops = torch.ops.sluice
    torch.library.opcheck(ops.train_causal_conv1d.default, (rows(2, 9, 8), rows(8, 4), rows(8), None, "silu"))
    torch.library.opcheck(
        ops.train_gated_rms_norm.default, (rows(2, 5, 8), rows(2, 5, 8), rows(8), 1e-6, "silu", "once")
    )
    torch.library.opcheck(
        ops.train_gated_delta_rule.default,
        (rows(1, 9, 1, 8), rows(1, 9, 1, 8), rows(1, 9, 2, 8), rows(1, 9, 2), rows(1, 9, 2), rows(2), rows(2), None,
         "raw", "logit", "positive", "l2", None),
    )  # fmt: skip
