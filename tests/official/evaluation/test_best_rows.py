"""Rows that are compared: metrics and labels by hand, files, submissions and served scores."""

import json

import numpy as np
import pytest
import tensorflow as tf

import official
from official import config as configs
from official import tokenizers
from official.data import ShardDataset
from official.evaluation import best_rows, glue_submission
from official.evaluation.evaluator import Evaluator
from official.evaluation.run import write_predictions, write_submission
from official.saving import checkpoints, model_folder, named_arrays
from official.shards.side_texts import ComparedRow
from official.utils.errors import UserError
from tests.tfrecords_tools.tasks import test_pair_ranking
from tests.tfrecords_tools.tasks.test_pair_ranking import DEV, NO, YES

ENCODER = {
    "type": "transformer", "hidden_size": 8, "num_layers": 1, "num_heads": 2,
    "intermediate_size": 16, "max_positions": 16, "initializer_range": 0.5, "pooler": True,
}  # fmt: skip


def test_best_of_each_group_and_the_threshold_of_rows_alone():
    compared = [
        ComparedRow(0, 4, None), ComparedRow(1, None, None), ComparedRow(2, 0, None),
        ComparedRow(3, 4, None), ComparedRow(4, 1, None), ComparedRow(None, 4, None),
        ComparedRow(5, 4, None),
    ]  # fmt: skip
    scores = np.array([-3, 0.25, -2, 0.5, -2, -2], np.float32)
    expected = [False, False, False, True, True, False, False]
    assert best_rows.best_rows(compared, scores, 0.4) == expected
    expected[2] = True
    assert best_rows.best_rows(compared, scores, 0.2) == expected


@pytest.mark.slow
def test_files_submissions_and_served_scores_agree(tmp_path, monkeypatch):
    test_pair_ranking.build(tmp_path)
    model_dir, data = tmp_path / "model", tmp_path / "out"
    tokenizer = tokenizers.load(data / "tokenizer")
    config = configs.from_dict(
        {
            "name": "x",
            "encoder": {**ENCODER, "vocab_size": tokenizer.vocab_size},
            "objectives": [{"type": "ranking", "threshold": 0.0}],
            "recipe": {"steps": 1, "batch_size": 4},
        }
    )
    configs.save(config, model_dir / "config.yaml")
    tokenizer.save(model_dir / "tokenizer")
    variables = named_arrays.values(model_folder.build(config).variables_by_path())
    variables["ranking/output/kernel"] = np.random.default_rng(0).normal(0, 3, (8, 1)).astype("f4")
    checkpoints.save(model_dir, 1, variables, {})
    (model_dir / "task.json").write_text(json.dumps({"pair": True, "max_length": 16}))

    served = official.load(model_dir).rank([row[0] for row in DEV], [row[1] for row in DEV])
    best_of_bi = max([0, 2, 4], key=lambda row: served[row])
    right = [row == best_of_bi for row in range(5)]
    right[1], right[3] = served[1] > 0, served[3] > 0  # those alone
    labels = [YES if best else NO for best in right]
    hits = [label == row[2] for label, row in zip(labels, DEV, strict=True)]

    config, _, model = model_folder.restore(model_dir)
    evaluator = Evaluator(config, model, tf.distribute.get_strategy())
    source = ShardDataset(data, config, "validation")
    figures = evaluator.run(source)
    assert figures == pytest.approx(
        {"accuracy": np.mean(hits), "compared_accuracy": np.mean([hits[i] for i in (0, 2, 4)])}
    )
    assert write_predictions(evaluator, source, tmp_path / "new.tsv") == 5
    header, *lines = (tmp_path / "new.tsv").read_text().splitlines()
    assert header == "row\tlabel\tscore"
    cells = [line.split("\t") for line in lines]
    assert [(int(row), label) for row, label, _ in cells] == list(enumerate(labels))
    np.testing.assert_allclose([float(cell[2]) for cell in cells], served, rtol=0, atol=1e-5)
    write_predictions(evaluator, source, tmp_path / "new.jsonl")
    objects = [json.loads(line) for line in (tmp_path / "new.jsonl").read_text().splitlines()]
    assert [str(row["score"]) for row in objects] == [str(float(cell[2])) for cell in cells]
    assert [row["label"] for row in objects] == labels

    test = ShardDataset(data, config, "test")
    with pytest.raises(UserError, match="no labels of the task qnli to compare with"):
        evaluator.scorer(test).metrics({"example_weights": np.ones(5), "row": np.arange(5)} | {
            "score": served})  # fmt: skip
    write_submission(evaluator, test, tmp_path / "glue")
    expected = ["index\tprediction", *(f"{row}\t{label}" for row, label in enumerate(labels))]
    assert (tmp_path / "glue" / "QNLI.tsv").read_text().splitlines() == expected
    with pytest.raises(UserError, match="GLUE takes no predictions for the validation split"):
        glue_submission.check("qnli", "validation")
    with pytest.raises(UserError, match="train has no compared|no compared-train"):
        write_predictions(evaluator, ShardDataset(data, config, "train"), tmp_path / "no.tsv")
