# SPDX-License-Identifier: Apache-2.0
"""Runs fla's own tests of the gated delta rule with Sluice as the backend: a plug-in of pytest.

The rules run forward only: gradients are off, `backward()` does nothing, and a comparison of two
absent gradients is left out; the tests that do arithmetic with one are expected to end there, after
o and the state were compared. A call that Sluice hands back fails the test, so a pass is Sluice's;
q, k and v of several dtypes are handed back by rule, and a test of those is listed as skipped.
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
# fla's kernels convert in registers; Sluice takes one dtype and copies nothing.
_SEVERAL_DTYPES = "q, k, v of one dtype expected"
# They transpose a gradient, after they compared o and the state.
_ENDS_AT_A_GRADIENT = "test_chunk_state_v_first"
_outcomes = []
_compared = set()


def _assert_close(name, reference, found, *args, **kwargs):
    if reference is None and found is None:
        return
    _compare(name, reference, found, *args, **kwargs)
    _compared.add(name.strip())


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
    _compared.clear()
    with torch.no_grad():
        yield
    if not getattr(request.node, "call_as_expected", False):
        return
    if request.node.name.startswith(_ENDS_AT_A_GRADIENT):
        assert {"o", "ht"} <= _compared, _compared
    reasons = [reason for _, reason in backend.tally.handed_back]
    several = [reason for reason in reasons if reason.startswith(_SEVERAL_DTYPES)]
    others = [reason for reason in reasons if _MISTAKE not in reason and reason not in several]
    assert not others, others
    if several:
        pytest.skip(f"handed back to fla: {several[0]}")
    assert backend.tally.ran, "the test did not reach Sluice"


def pytest_collection_modifyitems(items):
    why = "o and the state were compared, the gradient is None"
    for item in items:
        if item.name.startswith(_ENDS_AT_A_GRADIENT):
            item.add_marker(pytest.mark.xfail(raises=AttributeError, strict=True, reason=why))


@pytest.hookimpl(hookwrapper=True, tryfirst=True)  # after pytest has looked at xfail
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    expected = getattr(report, "wasxfail", None) if report.skipped else None
    if report.when == "call":
        item.call_as_expected = report.passed or expected is not None
    if report.skipped or report.failed or report.when == "teardown":
        reason = ""
        if expected is not None:
            reason = expected
        elif report.skipped:
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
