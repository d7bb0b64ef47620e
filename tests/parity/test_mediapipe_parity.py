"""`--layout=mediapipe`: MediaPipe's own tasks give the answers of `official.load`."""

import json
import unicodedata

import numpy as np
import pytest

import official
from official.serving.export import mediapipe as exported
from tests.parity.test_hub_parity import CLASSIFICATION, CLOSE, EMBEDDING, make, rows

# What a tokenizer may split in another way.
PLAIN = ["", " ", "A cat, a dog!", "don't  stop\n(now)", "A\tB 猫犬 cat", "[CLS] x", "x" * 100]


def prepared(text):
    """A text as `docs/serving.md` prepares it."""
    letters = unicodedata.normalize("NFD", " ".join(text.split()).lower())
    kept = (a for a in letters if unicodedata.category(a) not in ("Mn", "Cf"))
    return "".join(kept)


@pytest.mark.parametrize("name", ["bert", "electra"])
def test_tasks(mediapipe, tmp_path, name):
    texts = PLAIN + [prepared(text) for text in rows(200)]
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


def test_what_its_tokenizer_keeps(mediapipe, tmp_path):
    """Accents, capitals and blanks beyond ASCII, and long words."""
    texts = ["Été à Paris", "ПРИВЕТ", "a\u00a0cat", "so\u00adft", "x" * 101]
    given = texts + [prepared(text) for text in texts]
    (tmp_path / "texts.json").write_text(json.dumps(given))
    make(tmp_path / "model", "bert", CLASSIFICATION)
    exported.export(tmp_path / "model", tmp_path / "classifier")
    (found,) = json.loads(mediapipe.run("mediapipe_reader.py", tmp_path)).values()
    labels = official.load(tmp_path / "model").classify(given)
    off = [
        abs(s["good"] - label.probabilities["good"]) for s, label in zip(found, labels, strict=True)
    ]
    assert min(off[:5]) > 1e-4 and max(off[5:9]) < 1e-5 < off[9]
