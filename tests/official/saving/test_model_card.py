"""The README.md of model folders, and the labels of an export."""

import re

import numpy as np
import pytest

import official
from official import config as configs
from official.conversion import converted_model, huggingface
from official.saving import checkpoints, model_card, model_folder
from official.serving.export import saved_model
from tests import GOLDEN
from tests.official.test_fine_tuning import FAST, init, texts  # noqa: F401 - a fixture

TASK = {"name": "mine", "kind": "classification", "pair": True, "labels": ["a|b", "c"]}


def table(card):
    return dict(re.findall(r"^\| (.+?) \| (.*) \|$", card, re.M))


def code(card):
    return re.findall(r"```python\n(.*?)```", card, re.S)[0]


def test_cards_say_what_a_model_is():
    encoder = {"type": "transformer", "vocab_size": 1234, "hidden_size": 8, "num_heads": 2}
    config = configs.from_dict(
        {"name": "run", "encoder": encoder, "objectives": [{"type": "classification"}]}
    )
    state = {
        "step": 40,
        "total_steps": 50,
        "data": {"train": {"examples": 1000, "fingerprint": "abc"}},
        "best": {"step": 30, "metric": "accuracy", "value": 0.91234},
    }
    about = {**TASK, "max_length": 64}
    card = model_card.text("model", config, about, state, {"accuracy": 0.91234}, "[MASK]")
    assert card.startswith(f"{model_card.MARK}\n\n# model\n")
    found = table(card)
    assert found["task"] == "mine (classification, pairs of texts)"
    assert found["labels"] == r"`a\|b`, `c`"
    assert found["encoder"] == "transformer, 12 layers, hidden size 8, vocabulary 1,234"
    assert found["train data"] == "1,000 examples, fingerprint `abc`"
    assert found["training"].startswith("40 of 50 steps, batches of ")
    assert found["best step"] == "30: accuracy 0.9123" and found["accuracy"] == "0.9123"
    assert "at step 30:" in card and found["longest text"] == "64 tokens"
    assert 'model.classify(["a text"], ["another"])' in code(card)
    several = {"tasks": {"one": TASK, "two": {**TASK, "kind": "regression", "labels": []}}}
    objectives = [{"type": "classification", "task": "one"}, {"type": "regression", "task": "two"}]
    config = configs.from_dict({"name": "run", "encoder": encoder, "objectives": objectives})
    card = model_card.text("model", config, several, {}, {}, None)
    assert 'model.score(["a text"], ["another"], task=\'two\')' in code(card)
    assert table(card)["labels of one"] == r"`a\|b`, `c`" and "## Metrics" not in card


def test_the_code_of_a_card_runs(tmp_path, monkeypatch):
    """Of a model that was converted, whose masks are filled."""
    folder = GOLDEN / "hf_files" / "pretraining"
    converted_model.write(huggingface.read(folder), tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    monkeypatch.chdir(tmp_path)
    found = {}
    exec(code(card) + "\nfound['it'] = model.fill_mask(['a [MASK].'])", {"found": found})
    assert 'model.fill_mask(["Paris is the [MASK] of France."])' in card
    assert "training" not in table(card) and len(found["it"][0][0]) == 5


@pytest.mark.slow
@pytest.mark.long
def test_a_run_writes_its_card_and_an_export_its_labels(init, tmp_path):  # noqa: F811
    data = texts(40)
    options = {**FAST, "init": init, "model_dir": tmp_path / "model", "epochs": 2}
    model = official.finetune(*data, **options)
    path = tmp_path / "model" / "README.md"
    found = table(path.read_text())
    best = checkpoints.best(tmp_path / "model")
    assert found["best step"] == f"{best['step']}: accuracy {best['value']:.4g}"
    assert found["accuracy"] == f"{best['value']:.4g}" and found["labels"] == "`first`, `second`"
    assert re.fullmatch(r"36 examples, fingerprint `[0-9a-f]{64}`", found["train data"])
    saved_model.export(tmp_path / "model", tmp_path / "saved")
    assert (tmp_path / "saved" / "labels.txt").read_text() == "first\nsecond\n"
    # A file of one's own stays, and a damaged checkpoint changes nothing.
    path.write_text("my own\n")
    model_folder.save_card(tmp_path / "model", model.config, model.tokenizer)
    assert path.read_text() == "my own\n"
    path.write_text(model_card.MARK)
    state = checkpoints.find(tmp_path / "model", "last") / "state.json"
    state.write_text(state.read_text().replace('"step"', '"stop"'))
    model_folder.save_card(tmp_path / "model", model.config, model.tokenizer)
    assert path.read_text() == model_card.MARK
    assert np.isfinite(best["value"])
