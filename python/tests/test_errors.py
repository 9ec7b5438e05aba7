# SPDX-License-Identifier: Apache-2.0
"""Measures that every refusal is an exception of the right class with a message that names the
argument. Each case breaks one argument of a good call and matches the whole grammar."""

import pickle

import fla_functions
import numpy as np
import pytest
import sluice
from conftest import Inputs


def call(**changes):
    x = Inputs(T=4)
    arguments = dict(q=x.q, k=x.k, v=x.v, g=x.g, beta=x.beta)
    arguments.update(changes)
    return sluice.chunk_gated_delta_rule(**arguments)


F = np.float32
CASES = [
    (dict(v=np.zeros((2, 4, 3, 32), F)), sluice.InvalidArgument, r"v\.shape\[2\] = 3, expected a m"),
    (dict(k=np.zeros((2, 4, 2, 32), F)), sluice.InvalidArgument, r"k\.shape\[3\] = 32, expected 64"),
    (dict(k=np.zeros((2, 4, 2, 64), np.float16)), sluice.InvalidArgument, "k dtype = float16, expected float32"),
    (dict(q=np.zeros((2, 4, 2, 64))), sluice.InvalidArgument, "chunk_gated_delta_rule: q dtype = float64, exp"),
    (dict(q=np.zeros((2, 4, 2, 64), ">f4")), sluice.InvalidArgument, "q format = \">f\""),
    (dict(beta=np.zeros((2, 4, 4, 32), F)), sluice.InvalidArgument, r"beta rank = 4, expected 3 .\[B,T,HV\]"),
    (dict(g=np.zeros((2, 4), F)), sluice.InvalidArgument, "chunk_gated_delta_rule: g rank = 2, expected 3"),
    (dict(out=np.zeros((2, 4, 4, 3), F)), sluice.InvalidArgument, r"chunk_gated_delta_rule: out\.shape\[3\] = 3"),
    (dict(initial_state=np.zeros((2, 4, 64, 3), F)), sluice.InvalidArgument,
     r"chunk_gated_delta_rule: initial_state\.shape\[3\] = 3, expected 32"),
    (dict(q=np.zeros((1, 1, 2, 4, 2, 64), F)), sluice.InvalidArgument, "q rank = 6, expected at most 5"),
    (dict(q=np.zeros((2, 4, 2, 128), F)[..., ::2]), sluice.InvalidArgument,
     r"chunk_gated_delta_rule: q\.stride\[3\] = 2"),
    (dict(v=np.zeros((2, 4, 4, 32), [("value", "f4"), ("mark", "u1")])["value"]), sluice.Unsupported,
     "v.stride.* bytes, expected whole elements"),
    (dict(A_log=np.zeros(4, F)), sluice.InvalidArgument, "A_log = given, expected absent"),
    (dict(use_gate_in_kernel=True), sluice.InvalidArgument, "A_log = absent, expected"),
    (dict(gate_space="alpha"), sluice.InvalidArgument, "gate_space = 'alpha', expected one of log, l"),
    (dict(head_map=1), sluice.InvalidArgument, "head_map = 1, expected one of block, cyclic"),
    (dict(scale=float("nan")), sluice.InvalidArgument, "scale = nan, expected a finite"),
    (dict(scale="big"), TypeError, "scale = 'big', expected a number"),
    (dict(pad_below=0.5), TypeError, "pad_below = 0.5, expected an integer"),
    (dict(pad_below=1 << 70), sluice.InvalidArgument, "pad_below = 1180591620717411303424, expected 64 bits"),
    (dict(scale=10**400), sluice.InvalidArgument, "scale = 10{59}, expected a number within float64's"),
    (dict(pad_below=1 << 20000), sluice.InvalidArgument, "pad_below = a number of thousands of digits, ex"),
    (dict(k=[1, 2]), TypeError, "k = list, expected a torch tensor, a NumPy array or a DLPack"),
    (dict(cu_seqlens=np.array([0, 4], np.uint32)), sluice.InvalidArgument,
     "cu_seqlens dtype = uint32, expected int32 or int64"),
    (dict(cu_seqlens=np.array([0, 9], np.int32)), sluice.InvalidArgument, "expected 1 .packed rows"),
    (dict(implementation="cuda"), sluice.Unsupported, "implementation = "),
    (dict(stream=5), sluice.InvalidArgument, "stream = given, expected null"),
    (dict(stream=object()), TypeError, "stream = object, expected an integer handle"),
    (dict(workspace=np.zeros((2, 2), F)), sluice.InvalidArgument, "workspace rank = 2, expected 1"),
    (dict(workspace=np.zeros(16, F)), sluice.WorkspaceTooSmall, "workspace.size = 64, expected >="),
    (dict(workspace=np.frombuffer(bytes(1 << 22), np.uint8)), sluice.InvalidArgument,
     "workspace rank = 1, expected 1 .contiguous, writable"),
    (dict(cp_context=1), sluice.Unsupported, "cp_context = given, expected None"),
    (dict(head_first=True), sluice.Unsupported, "head_first = True, expected False"),
    (dict(chunk_size=128), sluice.InvalidArgument, "chunk_size = 128, expected None, 16, 32 or 64"),
    (dict(allow_neg_eigval=True), sluice.InvalidArgument, "allow_neg_eigval = True, expected False"),
    (dict(output_final_state=True, read_slots=np.zeros(2, np.int32)), sluice.InvalidArgument,
     "final_state = None, expected a pool .output_final_state with read_slots"),
    (dict(output_final_state=True, write_slots=np.array([0, -1])), sluice.InvalidArgument,
     "final_state = None, expected a pool .output_final_state with write_slots"),
    (dict(read_slots=np.array([0, 9], np.int32), initial_state=np.zeros((2, 4, 64, 32), F)),
     sluice.InvalidArgument, r"chunk_gated_delta_rule: read_slots\[1,0\] = 9, expected < 2"),
    (dict(frobnicate=1), TypeError, "unexpected keyword argument 'frobnicate'"),
]


def first_changed(value):
    return next(iter(value)) if isinstance(value, dict) else ""


@pytest.mark.parametrize("changes, kind, message", CASES, ids=first_changed)
def test_refusals(changes, kind, message):
    with pytest.raises(kind, match=message):
        call(**changes)


X = Inputs(T=4)
STEPS, KDA, GLA = ("fused_recurrent_gated_delta_rule",), ("chunk_kda", "fused_recurrent_kda"), ("fused_recurrent_gla",)
BOUND = "kda: lower_bound = {:g}, expected None or a finite number < 0"
OTHERS = [
    (STEPS, dict(gv=X.v), sluice.Unsupported, "gv = given"),
    (STEPS, dict(gk=X.g), sluice.Unsupported, "gk = given, expected None with g"),
    (STEPS, dict(num_accepted=np.zeros(1, np.int32), cu_seqlens=np.array([0, 4], np.int32)), sluice.InvalidArgument,
     "num_accepted = given"),
    (("chunk_simple_gla",), dict(g_gamma=X.g), sluice.Unsupported, "g_gamma = given"),
    (KDA, dict(use_gate_in_kernel=True), sluice.InvalidArgument, "A_log = None, expected a tensor"),
    (KDA, dict(allow_neg_eigval=True), sluice.InvalidArgument, "allow_neg_eigval = True"),
    (KDA, dict(transpose_state_layout=False, state_v_first=True), sluice.InvalidArgument,
     "transpose_state_layout = False"),
    *((KDA, dict(lower_bound=bound, use_gate_in_kernel=True), sluice.InvalidArgument, BOUND.format(bound))
      for bound in (3, 0, 0.0, float("-inf"), float("nan"))),
    (KDA[:1], dict(safe_gate=True, use_gate_in_kernel=True, A_log=X.g[0, 0]), sluice.InvalidArgument,
     "lower_bound = None, expected a number < 0"),
    (KDA[:1], dict(chunk_size=128), sluice.InvalidArgument, "chunk_size = 128, expected 32 or 64"),
    (KDA[:1], dict(cp_context=X.g), sluice.Unsupported, "cp_context = given"),
    (KDA[:1], dict(return_intermediate_states=True), sluice.Unsupported, "return_intermediate_states = True"),
    (GLA, dict(gv=X.v), sluice.Unsupported, "gv = given"),
    (GLA, dict(reverse=True), sluice.Unsupported, "reverse = True"),
]


@pytest.mark.parametrize("names, changes, kind, message", OTHERS, ids=first_changed)
def test_other_functions_refuse(names, changes, kind, message):
    for name in names:
        with pytest.raises(kind, match=message):
            fla_functions.call(name, fla_functions.rows_of(name, X), **changes)


def test_what_is_no_option_of_the_rule_is_refused():
    with pytest.raises(sluice.InvalidArgument, match="A_log = None"):
        sluice.fused_kda_gate(fla_functions.key_gates(X))
    for activation in ("gelu", "sigmoid", "none"):
        message = f"causal_conv1d: activation = '{activation}', expected one of None, 'silu', 'swish'"
        with pytest.raises(sluice.InvalidArgument, match=message):
            sluice.causal_conv1d(np.zeros((1, 2, 4), F), np.zeros((4, 4), F), activation=activation)
    with pytest.raises(sluice.InvalidArgument, match="gated_rms_norm: activation = None, expected one of 'silu'"):
        sluice.gated_rms_norm(X.v, X.v, np.ones(X.v.shape[-1], F), activation=None)
    with pytest.raises(sluice.InvalidArgument, match="set_num_threads: threads = 0, expected 1 to 4096, or None"):
        sluice.set_num_threads(0)
    with pytest.raises(sluice.Unsupported, match="fifth positional argument is gk: pass beta=beta"):
        sluice.fused_recurrent_gated_delta_rule(X.q, X.k, X.v, X.g, X.beta)


@pytest.mark.parametrize("name", ["chunk_kda", "fused_recurrent_kda", "chunk_gla", "fused_recurrent_gla"])
def test_gates_by_head_are_no_gates_by_channel(name):
    x = Inputs(T=4)
    beta = (x.beta,) if name.endswith("kda") else ()
    with pytest.raises(sluice.InvalidArgument, match=rf"{name}: gk? rank = 3, expected 4 .*gates \[B,T,HV\] are "):
        getattr(sluice, name)(x.q, x.k, x.v, x.g, *beta)


def test_gates_of_key_channels_have_their_own_name():
    gk = np.zeros((2, 4, 4, 3), F)
    with pytest.raises(sluice.InvalidArgument, match=r"^fused_recurrent_gated_delta_rule: gk\.shape\[3\] = 3"):
        sluice.fused_recurrent_gated_delta_rule(X.q, X.k, X.v, None, gk)
    with pytest.raises(sluice.InvalidArgument, match=r"^fused_recurrent_gla: gk\.shape\[3\] = 3, expected"):
        sluice.fused_recurrent_gla(X.q, X.k, X.v, gk)
    with pytest.raises(sluice.InvalidArgument, match=r"^chunk_forward: gate\.shape\[3\] = 3"):
        sluice.ops.chunk_forward(X.q, X.k, X.v, gk)
    with pytest.raises(TypeError, match="missing 4 required keyword-only"):
        sluice.ops.layer_prefill(X.q, conv_weight=1, A_log=1, dt_bias=1, norm_weight=1)


def test_classes_are_the_builtin_ones_too():
    assert issubclass(sluice.InvalidArgument, ValueError)
    assert issubclass(sluice.Unsupported, NotImplementedError)
    assert issubclass(sluice.DeviceError, RuntimeError)
    assert all(issubclass(getattr(sluice, name), sluice.Error) for name in
               ("InvalidArgument", "Unsupported", "WorkspaceTooSmall", "DeviceError", "InternalError"))


def test_exceptions_travel_between_processes():
    with pytest.raises(sluice.InvalidArgument) as caught:
        call(gate_space="alpha")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert type(copy) is sluice.InvalidArgument and str(copy) == str(caught.value)


def test_nothing_is_written_by_a_refused_call():
    x = Inputs(T=4)
    out = np.full_like(x.v, 7)
    with pytest.raises(sluice.Error):
        call(q=np.zeros((2, 4, 2, 64)), out=out)
    assert (out == 7).all()


def test_supported_says_the_kernel_or_the_reason():
    x = Inputs(T=4)
    good = dict(q=x.q, k=x.k, v=x.v, o=np.empty_like(x.v))
    kernel, refusal = sluice.supported("chunk_forward", **good)
    assert kernel.startswith("cpu.chunk_forward") and refusal is None
    kernel, refusal = sluice.supported("chunk_forward", **{**good, "v": x.v[:, :, :3]})
    assert kernel is None and isinstance(refusal, sluice.InvalidArgument)
    kernel, refusal = sluice.supported("softmax")
    assert kernel is None and "op = softmax, expected chunk_forward" in str(refusal)


@pytest.mark.parametrize(
    "changes, message",
    [
        (dict(split="columns_64"), "split = 'columns_64', expected one of auto, never, columns"),
        (dict(split_value=1 << 40), "split_value = 1099511627776, expected 32 bits"),
        (dict(split_value=1 << 70), "split_value = 1180591620717411303424, expected 32 bits"),
        (dict(max_tokens=1 << 70), "max_tokens = 1180591620717411303424, expected 64 bits"),
        (dict(split="segments", split_value=1), "split_value = 1, expected 2 to 4096"),
        (dict(history="some"), "history = 'some', expected one of auto, strict, forget"),
    ],
)
def test_refusals_of_how_a_gpu_splits(inputs, changes, message):
    with pytest.raises(sluice.InvalidArgument, match=message):
        sluice.ops.chunk_forward(*inputs.arguments(), **changes)


def test_ways_of_a_gpu_change_nothing_on_the_cpu(inputs):
    expected = sluice.ops.chunk_forward(*inputs.arguments(), qk_norm="l2")
    for changes in (dict(split="segments", split_value=4), dict(split="length"), dict(history="strict")):
        found = sluice.ops.chunk_forward(*inputs.arguments(), qk_norm="l2", **changes)
        assert np.array_equal(found, expected)


class Broken:
    """A producer of tensors that fails when it is asked where they are."""

    def __init__(self, error):
        self.error = error

    def __dlpack__(self, **how):
        raise self.error

    def __dlpack_device__(self):
        raise self.error


@pytest.mark.parametrize("error", [RuntimeError("the device is gone"), AttributeError("no such part")])
def test_what_a_producer_raises_is_the_cause(inputs, error):
    with pytest.raises(TypeError, match="chunk_forward: q = Broken, expected a torch tensor") as caught:
        sluice.ops.chunk_forward(Broken(error), inputs.k, inputs.v)
    assert caught.value.__cause__ is error and error.__traceback__ is not None
    with pytest.raises(TypeError, match="q = list, expected") as caught:
        sluice.ops.chunk_forward([1.0], inputs.k, inputs.v)
    assert caught.value.__cause__ is None


def test_an_interrupt_of_a_producer_is_one(inputs):
    with pytest.raises(KeyboardInterrupt):
        sluice.ops.chunk_forward(Broken(KeyboardInterrupt()), inputs.k, inputs.v)
