# SPDX-License-Identifier: Apache-2.0
"""Measures the short rungs of the op manifest's accuracy ladder in every dtype of the host, and that
mutants of the results fall off it. Cases come from ops/manifest.json, answers from the float64
recurrence."""

import numpy as np
import pytest
from sluice_tools.cases import execute, judge
from sluice_tools.cases.execute import STAGES
from sluice_tools.report import ladder, manifest

MANIFEST = manifest.load()
SHORT = [item for item in ladder.items(MANIFEST, quick=True) if sum(item["lengths"]) <= 600]


@pytest.mark.parametrize("dtype", list(MANIFEST["ladder"]["limits"]))
@pytest.mark.parametrize("item", SHORT, ids=lambda item: item["name"].replace(" ", ""))
def test_ladder(item, dtype):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="bfloat16 on the host needs ml_dtypes")
    case = ladder.build_prefill(
        item, MANIFEST["ladder"]["heads"], dtype, MANIFEST["ladder"]["limits"][dtype]
    )
    verdicts = judge(case, execute(case, "cpu", "auto", dtype)[0])
    assert [v.tensor for v in verdicts] == ["final_state", "o"]
    assert all(v.passed for v in verdicts), [str(v) for v in verdicts]


@pytest.mark.parametrize("dtype", list(MANIFEST["ladder"]["limits"]))
def test_stages_of_the_quick_report_pass(dtype):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="bfloat16 on the host needs ml_dtypes")
    rows = ladder.measure("stages", MANIFEST, dtype, "cpu", quick=True)["rows"]
    assert {row["stage"] for row in rows} == set(STAGES)
    assert [row for row in rows if not row["passed"]] == []


@pytest.mark.parametrize("change", ["zeros", "shift", "heads", "state dropped", "last token"])
def test_mutants_fall_off(change):
    item = {"name": "m", "lengths": [150, 300], "gates": "slow", "keys": "random"}
    case = ladder.build_prefill(item, MANIFEST["ladder"]["heads"], "bfloat16", 1e-2)
    results = {name: case.get(name).copy() for name in ("o", "final_state")}
    o = results["o"]
    if change == "zeros":
        o[:] = 0
    elif change == "shift":
        o[:, 1:] = o[:, :-1].copy()
    elif change == "heads":
        o[:] = o[:, :, ::-1].copy()
    elif change == "state dropped":
        results["final_state"] -= case.get("initial_state")
    else:
        o[:, 149] = 0
    assert not all(v.passed for v in judge(case, results))
    assert all(v.passed for v in judge(case, {n: case.get(n) for n in ("o", "final_state")}))


def test_profiles_are_what_they_are_called():
    rng = np.random.default_rng(0)
    for profile, mean in (("random", 0.0), ("silu", 0.12), ("cos75", 0.75), ("cos90", 0.90)):
        keys = ladder.keys_of(profile, rng, (2000, 64))
        np.testing.assert_allclose(np.linalg.norm(keys, axis=1), 1, rtol=1e-12)
        cosine = ((keys.sum(0) ** 2).sum() - 2000) / (2000 * 1999)
        assert abs(cosine - mean) < 0.03, profile
    for profile in MANIFEST["ladder"]["gates"]:
        gates = ladder.gates_of(profile, rng, 640, 8)
        assert (gates is None) == (profile == "none")
        assert gates is None or (gates <= 0).all()
    assert (ladder.gates_of("published", rng, 64, 8)[:, ::4] == 0).all()
    with pytest.raises(ValueError, match="gates = odd"):
        ladder.gates_of("odd", rng, 1, 1)


def test_bfloat16_rounds_to_nearest_even():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    x = np.concatenate([x, np.array([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8], np.float32)])
    assert (ladder.rounded(x, "bfloat16") == x.astype(bfloat16).astype(np.float32)).all()
