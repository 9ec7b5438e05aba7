# SPDX-License-Identifier: Apache-2.0
"""Measures whether Hugging Face's `kernels` loads what scripts/build_hub_kernel.py writes, from a local path and
without a network: beside the installed package, with torch operators of its own, and with equal results."""

import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: its tests are skipped")
kernels = pytest.importorskip("kernels", reason="kernels is not installed: the Hub's layout is not loaded")

import sluice
from sluice import ops

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts/build_hub_kernel.py"


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    out = tmp_path_factory.mktemp("hub")
    package = pathlib.Path(sluice.__file__).parent
    subprocess.run([sys.executable, SCRIPT, "--cpu", package, out], check=True)
    return out


@pytest.fixture(scope="module")
def kernel(layout):
    return kernels.get_local_kernel(layout, backend="cpu")


def rows():
    torch.manual_seed(3)
    q, k = torch.randn(2, 1, 70, 2, 32)
    return q, k, torch.randn(1, 70, 4, 24), -torch.rand(1, 70, 4), torch.rand(1, 70, 4)


def test_it_is_another_copy_with_the_same_results(kernel):
    assert kernel.__name__.startswith("_sluice_cpu_") and kernel is not sluice
    options = dict(output_final_state=True, use_qk_l2norm_in_kernel=True)
    o, state = kernel.chunk_gated_delta_rule(*rows(), **options)
    expected, final = sluice.chunk_gated_delta_rule(*rows(), **options)
    assert torch.equal(o, expected) and torch.equal(state, final)
    assert {"chunk_gated_delta_rule", "fused_recurrent_gated_delta_rule", "chunk_kda"} <= set(kernel.__all__)


def test_its_torch_operators_have_its_name(kernel):
    own = getattr(torch.ops, kernel.__name__)
    q, k, v, g, beta = rows()
    out, expected = torch.empty_like(v), torch.empty_like(v)
    own.chunk_forward(q=q, k=k, v=v, gate=g, beta=beta, o=out, qk_norm="l2")
    ops.chunk_forward(q, k, v, g, beta, o=expected, qk_norm="l2")
    assert torch.equal(out, expected)


def test_refusals_have_its_own_classes_and_the_callers_names(kernel):
    q, k, v, g, beta = rows()
    with pytest.raises(kernel.InvalidArgument, match="chunk_gated_delta_rule: g"):
        kernel.chunk_gated_delta_rule(q, k, v, g[..., :3], beta)


@kernels.use_kernel_func_from_hub("chunk_gated_delta_rule")
def chunk_function(query, key, value, g, beta, chunk_size=64, initial_state=None, output_final_state=False,
                   use_qk_l2norm_in_kernel=False, **kwargs):
    """As transformers decorates its own."""
    raise AssertionError("the function itself ran")


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rule = chunk_function

    def forward(self, *rows):
        return self.rule(*rows, output_final_state=True, use_qk_l2norm_in_kernel=True, other=1)


class OnCpu(kernels.LocalLayerRepository):
    """`kernels` asks for CUDA's folder wherever torch was built with CUDA."""

    def load(self):
        return getattr(kernels.get_local_kernel(self._repo_path, backend="cpu").layers, self.layer_name)


def test_its_layers_take_the_place_of_a_models_functions(layout):
    repository = OnCpu(repo_path=layout, layer_name="chunk_gated_delta_rule")
    with kernels.use_kernel_mapping({"chunk_gated_delta_rule": {"cpu": repository}}):
        model = kernels.kernelize(Model().eval(), device="cpu", mode=kernels.Mode.INFERENCE)
        o, state = model(*rows())
    expected, final = sluice.chunk_gated_delta_rule(
        *rows(), output_final_state=True, use_qk_l2norm_in_kernel=True)
    assert torch.equal(o, expected) and torch.equal(state, final)


def test_every_layer_of_transformers_is_there(kernel):
    for name in ("chunk_gated_delta_rule", "recurrent_gated_delta_rule", "chunk_kda", "fused_recurrent_kda",
                 "causal_conv1d_fn", "causal_conv1d_update"):
        assert issubclass(getattr(kernel.layers, name), torch.nn.Module)


def test_every_file_has_its_digest(layout):
    from kernels._rust import Digest, DigestAlgorithm, Metadata

    for folder in (layout / "build").iterdir():
        metadata = Metadata.read_from_file(folder / "metadata.json")
        metadata.digest.validate(Digest.hash_variant(DigestAlgorithm.SHA256, folder))
