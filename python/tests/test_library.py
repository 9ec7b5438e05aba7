# SPDX-License-Identifier: Apache-2.0
"""Measures threads, processes and what the package says of itself: results from many threads and
thread counts are compared bit for bit, facts with the installed distribution."""

import importlib.metadata
import inspect
import os
import pathlib
import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import sluice
from conftest import Inputs
from operator_scenes import layer_inputs


def run(x, **kwargs):
    return sluice.chunk_gated_delta_rule(*x.arguments(), use_qk_l2norm_in_kernel=True, **kwargs)[0]


@pytest.fixture
def own_threads():
    yield
    sluice.set_num_threads(None)


def test_set_num_threads_keeps_the_bits(own_threads):
    x = Inputs(B=4, T=200)
    expected = run(x)
    for threads in (1, 2, 7, None, 3):
        sluice.set_num_threads(threads)
        for _ in range(3):
            assert np.array_equal(run(x), expected)


def test_one_word_of_two_choices():
    """A choice is remembered by its str; the same str may be another number of another list."""
    x, word = Inputs(T=1), "none"
    states = [x.state.copy() for _ in range(4)]
    options = [dict(state_writes=word), dict(qk_norm=word)] * 2
    for state, option in zip(states, options):
        sluice.ops.recurrent_step(*x.arguments(), initial_state=state, **option)
    assert [np.array_equal(state, x.state) for state in states] == [True, False, True, False]


def test_set_num_threads_waits_for_operators(own_threads):
    x = Inputs(B=2, T=200)
    expected, over = run(x), threading.Event()

    def work(_):
        while not over.is_set():
            if not np.array_equal(run(x), expected):
                return False
        return True

    with ThreadPoolExecutor(8) as busy:
        right = busy.map(work, range(8))
        try:
            for threads in (1, 2, None, 3) * 5:
                sluice.set_num_threads(threads)
        finally:
            over.set()
    assert all(right)


@pytest.mark.parametrize("threads", [-1, 5000])
def test_set_num_threads_refuses(threads):
    with pytest.raises(sluice.InvalidArgument, match=f"threads = {threads}, expected 1 to 4096"):
        sluice.set_num_threads(threads)


@pytest.mark.parametrize("pool", [None, 2])
def test_many_threads_at_once(pool, own_threads):
    sluice.set_num_threads(pool)
    inputs = [Inputs(T=60 + 10 * i, seed=i) for i in range(6)]
    expected = [run(x) for x in inputs]

    def work(i):
        return all(np.array_equal(run(inputs[i]), expected[i]) for _ in range(20))

    with ThreadPoolExecutor(6) as threads:
        assert all(threads.map(work, range(6)))


def test_large_scratch_is_given_back_and_taken_anew():
    # More than the 64 MiB that a thread keeps.
    given = layer_inputs(T=70000, H=1, HV=1, K=64, V=64)
    for _ in range(2):
        out, *_ = sluice.gdn_layer_prefill(**given)
    assert np.isfinite(out).all()


def test_the_protocol_of_streams_names_its_version_first():
    class Stream:
        def __cuda_stream__(self):
            return 0, 77

    assert sluice._arrays.stream_handle(Stream()) == 77


def test_other_threads_run_while_an_operator_does():
    x = Inputs(B=4, T=2000, H=4, HV=8)
    inside, ticks = threading.Event(), []

    def tick():
        inside.wait()
        while inside.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.0005)

    ticker = threading.Thread(target=tick)
    ticker.start()
    before = sys.getswitchinterval()
    sys.setswitchinterval(30)  # the ticker gets on only if the GIL is given away
    try:
        inside.set()
        start = time.perf_counter()
        run(x)
        end = time.perf_counter()
    finally:
        inside.clear()
        sys.setswitchinterval(before)
    ticker.join(timeout=60)
    assert any(start < t < end for t in ticks)


@pytest.mark.parametrize("threads", ["None", "2"])
def test_fork(threads):
    code = f"""
import os, sys, numpy as np, sluice
sluice.set_num_threads({threads})
x = np.ones((1, 300, 8, 32), np.float32) / 8
first = sluice.chunk_gated_delta_rule(x, x, x)[0]
child = os.fork()
same = np.array_equal(first, sluice.chunk_gated_delta_rule(x, x, x)[0])
if child == 0:
    os._exit(0 if same else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or not same)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_last_kernel_is_of_this_thread():
    run(Inputs(T=4))
    with ThreadPoolExecutor(1) as other:
        assert other.submit(sluice.last_kernel).result() == "" != sluice.last_kernel()


def test_info_and_version():
    facts = sluice.info()
    assert facts["version"] == sluice.__version__ == importlib.metadata.version("sluice-gdn").partition("+")[0]
    assert "cpu" in facts["implementations"].split(", ") and facts["cpu.isa"]
    names = {entry["name"] for entry in sluice.implementations()}
    assert {"cpu", "reference", "reference-chunked"} <= names
    sluice.warm_up()
    with pytest.raises(ValueError, match="device = tpu"):
        sluice.warm_up("tpu")


def test_import_needs_neither_torch_nor_numpy_nor_the_tools():
    names = ('torch', 'numpy', 'argparse', 'sluice_tools')
    code = f"import sys, sluice; sys.exit(any(m in sys.modules for m in {names}))"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_functions_are_documented_named_and_picklable():
    public = [getattr(sluice, name) for name in sluice.__all__]
    public += [getattr(sluice.ops, name) for name in sluice.ops.__all__]
    for function in filter(inspect.isfunction, public):
        assert len(inspect.getdoc(function)) > 60, function
        assert pickle.loads(pickle.dumps(function)) is function
        kinds = {p.kind for p in inspect.signature(function).parameters.values()}
        open_ended = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
        assert function is sluice.supported or not kinds & open_ended, function


SIGNATURES = {
    "chunk_gated_delta_rule":
        "q k v g beta scale initial_state output_final_state use_qk_l2norm_in_kernel use_beta_sigmoid_in_kernel "
        "allow_neg_eigval state_v_first cu_seqlens cu_seqlens_cpu chunk_indices cp_context",
    "fused_recurrent_gated_delta_rule":
        "q k v g gk gv beta scale initial_state output_final_state use_qk_l2norm_in_kernel use_gate_in_kernel A_log "
        "dt_bias use_beta_sigmoid_in_kernel allow_neg_eigval state_v_first cu_seqlens",
    "fused_recurrent_kda":
        "q k v g beta A_log dt_bias scale initial_state output_final_state use_qk_l2norm_in_kernel use_gate_in_kernel "
        "use_beta_sigmoid_in_kernel allow_neg_eigval lower_bound state_v_first cu_seqlens",
    "chunk_kda":
        "q k v g beta scale initial_state output_final_state use_qk_l2norm_in_kernel use_gate_in_kernel "
        "use_beta_sigmoid_in_kernel allow_neg_eigval safe_gate lower_bound disable_recompute "
        "return_intermediate_states state_v_first cu_seqlens cu_seqlens_cpu cp_context use_graph max_num_seqs",
    "chunk_gla": "q k v g scale initial_state output_final_state state_v_first cu_seqlens cu_seqlens_cpu",
    "fused_recurrent_gla":
        "q k v gk gv scale initial_state output_final_state reverse state_v_first cu_seqlens",
    "fused_kda_gate": "g A_log dt_bias lower_bound output_dtype",
}  # fmt: skip


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_begin_as_those_of_fla(name):
    expected = SIGNATURES[name].split()
    found = list(inspect.signature(getattr(sluice, name)).parameters)
    assert found[: len(expected)] == expected and (name != "fused_kda_gate" or found == expected)


def test_ops_name_every_argument_of_the_interface():
    from sluice import _core

    for name in sluice.ops.__all__:
        parameters = set(inspect.signature(getattr(sluice.ops, name)).parameters)
        table = {field[0] for field in _core.fields(name)}
        assert parameters == table, name


def test_wheel_carries_what_it_needs():
    folder = pathlib.Path(sluice.__file__).parent
    maps = pathlib.Path("/proc/self/maps").read_text()
    loaded = {line.split()[-1] for line in maps.splitlines() if "libhwy" in line}
    if not loaded:
        pytest.skip("Highway is linked statically")
    assert loaded == {str(folder / "libhwy.so.1")} or os.environ.get("LD_LIBRARY_PATH")
    assert (folder / "py.typed").exists()


class Falsy:
    """A value of its own that counts as false: `value or default` must not replace it."""

    def __bool__(self):
        return False


@pytest.mark.parametrize("name", sluice.ops.__all__)
def test_ops_hand_on_every_argument_as_it_is(name, monkeypatch):
    seen = {}
    order = [field for field, _, _, _ in sluice._core.fields(name)]

    def run(*values, **named):
        seen.update(zip(order, values), **named)

    monkeypatch.setattr(sluice._kinds, "entry", lambda op, tensor: run)
    function = getattr(sluice.ops, name)
    given = {parameter: Falsy() for parameter in inspect.signature(function).parameters}
    function(**given)
    assert seen == given


def test_the_extension_takes_arguments_by_position(inputs):
    """In the order of `fields`; and refuses what is given twice."""
    o, expected = np.empty_like(inputs.v), np.empty_like(inputs.v)
    arguments = dict(q=inputs.q, k=inputs.k, v=inputs.v, gate=inputs.g, beta=inputs.beta)
    sluice._core.chunk_forward(*arguments.values(), o, qk_norm="l2")
    sluice._core.chunk_forward(o=expected, qk_norm="l2", **arguments)
    assert np.array_equal(o, expected)
    with pytest.raises(TypeError, match="by position too"):
        sluice._core.chunk_forward(*arguments.values(), o, beta=inputs.beta)
    with pytest.raises(TypeError, match="36 positional arguments, expected at most 35"):
        sluice._core.chunk_forward(*[None] * 36)
    with pytest.raises(ValueError, match="workspace rank = 4, expected 1"):
        between = [name for name, _, _, _ in sluice._core.fields("chunk_forward")].index("workspace") - 6
        sluice._core.chunk_forward(*arguments.values(), o, *[None] * between, inputs.q)


@pytest.mark.parametrize("name", ["chunk_gated_delta_rule", "fused_recurrent_gated_delta_rule"])
@pytest.mark.parametrize("tokens", [1, 70])
def test_functions_hand_on_what_the_operators_call_the_same(name, tokens, monkeypatch):
    seen = {}

    def entry(op, tensor):
        order = [field for field, _, _, _ in sluice._core.fields(op)]
        return lambda *values: seen.update(zip(order, values))

    monkeypatch.setattr(sluice._kinds, "entry", entry)
    x = Inputs(T=tokens)
    function = getattr(sluice, name)
    names = list(inspect.signature(function).parameters)
    same = "scale initial_state A_log dt_bias cu_seqlens final_state read_slots write_slots".split()
    same += "has_initial_state pad_below checkpoints checkpoint_slots checkpoint_every".split()
    same += "num_accepted max_tokens head_map l2norm_eps implementation stream workspace".split()
    given = {parameter: object() for parameter in same if parameter in names}
    if name.startswith("fused") and tokens > 16:  # by chunks, which have no speculation
        given.pop("num_accepted")
        given.pop("max_tokens")
    q, k, v, g, beta = x.arguments()
    function(q, k, v, g, beta=beta, out=x, **given)
    given |= dict(q=q, k=k, v=v, gate=g, beta=beta, o=x)
    assert {parameter: seen[parameter] for parameter in given} == given
    flags = dict(use_qk_l2norm_in_kernel=True, state_v_first=True, use_gate_in_kernel=True,
                 use_beta_sigmoid_in_kernel=True, allow_neg_eigval=True)
    function(q, k, v, g, beta=beta, out=x, **flags)
    assert [seen[choice] for choice in ("qk_norm", "state_layout", "gate_space", "beta_space",
                                        "eigenvalues")] == ["l2", "vk", "raw", "logit", "negative"]
