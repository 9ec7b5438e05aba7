# SPDX-License-Identifier: Apache-2.0
"""Provides what tests of models of transformers run in."""

import pytest


@pytest.fixture(scope="module")
def one_thread():
    """One thread: the models are too small for more, and tests run beside others."""
    import torch
    from small_models import quiet

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with quiet():
        yield
    torch.set_num_threads(threads)
