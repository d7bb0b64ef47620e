"""`--layout=hub`: ONNX Runtime and `tokenizers` alone give the answers of `official.load`.

Systems with random weights and tokenizers that were learned here, and 200 texts from no token to
some that are cut.
"""

import json

import numpy as np
import pytest

import official
from official import config as configs
from official import tokenizers
from official.conversion import converted_model
from official.saving import model_folder, named_arrays
from official.serving.export import hub
from official.tokenizers.pair_forms import LONGER, ODD_TOKEN
from official.utils import json_files
from tests.official.conversion import systems
from tests.official.serving.export.test_hub import TAGS, fed, values
from tests.official.serving.test_predictor import BERT, DEBERTA, MODERN
from tests.parity.test_way_back_parity import LANGUAGES, PAIRS, learned

LENGTH = 256
SIZE, CHOICES = 6, 3  # of a batch, and of its choices, as in `hub_reader.py`
ERF = {"activation": "gelu"}
MPNET = {"segment_types": 0, "position_offset": 1, "relative_buckets": 32}
# The tokenizer of each system, and its encoder.
SYSTEMS = {
    "bert": ("wordpiece", BERT),
    "electra": ("wordpiece", {**BERT, **ERF, "pooler_activation": "gelu"}),
    "roberta": ("byte_bpe", {**BERT, **ERF, "segment_types": 1, "position_offset": 1}),
    "deberta": ("unigram", DEBERTA),
    "modernbert": ("byte_bpe", MODERN),
    "mpnet": ("wordpiece", {**BERT, **ERF, **MPNET}),
}
GOLDEN_SYSTEMS = {"xlm-roberta": "xlm-roberta_classification"}
CLASSIFICATION = {"type": "classification", "labels": ["bad", "good", "neither"]}
EMBEDDING = {"type": "sentence_embedding", "pooling": "mean", "normalize": True, "weight": 0.0}
# Heads that read the pooled output, and those that read all tokens.
POOLED = {
    "classification": CLASSIFICATION,
    "multi_label": {**CLASSIFICATION, "type": "multi_label"},
    "regression": {"type": "regression"},
    "choice": {"type": "multiple_choice"},
    "ranking": {"type": "ranking", "output": "sigmoid"},
}
OF_TOKENS = {
    "tags": TAGS,
    "answer": {"type": "span_answer"},
    "masked_lm": {"type": "masked_lm"},
    "bare": None,
}
HEADS = {**POOLED, **OF_TOKENS, "vectors": EMBEDDING}
CLOSE = dict(rtol=0, atol=1e-5)


def rows(count=200):
    """Texts of more and more words, with an empty one."""
    words = [word for pair in PAIRS for text in pair for word in text.split()]
    words += [word for name in ("en", "fr", "ru") for word in LANGUAGES[name][0].split()]
    # Of pieces with equal scores the runtimes take others.
    words = [word for word in words if "2,000" not in word and "riverriver" not in word]
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(words, size // 2)) for size in range(count)]


def pairs(count=200):
    """Short texts, each with one of more and more words."""
    return [[text.partition(" ")[2][:40], text] for text in rows(count)]


def make(folder, name, head):
    """A model folder of a system, with one of `HEADS`."""
    kind, encoder = SYSTEMS[name]
    place = folder.with_name(f"{folder.name}_{kind}")
    learned(kind, place)
    # The package `tokenizers` knows no other rule for the odd token of two texts that are cut.
    settings = json_files.read(place / "tokenizer_config.json") | {ODD_TOKEN: LONGER}
    del settings["fingerprint"]
    (place / "tokenizer_config.json").write_text(json.dumps(settings))
    if name == "mpnet":  # whose padding has the id 1
        pad, unk, *pieces = (place / "vocab.txt").read_text("utf-8").splitlines(keepends=True)
        (place / "vocab.txt").write_text("".join([unk, pad, *pieces]), "utf-8")
    tokenizer = tokenizers.load(place)
    encoder = {**encoder, "vocab_size": tokenizer.vocab_size, "max_positions": LENGTH}
    if "position_offset" in encoder:
        encoder["position_offset"] = tokenizer.pad_id + 1
    objectives = [HEADS[head]] * (HEADS[head] is not None)
    if name == "modernbert" and head in POOLED:
        objectives[0] = {**objectives[0], "pooling": "mean", "transform": True}
    if name == "modernbert" and head in ("tags", "answer"):
        objectives[0] = {**objectives[0], "transform": True}
    raw = {"name": "x", "encoder": encoder, "objectives": objectives, "recipe": {"steps": 1}}
    if head in OF_TOKENS:
        encoder["initializer_range"] = 0.2
    encoder["pooler"] = name != "modernbert" and head in POOLED
    config = configs.from_dict(raw)
    rng = np.random.default_rng(0)
    # Of millions of numbers some would be far apart where large weights meet a norm of few numbers.
    deviation = 0.1 if head in OF_TOKENS else 0.3
    variables = {
        path: (value + deviation * rng.standard_normal(value.shape)).astype(np.float32)
        for path, value in named_arrays.values(
            model_folder.build(config).variables_by_path()
        ).items()
    }
    converted_model.write(converted_model.Converted(config, tokenizer, variables, ()), folder)


def read(reference, parent, given):
    """What the reader finds in the folder `hub` of `parent`."""
    (parent / "rows.json").write_text(json.dumps(given))
    reference.run("hub_reader.py", parent, "hub")
    with np.load(parent / "hub.npz") as file:
        return dict(file)


def wanted(loaded, head, given):
    """What the model gives for `hub_reader`."""
    found = {}
    for start in range(0, len(given), SIZE):
        texts = given[start : start + SIZE]
        texts = [texts] if isinstance(texts[0], str) else zip(*texts, strict=True)
        batch = fed(loaded, *map(list, texts))
        real = batch["attention_mask"].astype(bool)
        for name, value in values(loaded, head, batch).items():
            value = np.asarray(value)
            value = value[real] if head in OF_TOKENS else value
            value = value.reshape(-1, CHOICES) if head == "choice" else value
            found.setdefault(name, []).append(value)
    return {name: np.concatenate(parts) for name, parts in found.items()}


def check(found, right):
    """Compares many numbers, those beyond 1 as a share of the largest one."""
    limit = 1e-5 * max(1, np.abs(right).max())
    np.testing.assert_allclose(found, right, rtol=0, atol=limit)


@pytest.mark.parametrize("head", [head for head in HEADS if head not in ("vectors", "ranking")])
@pytest.mark.parametrize("name", SYSTEMS)
def test_heads(hf, tmp_path, name, head):
    make(tmp_path / "model", name, head)
    hub.export(tmp_path / "model", tmp_path / "hub")
    loaded = official.load(tmp_path / "model")
    given = pairs(201)[:198] if head == "choice" else pairs() if head == "answer" else rows()
    found, right = read(hf, tmp_path, given), wanted(loaded, head, given)
    assert list(found) == list(right)
    for key, value in right.items():
        assert np.ptp(value, axis=0).min() > 0.01
        check(found[key], value)


def chances(logits):
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("name", [*SYSTEMS, *GOLDEN_SYSTEMS])
def test_labels(hf, tmp_path, name):
    folder = tmp_path / "model"
    if name in SYSTEMS:
        make(folder, name, "classification")
    else:
        config, parts, _ = systems.load(GOLDEN_SYSTEMS[name])
        systems.write(folder, config, parts["weight"])
    hub.export(folder, tmp_path / "hub")
    loaded = official.load(folder)
    for given in (rows(), pairs()):
        found = chances(read(hf, tmp_path, given)["logits"])
        right = [list(label.probabilities.values()) for label in loaded.classify(given)]
        assert np.ptp(right, axis=0).min() > 0.01
        np.testing.assert_allclose(found, right, **CLOSE)


@pytest.mark.parametrize("name", SYSTEMS)
def test_vectors(hf, tmp_path, name):
    make(tmp_path / "model", name, "vectors")
    hub.export(tmp_path / "model", tmp_path / "hub")
    loaded = official.load(tmp_path / "model")
    sizes = {min(len(ids), LENGTH) for ids in loaded.tokenizer.encode(rows())}
    assert len(sizes) > 100
    found = read(hf, tmp_path, rows())["sentence_embedding"]
    right = loaded.encode(rows())
    assert np.ptp(right, axis=0).min() > 0.01
    np.testing.assert_allclose(found, right, **CLOSE)


@pytest.mark.parametrize("name", SYSTEMS)
def test_scores_of_pairs(hf, tmp_path, name):
    make(tmp_path / "model", name, "ranking")
    hub.export(tmp_path / "model", tmp_path / "hub")
    found = read(hf, tmp_path, pairs())["logits"][:, 0]
    queries, documents = map(list, zip(*pairs(), strict=True))
    right = official.load(tmp_path / "model").rank(queries, documents, raw=True)
    assert np.ptp(right) > 0.01
    check(found, right)
