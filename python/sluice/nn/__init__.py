# SPDX-License-Identifier: Apache-2.0
"""Offers modules of torch that train on Sluice: `GatedDeltaNet`. Needs torch; operators: `sluice.nn.functional`."""

from . import functional
from .gated_delta_net import GatedDeltaNet, States

__all__ = ["GatedDeltaNet", "States", "functional"]
