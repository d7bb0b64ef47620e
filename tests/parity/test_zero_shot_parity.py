"""Classes by textual entailment are those of transformers' pipeline."""

import json

import numpy as np
import pytest

import official
from official.conversion import converted_model, huggingface
from tests.parity.test_pair_forms_parity import LENGTH

TEXTS = ["the cat sat on the mat", "it is a very bad film", "dog " * 60, "red"]
HYPOTHESIS = "it is {} ."


@pytest.fixture(scope="module")
def expected(hf, tmp_path_factory):
    path = tmp_path_factory.mktemp("zero_shot")
    hf.run("hf_zero_shot.py", path)
    return path, json.loads((path / "expected.json").read_text())


@pytest.mark.parametrize("name", ["usual", "reverse", "two"])
def test_classes_of_the_pipeline(expected, tmp_path, name):
    path, found = expected
    converted_model.write(huggingface.read(path / name), tmp_path / "ours")
    (tmp_path / "ours" / "task.json").write_text(json.dumps({"max_length": LENGTH}))
    model = official.load(tmp_path / "ours")
    spread = []
    for kind, rows in found[name].items():
        classes = sorted(rows[0])
        several = kind == "several"
        ours = model.classify(TEXTS, labels=classes, hypothesis=HYPOTHESIS, several=several)
        for each, row in zip(ours, rows, strict=True):
            values = [each.probabilities[label] for label in classes]
            theirs = [row[label] for label in classes]
            np.testing.assert_allclose(values, theirs, rtol=0, atol=1e-5)
            if not several:
                assert each.label == next(iter(row))  # theirs are sorted
            spread.append(np.ptp(theirs))
    assert max(spread) > 0.05
