"""Folders of an earlier version: they load, train on, evaluate, predict and are served alike.

`tests/golden/make_earlier_folders.py` made the folders and recorded what that version did with
them. On the machine that recorded it, the weights are equal to the bit. The tolerances are for
CPUs with other instructions.
"""

import csv
import json
import shutil

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
import tensorflow_text  # noqa: F401  (its ops are in the model)

import official
from official import training
from official.evaluation import run as evaluation
from official.serving.export import saved_model
from official.shards import shard_folder
from tests import GOLDEN

EARLIER = GOLDEN / "earlier"
NAMES = ["bert", "xlnet", "task"]


@pytest.fixture
def earlier(tmp_path):
    """Gives a copy of a folder that may be written to."""
    return lambda name: shutil.copytree(EARLIER / name, tmp_path / name)


@pytest.mark.parametrize("name", NAMES)
def test_shards_are_whole(name):
    assert shard_folder.problems(EARLIER / name / "shards", deep=True) == []


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_run_goes_on_to_the_same_weights_and_metrics(earlier, name):
    folder = earlier(name)
    model, shards = folder / "model", folder / "shards"
    training.train(model, shards, model, evaluate=False, report=lambda line: None)
    expected = dict(np.load(folder / "expected.npz"))
    metrics = json.loads(str(expected.pop("metrics")))
    last = model / "checkpoints/step-00000008"
    actual = safetensors.numpy.load_file(next(last.glob("variables*.safetensors")))
    assert actual.keys() == expected.keys()
    for path, array in actual.items():
        np.testing.assert_allclose(array, expected[path], rtol=2e-4, atol=2e-6, err_msg=path)
    values = evaluation.evaluate(model, shards, split="train", checkpoint="last")["train"]
    assert metrics and {key: values[key] for key in metrics} == pytest.approx(metrics, abs=2e-5)


@pytest.mark.slow
@pytest.mark.long
def test_the_stored_weights_predict_and_answer_alike(tmp_path):
    folder = EARLIER / "task"
    model, predictions = folder / "model", tmp_path / "predictions.tsv"
    evaluation.predict(model, folder / "shards", predictions, checkpoint="last")
    tables = []
    for path in (predictions, folder / "predictions.tsv"):
        with open(path, encoding="utf-8", newline="") as file:
            tables.append(list(csv.reader(file, delimiter="\t")))
    actual, wanted = tables
    assert actual[0] == wanted[0] and len(actual) == len(wanted) > 5
    for ours, theirs in zip(actual[1:], wanted[1:], strict=True):
        assert ours[:2] == theirs[:2]
        assert [float(x) for x in ours[2:]] == pytest.approx(
            [float(x) for x in theirs[2:]], abs=1e-5
        )

    recorded = json.loads((folder / "served.json").read_text())
    saved_model.export(model, tmp_path / "saved", checkpoint="last")
    serve = tf.saved_model.load(tmp_path / "saved").signatures["serving_default"]
    answers = serve(text=tf.constant(recorded["texts"]))
    for key, values in recorded["answers"].items():
        answered = answers[key].numpy()
        if answered.dtype == object:
            assert [str(value) for value in answered] == values
        else:
            np.testing.assert_allclose(answered, values, atol=1e-5)
    labels = official.load(model, checkpoint="last").classify(recorded["texts"])
    assert [str(answer.label.encode()) for answer in labels] == recorded["answers"]["label"]
