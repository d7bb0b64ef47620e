"""`--layout=mediapipe`: MediaPipe's own tasks give the answers of `official.load`."""

import json
import unicodedata

import numpy as np
import pytest

import official
from official import tokenizers
from official.serving.export import mediapipe as exported
from tests.parity.test_hub_parity import CLASSIFICATION, CLOSE, EMBEDDING, make, rows

# What a tokenizer may split in another way.
PLAIN = ["", " ", "A cat, a dog!", "don't  stop\n(now)", "A\tB 猫犬 cat", "[CLS] x", "x" * 100]


def without_accents(text):
    """A text without what MediaPipe keeps and the models remove."""
    letters = unicodedata.normalize("NFD", text)
    return "".join(letter for letter in letters if unicodedata.category(letter) != "Mn")


@pytest.mark.parametrize("name", ["bert", "electra"])
def test_tasks(mediapipe, tmp_path, name):
    texts = PLAIN + [without_accents(text) for text in rows(200)]
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    wanted = {}
    for task, objective in (("classifier", CLASSIFICATION), ("embedder", EMBEDDING)):
        make(tmp_path / f"{task}_model", name, objective)
        exported.export(tmp_path / f"{task}_model", tmp_path / task)
        loaded = official.load(tmp_path / f"{task}_model")
        if task == "embedder":
            wanted[task] = loaded.encode(texts)
        else:
            wanted[task] = [list(label.probabilities.values()) for label in loaded.classify(texts)]
    found = json.loads(mediapipe.run("mediapipe_reader.py", tmp_path))
    found["classifier"] = [
        [scores[label] for label in CLASSIFICATION["labels"]] for scores in found["classifier"]
    ]
    sizes = [len(ids) for ids in loaded.tokenizer.encode(texts)]
    assert min(sizes) == 0 and max(sizes) > loaded.max_length
    for task, values in wanted.items():
        assert np.ptp(values, axis=0).min() > 0.01
        np.testing.assert_allclose(found[task], values, **CLOSE)
