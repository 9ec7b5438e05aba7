# SPDX-License-Identifier: Apache-2.0
"""Measures whether models of transformers give the same logits and tokens with and without Sluice:
prefill, left-padded batched generation, several turns with one cache.
Builds small random-weight models from their configurations; the unpatched model is the reference in
float32, and in bfloat16 its own distance to float32 is the measure."""

import functools
import importlib.util
import sys
import types

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

if importlib.util.find_spec("fla") is not None:
    pytest.skip("with fla installed, transformers' own path needs a GPU", allow_module_level=True)

from sluice.engines import transformers as sluice_hf
from small_models import MODELS, build, installed, left_padded, one_thread

NAMES = [
    pytest.param(
        name,
        marks=() if name in installed() else pytest.mark.skip(f"this transformers has no {name}"),
    )
    for name in MODELS
]
LEVELS = ["ops", "layer"]
DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.cuda,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch can use"),
        ],
    ),
]
# Full float32 on a GPU too: the unpatched model is the reference.
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
NEW_TOKENS = 12


@pytest.fixture(scope="module")
def models():
    """Each model once."""
    with one_thread():
        yield functools.cache(lambda name, device: build(name).to(device))


def logits_of(model, ids, mask=None):
    with torch.no_grad():
        return model(ids, attention_mask=mask).logits.float()


def generate(model, ids, mask, **more):
    return model.generate(
        ids,
        attention_mask=mask,
        max_new_tokens=NEW_TOKENS,
        min_new_tokens=NEW_TOKENS,
        do_sample=False,
        **more,
    )


def turns(model, parts):
    """Logits of several inputs, one after the other, through one cache."""
    cache, seen = None, []
    with torch.no_grad():
        for ids in parts:
            answer = model(ids, past_key_values=cache, use_cache=True)
            cache = answer.past_key_values
            seen.append(answer.logits.float())
    return torch.cat(seen, 1)


def on_sluice(call, model, *level):
    """What `call` gives with the model patched, and the report of what ran."""
    with sluice_hf.patched(model, *level) as handle:
        return call(), handle.report()


def skip_if_handed_back(report, device):
    """On the CPU nothing is handed back. A GPU may lack a kernel: the values have been compared then,
    but not all of them were Sluice's."""
    if report["handed back"] and device == "cuda":
        pytest.skip(f"handed back on this GPU: {sorted(report['handed back'])[0]}")
    assert not report["handed back"]


def assert_ran_everything(report, level, device):
    """Nothing was handed back, and the hooks of the level ran."""
    skip_if_handed_back(report, device)
    whole = "layer" in report["ran"]
    functions = {"causal_conv1d_fn", "gated norm"}
    delta_rules = {"torch_chunk_gated_delta_rule", "chunk_kimi_delta_attention"}
    ran = set(report["ran"])
    assert (whole and level == "layer") or (functions <= ran and delta_rules & ran)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("level", LEVELS)
def test_prefill_and_left_padded_generation_in_float32(models, name, level, device):
    model = models(name, device)
    ids, mask = (t.to(device) for t in left_padded([100, 37, 71], 1))
    real = mask.bool()
    logits, tokens = logits_of(model, ids, mask), generate(model, ids, mask)
    assert logits.abs().max() > 0.5, "the model says something"
    (found, found_tokens), report = on_sluice(
        lambda: (logits_of(model, ids, mask), generate(model, ids, mask)), model, level)
    assert (found - logits)[real].abs().max() <= 1e-5 * max(1.0, logits.abs().max())
    assert torch.equal(found_tokens, tokens)
    assert torch.equal(logits_of(model, ids, mask), logits), "restored"
    assert_ran_everything(report, level, device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("level", LEVELS)
def test_several_turns_with_one_cache(models, name, level, device):
    model = models(name, device)
    ids = left_padded([150, 150], 2)[0].to(device)
    parts = torch.split(ids, [80, 1, 1, 2, 65, 1], 1)
    logits = turns(model, parts)
    found, report = on_sluice(lambda: turns(model, parts), model, level)
    assert (found - logits).abs().max() <= 1e-5 * max(1.0, logits.abs().max())
    # The cache carries everything: one prefill of all tokens says the same.
    whole = logits_of(model, ids)
    assert (found - whole).abs().max() <= 1e-4 * max(1.0, whole.abs().max())
    skip_if_handed_back(report, device)


@pytest.fixture(scope="module")
def bfloat16_pairs():
    """(model in bfloat16, the same rounded weights in float32). Where there are experts every token
    goes to all of them: which experts a token goes to is a jump, not a rounding error."""

    @functools.cache
    def get(name, device):
        own = MODELS[name][2]
        experts = own.get("num_experts", own.get("num_local_experts"))
        sizes = {} if experts is None else {"num_experts_per_tok": experts}
        model = build(name, **sizes).to(torch.bfloat16)
        exact = build(name, **sizes)
        exact.load_state_dict({k: v.float() for k, v in model.state_dict().items()})
        return model.to(device), exact.to(device)

    return get


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("level", LEVELS)
def test_bfloat16_within_the_fallbacks_own_error(models, bfloat16_pairs, name, level, device):
    model, exact = bfloat16_pairs(name, device)
    ids, mask = (t.to(device) for t in left_padded([90, 60, 33, 90], 3))
    parts = torch.split(ids[:, -40:], [30, 1, 1, 8], 1)
    real = mask.bool()

    def both(model):
        return logits_of(model, ids, mask)[real], turns(model, parts)

    found, report = on_sluice(lambda: both(model), model, level)
    for ours, own, truth in zip(found, both(model), both(exact), strict=True):
        fallback_error = (own - truth).pow(2).mean().sqrt()
        assert fallback_error > 0
        # NUM: two evaluations with equally many roundings differ by a few per cent.
        assert (ours - truth).pow(2).mean().sqrt() <= 1.1 * fallback_error
    skip_if_handed_back(report, device)


@pytest.mark.parametrize("name", NAMES)
def test_bfloat16_tokens_but_for_ties(models, bfloat16_pairs, name):
    model, _ = bfloat16_pairs(name, "cpu")
    ids, mask = left_padded([40, 25], 5)
    tokens, report = on_sluice(lambda: generate(model, ids, mask), model)
    assert not report["handed back"]
    # The unpatched model, given the same tokens, ranks each of them first or within its own noise.
    mask = torch.cat([mask, torch.ones(2, NEW_TOKENS, dtype=mask.dtype)], 1)
    logits = logits_of(model, tokens, mask)[:, -NEW_TOKENS - 1 : -1]
    chosen = logits.gather(2, tokens[:, -NEW_TOKENS:, None])[..., 0]
    logits[..., 2] = -torch.inf  # the end is not to be chosen before NEW_TOKENS
    size = logits.nan_to_num(neginf=0).abs().max()
    assert (logits.amax(2) - chosen).max() <= 0.03 * size


@pytest.mark.parametrize("name", NAMES)
def test_gated_norm_rounds_where_transformers_rounds(models, bfloat16_pairs, name):
    model, _ = bfloat16_pairs(name, "cpu")
    norm = next(m for m in model.modules() if type(m).__name__.endswith("RMSNormGated"))
    torch.manual_seed(6)
    x, z = torch.randn(2, 4096, norm.weight.shape[0], dtype=torch.bfloat16)
    weight = norm.weight.data
    # In float32: with a bfloat16 weight transformers rounds once more, between weight and gate.
    norm.weight.data = torch.rand(weight.shape) + 0.5
    with torch.no_grad():
        expected = norm(x, z)
        found, report = on_sluice(lambda: norm(x, z), model)
    assert report["ran"] == {"gated norm": 1}
    norm.weight.data = weight
    # Rounded once instead, more than a tenth of the values differ.
    assert (found != expected).float().mean() < 0.02


@pytest.mark.parametrize("level", LEVELS)
def test_parameters_kept_in_float32(models, level):
    model = build("qwen3_5").to(torch.bfloat16)
    for layer in (block.linear_attn for block in model.model.layers[:3]):
        for owner, name in ((layer, "A_log"), (layer, "dt_bias"), (layer.norm, "weight")):
            getattr(owner, name).data = getattr(owner, name).data.float()
    ids, mask = left_padded([30, 20], 7)
    expected = logits_of(model, ids, mask)
    found, report = on_sluice(lambda: logits_of(model, ids, mask), model, level)
    assert not report["handed back"]
    assert (found - expected)[mask.bool()].abs().max() <= 0.05 * expected.abs().max()


def test_what_no_kernel_takes_goes_to_the_models_own_code(models):
    model = build("qwen3_5").to(torch.float64)
    ids, _ = left_padded([30], 8)
    expected = logits_of(model, ids)
    found, report = on_sluice(lambda: logits_of(model, ids), model)
    assert torch.equal(found, expected) and not report["ran"]
    assert any("dtype" in reason for _, reason in report["handed back"])


def test_patch_twice_and_models_without_layers(models):
    model = models("qwen3_5", "cpu")
    module = sys.modules[type(model.model.layers[0].linear_attn).__module__]
    original = module.torch_chunk_gated_delta_rule
    handle = sluice_hf.patch(model)
    with pytest.raises(ValueError, match="patched already"):
        sluice_hf.patch(model)
    other = sluice_hf.patch(build("qwen3_5"), "ops")
    handle.restore()
    assert module.torch_chunk_gated_delta_rule is not original, "the other model still wants it"
    other.restore()
    other.restore()
    assert module.torch_chunk_gated_delta_rule is original
    with pytest.raises(ValueError, match="no gated delta rule layer"):
        sluice_hf.patch(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="level"):
        sluice_hf.patch(model, "everything")


class OldGatedDeltaNet(torch.nn.Module):
    """The style before transformers 5.16: functions are attributes, set in __init__."""

    def __init__(self):
        super().__init__()
        self.chunk_gated_delta_rule = lambda *args, **kwargs: "own"
        self.recurrent_gated_delta_rule = lambda *args, **kwargs: "own"
        self.causal_conv1d_fn = None
        self.causal_conv1d_update = lambda *args, **kwargs: "own"


def test_layers_that_carry_their_functions():
    model = torch.nn.Sequential(OldGatedDeltaNet())
    layer, rows = model[0], torch.randn(1, 3, 2, 16)
    gates = (-torch.rand(1, 3, 2), torch.rand(1, 3, 2))
    with sluice_hf.patched(model) as handle:
        o, none = layer.chunk_gated_delta_rule(
            rows, rows, rows, g=gates[0], beta=gates[1], use_qk_l2norm_in_kernel=True
        )
        assert o.shape == rows.shape and none is None
        assert layer.causal_conv1d_fn is None, "an absent package stays absent"
        assert layer.recurrent_gated_delta_rule(rows, rows, rows, gk=rows) == "own"
        assert handle.report()["ran"] == {"chunk_gated_delta_rule": 1}
    assert isinstance(layer.chunk_gated_delta_rule, types.FunctionType)
    assert layer.chunk_gated_delta_rule() == "own"
