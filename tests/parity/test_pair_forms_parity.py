"""Pairs of every form, long ones too, are read as transformers reads them."""

import json

import numpy as np
import pytest

import official
from official import tokenizers
from official.conversion import converted_model, huggingface
from official.tokenizers.pair_forms import LONGER, ONE, TWO, PairForm

FORMS = {
    "usual": PairForm(1, TWO, LONGER),
    "names": PairForm(1, ONE, LONGER),
    "class": PairForm(1, ONE, LONGER),
    "zeros": PairForm(1, ONE, LONGER),
    "twice": PairForm(2, TWO, LONGER),
    "xlnet_last": PairForm(1, TWO, LONGER),
    "xlnet_first": PairForm(1, TWO, LONGER),
}
LENGTH = 24


@pytest.fixture(scope="module")
def folders(hf, tmp_path_factory):
    path = tmp_path_factory.mktemp("forms")
    hf.run("hf_pair_forms.py", path)
    for name in FORMS:
        converted_model.write(huggingface.read(path / name), path / f"{name}-ours")
        (path / f"{name}-ours" / "task.json").write_text(json.dumps({"max_length": LENGTH}))
    return path


def check(folder, model_dir):
    """Compares probabilities with those that transformers gives in a folder."""
    loaded = official.load(model_dir)
    expected = json.loads((folder / "expected.json").read_text())
    texts = json.loads((folder / "texts.json").read_text())
    for each, row in zip(texts, expected, strict=True):
        [label] = loaded.classify([each[0]], each[1:] or None)
        actual = list(label.probabilities.values())
        np.testing.assert_allclose(actual, row["probabilities"], rtol=0, atol=1e-5)
    pairs = [row for row, each in zip(expected, texts, strict=True) if len(each) == 2]
    return any(max(row["types"] or [0]) for row in pairs)


@pytest.mark.parametrize("name", FORMS)
def test_models_of_transformers(folders, name):
    assert tokenizers.load(folders / f"{name}-ours" / "tokenizer").pairs == FORMS[name]
    typed = check(folders / name, folders / f"{name}-ours")
    assert typed is (FORMS[name].types == TWO)
