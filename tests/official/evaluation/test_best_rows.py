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
from official.saving import checkpoints, model_folder, named_arrays, warm_start
from official.shards.side_texts import ComparedRow
from official.utils.errors import UserError
from tests.tfrecords_tools.tasks import test_pair_ranking, test_pronoun
from tests.tfrecords_tools.tasks.test_pair_ranking import DEV, NO, YES

ENCODER = {
    "type": "transformer", "hidden_size": 8, "num_layers": 1, "num_heads": 2,
    "intermediate_size": 16, "max_positions": 24, "initializer_range": 0.5, "pooler": True,
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


def make(folder, data, objective):
    """A model folder for shards, with random weights."""
    tokenizer = tokenizers.load(data / "tokenizer")
    config = configs.from_dict(
        {
            "name": "x",
            "encoder": {**ENCODER, "vocab_size": tokenizer.vocab_size},
            "objectives": [objective],
            "recipe": {"steps": 1, "batch_size": 4},
        }
    )
    configs.save(config, folder / "config.yaml")
    tokenizer.save(folder / "tokenizer")
    variables = named_arrays.values(model_folder.build(config).variables_by_path())
    for number, (path, value) in enumerate(sorted(variables.items())):
        if not path.startswith("encoder/"):
            noise = np.random.default_rng(number).normal(0, 1, value.shape)
            variables[path] = (value + noise).astype(value.dtype)
    checkpoints.save(folder, 1, variables, {})
    (folder / "task.json").write_text(json.dumps({"pair": True, "max_length": 24}))
    return folder


@pytest.mark.slow
def test_files_submissions_and_served_scores_agree(tmp_path):
    test_pair_ranking.build(tmp_path)
    data = tmp_path / "out"
    model_dir = make(tmp_path / "model", data, {"type": "ranking", "threshold": 0.0})

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
    with pytest.raises(UserError, match="has no compared-train.jsonl: .* --split=validation"):
        write_predictions(evaluator, ShardDataset(data, config, "train"), tmp_path / "no.tsv")


@pytest.mark.slow
def test_candidates_for_pronouns(tmp_path):
    """Rows without a pronoun, and candidates that are no rows, are in the same files."""
    test_pronoun.build(tmp_path)
    data = tmp_path / "out"
    model_dir = make(tmp_path / "model", data, {"type": "candidate_lm"})
    gap = test_pronoun.JUG.replace("it", "_"), test_pronoun.HAIR.replace("it", "__")
    jug, hair, dog = *gap, test_pronoun.DOG.replace("it", "_")
    asked = [
        (hair, "drain"), (dog, "dog"), (dog, "the cat"), (jug, "the jug"),
        (hair, "hair"), (jug, "the cup"), (jug, "the drain"),
    ]  # fmt: skip
    loaded = official.load(model_dir)
    served = loaded.rank(*zip(*asked, strict=True))
    assert np.ptp(served) > 0.01 and served.max() < 0
    expected = [
        served[0] > served[4], served[1] >= served[2], False, served[1] < served[2],
        served[3] > max(served[5], served[6]),
    ]  # fmt: skip
    labels = [YES if best else NO for best in expected]

    config, _, model = model_folder.restore(model_dir)
    evaluator = Evaluator(config, model, tf.distribute.get_strategy())
    source = ShardDataset(data, config, "validation")
    source.check(config)
    right = [row[2] == 1 for row in test_pronoun.DEV]
    hits = [best == label for best, label in zip(expected, right, strict=True)]
    assert evaluator.run(source) == pytest.approx(
        {"accuracy": np.mean(hits), "compared_accuracy": np.mean([*hits[:2], *hits[3:]])}
    )
    write_predictions(evaluator, source, tmp_path / "new.tsv")
    cells = [line.split("\t") for line in (tmp_path / "new.tsv").read_text().splitlines()[1:]]
    assert [(int(row), label) for row, label, _ in cells] == list(enumerate(labels))
    scores = [cell[2] and float(cell[2]) for cell in cells]
    assert scores.pop(2) == ""  # no pronoun is found
    np.testing.assert_allclose(scores, served[:4], rtol=0, atol=1e-5)
    write_submission(evaluator, ShardDataset(data, config, "test"), tmp_path / "glue")
    lines = (tmp_path / "glue" / "WNLI.tsv").read_text().splitlines()
    assert lines[1:] == [f"{row}\t{int(best)}" for row, best in enumerate(expected)]

    for query, document, message in (
        ("it is here", "cat", "query: text 0 has 0 blanks: write one"),
        ("_ is _", "cat", "query: text 0 has 2 blanks"),
        (dog, "", "documents: text 0 has no tokens"),
        (jug, "cat " * 12, "query: text 0 has 23 tokens with its candidate, and 22 fit"),
    ):
        with pytest.raises(UserError, match=message):
            loaded.rank(query, [document])

    # It begins with the head of pretraining.
    pretrained = make(tmp_path / "pretrained", data, {"type": "masked_lm"})
    new = model_folder.build(config)
    count, others = warm_start.start_from(new, pretrained, "last", "all")
    assert (count, others) == (len(new.variables), [])
    known = named_arrays.values(model_folder.restore(pretrained)[2].variables_by_path())
    for path, variable in new.variables_by_path().items():
        np.testing.assert_array_equal(variable, known[path])
