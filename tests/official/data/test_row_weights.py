"""Weights of rows: in files, in shards, and in the loss of labels and scores."""

import json

import numpy as np
import pytest
import tensorflow as tf

from official import tasks, tokenizers
from official.config.encoders import TransformerConfig
from official.config.heads import ClassificationConfig, MultiLabelConfig, RegressionConfig
from official.data import ShardDataset
from official.data.mixture import open_shards
from official.distribution import numerics, strategies
from official.modeling.objectives import heads
from official.saving import metrics_log, named_arrays
from official.training import resolve, train
from official.training.trainer import Trainer
from official.utils.errors import UserError
from tests import small
from tests.official.modeling.objectives.test_label_weights import LABELS, LOGITS, loss, passing
from tests.official.training.test_label_weights_training import config
from tests.official.training.test_systems import assert_close
from tfrecords_tools.tasks import builder

ENCODER = TransformerConfig(vocab_size=9, hidden_size=3, num_heads=1, intermediate_size=4)
WEIGHTS = np.array([1, 2, 0.5], "float32")
ROWS = [("a cat", "x", 2), ("a dog", "y", 0.5), ("a bird", "x", 1), ("a cow", "y", 0)]


def batch_of(**targets):
    return {"token_ids": np.zeros((3, 2)), "row_weight": WEIGHTS, **targets}


def test_the_loss_of_classes_is_divided_by_the_weights():
    each = -np.log(np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True))[range(3), LABELS]
    for classes in ((), (1, 2, 3)):
        weights = WEIGHTS * (np.array(classes)[LABELS] if classes else 1)
        settings = ClassificationConfig(num_labels=3, dropout=0, class_weights=classes)
        head = passing(heads.Classification(settings, ENCODER), 3)
        found, metrics = loss(head, batch_of(label=LABELS), {"pooled_output": LOGITS})
        assert found == pytest.approx((each * weights).sum() / weights.sum(), abs=1e-6)
        hits, count = metrics["classification_accuracy"]
        assert (float(hits), float(count)) == (2, 3)  # each example counts once


def test_the_losses_of_several_labels_and_of_scores_are_too():
    flags = np.array([[1, 0, 1], [0, 1, 0], [0, 0, 1]], "int32")
    head = passing(heads.MultiLabel(MultiLabelConfig(num_labels=3, dropout=0), ENCODER), 3)
    found, _ = loss(head, batch_of(label_flags=flags), {"pooled_output": LOGITS})
    each = (np.log1p(np.exp(LOGITS)) - flags * LOGITS).mean(1)
    assert found == pytest.approx((each * WEIGHTS).sum() / 3.5, abs=1e-6)
    head = passing(heads.Regression(RegressionConfig(dropout=0), ENCODER), 1)
    scores = np.array([1, 0, 4], "float32")
    encoded = {"pooled_output": np.array([[2, 0, 0], [1, 0, 0], [1, 0, 0]], "float32")}
    found, metrics = loss(head, batch_of(score=scores), encoded)
    assert found == pytest.approx((1 * 1 + 2 * 1 + 0.5 * 9) / 3.5)
    squared, count = metrics["regression_squared_error"]
    assert (float(squared), float(count)) == (11, 3)


def write(folder, rows, name="train.jsonl"):
    lines = [json.dumps(dict(zip(("text", "label", "w"), row, strict=False))) for row in rows]
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder / name


def build(folder, rows, **options):
    tokenizer = tokenizers.load(small.tokenizer_folder(folder / "tokenizer"))
    task = tasks.generic("classification", "text", label="label", labels=("x", "y"))
    options = {"weight_column": "w", "report": lambda line: None, **options}
    files = {"train": write(folder, rows), **options.pop("files", {})}
    return builder.build(task, files, tokenizer, folder / "shards", 8, **options)


@pytest.mark.parametrize("form", ["jsonl", "csv", "tsv"])
def test_a_column_of_a_file_has_the_weights(tmp_path, form):
    rows = [*ROWS, ("an ox", "x", " 1e-3 ")]
    file = tmp_path / f"train.{form}"
    if form == "jsonl":
        write(tmp_path, rows)
    else:
        between = "," if form == "csv" else "\t"
        lines = [between.join(map(str, row)) for row in [("text", "label", "w"), *rows]]
        file.write_text("\n".join(lines) + "\n")
    test = write(tmp_path, [("a text", "x")], "test.jsonl")
    tokenizer = tokenizers.load(small.tokenizer_folder(tmp_path / "tokenizer"))
    task = tasks.generic("classification", "text", label="label", labels=("x", "y"))
    for split, given in (("train", file), ("test", test)):
        builder.build(
            task, {split: given}, tokenizer, tmp_path / split, 8, weight_column="w",
            report=lambda line: None,
        )  # fmt: skip
    resolved = resolve.resolve(
        config({"type": "classification"}), open_shards(tmp_path / "train", "train")
    )
    source = ShardDataset(tmp_path / "train", resolved, "train", training=False)
    (batch,) = source.dataset(6)
    found = dict(zip(batch["row"].numpy()[:5], batch["row_weight"].numpy(), strict=False))
    assert found == {i: np.float32(row[2]) for i, row in enumerate(rows)}
    assert batch["example_weights"].numpy().tolist() == [1, 1, 1, 1, 1, 0]
    source = ShardDataset(tmp_path / "test", resolved, "test", training=False)
    (batch,) = source.dataset(1)
    assert batch["row_weight"].numpy().tolist() == [1]  # a test file needs no weights


@pytest.mark.parametrize("weight", [-1, "", "heavy", "NaN", 1e39, True])
def test_what_is_no_weight_is_refused(tmp_path, weight):
    with pytest.raises(UserError, match=r"line 5: .* in column 'w' is no weight: give a number"):
        build(tmp_path, [*ROWS, ("an ox", "x", weight)])


def test_rows_without_a_weight_are_counted(tmp_path):
    rows = [*ROWS, ("an ox", "x", -1)]
    content = build(tmp_path, rows, skip_bad_rows=True)
    assert content.totals.skipped == {"not a weight": 1} and content.totals.examples == 4


def test_columns_that_cannot_be_weights_are_refused(tmp_path):
    with pytest.raises(UserError, match="all weights in column 'w' are 0: nothing would be"):
        build(tmp_path, [("a cat", "x", 0), ("a dog", "y", 0.0)])
    with pytest.raises(UserError, match="no 'v'"):
        build(tmp_path, ROWS, weight_column="v")
    with pytest.raises(UserError, match="--weight_column=label: it must be a column of its own"):
        build(tmp_path, ROWS, weight_column="label")


@pytest.mark.slow
def test_a_batch_of_rows_that_count_for_nothing_has_no_loss(tmp_path):
    """With one row in a batch, one step of two has no weights at all."""
    build(tmp_path, [("a cat", "x", 1), ("a dog", "y", 0)])
    model = tmp_path / "model"
    train(
        config({"type": "classification"}, batch_size=1, steps=2, report_every=1),
        tmp_path / "shards", model, evaluate=False,
    )  # fmt: skip
    losses = [each.metrics["loss"] for each in metrics_log.read(model) if each.split == "train"]
    assert sorted(losses)[0] == 0 and sorted(losses)[1] > 0.1


@pytest.mark.slow
@pytest.mark.long
def test_weights_are_those_of_the_whole_batch(tmp_path, mirrored):
    """Two replicas and accumulation change nothing."""
    trained = {}
    numerics.set_precision("float64")
    try:
        for place, rows, strategy, parts in (
            ("one", ROWS, tf.distribute.get_strategy(), 1),
            ("parts", ROWS, mirrored(2), 2),
            ("even", [(*row[:2], 1) for row in ROWS], tf.distribute.get_strategy(), 1),
        ):
            (tmp_path / place).mkdir()
            build(tmp_path / place, rows)
            settings = config(
                {"type": "classification", "dropout": 0}, precision="float64", accumulation=parts
            )
            read = resolve.resolve(settings, open_shards(tmp_path / place / "shards", "train"))
            source = ShardDataset(tmp_path / place / "shards", read, "train", training=True)
            model = strategies.build_model(read, strategy)
            trainer = Trainer(read, model, source, strategy, tmp_path / place / "model")
            trainer.train()
            trained[place] = named_arrays.values(trainer.variables)
    finally:
        numerics.set_precision("float32")
    assert_close(trained["parts"], trained["one"])
    bias = next(path for path in trained["one"] if "classification/output/bias" in path)
    assert abs(trained["one"][bias] - trained["even"][bias]).max() > 1e-3
