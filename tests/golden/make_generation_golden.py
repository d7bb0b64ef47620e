"""Makes tests/golden/generation.npz: tiny random T5s of transformers, and what they generate.

For each case `N` there are `N/config` (the text of config.json), `N/weight/...` (as in
model.safetensors), `N/token_ids` and `N/padding_mask` [B, T], and the generated ids without the
start token, padded with 0: `N/greedy` and, for each length penalty, `N/beams/PENALTY` [B, U] with
the scores `N/scores/PENALTY` [B].

Run with the Python of the environment of tests/parity/requirements-hf.txt:
    .parity/hf/bin/python tests/golden/make_generation_golden.py [FILE]
"""

import itertools
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

ROWS, LENGTH, NEW = 3, 7, 12
BEAMS = 4
PENALTIES = (0.6, 1.0, 2.0)
SIZES = {
    "vocab_size": 17, "d_model": 8, "d_kv": 3, "d_ff": 12, "num_layers": 2,
    "num_decoder_layers": 2, "num_heads": 2, "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 6, "pad_token_id": 0, "eos_token_id": 1,
    "decoder_start_token_id": 0,
}  # fmt: skip
KINDS = (
    {"feed_forward_proj": "relu", "tie_word_embeddings": True},
    {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
)
CASES = 3  # of each kind


def case(seed, kind):
    """The arrays of one model, by name."""
    config = transformers.T5Config(**SIZES, **kind)
    rng = np.random.default_rng(seed)
    model = transformers.T5ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = rng.standard_normal(weight.shape).astype(np.float32)
            weight.copy_(torch.tensor(1 + 0.3 * noise if "layer_norm" in name else 0.8 * noise))
        # Texts that repeat one token would test little: words count less than their contexts.
        model.shared.weight.mul_(0.4)
        model.decoder.final_layer_norm.weight.mul_(3 if config.tie_word_embeddings else 0.6)
    lengths = np.array([LENGTH, 3, 5])
    mask = np.arange(LENGTH) < lengths[:, None]
    ids = np.where(mask, rng.integers(2, SIZES["vocab_size"], (ROWS, LENGTH)), 0)
    ids[np.arange(ROWS), lengths - 1] = 1
    tied = ("encoder.embed", "decoder.embed", *(["lm_head"] if config.tie_word_embeddings else []))
    arrays = {
        "config": np.array(config.to_json_string()),
        "token_ids": ids.astype(np.int32),
        "padding_mask": mask,
        **{
            f"weight/{name}": weight.numpy()
            for name, weight in model.state_dict().items()
            if not name.startswith(tied)
        },
    }
    inputs = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask).long()}

    def generate(**options):
        return model.generate(
            **inputs, max_new_tokens=NEW, do_sample=False, return_dict_in_generate=True,
            output_scores=True, **options,
        )  # fmt: skip

    arrays["greedy"] = padded(generate(num_beams=1).sequences)
    for penalty in PENALTIES:
        found = generate(num_beams=BEAMS, length_penalty=penalty, early_stopping=False)
        arrays[f"beams/{penalty}"] = padded(found.sequences)
        arrays[f"scores/{penalty}"] = found.sequences_scores.numpy()
    return arrays


def padded(sequences):
    """Ids [B, NEW] without the start token, and with 0 after the end token.

    Beam search of transformers puts the end token there, since 0 is "no id" to it.
    """
    ids = sequences.numpy()[:, 1:].astype(np.int32)
    ids = np.pad(ids, [(0, 0), (0, NEW - ids.shape[1])])
    return np.where((np.cumsum(ids == 1, axis=1) - (ids == 1)) > 0, 0, ids)


def is_telling(arrays):
    """Returns whether texts end in the middle, and whether the searches find different texts."""
    found = [arrays["greedy"], *(arrays[f"beams/{penalty}"] for penalty in PENALTIES)]
    end_in_the_middle = [(ids[:, 2:-1] == 1).any() for ids in found]
    return sum(end_in_the_middle) >= 2 and len({ids.tobytes() for ids in found}) >= 3


def main(output):
    """Writes the file."""
    arrays, number = {}, 0
    for kind in KINDS:
        telling = filter(is_telling, (case(seed, kind) for seed in itertools.count()))
        for made in itertools.islice(telling, CASES):
            arrays |= {f"{number}/{name}": value for name, value in made.items()}
            number += 1
            print(json.dumps({n: made[n].tolist() for n in made if n[:5] in ("greed", "beams")}))
    np.savez_compressed(output, **arrays)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1] if sys.argv[1:] else Path(__file__).parent / "generation.npz")
