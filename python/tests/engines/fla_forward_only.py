# SPDX-License-Identifier: Apache-2.0
"""A pytest plug-in that runs fla's own tests of the gated delta rule with Sluice as the backend.

Sluice has no backward pass: gradients are off, `backward()` does nothing, and a comparison of two
absent gradients is left out. A call that Sluice hands back fails the test, so a pass is Sluice's.
On a GPU the generic kernel counts too: this is about results.
Usage, with fla installed and its tests at hand:
  python -m pytest -p fla_forward_only TESTS/ops/test_gdn.py -k "chunk or fused_recurrent"
and FLA_SLUICE_LIST=file writes one line a test. docs/engines/fla_tests.tsv is such a list.
"""

import os

import fla.ops.gated_delta_rule
import fla.utils
import pytest
import torch
from sluice.engines import fla as sluice_fla
from sluice.engines.fla import backend

_compare = fla.utils.assert_close
# A test asks for fla's own ValueError: Sluice refuses the call too, and hands it back.
_MISTAKE = "transpose_state_layout = True, expected None (with state_v_first)"
_outcomes = []


def _assert_close(name, reference, found, *args, **kwargs):
    if reference is None and found is None:
        return
    _compare(name, reference, found, *args, **kwargs)


fla.utils.assert_close = _assert_close
if not torch.cuda.is_available():
    fla.utils.device = "cpu"  # fla says "cuda" where there is none
_supported = backend.supported


def _any_kernel(*args, **kwargs):
    kernel, refusal = _supported(*args, **kwargs)
    return kernel and kernel.replace("generic", "any"), refusal


backend.supported = _any_kernel
torch.Tensor.backward = lambda self, *args, **kwargs: None


@pytest.fixture(autouse=True)
def _sluice_takes_every_call(request):
    assert sluice_fla.register()
    # The test module has imported fla's decode by name, before it was re-assigned.
    name = "fused_recurrent_gated_delta_rule"
    setattr(request.module, name, getattr(fla.ops.gated_delta_rule, name))
    # What fla's tests ask before they run grouped heads, which TileLang's backend lacks.
    request.module.IS_NPU = True
    backend.tally.ran.clear()
    backend.tally.handed_back.clear()
    with torch.no_grad():
        yield
    if getattr(request.node, "call_passed", False):
        reasons = [reason for _, reason in backend.tally.handed_back]
        assert all(_MISTAKE in reason for reason in reasons), reasons
        assert backend.tally.ran, "the test did not reach Sluice"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.when == "call":
        item.call_passed = report.passed
    if report.skipped or report.failed or report.when == "teardown":
        reason = ""
        if report.skipped:
            reason = str(report.longrepr[2]).removeprefix("Skipped: ")
        elif report.failed:
            reason = str(call.excinfo.value).strip().split("\n")[0][:160]
        _outcomes.append((item.name, report.outcome, reason))


def pytest_sessionfinish():
    path = os.environ.get("FLA_SLUICE_LIST")
    if not path:
        return
    rank = ("passed", "skipped", "failed")
    worst = {}
    for name, outcome, reason in _outcomes:
        if name not in worst or rank.index(outcome) > rank.index(worst[name][0]):
            worst[name] = (outcome, reason)
    with open(path, "w") as out:
        out.write("test\toutcome\treason\n")
        for name, (outcome, reason) in worst.items():
            out.write(f"{name}\t{outcome}\t{reason}\n")
