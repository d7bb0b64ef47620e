"""Makes tests/golden/generation_settings.npz: what transformers generates with rules for tokens.

Two tiny random models, `t5` and `gpt2`. Each has `MODEL/config` (the text of config.json),
`MODEL/weight/...`, `MODEL/token_ids` and `MODEL/padding_mask` [B, T] (of GPT-2 padded on the left;
transformers reads each prompt alone, since its rules count the padding of a batch). For each of the
`SETTINGS`, `MODEL/SETTINGS` are the new ids [B * num_return_sequences, NEW], padded with 0, and of
beam search `MODEL/scores/SETTINGS` their scores.

`processors/SETTINGS` are the scores of the next token after the rules, [R, V], for the scores
`processors/scores` and the tokens `processors/tokens` [R, S].

Run with the Python of the environment of tests/parity/requirements-hf.txt:
    .parity/hf/bin/python tests/golden/make_generation_settings_golden.py [FILE]
"""

import json
import sys
from pathlib import Path

import make_generation_golden as plain
import numpy as np
import torch
import transformers
from transformers.generation import logits_process

NEW = 12
RULES = (
    {"repetition_penalty": 1.5},
    {"repetition_penalty": 0.7},
    {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 2},
    {"no_repeat_ngram_size": 3},
    {"min_new_tokens": 7},
    {"repetition_penalty": 1.2, "no_repeat_ngram_size": 2, "min_new_tokens": 9},
)
BEAMS = {"num_beams": 4, "num_return_sequences": 4}
SETTINGS = (
    *RULES,
    # With n-grams of one token, the 17 tokens are used up before K texts are found.
    *(
        {**rules, **BEAMS, "length_penalty": 1.0}
        for rules in RULES
        if rules != {"no_repeat_ngram_size": 1}
    ),
    *(
        {**BEAMS, "early_stopping": early, "length_penalty": penalty}
        for early in (True, False, "never")
        for penalty in (-1.0, 0.0, 2.0)
    ),
    RULES[-1]
    | BEAMS
    | {"num_return_sequences": 2, "early_stopping": True, "length_penalty": 2.0},
)  # fmt: skip


def t5(seed):
    """A T5 and its inputs."""
    arrays = plain.case(seed, plain.KINDS[0])
    config = transformers.T5Config(**json.loads(str(arrays["config"])))
    model = transformers.T5ForConditionalGeneration(config).eval()
    weights = {n[7:]: torch.tensor(v) for n, v in arrays.items() if n.startswith("weight/")}
    model.load_state_dict(weights, strict=False)
    model.tie_weights()
    names = ("config", "token_ids", "padding_mask")
    kept = {n: v for n, v in arrays.items() if n in names or n.startswith("weight/")}
    inputs = {
        "input_ids": torch.tensor(arrays["token_ids"]).long(),
        "attention_mask": torch.tensor(arrays["padding_mask"]).long(),
    }
    return model, kept, [inputs]


def gpt2(seed):
    """A GPT-2 and its prompts, each alone."""
    config = transformers.GPT2Config(
        vocab_size=17, n_positions=24, n_embd=8, n_layer=2, n_head=2, bos_token_id=1,
        eos_token_id=1, pad_token_id=0, initializer_range=0.7,
    )  # fmt: skip
    torch.manual_seed(seed)
    model = transformers.GPT2LMHeadModel(config).eval()
    rng = np.random.default_rng(seed)
    lengths = np.array([6, 1, 4])
    mask = np.arange(6) >= 6 - lengths[:, None]
    ids = np.where(mask, rng.integers(2, 17, mask.shape), 0)
    ids[np.arange(3), 6 - lengths] = 1
    kept = {
        "config": np.array(config.to_json_string()),
        "token_ids": ids.astype(np.int32),
        "padding_mask": mask,
        **{
            f"weight/{name}": weight.detach().numpy()
            for name, weight in model.state_dict().items()
            if not name.startswith("lm_head")
        },
    }  # fmt: skip
    prompts = [torch.tensor(row[real][None]) for row, real in zip(ids, mask, strict=True)]
    inputs = [{"input_ids": p, "attention_mask": torch.ones_like(p)} for p in prompts]
    return model, kept, inputs


def case(make, seed):
    """The arrays of a model, by name."""
    model, arrays, inputs = make(seed)
    for settings in SETTINGS:
        ids, scores = [], []
        for batch in inputs:
            found = model.generate(
                **batch, max_new_tokens=NEW, do_sample=False, return_dict_in_generate=True,
                output_scores=True, **settings,
            )  # fmt: skip
            first = 1 if model.config.is_encoder_decoder else batch["input_ids"].shape[1]
            ids.append(plain.padded(found.sequences[:, first - 1 :]))
            if "num_beams" in settings:
                scores.append(found.sequences_scores.numpy())
        name = json.dumps(settings)
        arrays[name] = np.concatenate(ids)
        if scores:
            arrays[f"scores/{name}"] = np.concatenate(scores)
    return arrays


def is_telling(arrays):
    """Returns whether the settings find many different texts."""
    found = {json.dumps(s): arrays[json.dumps(s)] for s in SETTINGS}
    shown = {ids.tobytes() for ids in found.values()}
    ended = sum((ids[:, 2:-1] == 1).any() for ids in found.values())
    return len(shown) >= 14 and ended >= 7


def processors():
    """The scores after each of the rules."""
    rng = np.random.default_rng(0)
    scores = torch.tensor(rng.normal(size=(4, 11)).astype(np.float32))
    tokens = torch.tensor(rng.integers(0, 4, (4, 9)))
    result = {"scores": scores.numpy(), "tokens": tokens.numpy().astype(np.int32)}
    made = {
        "repetition_penalty": logits_process.RepetitionPenaltyLogitsProcessor,
        "no_repeat_ngram_size": logits_process.NoRepeatNGramLogitsProcessor,
        "min_new_tokens": lambda n: logits_process.MinNewTokensLengthLogitsProcessor(3, n, 1),
    }
    for rules in RULES:
        after = scores
        for name, value in rules.items():
            after = made[name](value)(tokens, after)
        result[json.dumps(rules)] = after.numpy()
    return result


def main(output):
    """Writes the file."""
    arrays = {f"processors/{name}": value for name, value in processors().items()}
    for make in (t5, gpt2):
        seed, found = next(
            (seed, found) for seed in range(1000) if is_telling(found := case(make, seed))
        )
        print(make.__name__, "seed", seed)
        arrays |= {f"{make.__name__}/{name}": value for name, value in found.items()}
    np.savez_compressed(output, **arrays)


if __name__ == "__main__":
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    main(sys.argv[1] if sys.argv[1:] else Path(__file__).parent / "generation_settings.npz")
