# SPDX-License-Identifier: Apache-2.0
"""SLUICE_TEST_DEVICE=cuda runs the engines' tests with their tensors on the GPU."""

import os

import pytest

DEVICE = os.environ.get("SLUICE_TEST_DEVICE")


@pytest.fixture(autouse=True)
def device_of_the_tests():
    if not DEVICE:
        yield
        return
    torch = pytest.importorskip("torch")
    torch.set_default_device(DEVICE)
    yield
    torch.set_default_device(None)
