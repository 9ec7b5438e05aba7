# SPDX-License-Identifier: Apache-2.0
"""Measures the package on a GPU: every operator against the CPU backend on the same values, streams,
graphs, compilation, several devices, CuPy and JAX arrays, and that no call waits for the device.
Results are compared with the float64 recurrence or the CPU's; what no kernel does there is skipped by
the refusal's own words. Run by scripts/test_python_cuda.sh."""

import pathlib

import numpy as np
import pytest
import sluice
from conftest import Inputs, delta_rule, error
from cuda_checks import nothing_waits, recorded, torch
from fla_functions import chunk, steps
from operator_scenes import as_tensors, layer_inputs
from sluice import ops
from sluice_tools import cases

pytestmark = pytest.mark.cuda
# NUM: of bfloat16 outputs, whose rounding alone is 1.7e-3; float16 has three bits more.
LIMITS = {torch.float32: 1e-5, torch.bfloat16: 8e-3, torch.float16: 1e-3}
GOLDEN = pathlib.Path(__file__).parents[2] / "tests/golden/hf_prefill.safetensors"


@pytest.fixture(autouse=True, scope="module")
def loaded():
    """A kernel that is loaded at its first call may wait for the device."""
    sluice.warm_up("cuda")


def tensors(x, dtype=torch.float32, device="cuda"):
    q, k, v, g, beta = (torch.from_numpy(a.copy()).to(device) for a in x.arguments())
    return q.to(dtype), k.to(dtype), v.to(dtype), g, beta


def numpy(*values):
    return [t.float().cpu().numpy() for t in values]


def run_or_skip(call, *arguments, **options):
    try:
        return call(*arguments, **options)
    except sluice.Unsupported as refusal:
        pytest.skip(str(refusal))


@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("dim", [16, 64, 128, 256])
def test_prefill_with_states(dtype, dim):
    x = Inputs(B=2, T=200, H=2, HV=6, K=dim, V=dim)
    parts = tensors(x, dtype)
    state = torch.from_numpy(x.state).cuda()
    o, final = run_or_skip(chunk, parts, initial_state=state, output_final_state=True)
    assert sluice.last_kernel().startswith("cuda.") and o.dtype == dtype and o.is_cuda
    expected_o, expected_s = delta_rule(*numpy(*parts), state=x.state, l2=True)
    assert error(*numpy(o), expected_o) < LIMITS[dtype]
    assert error(*numpy(final), expected_s) < LIMITS[dtype]
    assert torch.equal(state.cpu(), torch.from_numpy(x.state)), "the initial state is not written"


@pytest.mark.parametrize("dtype", LIMITS, ids=str)
def test_packed_rows_and_strided_views(dtype):
    x = Inputs(B=1, T=200, H=2, HV=4, K=128, V=128, N=3)
    parts = tensors(x, dtype)
    cu_seqlens = torch.tensor([0, 60, 60, 200], device="cuda")
    o, final = run_or_skip(chunk, parts, cu_seqlens=cu_seqlens, output_final_state=True)
    for n, (start, end) in enumerate([(0, 60), (60, 60), (60, 200)]):
        rows = numpy(*(t[:, start:end] for t in parts))
        expected, state = delta_rule(*rows, l2=True)
        if end > start:
            assert error(*numpy(o[:, start:end]), expected) < LIMITS[dtype]
        assert error(*numpy(final[n : n + 1]), state) < LIMITS[dtype] or not state.any()
    head_first = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in parts]
    strided, _ = chunk(head_first, cu_seqlens=cu_seqlens)
    assert torch.equal(strided, o)


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("state_dtype", [torch.float32, torch.bfloat16])
def test_decode_in_a_pool(index_dtype, state_dtype):
    x = Inputs(B=4, T=1, H=2, HV=4, K=128, V=128)
    parts = tensors(x, torch.bfloat16)
    pool = torch.randn(9, 4, 128, 128, device="cuda").to(state_dtype)
    before = pool.clone()
    slots = torch.tensor([7, -1, 0, 3], dtype=index_dtype, device="cuda")
    o, _ = run_or_skip(steps, parts, initial_state=pool, final_state=pool, read_slots=slots)
    for n, slot in enumerate(slots.tolist()):
        if slot < 0:
            assert not o[n].any()
            continue
        row = numpy(*(t[n : n + 1] for t in parts))
        expected, state = delta_rule(*row, state=numpy(before[slot : slot + 1])[0], l2=True)
        assert error(*numpy(o[n : n + 1]), expected) < 8e-3
        limit = 1e-5 if state_dtype == torch.float32 else 8e-3
        assert error(*numpy(pool[slot : slot + 1]), state) < limit
    others = [1, 2, 4, 5, 6, 8]
    assert torch.equal(pool[others], before[others])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_convolution_and_norm_as_on_the_cpu(dtype):
    x, z = torch.randn(2, 2, 50, 96).to(dtype)
    weight, bias, state = torch.randn(96, 4), torch.randn(96), torch.randn(2, 96, 3)
    parts = [t.to(dtype) for t in (x, weight, bias)]
    options = dict(output_final_state=True, activation="silu")
    out, final = run_or_skip(
        sluice.causal_conv1d, *(t.cuda() for t in parts), state.to(dtype).cuda(), **options
    )
    expected, expected_final = sluice.causal_conv1d(*parts, state.to(dtype), **options)
    assert error(*numpy(out), *numpy(expected)) < LIMITS[dtype]
    assert torch.equal(final.cpu(), expected_final)
    step = run_or_skip(sluice.causal_conv1d_update, x[:, 0].cuda(), final, weight.to(dtype).cuda())
    expected = sluice.causal_conv1d_update(x[:, 0], expected_final, weight.to(dtype))
    assert error(*numpy(step), *numpy(expected)) < LIMITS[dtype]
    assert torch.equal(final.cpu(), expected_final), "states are raw inputs: the same bits"
    scale = torch.rand(96)
    found = run_or_skip(sluice.gated_rms_norm, x.cuda(), z.cuda(), scale.cuda())
    assert error(*numpy(found), *numpy(sluice.gated_rms_norm(x, z, scale))) < LIMITS[dtype]


def layer_arguments(tokens, dtype, device):
    """Rows of `dtype`, and everything else that a layer takes."""
    given = as_tensors(layer_inputs(B=2, T=tokens, H=2, HV=4, K=128, V=128), device)
    return [given.pop(name).to(dtype) for name in ("qkv", "z", "b", "a")], given


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_layer_prefill_then_decode_as_on_the_cpu(dtype):
    found = {}
    for device in ("cpu", "cuda"):
        rows, constants = layer_arguments(70, dtype, device)
        out, conv, state = run_or_skip(sluice.gdn_layer_prefill, *rows, **constants, output_final_state=True)
        rows, _ = layer_arguments(1, dtype, device)
        step = run_or_skip(sluice.gdn_layer_decode, *rows, conv_state=conv, state=state, **constants)
        found[device] = numpy(out, conv, state, step)
    for ours, expected in zip(found["cuda"], found["cpu"]):
        assert error(ours, expected) < 2 * LIMITS[dtype]


def test_the_current_stream_is_used_and_a_named_one():
    """The inputs appear late on the call's stream: only a call ordered after them sees them."""
    x = Inputs(B=1, T=128, K=128, V=128)
    host = tensors(x, torch.bfloat16, "cpu")
    expected, _ = delta_rule(*numpy(*host), l2=True)
    pinned = [t.pin_memory() for t in host]
    for named in (False, True):
        stream = torch.cuda.Stream()
        device = [torch.zeros_like(t, device="cuda") for t in host]
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(100_000_000)
            for to, source in zip(device, pinned):
                to.copy_(source, non_blocking=True)
        if named:
            o, _ = chunk(device, stream=stream)
        else:
            with torch.cuda.stream(stream):
                o, _ = chunk(device)
        assert not stream.query(), "the call waited for the GPU"
        torch.cuda.synchronize()
        assert error(*numpy(o), expected) < 8e-3


def test_no_call_waits_for_the_device():
    parts = tensors(Inputs(B=2, T=64, K=128, V=128), torch.bfloat16)
    step = [t[:, :1].contiguous() for t in parts]
    state = torch.zeros(2, 4, 128, 128, device="cuda")
    slots = torch.tensor([1, 0], device="cuda")
    cu_seqlens = torch.tensor([0, 10, 64], device="cuda")
    packed = [t[:1] for t in parts]
    with nothing_waits():
        chunk(packed, cu_seqlens=cu_seqlens)
        steps(step, initial_state=state, final_state=state, read_slots=slots)


@pytest.mark.parametrize("tokens", [1, 4, 200])
def test_graphs(tokens):
    x = Inputs(T=tokens, K=128, V=128)
    rows = tensors(x, torch.bfloat16)
    start = torch.from_numpy(x.state).cuda()
    state, out = start.clone(), torch.empty_like(rows[2])

    def step():
        state.copy_(start)
        steps(rows, initial_state=state, final_state=state, out=out)
        return out, state

    expected, graph, _ = recorded(step)
    for _ in range(3):
        out.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, expected[0]) and torch.equal(state, expected[1])


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compile_fullgraph(backend, mode):
    if backend != "inductor" and mode != "default":
        pytest.skip("modes are inductor's")
    options = {} if mode == "default" else {"mode": mode}

    def function(q, k, v, g, beta, state):
        o, _ = steps((q * 1.0, k, v, g, beta), initial_state=state, final_state=state)
        return o * 2

    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend=backend, **options)
    x = Inputs(T=2, K=64, V=64)
    with torch.inference_mode():
        for _ in range(3):
            states = [torch.from_numpy(x.state.copy()).cuda() for _ in range(2)]
            expected = function(*tensors(x), states[0])
            found = compiled(*tensors(x), states[1]).clone()
            assert torch.allclose(found, expected, rtol=1e-5, atol=1e-5)
            assert torch.equal(*states)


@pytest.mark.parametrize("op", ["chunk_forward", "chunk_forward_", "recurrent_step_"])
def test_opcheck(op):
    x = Inputs(T=4)
    q, k, v, g, beta = tensors(x)
    state = torch.from_numpy(x.state).cuda()
    arguments = dict(q=q, k=k, v=v, gate=g, beta=beta, o=torch.empty_like(v), qk_norm="l2",
                     initial_state=state)
    if op == "chunk_forward_":
        arguments["final_state_is_initial"] = True
    torch.library.opcheck(getattr(torch.ops.sluice, op).default, (), arguments)


def test_gradient_inference_mode_and_mixed_devices():
    q, *rest = tensors(Inputs())
    with pytest.raises(sluice.Unsupported, match="q.requires_grad = True"):
        sluice.ops.recurrent_step(
            q[:, :3].requires_grad_(), *(x[:, :3] for x in rest), state_writes="none"
        )
    with torch.inference_mode():
        chunk((q, *rest))
    with pytest.raises(sluice.Error, match="k device = "), torch.no_grad():
        chunk((q, rest[0].cpu(), *rest[1:]))


def test_the_second_device_and_who_is_current():
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    x = Inputs(T=100)
    first = chunk(tensors(x, device="cuda:0"))[0]
    second = chunk(tensors(x, device="cuda:1"))[0]
    assert second.device.index == 1 and torch.cuda.current_device() == 0
    assert torch.equal(first.cpu(), second.cpu())


def test_workspaces_are_of_each_calls_size():
    """Of a call that looks like the last one, and of those that do not, in any order."""
    x, calls = Inputs(B=1, T=700, H=2, HV=2, K=128, V=128), []
    for T in (64, 64, 700, 64, 700, 700, 65):
        q, k, v, g, beta = (t[:, :T].contiguous() for t in tensors(x, torch.bfloat16))
        given = dict(q=q, k=k, v=v, gate=g, beta=beta, d_o=torch.ones_like(v), qk_norm="l2")
        ample = torch.full((16 << 20,), 255, dtype=torch.uint8, device="cuda")
        calls.append((ops.chunk_backward(**given), ops.chunk_backward(**given, workspace=ample)))
    for found, expected in calls:
        assert all(torch.equal(a, b) for a, b in zip(found, expected) if a is not None)


def test_caller_owned_workspace():
    parts = tensors(Inputs(B=1, T=500, K=128, V=128), torch.bfloat16)
    expected, _ = chunk(parts)
    storage = torch.empty((64 << 20) + 256, dtype=torch.uint8, device="cuda")
    workspace = storage[-storage.data_ptr() % 256 :][: 64 << 20]
    o, _ = chunk(parts, workspace=workspace)
    assert torch.equal(o, expected)


def test_recorded_cases_on_the_gpu():
    if not GOLDEN.exists():
        pytest.skip("tests are not in the source tree")
    for report in (cases.verify(GOLDEN, device="cuda"), cases.self_check(device="cuda")):
        assert report.verdicts and not report.failed, str(report)
        assert all(kernel.startswith("cuda.") for kernel in report.kernels.values())
        if report.unsupported:
            pytest.skip(f"not on this GPU: {report.unsupported}")


def test_cupy_arrays_and_their_stream():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    x = Inputs(T=100)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        o, s = chunk([cupy.asarray(a) for a in x.arguments()], output_final_state=True)
        stream.synchronize()
    assert type(o) is cupy.ndarray and type(s) is cupy.ndarray
    expected_o, expected_s = delta_rule(*x.arguments(), l2=True)
    assert error(o.get(), expected_o) < 1e-5 and error(s.get(), expected_s) < 1e-5


def test_jax_arrays_with_outputs_given():
    jax = pytest.importorskip("jax", reason="jax is not installed")
    if not any(device.platform == "gpu" for device in jax.devices()):
        pytest.skip("jax sees no GPU")
    x = Inputs(T=100)
    parts = [jax.device_put(a, jax.devices("gpu")[0]).block_until_ready() for a in x.arguments()]
    with pytest.raises(TypeError, match="outputs to be given"):
        chunk(parts)
    out = torch.empty(x.v.shape, device="cuda")
    workspace = torch.empty(16 << 20, dtype=torch.uint8, device="cuda")
    chunk(parts, out=out, workspace=workspace)
    torch.cuda.synchronize()
    assert error(*numpy(out), delta_rule(*x.arguments(), l2=True)[0]) < 1e-5


def test_repeated_calls_give_the_same_bits():
    parts = tensors(Inputs(B=2, T=700, K=128, V=128), torch.bfloat16)
    first, state = chunk(parts, output_final_state=True)
    for _ in range(5):
        o, s = chunk(parts, output_final_state=True)
        assert torch.equal(o, first) and torch.equal(s, state)


def test_supported_and_warm_up():
    sluice.warm_up("cuda")
    q = torch.empty(1, 8, 2, 128, device="cuda", dtype=torch.bfloat16)
    kernel, refusal = sluice.supported("chunk_forward", q=q, k=q, v=q, o=torch.empty_like(q))
    assert refusal is None and kernel.startswith("cuda.chunk_forward")
    assert "cuda" in sluice.info()["implementations"]
    ops.chunk_forward(q, q, q)
    assert np.array_equal(sluice.last_kernel(), kernel)
