"""Weights of labels and smoothing, against what PyTorch and Keras give for the same logits."""

import json

import numpy as np
import pytest

from official import tasks, tokenizers
from official.config.encoders import TransformerConfig
from official.config.heads import (
    ClassificationConfig,
    MultiLabelConfig,
    TokenClassificationConfig,
)
from official.data.mixture import open_shards
from official.modeling.objectives import heads, token_classification
from official.utils.errors import UserError
from tests import small
from tfrecords_tools.tasks import builder

LOGITS = np.array([[2, 0, -1], [0, 1, 0], [0.5, 0.5, 2]], "float32")
LABELS = np.array([0, 1, 0], "int32")
ENCODER = TransformerConfig(vocab_size=9, hidden_size=3, num_heads=1, intermediate_size=4)
# PyTorch 2: cross_entropy(logits, labels, weight=, label_smoothing=).
CLASSES = {
    ((1, 2, 3), 0): 0.7854291,
    ((), 0.1): 0.9245351,
    ((1, 2, 3), 0.1): 0.9405664,
}


def passing(layer, width):
    """Returns a head whose outputs are its inputs."""
    layer.build()
    kernel, bias = layer.trainable_variables
    kernel.assign(np.eye(3, width))
    bias.assign(np.zeros(width))
    return layer


def loss(head, batch, encoded):
    terms = head.terms(batch, encoded, None)
    return float(terms.losses[head.name] / head.weight_sums(batch)[head.name]), terms.metrics


@pytest.mark.parametrize(("weights", "smoothing"), CLASSES)
def test_losses_of_classes_are_those_of_pytorch(weights, smoothing):
    config = ClassificationConfig(
        num_labels=3, class_weights=weights, label_smoothing=smoothing, dropout=0
    )
    head = passing(heads.Classification(config, ENCODER), 3)
    batch = {"label": LABELS, "token_ids": np.zeros((3, 2))}
    found, metrics = loss(head, batch, {"pooled_output": LOGITS})
    assert found == pytest.approx(CLASSES[weights, smoothing], abs=1e-7)
    hits, count = metrics["classification_accuracy"]
    assert (float(hits), float(count)) == (2, 3)  # of the examples, whatever their weights
    # A row that fills the batch counts nowhere.
    batch |= {"label": np.array([0, 1, 2]), "example_weights": np.array([1, 1, 0], "float32")}
    filled, _ = loss(head, batch, {"pooled_output": LOGITS})
    batch = {"label": LABELS[:2], "token_ids": np.zeros((2, 2))}
    assert filled == pytest.approx(loss(head, batch, {"pooled_output": LOGITS[:2]})[0], abs=1e-7)


@pytest.mark.parametrize(("weights", "smoothing"), CLASSES)
def test_losses_of_tags_are_those_of_pytorch(weights, smoothing):
    config = TokenClassificationConfig(
        num_labels=3, class_weights=weights, label_smoothing=smoothing, dropout=0
    )
    head = passing(token_classification.Objective(config, ENCODER), 3)
    states = np.full((2, 3, 3), 7, "float32")
    tags = np.array([[-1, 0, -1], [1, 0, -1]], "int32")
    states[[0, 1, 1], [1, 0, 1]] = LOGITS
    batch = {"tag_ids": tags, "word_ids": tags, "token_ids": np.zeros((2, 3))}
    found, metrics = loss(head, batch, {"sequence_output": states})
    assert found == pytest.approx(CLASSES[weights, smoothing], abs=1e-7)
    assert [float(x) for x in metrics["token_classification_accuracy"]] == [2, 3]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 0.4714222),
        ({"positive_weights": (3,)}, 0.5560409),  # PyTorch: BCEWithLogitsLoss(pos_weight=)
        ({"label_smoothing": 0.1}, 0.5130889),  # Keras: BinaryCrossentropy(label_smoothing=)
    ],
)
def test_losses_of_several_labels(settings, expected):
    config = MultiLabelConfig(num_labels=1, dropout=0, **settings)
    head = passing(heads.MultiLabel(config, ENCODER), 1)
    logits = np.array([[2], [-1], [0.5]], "float32") * np.array([1, 0, 0], "float32")
    flags = np.array([[1], [0], [0]])
    batch = {"label_flags": flags, "token_ids": np.zeros((3, 2))}
    assert loss(head, batch, {"pooled_output": logits})[0] == pytest.approx(expected, abs=1e-7)


def test_each_of_several_labels_has_its_factor():
    config = MultiLabelConfig(
        num_labels=3, dropout=0, positive_weights=(0.5, 1, 4), label_smoothing=0.2
    )
    head = passing(heads.MultiLabel(config, ENCODER), 3)
    flags = np.array([[1, 0, 1], [0, 0, 1], [1, 1, 0]])
    batch = {"label_flags": flags, "token_ids": np.zeros((3, 2))}
    chances, targets = 1 / (1 + np.exp(-LOGITS.astype("float64"))), flags * 0.8 + 0.1
    each = -(config.positive_weights * targets * np.log(chances))
    each -= (1 - targets) * np.log(1 - chances)
    assert loss(head, batch, {"pooled_output": LOGITS})[0] == pytest.approx(each.mean(), abs=1e-7)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ClassificationConfig(labels=("a", "b"), class_weights=(1, 2, 3)),
            r"class_weights: 3 numbers, but there are 2 labels \(a, b\)",
        ),
        (
            lambda: ClassificationConfig(num_labels=2, class_weights=(1, -2)),
            r"class_weights: \[1, -2\]: a weight is negative",
        ),
        (lambda: ClassificationConfig(class_weights=(0, 0)), "all are 0"),
        (lambda: ClassificationConfig(class_weights="even"), "'even' is neither balanced nor"),
        (lambda: ClassificationConfig(label_smoothing=1), "label_smoothing: 1 is not in"),
        (
            lambda: TokenClassificationConfig(crf=True, class_weights="balanced"),
            "class_weights: crf: true has one loss for all tags",
        ),
        (
            lambda: MultiLabelConfig(num_labels=2, positive_weights=(1,)),
            "positive_weights: 1 numbers, but there are 2",
        ),
    ],
)
def test_weights_that_make_no_sense_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def shards(folder, kind, rows, labels):
    """Builds and opens shards of rows (text, label)."""
    tokenizer = tokenizers.load(small.tokenizer_folder(folder / "tokenizer"))
    file = folder / "train.jsonl"
    key = "labels" if kind == "multi_label" else "label"
    lines = [json.dumps({"text": text, key: label}) for text, label in rows]
    file.write_text("\n".join(lines) + "\n")
    task = tasks.generic(kind, "text", label=key, labels=labels)
    builder.build(task, {"train": file}, tokenizer, folder / "shards", report=print)
    return open_shards(folder / "shards", "train")


def test_balanced_weights_follow_from_the_shards(tmp_path):
    rows = [("a cat", "x")] * 6 + [("a dog", "y")] * 3 + [("a bird", "z")]
    opened = shards(tmp_path, "classification", rows, ("x", "y", "z"))
    config = ClassificationConfig(class_weights="balanced").counted(opened.label_counts)
    # scikit-learn: compute_class_weight("balanced") of 6, 3 and 1 examples.
    assert config.class_weights == pytest.approx((0.5555556, 1.1111111, 3.3333333))
    assert ClassificationConfig(class_weights=(1, 2, 3)).counted(None).class_weights == (1, 2, 3)


def test_balanced_weights_of_several_labels(tmp_path):
    rows = [("a cat", ["x"]), ("a dog", ["x", "y"]), ("a bird", []), ("a cow", ["x"])]
    opened = shards(tmp_path, "multi_label", rows, ("x", "y"))
    config = MultiLabelConfig(positive_weights="balanced").counted(opened.label_counts)
    assert config.positive_weights == pytest.approx((1 / 3, 3))


def test_a_label_without_examples_has_no_balanced_weight(tmp_path):
    opened = shards(tmp_path, "classification", [("a cat", "x"), ("a dog", "y")], ("x", "y", "z"))
    with pytest.raises(
        UserError, match=r"class_weights: balanced: no training example of .* the label 'z'"
    ):
        ClassificationConfig(class_weights="balanced").counted(opened.label_counts)
