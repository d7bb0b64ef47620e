"""Tasks with any number of labels for a text: from files to shards, training, metrics, answers."""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy

import official
from official import config as configs
from official import tasks, tokenizers
from official.config.encoders import TransformerConfig
from official.config.heads import MultiLabelConfig
from official.conversion import converted_model, huggingface
from official.data import ShardDataset
from official.evaluation import rows
from official.modeling.objectives import heads
from official.utils.errors import UserError
from tests import GOLDEN
from tests.official.serving.test_predictor import TEXTS, constants, load, server
from tfrecords_tools.tasks import builder as task_builder

TASK = tasks.generic("multi_label", "text", label="labels")
LABELS = ("a cat", "dog", "mat")
TRAIN = [("the cat sat", "a cat"), ("dogs", "dog"), ("a dog on a mat", "mat|dog"), ("tree", "")]


@pytest.fixture(scope="module")
def tokenizer():
    return tokenizers.load(GOLDEN / "hf_files" / "bare")


def build(folder, tokenizer, train, suffix="tsv"):
    path = folder / f"train.{suffix}"
    path.write_text(train)
    said = []
    built = task_builder.build(
        TASK, {"train": path, "validation": path}, tokenizer, folder / "shards", 16,
        report=said.append,
    )  # fmt: skip
    return built, said


def table(pairs):
    return "text\tlabels\n" + "".join(f"{text}\t{labels}\n" for text, labels in pairs)


def test_shards_have_a_flag_for_each_label(tmp_path, tokenizer):
    built, said = build(tmp_path, tokenizer, table(TRAIN))
    assert built.task.labels == LABELS and built.task.metrics == ("micro_f1",)
    assert "a cat 1 (25.0%), dog 2 (50.0%), mat 1 (25.0%)" in said[0]
    config = configs.from_dict({
        "name": "x", "objectives": [{"type": "multi_label"}],
        "encoder": {"type": "transformer", "vocab_size": tokenizer.vocab_size},
    })  # fmt: skip
    (batch,) = ShardDataset(tmp_path / "shards", config, "validation").dataset(4)
    flags = batch["label_flags"].numpy()[np.argsort(batch["row"])]
    np.testing.assert_array_equal(flags, [[1, 0, 0], [0, 1, 0], [0, 1, 1], [0, 0, 0]])
    assert batch["label_flags"].shape == (4, 3)


def test_lists_of_labels_in_json(tmp_path, tokenizer):
    lines = [json.dumps({"text": t, "labels": [x for x in y.split("|") if x]}) for t, y in TRAIN]
    built, _ = build(tmp_path, tokenizer, "\n".join(lines) + "\n", "jsonl")
    assert built.task.labels == LABELS
    task = tasks.generic("multi_label", "text", label="labels", labels=("dog",))
    with pytest.raises(
        UserError, match=r"line 1: label 'a cat' .* not one of 'dog'.*'\|' separates"
    ):
        task_builder.build(
            task, {"train": tmp_path / "train.jsonl"}, tokenizer, tmp_path / "x", report=print
        )
    with pytest.raises(UserError, match=r"'a\|b' cannot be a label: '\|' separates labels"):
        tasks.generic("multi_label", "text", label="labels", labels=("a|b", "c"))


def test_the_loss_is_the_mean_of_binary_cross_entropies():
    encoder = TransformerConfig(vocab_size=9, hidden_size=6, num_heads=2, intermediate_size=8)
    head = heads.MultiLabel(MultiLabelConfig(num_labels=4, dropout=0.0), encoder)
    head.build()
    rng = np.random.default_rng(0)
    for variable in head.trainable_variables:
        variable.assign(rng.normal(size=variable.shape))
    pooled = rng.normal(size=(3, 6)).astype("float32")
    flags = rng.integers(0, 2, (3, 4))
    weights = np.array([1, 0, 0.5], "float32")
    batch = {"label_flags": flags, "example_weights": weights, "token_ids": np.zeros((3, 2))}
    terms = head.terms(batch, {"pooled_output": pooled}, None)
    kernel, bias = (np.asarray(v) for v in head.trainable_variables)
    chances = 1 / (1 + np.exp(-(pooled @ kernel + bias)))
    each = -(flags * np.log(chances) + (1 - flags) * np.log(1 - chances))
    np.testing.assert_allclose(
        terms.losses["multi_label"], (each.mean(-1) * weights).sum(), rtol=1e-5
    )
    assert float(head.weight_sums(batch)["multi_label"]) == 1.5
    hits = ((chances > 0.5) == flags).mean(-1)
    np.testing.assert_allclose(
        terms.metrics["multi_label_accuracy"][0], (hits * weights).sum(), rtol=1e-6
    )


def test_metrics_of_several_labels():
    true = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 0]])
    found = np.array([[1, 1, 0], [0, 1, 0], [0, 0, 0]])
    names = ("micro_f1", "macro_f1", "subset_accuracy")
    # Two of three are right, one of three is missed; by label 1, 2/3 and 0.
    assert rows.compute(names, true, found) == pytest.approx(
        {"micro_f1": 2 * 2 / (3 + 3), "macro_f1": (1 + 2 / 3 + 0) / 3, "subset_accuracy": 1 / 3}
    )


@pytest.mark.slow
def test_answers_and_predictions_have_all_labels_from_the_thresholds_on(tmp_path):
    head = {"type": "multi_label", "labels": LABELS}
    chances = server(load(tmp_path / "first", head))["single"](*constants(TEXTS))["probabilities"]
    thresholds = np.median(chances, axis=0).tolist()
    loaded = load(tmp_path / "model", {**head, "thresholds": thresholds})
    found = loaded.classify(TEXTS)
    outputs = server(loaded)["single"](*constants(TEXTS))
    chances = outputs["probabilities"].numpy()
    has = chances >= np.float32(thresholds)
    np.testing.assert_array_equal(outputs["has_label"], has)
    assert len({tuple(row) for row in has}) > 1
    for each, row, flags in zip(found, chances, has, strict=True):
        assert each.labels == tuple(x for x, flag in zip(LABELS, flags, strict=True) if flag)
        np.testing.assert_allclose(list(each.probabilities.values()), row, atol=1e-6)
    predictions = rows._Predictions(np.arange(len(TEXTS)), chances, LABELS, np.float32(thresholds))
    with open(tmp_path / "out.tsv", "w+") as stream:
        predictions.write_tsv(stream)
        stream.seek(0)
        lines = stream.read().splitlines()
    assert lines[0].split("\t")[:2] == ["row", "labels"]
    assert lines[1].split("\t")[1] == "|".join(found[0].labels)
    assert predictions._object(0, chances[0])["labels"] == list(found[0].labels)


def test_a_problem_type_of_transformers(tmp_path):
    source = tmp_path / "source"
    shutil.copytree(GOLDEN / "hf_files" / "classification", source)
    path = source / "config.json"
    described = json.loads(path.read_text())
    described["problem_type"] = "multi_label_classification"
    path.write_text(json.dumps(described))
    converted_model.write(huggingface.read(source), tmp_path / "model")
    loaded = official.load(tmp_path / "model")
    (objective,) = loaded.config.objectives
    assert objective == MultiLabelConfig(labels=("negative", "neutral", "positive"), dropout=0.2)
    expected = np.load(GOLDEN / "hf_files" / "expected.npz")
    about = json.loads((GOLDEN / "hf_files" / "about.json").read_text())
    found = loaded.classify(about["texts"], about["pairs"])
    chances = 1 / (1 + np.exp(-expected["classification/logits"]))
    actual = [list(each.probabilities.values()) for each in found]
    with_pairs = [bool(pair) for pair in about["pairs"]]
    np.testing.assert_allclose(np.array(actual)[with_pairs], chances[with_pairs], rtol=0, atol=1e-5)
    huggingface.write(tmp_path / "model", tmp_path / "out", "last")
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert written["problem_type"] == "multi_label_classification"
    assert written["architectures"] == ["BertForSequenceClassification"]
    before, after = (
        safetensors.numpy.load_file(folder / "model.safetensors")
        for folder in (source, tmp_path / "out")
    )
    assert before.keys() == after.keys()
    assert all(before[name].tobytes() == after[name].tobytes() for name in before)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"thresholds": (0.5, 2.0)}, "thresholds: expected probabilities from 0 to 1"),
        ({"num_labels": 3, "thresholds": (0.5,)}, "thresholds: 1, but there are 3 labels"),
        ({"num_labels": 3, "labels": ("a",)}, "num_labels: 3, but there are 1 labels"),
    ],
)
def test_configs_that_cannot_be(values, message):
    with pytest.raises(ValueError, match=message):
        MultiLabelConfig(**values)
