# SPDX-License-Identifier: Apache-2.0
"""Measures generation by transformers models on a GPU with and without Sluice: greedy tokens equal to those of the
models' own code, and tokens a second. Real head shapes, few layers, random weights, bfloat16.

    python transformers_gpu.py --out FILE [--tokens 1024] [--new 48] [--batch 4]   (docs/engines/transformers.md)
"""

import argparse
import contextlib
import json
import pathlib
import time

import sluice.engines.transformers as sluice_hf
import torch
import transformers
from small_models import build, installed, quiet

SIZES = dict(
    vocab_size=32768,
    hidden_size=2048,
    intermediate_size=4096,
    num_attention_heads=16,
    num_key_value_heads=2,
    head_dim=128,
    linear_num_key_heads=16,
    linear_num_value_heads=32,
    linear_key_head_dim=128,
    linear_value_head_dim=128,
    # All experts are taken: which ones a token goes to is a jump, not a rounding error.
    num_experts_per_tok=4,
)
# Kimi-Linear-48B-A3B's heads; its attention layers have as many key as query heads.
KDA = dict(
    linear_num_heads=32,
    linear_head_dim=128,
    num_key_value_heads=16,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
    kv_lora_rank=512,
)
OWN = {
    "kimi_linear": KDA,
    "bailing_hybrid": {**KDA, "head_dim": 128},
    "glm5_next": {**KDA, "head_dim": 0, "qk_rope_head_dim": 0},
    "qwen4_exp": dict(indexer_head_dim=128),
    # Heads of keys and values are equally many there.
    "olmo_hybrid": dict(linear_num_key_heads=32, num_key_value_heads=16),
}
WAYS = (None, "ops", "layer")


def generate(model, ids, new):
    """(tokens [B, new], logits [new, B, vocabulary], seconds)."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    answer = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, min_new_tokens=new, do_sample=False,
        return_dict_in_generate=True, output_logits=True,
    )
    torch.cuda.synchronize()
    return answer.sequences[:, ids.shape[1]:], answer.logits, time.perf_counter() - start


def agreement(own, logits, other):
    """Tokens equal up to each row's first difference, and how far apart the two tokens' logits were there."""
    equal, margins = 0, []
    for row, (a, b) in enumerate(zip(own.tolist(), other.tolist(), strict=True)):
        same = next((i for i in range(len(a)) if a[i] != b[i]), len(a))
        equal += same
        if same < len(a):
            step = logits[same][row].float()
            margins.append(round(float(step[a[same]] - step[b[same]]), 4))
    return {"tokens": own.numel(), "equal": equal, "margins at the first differences": sorted(margins)}


def rows_of(name, arguments):
    sizes = {**SIZES, **OWN.get(name, {})}
    with torch.device("cuda"):
        model = build(name, **sizes).to(torch.bfloat16)
    ids = torch.randint(3, sizes["vocab_size"], (arguments.batch, arguments.tokens), device="cuda")
    first = None
    for way in WAYS:  # None is first
        patch = sluice_hf.patched(model, way) if way else contextlib.nullcontext()
        with patch as handle:
            generate(model, ids, 4)
            found = [generate(model, ids, arguments.new) for _ in range(arguments.rounds)]
            report = handle.report() if way else {}
        if not first:
            first = found[0]
            alone = [generate(model, ids[row:row + 1], arguments.new)[0] for row in range(len(ids))]
            yield {"model": name, "way": "transformers, each row alone", **agreement(*first[:2], torch.cat(alone))}
        yield {
            "model": name,
            "way": way or "transformers",
            **agreement(*first[:2], found[0][0]),
            "seconds": [round(seconds, 4) for *_, seconds in found],
            "tokens_per_s": round(first[0].numel() / min(seconds for *_, seconds in found), 1),
            "ran": report.get("ran", {}),
            "handed back": sorted(f"{hook}: {reason}" for hook, reason in report.get("handed back", {})),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--new", type=int, default=48)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--models", help="names of small_models.py, by commas; all that are installed otherwise")
    parser.add_argument("--commit", help="what Sluice was built from")
    arguments = parser.parse_args()
    record = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "commit": arguments.commit,
              "transformers": transformers.__version__, "prompt": arguments.tokens, "batch": arguments.batch,
              "new": arguments.new, "rows": []}
    names = arguments.models.split(",") if arguments.models else installed()
    for name in names:
        try:
            with quiet():
                for row in rows_of(name, arguments):
                    record["rows"].append(row)
                    print(json.dumps({k: v for k, v in row.items() if k != "ran"}), flush=True)
        except Exception as error:
            record["rows"].append({"model": name, "error": repr(error)[:600]})
            print(json.dumps(record["rows"][-1]), flush=True)
        pathlib.Path(arguments.out).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
