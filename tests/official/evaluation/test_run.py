import json
import subprocess
import sys
import types

import numpy as np
import pytest
import tensorflow as tf

from official.distribution import strategies
from official.evaluation.evaluator import Evaluator
from official.evaluation.run import write_predictions, write_submission
from official.tasks import Description
from official.utils import progress
from official.utils.errors import UserError
from tests import ROOT

NUMBERS = np.array([3, 0, 4, 1, 5], np.int32)  # the rows, in the order of the shards


class Model:
    """Its predictions are functions of the token ids."""

    objectives = ()

    def __init__(self, kind):
        self.kind = kind

    def networks(self):
        return []

    def prepare(self, batch, rng):
        return batch

    def predictions(self, batch):
        number = tf.cast(batch["token_ids"][:, 0], tf.float32)
        if self.kind == "score":
            return {"score": number * 0.7}
        if self.kind == "probabilities":
            return {"probabilities": tf.nn.softmax(tf.stack([number, 0 * number + 2], -1))}
        return {}


class Source:
    """Five examples in batches of 4 with 3 rows of filler, in two lengths."""

    folder = "shards"
    split = "test"
    task_name = "cola"
    num_examples = 5
    rows = NUMBERS
    fields = ("token_ids", "row", "example_weights")

    def __init__(self, kind="classification"):
        self.task = Description("cola", kind, labels=("no", "yes"))
        self.manifest = types.SimpleNamespace(task=self.task)

    def check_unchanged(self):
        pass

    def dataset(self, batch_size, replicas_per_worker=1, **options):
        size = batch_size // replicas_per_worker

        def batches():
            rows = np.concatenate([self.rows, np.zeros(3, np.int32)])
            weights = np.array([1] * 5 + [0] * 3, np.float32)
            for i in range(0, 8, size):
                ids = np.tile(rows[i : i + size, None], [1, 2 if i < 4 else 3])
                batch = {
                    "token_ids": ids,
                    "row": rows[i : i + size],
                    "example_weights": weights[i : i + size],
                }
                yield {name: batch[name] for name in self.fields}

        specs = {
            "token_ids": tf.TensorSpec([size, None], tf.int32),
            "row": tf.TensorSpec([size], tf.int32),
            "example_weights": tf.TensorSpec([size]),
        }
        specs = {name: specs[name] for name in self.fields}
        return tf.data.Dataset.from_generator(batches, output_signature=specs)


def _config(**objective):
    return types.SimpleNamespace(
        encoder=None,
        segments=None,
        recipe=types.SimpleNamespace(eval_batch_size=0, batch_size=4),
        objectives=(types.SimpleNamespace(**{"task": "", "labels": (), **objective}),),
    )


def _predict(
    output, kind="probabilities", config=None, source=None, strategy=None, report=None, **options
):
    evaluator = Evaluator(
        config or _config(labels=("negative", "positive")),
        Model(kind),
        strategy or tf.distribute.get_strategy(),
        report=report,
    )
    source = source or Source("regression" if kind == "score" else "classification")
    return write_predictions(evaluator, source, output, **options)


def _probabilities(row):
    e = np.exp(np.array([row, 2.0]))
    return e / e.sum()


def test_tsv_of_a_classification(tmp_path):
    output = tmp_path / "new" / "predictions.tsv"
    assert _predict(output) == 5
    header, *lines = [line.split("\t") for line in output.read_text().splitlines()]
    assert header == ["row", "label", "probability:negative", "probability:positive"]
    assert [line[:2] for line in lines] == [
        ["0", "positive"],
        ["1", "positive"],
        ["3", "negative"],
        ["4", "negative"],
        ["5", "negative"],
    ]
    for line in lines:
        np.testing.assert_allclose(
            np.array(line[2:], float), _probabilities(int(line[0])), rtol=1e-6
        )


def test_json_lines_of_a_classification(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_REPORTS", 0)
    output, said = tmp_path / "predictions.jsonl", []
    # A model without names of labels takes the data's.
    _predict(output, config=_config(), report=said.append)
    assert [line.split(", ")[0] for line in said] == [
        "test: 4 of 5 examples (80%)", "test: 5 of 5 examples (100%)"
    ]  # fmt: skip
    assert said[0].endswith(" left") and " examples/s, " in said[0]
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert [line["row"] for line in lines] == [0, 1, 3, 4, 5]
    assert [line["label"] for line in lines] == ["yes", "yes", "no", "no", "no"]
    for line in lines:
        expected = dict(zip(["no", "yes"], _probabilities(line["row"]), strict=True))
        assert line["probabilities"] == pytest.approx(expected, rel=1e-6)


def test_regression(tmp_path):
    expected = [np.float32(row) * np.float32(0.7) for row in (0, 1, 3, 4, 5)]
    assert _predict(tmp_path / "p.tsv", "score") == 5
    header, *lines = (tmp_path / "p.tsv").read_text().splitlines()
    assert header == "row\tscore"
    assert [line.split("\t")[0] for line in lines] == ["0", "1", "3", "4", "5"]
    assert [np.float32(line.split("\t")[1]) for line in lines] == expected  # to the bit
    assert lines[1] == "1\t0.7"  # the shortest text that is this float32
    _predict(tmp_path / "p.jsonl", "score")
    lines = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert [line["row"] for line in lines] == [0, 1, 3, 4, 5]
    assert [np.float32(line["score"]) for line in lines] == expected


def test_submission_of_a_split(tmp_path):
    source = Source()
    source.rows = np.array([3, 0, 4, 1, 2], np.int32)
    evaluator = Evaluator(_config(), Model("probabilities"), tf.distribute.get_strategy())
    write_submission(evaluator, source, tmp_path)
    assert (tmp_path / "CoLA.tsv").read_text() == (
        "index\tprediction\n0\t1\n1\t1\n2\t0\n3\t0\n4\t0\n"
    )
    source.split = "validation"
    evaluator.predict = None  # what GLUE does not take is refused before
    with pytest.raises(UserError, match="no predictions for the validation split of the task cola"):
        write_submission(evaluator, source, tmp_path)


def test_errors_leave_nothing(tmp_path):
    output = tmp_path / "predictions.csv"
    with pytest.raises(UserError, match=r"predictions.csv: .* as .tsv or .jsonl: name such"):
        _predict(output)
    with pytest.raises(UserError, match="--top_k=3: not supported for a regression task; rem"):
        _predict(output, "score", top=3)
    with pytest.raises(UserError, match="no classification, regression or ranking objective"):
        _predict(tmp_path / "p.tsv", "masked_lm")
    twice = Source()
    twice.rows = np.array([3, 0, 3, 1, 5], np.int32)
    with pytest.raises(UserError, match="4 predictions for the 5 examples of the test split"):
        _predict(tmp_path / "p.tsv", source=twice)
    pretraining = Source()
    pretraining.fields = ("token_ids", "example_weights")
    with pytest.raises(UserError, match="the test split has no row numbers"):
        _predict(tmp_path / "p.tsv", source=pretraining)
    assert not list(tmp_path.iterdir())


def predict_mirrored(output):
    _predict(output, strategy=strategies.create("mirrored", replicas=2))


@pytest.mark.slow
@pytest.mark.long
def test_mirrored_replicas_write_the_same_rows(tmp_path):
    # In a process of its own: devices are made before TensorFlow starts.
    code = (
        "import sys; from tests.official.evaluation import test_run as t; "
        "t.predict_mirrored(sys.argv[1])"
    )
    _predict(tmp_path / "one.tsv")
    subprocess.run(
        [sys.executable, "-c", code, tmp_path / "two.tsv"],
        check=True,
        env={"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"},
    )
    one, two = (
        [line.split("\t") for line in (tmp_path / name).read_text().splitlines()]
        for name in ("one.tsv", "two.tsv")
    )
    assert [row[:2] for row in one] == [row[:2] for row in two] and one[0] == two[0]
    # A softmax of a smaller batch takes other instructions on some CPUs: the last bit may differ.
    numbers = [np.float32([row[2:] for row in rows[1:]]) for rows in (one, two)]
    np.testing.assert_allclose(*numbers, rtol=1e-6)
