"""Makes tests/golden/systems: tiny models of transformers, random, and what they answer.

Each `NAME.npz` has `config` (the text of config.json), `weight/…` (as in model.safetensors),
`batch/…` (token_ids, segment_ids, padding_mask and, where the first real token has the first
position wherever the padding is, positions), `hidden_states` [L + 1, B, T, D] and `answer/…`. Of a
model that writes there is also `generation/…`: two prompts, what greedy search made of them, and
what temperature, top-k and top-p leave of some chances.

Run with the Python of the environment of tests/parity/requirements-hf.txt, and with that of
requirements-hf5.txt for the systems that transformers 4 lacks:
    .parity/hf/bin/python tests/golden/make_systems_golden.py [FOLDER [NAME...]]
    .parity/hf5/bin/python tests/golden/make_systems_golden.py [FOLDER [NAME...]]
"""

import json
import os
import sys
import tempfile
import zlib
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import numpy as np  # noqa: E402
import safetensors.numpy  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

LENGTH = 7
SIZES = {
    "vocab_size": 61,
    "hidden_size": 15,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 22,
    "max_position_embeddings": 13,
    "initializer_range": 0.25,
}
LABELS = {"id2label": {0: "no", 1: "yes", 2: "maybe"}, "label2id": {"no": 0, "yes": 1, "maybe": 2}}
# Byte-level BPE has all 256 bytes in its vocabulary.
ROBERTA = {"vocab_size": 277, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
XLM = {"vocab_size": 61, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
GPT2 = {"vocab_size": 259, "bos_token_id": 258, "eos_token_id": 258}
MODERN = {
    "vocab_size": 277,
    "hidden_size": 18,
    "num_hidden_layers": 4,
    "local_attention": 4,
    "global_rope_theta": 500.0,
    "local_rope_theta": 30.0,
    "reference_compile": False,
    "attn_implementation": "eager",
    "pad_token_id": 261,
    **dict.fromkeys(("bos_token_id", "cls_token_id"), 259),
    **dict.fromkeys(("eos_token_id", "sep_token_id"), 260),
}
EURO = {
    "vocab_size": 263,
    "hidden_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 5,
    "num_key_value_heads": 1,
    "rope_parameters": {"rope_type": "default", "rope_theta": 50.0},
    "attn_implementation": "eager",
    **{f"{name}_token_id": 259 + i for i, name in enumerate(("bos", "eos", "mask", "pad"))},
}
BIASES = dict.fromkeys(("attention_bias", "mlp_bias", "classifier_bias", "norm_bias"), True)
ALBERT = {"embedding_size": 7, "num_hidden_layers": 4}
# Rows of 7 tokens reach beyond the distances and buckets.
DEBERTA = {"relative_attention": True, "position_biased_input": False, "pos_att_type": "p2c|c2p"}
DEBERTA_V1 = {**DEBERTA, "vocab_size": 263, "max_relative_positions": 5, "type_vocab_size": 0}
DEBERTA |= {"share_att_key": True, "position_buckets": 4, "norm_rel_ebd": "layer_norm"}

# Name of the case: class and what differs from SIZES.
_OLDER = {
    "bert_relative_key": ("BertForMaskedLM", {"position_embedding_type": "relative_key"}),
    "bert_relative_key_query": ("BertModel", {"position_embedding_type": "relative_key_query"}),
    "roberta_masked_lm": ("RobertaForMaskedLM", ROBERTA),
    "roberta_classification": (
        "RobertaForSequenceClassification",
        {**ROBERTA, **LABELS, "hidden_act": "gelu_new", "classifier_dropout": 0.2},
    ),
    "roberta_bare": ("RobertaModel", {**ROBERTA, "hidden_act": "relu"}),
    "albert_pretraining": (
        "AlbertForPreTraining",
        {**ALBERT, "num_hidden_groups": 2, "inner_group_num": 2},
    ),
    "albert_masked_lm": ("AlbertForMaskedLM", {**ALBERT, "hidden_act": "gelu"}),
    "albert_classification": (
        "AlbertForSequenceClassification",
        {**ALBERT, **LABELS, "num_hidden_groups": 4, "layer_norm_eps": 1e-6},
    ),
    "albert_bare": ("AlbertModel", {**ALBERT, "inner_group_num": 3, "type_vocab_size": 3}),
    "electra_discriminator": ("ElectraForPreTraining", {"embedding_size": 10}),
    "electra_generator": (
        "ElectraForMaskedLM",
        {"embedding_size": 10, "hidden_size": 6, "num_attention_heads": 1, "intermediate_size": 9},
    ),
    "electra_bare": ("ElectraModel", {"embedding_size": 15, "hidden_act": "gelu_new"}),
    "distilbert_masked_lm": ("DistilBertForMaskedLM", {"hidden_dim": 22}),
    "distilbert_bare": (
        "DistilBertModel",
        {"hidden_dim": 22, "activation": "relu", "sinusoidal_pos_embds": True},
    ),
    "xlm-roberta_classification": (
        "XLMRobertaForSequenceClassification",
        {**XLM, **LABELS, "classifier_dropout": 0.2},
    ),
    "camembert_masked_lm": ("CamembertForMaskedLM", XLM),
    "mpnet_masked_lm": ("MPNetForMaskedLM", {"layer_norm_eps": 1e-5}),
    "mpnet_classification": ("MPNetForSequenceClassification", LABELS),
    "mpnet_bare": ("MPNetModel", {"hidden_act": "relu"}),
    "ernie_pretraining": ("ErnieForPreTraining", {}),
    "ernie_bare": ("ErnieModel", {"use_task_id": True}),
    "deberta-v2_masked_lm": (
        "DebertaV2ForMaskedLM",
        {
            **DEBERTA,
            "legacy": False,
            "tie_word_embeddings": False,
            "conv_kernel_size": 3,
            "conv_act": "gelu",
        },
    ),
    "deberta-v2_classification": (
        "DebertaV2ForSequenceClassification",
        {**DEBERTA, **LABELS, "hidden_size": 21, "cls_dropout": 0.2},
    ),
    "deberta-v2_bare": (
        "DebertaV2Model",
        {
            **DEBERTA,
            "norm_rel_ebd": "none",
            "conv_kernel_size": 5,
            "hidden_act": "gelu_new",
            "position_buckets": -1,
            "max_relative_positions": 5,
        },
    ),
    "deberta_classification": ("DebertaForSequenceClassification", {**DEBERTA_V1, **LABELS}),
    "deberta_bare": ("DebertaModel", {**DEBERTA_V1, "num_attention_heads": 5}),
    "gpt2_causal_lm": ("GPT2LMHeadModel", {**GPT2, "n_inner": 22}),
    "modernbert_bare": ("ModernBertModel", {**MODERN, "hidden_size": 12, "num_hidden_layers": 5}),
    "modernbert_masked_lm": ("ModernBertForMaskedLM", MODERN),
    "modernbert_classification": (
        "ModernBertForSequenceClassification",
        {**MODERN, **LABELS, "classifier_pooling": "mean", "classifier_dropout": 0.2},
    ),
    "modernbert_biases": (
        "ModernBertForSequenceClassification",
        {**MODERN, **LABELS, **BIASES, "local_attention": 3, "hidden_size": 30},
    ),
    "modernbert_questions": ("ModernBertForQuestionAnswering", {**MODERN, "num_hidden_layers": 1}),
    "modernbert_tokens": (
        "ModernBertForTokenClassification",
        {**MODERN, **LABELS, "hidden_activation": "silu", "classifier_activation": "silu"},
    ),
    "gpt2_bare": ("GPT2Model", {**GPT2, "activation_function": "relu", "layer_norm_epsilon": 1e-6}),
}
# Of transformers 5.
_NEWER = {
    "eurobert_masked_lm": (
        "EuroBertForMaskedLM",
        {**EURO, "hidden_size": 24, "num_attention_heads": 6, "num_key_value_heads": 3},
    ),
    "eurobert_bare": ("EuroBertModel", {**EURO, "num_key_value_heads": 5, "hidden_act": "gelu"}),
    "eurobert_late": ("EuroBertForSequenceClassification", {**EURO, **LABELS}),
    "eurobert_mean": (
        "EuroBertForSequenceClassification",
        {**EURO, **LABELS, "classifier_pooling": "mean", "rms_norm_eps": 1e-3},
    ),
    "eurobert_first": (
        "EuroBertForSequenceClassification",
        {**EURO, **LABELS, "classifier_pooling": "bos", "num_hidden_layers": 1},
    ),
    "eurobert_tokens": (
        "EuroBertForTokenClassification", {**EURO, **LABELS, "num_hidden_layers": 1}
    ),
}  # fmt: skip
CASES = _NEWER if int(transformers.__version__.partition(".")[0]) >= 5 else _OLDER


def make_model(kind, sizes, seed):
    """A model whose biases and scales are random too."""
    torch.manual_seed(seed)
    cls = getattr(transformers, kind)
    model = cls(cls.config_class(**{**SIZES, **sizes})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:  # biases of 0 and scales of 1 would hide a mix-up
                parameter.add_(torch.randn_like(parameter) * 0.3)
        if "position_embedding_type" in sizes:  # then no layer reads this table
            model.base_model.embeddings.position_embeddings.weight.zero_()
    return model


def make_batch(config, rng):
    """Three rows: padding on the right, padding on the left, none."""
    real = np.ones((3, LENGTH), bool)
    real[0, 5:] = real[1, :3] = False
    token_ids = rng.integers(5, config.vocab_size, real.shape).astype(np.int32)
    types = getattr(config, "type_vocab_size", 1) or 1
    batch = {
        "token_ids": token_ids,
        "segment_ids": rng.integers(0, types, real.shape).astype(np.int32),
        "padding_mask": real,
    }
    if config.model_type in ("roberta", "xlm-roberta", "camembert", "mpnet"):
        # It finds the padding by its id, and counts positions from the first real token.
        token_ids[~real] = config.pad_token_id
        batch["positions"] = np.where(real, np.cumsum(real, axis=1) - 1, -1).astype(np.int32)
    return batch


def answers(model, batch):
    """The outputs that the class has, and all hidden states."""
    inputs = {
        "input_ids": torch.from_numpy(batch["token_ids"]).long(),
        "attention_mask": torch.from_numpy(batch["padding_mask"]).long(),
    }
    if model.config.model_type not in ("distilbert", "gpt2", "mpnet", "modernbert", "eurobert"):
        inputs["token_type_ids"] = torch.from_numpy(batch["segment_ids"]).long()
    with torch.no_grad():
        outputs = dict(model(**inputs, output_hidden_states=True))
        states = list(outputs.pop("hidden_states"))
        if model.config.model_type == "modernbert":  # whose last one has no norm
            states[-1] = getattr(model, "model", model).final_norm(states[-1])
    outputs.pop("past_key_values", None)
    actual = {"hidden_states": torch.stack(states).numpy()}
    return actual | {f"answer/{name}": array.numpy() for name, array in outputs.items()}


SAMPLING = {"temperature": [0.7, 1.0, 1.3], "top_k": [5, 0, 7], "top_p": [1.0, 0.8, 0.6]}


def generation(model, rng):
    """Greedy search with padding on the left, and what sampling would draw from."""
    real = np.ones((2, 6), bool)
    real[1, :3] = False
    token_ids = rng.integers(0, 256, real.shape)
    inputs = {
        "input_ids": torch.from_numpy(token_ids),
        "attention_mask": torch.from_numpy(real * 1),
    }
    settings = {"do_sample": False, "pad_token_id": 257, "max_new_tokens": 7}
    with torch.no_grad():
        free = model.generate(**inputs, **settings, eos_token_id=None)[:, 6:]
        # A token that only one row has, which so ends before the other.
        end = next(t for t in free[0].tolist()[1:] if t not in free[1].tolist())
        new = model.generate(**inputs, **settings, eos_token_id=end)[:, 6:]
    logits = torch.from_numpy(rng.standard_normal((2, 40)) * 3).float()
    chances = []
    for temperature, top_k, top_p in zip(*SAMPLING.values(), strict=True):
        scores = transformers.TemperatureLogitsWarper(temperature)(None, logits)
        if top_k:
            scores = transformers.TopKLogitsWarper(top_k)(None, scores)
        if top_p < 1:
            scores = transformers.TopPLogitsWarper(top_p)(None, scores)
        chances.append(scores.softmax(-1).numpy())
    result = {
        "token_ids": token_ids.astype(np.int32),
        "padding_mask": real,
        "free": free.numpy().astype(np.int32),
        "end": np.int32(end),
        "ended": new.numpy().astype(np.int32),
        "logits": logits.numpy(),
        "chances": np.stack(chances),
        **{key: np.array(values) for key, values in SAMPLING.items()},
    }
    return {f"generation/{key}": array for key, array in result.items()}


def case(name, seed):
    """Everything that is compared."""
    kind, sizes = CASES[name]
    model = make_model(kind, sizes, seed)
    rng = np.random.default_rng(seed)
    batch = make_batch(model.config, rng)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        weights = safetensors.numpy.load_file(Path(folder) / "model.safetensors")
        config = json.loads((Path(folder) / "config.json").read_text())
    return {
        "config": np.array(json.dumps(config)),
        **{f"weight/{name}": array for name, array in weights.items()},
        **{f"batch/{name}": array for name, array in batch.items()},
        **answers(model, batch),
        **(generation(model, rng) if "causal_lm" in name else {}),
    }


def main():
    """Writes the files."""
    default = Path(__file__).parent / "systems"
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    folder.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    for name in sys.argv[2:] or CASES:
        seed = zlib.crc32(name.encode())  # the same whichever cases there are
        np.savez_compressed(folder / f"{name}.npz", **case(name, seed))


if __name__ == "__main__":
    main()
