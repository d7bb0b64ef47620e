"""`--layout=hub`: ONNX Runtime and `tokenizers` alone give the answers of `official.load`.

Systems with random weights and tokenizers that were learned here, from texts of one token to some
that are cut.
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
from tests.official.serving.test_predictor import BERT, DEBERTA, MODERN
from tests.parity.test_way_back_parity import LANGUAGES, PAIRS, learned

LENGTH = 64
ERF = {"activation": "gelu"}
# The tokenizer of each system, and its encoder.
SYSTEMS = {
    "bert": ("wordpiece", BERT),
    "electra": ("wordpiece", {**BERT, **ERF, "pooler_activation": "gelu"}),
    "roberta": ("byte_bpe", {**BERT, **ERF, "segment_types": 1, "position_offset": 1}),
    "deberta": ("unigram", DEBERTA),
    "modernbert": ("byte_bpe", MODERN),
}
GOLDEN_SYSTEMS = {"mpnet": "mpnet_classification", "xlm-roberta": "xlm-roberta_classification"}
CLASSIFICATION = {"type": "classification", "labels": ["bad", "good", "neither"]}
EMBEDDING = {"type": "sentence_embedding", "pooling": "mean", "normalize": True, "weight": 0.0}
CLOSE = dict(rtol=0, atol=1e-5)


def rows(count=50):
    """Texts of more and more words, with an empty one."""
    words = [word for pair in PAIRS for text in pair for word in text.split()]
    words += [word for name in ("en", "fr", "ru") for word in LANGUAGES[name][0].split()]
    # Of pieces with equal scores the runtimes take others.
    words = [word for word in words if "2,000" not in word and "riverriver" not in word]
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(words, size)) for size in range(count)]


def make(folder, name, objective):
    """A model folder."""
    kind, encoder = SYSTEMS[name]
    place = folder.with_name(f"{folder.name}_{kind}")
    learned(kind, place)
    # The package `tokenizers` knows no other rule for the odd token of two texts that are cut.
    settings = json_files.read(place / "tokenizer_config.json") | {ODD_TOKEN: LONGER}
    (place / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = tokenizers.load(place)
    encoder = {**encoder, "vocab_size": tokenizer.vocab_size, "max_positions": LENGTH}
    if "position_offset" in encoder:
        encoder["position_offset"] = tokenizer.pad_id + 1
    pooler = name != "modernbert" and objective is not EMBEDDING
    raw = {"name": "x", "encoder": {**encoder, "pooler": pooler}, "recipe": {"steps": 1}}
    if name == "modernbert" and objective is CLASSIFICATION:
        objective = {**objective, "pooling": "mean", "transform": True}
    config = configs.from_dict({**raw, "objectives": [objective]})
    rng = np.random.default_rng(0)
    variables = {
        path: (value + 0.3 * rng.standard_normal(value.shape)).astype(np.float32)
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


def chances(logits):
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("name", [*SYSTEMS, *GOLDEN_SYSTEMS])
def test_labels(hf, tmp_path, name):
    folder = tmp_path / "model"
    if name in SYSTEMS:
        make(folder, name, CLASSIFICATION)
    else:
        config, parts, _ = systems.load(GOLDEN_SYSTEMS[name])
        systems.write(folder, config, parts["weight"])
    hub.export(folder, tmp_path / "hub")
    texts = rows()
    loaded = official.load(folder)
    for given in (texts, [list(pair) for pair in zip(texts, texts[::-1], strict=True)]):
        found = chances(read(hf, tmp_path, given)["logits"])
        wanted = [list(label.probabilities.values()) for label in loaded.classify(given)]
        assert np.ptp(wanted, axis=0).min() > 0.01
        np.testing.assert_allclose(found, wanted, **CLOSE)


@pytest.mark.parametrize("name", SYSTEMS)
def test_vectors(hf, tmp_path, name):
    make(tmp_path / "model", name, EMBEDDING)
    hub.export(tmp_path / "model", tmp_path / "hub")
    found = read(hf, tmp_path, rows())
    wanted = official.load(tmp_path / "model").encode(rows())
    assert np.ptp(wanted, axis=0).min() > 0.01
    np.testing.assert_allclose(found["sentence_embedding"], wanted, **CLOSE)


def test_scores_of_pairs(hf, tmp_path):
    make(tmp_path / "model", "bert", {"type": "ranking", "output": "sigmoid"})
    hub.export(tmp_path / "model", tmp_path / "hub")
    texts, documents = rows(), rows()[::-1]
    found = read(hf, tmp_path, [list(pair) for pair in zip(texts, documents, strict=True)])
    wanted = official.load(tmp_path / "model").rank(texts, documents, raw=True)
    assert np.ptp(wanted) > 0.01
    np.testing.assert_allclose(found["logits"][:, 0], wanted, **CLOSE)
