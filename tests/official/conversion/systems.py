"""Folders as `save_pretrained` makes them, from what `make_systems_golden.py` stored."""

import io
import json

import numpy as np
import safetensors.numpy
import sentencepiece

from official.modeling.encoders import inputs
from tests import GOLDEN

CLOSE = dict(rtol=0, atol=1e-5)
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_PADDING_FIRST = {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1}
_PADDING_FIRST |= {"control_symbols": SPECIALS[2:]}
_XLM = {"bos_id": 0, "pad_id": 1, "eos_id": 2, "unk_id": 3, "control_symbols": ["<mask>"]}
_UNUSED = {"bos_piece": "<s>NOTUSED", "eos_piece": "</s>NOTUSED"}
_DEBERTA = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3, "control_symbols": []}
_DEBERTA |= {"bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]"}
_DEBERTA |= {"pad_piece": "[PAD]"}
SENTENCEPIECE = {
    "albert": {},
    "xlnet": {},
    "xlm-roberta": _XLM,
    "deberta-v2": _DEBERTA,
    "camembert": {**_XLM, **_UNUSED, "control_symbols": ["<s>", "</s>", "<mask>"]},
}
EURO = ("<|begin_of_text|>", "<|end_of_text|>", "<|mask|>", "<|pad|>")
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_FAIRSEQ = {"cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
_FAIRSEQ |= {"mask_token": "<mask>"}


def load(name, folder=GOLDEN / "systems"):
    """One case: its config, and its arrays by the first part of their names."""
    parts = {"weight": {}, "batch": {}, "answer": {}, "generation": {}}
    with np.load(folder / f"{name}.npz") as file:
        for key in file:
            kind, _, rest = key.partition("/")
            if rest:
                parts[kind][rest] = file[key]
        return json.loads(str(file["config"])), parts, file["hidden_states"]


def write(folder, config, weights):
    """The folder of the model with a small vocabulary of its kind."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    safetensors.numpy.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    write_vocabulary(folder, config["model_type"])
    return folder


def write_vocabulary(folder, model_type):
    """Fewer than 61 pieces, or for bytes fewer than 277 (of a GPT-2, 259)."""
    if model_type in ("xlm-roberta", "camembert"):
        (folder / "tokenizer_config.json").write_text(json.dumps(_FAIRSEQ))
    if model_type in SENTENCEPIECE:
        name = "spm.model" if model_type == "deberta-v2" else "spiece.model"
        (folder / name).write_bytes(sentencepiece_model(**SENTENCEPIECE[model_type]))
    elif model_type == "deberta":
        write_byte_vocabulary(folder, ["[PAD]", "[CLS]", "[SEP]"], ["[UNK]", "[MASK]"])
    elif model_type == "mpnet":
        pieces = ["<s>", "<pad>", "</s>", "[UNK]", "the", "cat", "##s", "<mask>"]
        (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
        (folder / "tokenizer_config.json").write_text(json.dumps(_FAIRSEQ | {"unk_token": "[UNK]"}))
    elif model_type == "roberta":
        write_byte_vocabulary(folder, ["<s>", "<pad>", "</s>", "<unk>"], ["<mask>"])
    elif model_type == "modernbert":
        write_byte_vocabulary(folder, [], ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"])
        names = {f"{name.strip('[]').lower()}_token": name for name in SPECIALS}
        (folder / "tokenizer_config.json").write_text(json.dumps(names))
    elif model_type == "eurobert":
        (folder / "tokenizer.json").write_text(json.dumps(llama3_tokenizer(), ensure_ascii=False))
        names = {"bos": EURO[0], "eos": EURO[1], "mask": EURO[2], "pad": EURO[3]}
        settings = {f"{key}_token": name for key, name in names.items()}
        settings |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 13}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    elif model_type == "gpt2":
        write_byte_vocabulary(folder, [], ["<|endoftext|>"])
    else:
        (folder / "vocab.txt").write_text("\n".join([*SPECIALS, "the", "cat", "##s"]) + "\n")


def llama3_tokenizer():
    """The parts of EuroBERT's tokenizer: those of Llama 3, and the tokens around a text."""
    merges = ["t h", "th e", "Ġ c"]
    pieces = [*byte_alphabet(), *(merge.replace(" ", "") for merge in merges)]
    special = {"single_word": False, "rstrip": False, "normalized": False, "special": True}
    added = [
        {"id": len(pieces) + i, "content": name, "lstrip": name == EURO[2], **special}
        for i, name in enumerate(EURO)
    ]
    ids = {token["content"]: token["id"] for token in added[:2]}
    start, end = ({"SpecialToken": {"id": name, "type_id": 0}} for name in ids)
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    template = {
        "type": "TemplateProcessing",
        "single": [start, first, end],
        "pair": [start, first, end, second, end],
        "special_tokens": {
            name: {"id": name, "ids": [number], "tokens": [name]} for name, number in ids.items()
        },
    }
    of_bytes = {"add_prefix_space": False, "trim_offsets": True}
    split = {"type": "Split", "pattern": {"Regex": LLAMA3}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", **of_bytes, "use_regex": False}
    model = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
        "ignore_merges": True, "vocab": {piece: i for i, piece in enumerate(pieces)},
        "merges": merges,
    }  # fmt: skip
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": None, "model": model, "decoder": {**level, "use_regex": True},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
        "post_processor": {"type": "Sequence", "processors": [{"type": "ByteLevel", **of_bytes,
                                                               "use_regex": True}, template]},
    }  # fmt: skip


def sentencepiece_model(**ids):
    """A serialized model of letters and some words."""
    ids = _PADDING_FIRST | ids
    data = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the cat sat on the mat", "a dog ran"] * 9),
        model_writer=data, model_type="bpe", vocab_size=40, minloglevel=2,
        **{"pad_piece": "<pad>", "unk_piece": "<unk>", **ids},
    )  # fmt: skip
    return data.getvalue()


def byte_alphabet():
    """All bytes as GPT-2 spells them."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(256 + i) for i in range(len(others))]


def write_byte_vocabulary(folder, first, last):
    """All bytes as GPT-2 spells them, and two merges."""
    merges = ["t h", "th e"]
    pieces = [*first, *byte_alphabet(), "th", "the", *last]
    ids = {piece: i for i, piece in enumerate(pieces)}
    (folder / "vocab.json").write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")
    lines = ["#version: 0.2", *merges]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def run(encoder, batch):
    """What an encoder makes of a stored batch."""
    batch = dict(batch)
    if not encoder.config.segment_types:
        batch.pop("segment_ids")
    return inputs.encode(encoder, batch, output_all=True)


def compare_encoder(encoder, parts, hidden_states):
    """Asserts that states and pooled output agree within 1e-5, and returns the other answers."""
    encoded = run(encoder, parts["batch"])
    # A group of several layers stands for one in transformers.
    ours = np.stack(encoded["hidden_states"])[:: encoder.config.inner_layers]
    seen = visible(encoder, parts["batch"])
    np.testing.assert_allclose(ours[:, seen], hidden_states[:, seen], **CLOSE)
    answers = dict(parts["answer"])
    for theirs, name in (
        ("last_hidden_state", "sequence_output"),
        ("pooler_output", "pooled_output"),
    ):
        if theirs in answers:
            actual, expected = np.asarray(encoded[name]), answers.pop(theirs)
            if actual.ndim == 3:
                actual, expected = actual[seen], expected[seen]
            np.testing.assert_allclose(actual, expected, **CLOSE)
    return answers


def visible(encoder, batch):
    """The positions to compare.

    Under a causal mask, padding on the left sees nothing at all, and so does padding that is far
    from tokens in a ModernBERT. The padding of a DeBERTa sees other tokens in transformers.
    """
    real = batch["padding_mask"]
    config = encoder.config
    apart = config.causal or any(
        getattr(config, name, None) is not None for name in ("disentangled", "local_attention")
    )
    return real if apart else np.ones_like(real)


def compare(model, parts, hidden_states):
    """The same for a model; returns the answers that it has no head for."""
    answers = compare_encoder(model.encoder, parts, hidden_states)
    encoded = run(model.encoder, parts["batch"])
    for objective in model.objectives:
        name = LOGITS.get((objective.name, len(model.objectives)), "logits")
        if objective.name == "span_answer":
            both = objective.boundary_logits(objective.states(encoded))
            pairs = {"start_logits": both[0], "end_logits": both[1]}
        else:
            pairs = {name: logits_of(objective, model, encoded)}
        for name, actual in pairs.items():
            actual, expected = np.asarray(actual), answers.pop(name)
            seen = visible(model.encoder, parts["batch"])
            if objective.name not in PER_TOKEN:
                seen = seen[:, 0]  # of a row, the first position is pooled
            np.testing.assert_allclose(actual[seen], expected[seen], **CLOSE)
    return answers


PER_TOKEN = ("masked_lm", "causal_lm", "replaced_tokens", "span_answer", "token_classification")
LOGITS = {("masked_lm", 2): "prediction_logits", ("sentence_order", 2): "sop_logits"}
LOGITS |= {("next_sentence", 2): "seq_relationship_logits"}


def logits_of(objective, model, encoded):
    """The scores of a head; of a language model, for every position."""
    states = encoded["sequence_output"]
    if objective.name in ("masked_lm", "causal_lm", "permutation_lm", "seq2seq_lm"):
        rows = np.asarray(states).reshape(-1, states.shape[-1])
        actual = np.asarray(objective.logits(rows, model.encoder))
        return actual.reshape(*states.shape[:2], -1)
    return np.asarray(objective.logits(states if objective.name == "replaced_tokens" else encoded))
