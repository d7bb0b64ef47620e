"""The mean of several models: metrics and files against the same mean by hand."""

import json

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  (its ops are in the model)

from official import config as configs
from official import tasks, tokenizers
from official.data import ShardDataset
from official.evaluation import ensemble
from official.evaluation.evaluator import Evaluator
from official.saving import checkpoints, model_folder, named_arrays, task_file
from official.shards import manifest, side_texts
from official.tasks import trec
from official.utils.errors import UserError
from tests import choices, commands, small, squads
from tests.official.serving.test_predictor import DEBERTA, MODERN
from tfrecords_tools.tasks import builder as task_builder

SIZES = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "intermediate_size": 24}
BERT = {"type": "transformer", **SIZES, "max_positions": 32, "pooler": True}
XLNET = {"type": "transformer_xl", **SIZES, "pooler": True}
CLOSE = {"rtol": 0, "atol": 1e-5}
SILENT = {"report": lambda line: None}
FEW = small.WORDS[::2]  # of the second vocabulary; other words are unknown to it


def member(folder, shards, *objectives, encoder=BERT, seed=0):
    """A model folder with large random weights, for the task of a shard folder."""
    tokenizer = tokenizers.load(shards / "tokenizer")
    config = configs.from_dict({
        "name": folder.name, "seed": seed,
        "encoder": {**encoder, "vocab_size": tokenizer.vocab_size, "initializer_range": 0.7},
        "objectives": objectives, "recipe": {"steps": 1, "batch_size": 8},
    })  # fmt: skip
    configs.save(config, folder / "config.yaml")
    tokenizer.save(folder / "tokenizer")
    variables = named_arrays.values(model_folder.build(config).variables_by_path())
    checkpoints.save(folder, 1, variables, {})
    task_file.save(manifest.read(shards), folder)
    return folder


def tokenizer(folder, words=small.WORDS):
    return tokenizers.load(small.tokenizer_folder(folder, words))


def alone(folder, shards, split, *names):
    """Predictions of one member, and `row` if it is named, in the order of the rows."""
    config, _, model = model_folder.restore(folder)
    source = ShardDataset(shards, config, split)
    outputs = Evaluator(config, model, tf.distribute.get_strategy()).predict(
        source, [name for name in names if name != "row"]
    )
    order = np.argsort(outputs["row"])
    return [outputs[name][order] for name in names]


def pairs(count, seed):
    draw = np.random.default_rng(seed)
    text = lambda: " ".join(draw.choice(small.WORDS, draw.integers(1, 9)))  # noqa: E731
    return [(text(), text(), draw.choice(["entailment", "not_entailment"])) for _ in range(count)]


def rte(folder, rows, tokenizer):
    """Shards of RTE of which every split has the same rows."""
    files = {split: folder.with_name(f"{folder.name}-{split}.tsv") for split in ("train", "test")}
    files["validation"] = folder.with_name(f"{folder.name}-validation.tsv")
    for split, path in files.items():
        names = ["index", "sentence1", "sentence2", "label"][: 3 if split == "test" else 4]
        lines = [[str(i), *row][: len(names)] for i, row in enumerate(rows)]
        path.write_text("".join("\t".join(line) + "\n" for line in [names, *lines]))
    task_builder.build(tasks.TASKS["rte"], files, tokenizer, folder, 20, **SILENT)
    return folder


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Rows of pairs, and two members of different encoders and vocabularies with their shards."""
    folder, rows = tmp_path_factory.mktemp("two"), pairs(21, 0)
    shards = [
        rte(folder / "all", rows, tokenizer(folder / "all-tokenizer")),
        rte(folder / "few", rows, tokenizer(folder / "few-tokenizer", FEW)),
    ]
    head = {"type": "classification", "labels": ["entailment", "not_entailment"]}
    folders = [
        member(folder / "bert", shards[0], head, seed=3),
        member(folder / "xlnet", shards[1], {**head, "dropout": 0.3}, encoder=XLNET, seed=5),
    ]
    parts = zip(folders, shards, strict=True)
    each = np.array([alone(*part, "validation", "probabilities")[0] for part in parts])
    return {"rows": rows, "shards": shards, "folders": folders, "each": each}


def by_hand(each, how):
    """The mean of probabilities [M, B, C]; that of logits is their geometric mean, normalized."""
    if how == "probabilities":
        return each.mean(0)
    product = np.exp(np.log(each.astype(np.float64)).mean(0))
    return product / product.sum(-1, keepdims=True)


LABELS = ["entailment", "not_entailment"]


@pytest.mark.slow
def test_metrics_and_predictions_of_the_mean_of_logits(two, tmp_path):
    expected = by_hand(two["each"], "logits")
    assert np.abs(expected - two["each"].mean(0)).max() > 0.01
    chosen = [LABELS[i] for i in expected.argmax(-1)]
    given = two["folders"], two["shards"]
    right = np.mean([a == row[2] for a, row in zip(chosen, two["rows"], strict=True)])
    metrics = ensemble.evaluate(*given, mean="logits")["validation"]
    assert metrics.ensemble == {"accuracy": pytest.approx(right)}
    true = [LABELS.index(label) for _, _, label in two["rows"]]
    assert metrics.members == tuple(
        {"accuracy": pytest.approx(np.mean(each.argmax(-1) == true))} for each in two["each"]
    )
    ensemble.predict(*given, tmp_path / "out.jsonl", mean="logits", split="validation")
    lines = [json.loads(line) for line in open(tmp_path / "out.jsonl")]
    assert [(line["row"], line["label"]) for line in lines] == list(enumerate(chosen))
    found = [[line["probabilities"][label] for label in LABELS] for line in lines]
    np.testing.assert_allclose(found, expected, **CLOSE)


@pytest.mark.slow
@pytest.mark.long
def test_metrics_and_a_submission_of_the_mean_of_probabilities(two, tmp_path):
    chosen = [LABELS[i] for i in two["each"].mean(0).argmax(-1)]
    given = two["folders"], two["shards"]
    right = np.mean([a == row[2] for a, row in zip(chosen, two["rows"], strict=True)])
    flags = [f"--model_dir={folder}" for folder in given[0]]
    flags += [f"--data={folder}" for folder in given[1]]
    said = commands.run("official.commands.ensemble", "--mode=eval", *flags, status=0).stdout
    assert said.startswith(f"{'accuracy':24} {right:.6f}  members: ")
    ensemble.predict(*given, tmp_path / "glue", submission=True)  # of the test split
    answers = [f"{i}\t{label}" for i, label in enumerate(chosen)]
    assert (tmp_path / "glue" / "RTE.tsv").read_text().splitlines()[1:] == answers


@pytest.mark.slow
@pytest.mark.long
def test_one_task_of_models_of_several(two, tmp_path):
    """One member has two heads, and the other one."""
    (alike, _), (shards, _) = two["folders"], two["shards"]
    heads = [
        {"type": "classification", "labels": LABELS, "task": "rte"},
        {"type": "regression", "task": "stsb"},
    ]
    several = member(tmp_path / "several", shards, *heads, seed=7)
    about = json.loads((several / "task.json").read_text())
    both = {"rte": about, "stsb": {"name": "stsb", "kind": "regression", "pair": True}}
    (several / "task.json").write_text(json.dumps({"tasks": both, "max_length": 20}))
    expected = (two["each"][0] + alone(several, shards, "validation", "probabilities")[0]) / 2
    folders = [alike, several]
    ensemble.predict(folders, [shards], tmp_path / "out.jsonl", split="validation")
    lines = [json.loads(line) for line in open(tmp_path / "out.jsonl")]
    found = [[line["probabilities"][label] for label in LABELS] for line in lines]
    np.testing.assert_allclose(found, expected, **CLOSE)


@pytest.mark.slow
@pytest.mark.long
def test_other_rows_and_labels_are_refused(two, tmp_path):
    known = tokenizers.load(two["shards"][1] / "tokenizer")
    fewer = rte(tmp_path / "fewer", two["rows"][:-2], known)
    message = "row 19 of the validation split is in .*all and not in .*fewer, and 1 more: make"
    with pytest.raises(UserError, match=message):
        ensemble.evaluate(two["folders"], [two["shards"][0], fewer])
    a, b, label = two["rows"][4]
    other = "entailment" if label == "not_entailment" else "not_entailment"
    changed = rte(tmp_path / "changed", [*two["rows"][:4], (a, b, other), *two["rows"][5:]], known)
    message = "row 4 of the validation split has another label in .*all than in .*changed, and 0"
    with pytest.raises(UserError, match=message):
        ensemble.evaluate(two["folders"], [two["shards"][0], changed])
    with pytest.raises(UserError, match="--data: 3 folders for 2 members: give one for all"):
        ensemble.evaluate(two["folders"], [fewer] * 3)
    with pytest.raises(UserError, match="fewer was made with another tokenizer"):
        ensemble.evaluate(two["folders"], [fewer])
    with pytest.raises(UserError, match="the test split does not give label"):
        ensemble.evaluate(two["folders"], two["shards"], split="test")


@pytest.mark.slow
def test_flags_of_other_modes_are_refused(two):
    flags = [f"--model_dir={folder}" for folder in two["folders"]]
    for more, message in (
        (["--mode=eval", "--data=x", "--output=y"], "--output: not supported for --mode=eval; rem"),
        (["--mode=predict"], "--data is missing (--mode=predict)"),
        (["--mode=predict", "--data=x"], "give either --output=FILE or --submission=FOLDER"),
    ):
        assert message in commands.run("official.commands.ensemble", *flags, *more, status=2).stderr


@pytest.mark.slow
@pytest.mark.long
def test_several_labels(tmp_path):
    draw = np.random.default_rng(0)
    rows = [
        {
            "text": " ".join(draw.choice(small.WORDS, 5)),
            "labels": [label for label in "abc" if draw.random() < 0.5],
        }
        for _ in range(17)
    ]
    path = tmp_path / "validation.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = tasks.generic("multi_label", "text", label="labels", labels=("a", "b", "c"))
    shards = [tmp_path / "all", tmp_path / "few"]
    for folder, words in zip(shards, (small.WORDS, FEW), strict=True):
        known = tokenizer(tmp_path / f"{folder.name}-t", words)
        task_builder.build(task, {"validation": path}, known, folder, 16, **SILENT)
    head = {"type": "multi_label", "labels": ["a", "b", "c"], "thresholds": [0.4, 0.5, 0.6]}
    folders = [
        member(tmp_path / "one", shards[0], head, encoder=DEBERTA),
        member(tmp_path / "two", shards[1], head, encoder=MODERN, seed=4),
    ]
    each = np.array([
        alone(folder, data, "validation", "probabilities")[0]
        for folder, data in zip(folders, shards, strict=True)
    ])  # fmt: skip
    logits = np.log(each / (1 - each)).mean(0)
    true = np.array([[label in row["labels"] for label in "abc"] for row in rows])
    for how, expected in (("probabilities", each.mean(0)), ("logits", 1 / (1 + np.exp(-logits)))):
        flags = expected >= np.array([0.4, 0.5, 0.6])
        right = 2 * (flags & true).sum() / (flags.sum() + true.sum())
        metrics = ensemble.evaluate(folders, shards, mean=how)["validation"]
        assert metrics.ensemble["micro_f1"] == pytest.approx(right)


@pytest.mark.slow
@pytest.mark.long
def test_choices(tmp_path):
    rows = choices.rows(9, seed=4)
    shards = [choices.shards(tmp_path / "all", 24, test=rows)]
    path, task = tmp_path / "all-test.jsonl", tasks.choice()
    few = tokenizer(tmp_path / "few-tokenizer", FEW)
    task_builder.build(task, {"test": path}, few, tmp_path / "few", 20, **SILENT)
    shards.append(tmp_path / "few")
    folders = [
        member(tmp_path / "one", shards[0], {"type": "multiple_choice"}),
        member(tmp_path / "two", shards[1], {"type": "multiple_choice"}, encoder=XLNET, seed=1),
    ]
    each = np.array([
        alone(folder, data, "test", "probabilities")[0]
        for folder, data in zip(folders, shards, strict=True)
    ])  # fmt: skip
    expected = by_hand(each, "logits")
    assert np.abs(expected - each.mean(0)).max() > 0.01
    ensemble.predict(folders, shards, tmp_path / "out.jsonl", mean="logits")
    lines = [json.loads(line) for line in open(tmp_path / "out.jsonl")]
    found = [list(line["probabilities"].values()) for line in lines]
    np.testing.assert_allclose(found, expected, **CLOSE)


@pytest.mark.slow
@pytest.mark.long
def test_rankings(tmp_path):
    draw = np.random.default_rng(0)
    text = lambda: " ".join(draw.choice(small.WORDS, draw.integers(1, 9)))  # noqa: E731
    texts = {name: {f"{name}{i}": text() for i in range(6)} for name in ("queries", "documents")}
    for name, values in texts.items():
        lines = [json.dumps({"id": key, "text": value}) + "\n" for key, value in values.items()]
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    run = {
        query: {d: float(draw.random()) for d in texts["documents"]} for query in texts["queries"]
    }
    qrels = {query: {"documents1": 1} for query in texts["queries"]}
    for name, write, values in (
        ("qrels", trec.write_qrels, [qrels]),
        ("r", trec.write_run, [run, "x"]),
    ):
        with open(tmp_path / name, "w") as stream:
            write(stream, *values)
    shards = []
    for name, words in (("all", small.WORDS), ("few", FEW)):
        task_builder.build(
            tasks.ranking(), {"test": tmp_path / "r"}, tokenizer(tmp_path / f"{name}-t", words),
            tmp_path / name, max_length=20, input=tmp_path, queries="queries.jsonl",
            documents="documents.jsonl", qrels="qrels", **SILENT,
        )  # fmt: skip
        shards.append(tmp_path / name)
    folders = [
        member(tmp_path / "one", shards[0], {"type": "ranking"}),
        member(tmp_path / "two", shards[1], {"type": "ranking"}, encoder=XLNET, seed=1),
    ]
    each = [alone(*part, "test", "score")[0] for part in zip(folders, shards, strict=True)]
    expected = (each[0] + each[1]) / 2
    ensemble.predict(folders, shards, tmp_path / "out.run", mean="logits")
    written = trec.read_run(tmp_path / "out.run")
    asked = [(q, d) for q, scores in trec.read_run(shards[0] / "test.run").items() for d in scores]
    found = [written[query][document] for query, document in asked]
    np.testing.assert_allclose(found, expected, **CLOSE)


@pytest.mark.slow
@pytest.mark.long
def test_answers(tmp_path):
    shards = squads.shard_folder(tmp_path / "shards", no_answers=True, count=5)
    # All spans of a window are in the lists, so the mean of logits is that of the scores.
    head = {"type": "span_answer", "max_answer_length": 4, "n_best": 200, "null_threshold": 0.5}
    folders = [member(tmp_path / f"{i}", shards, head, seed=i) for i in range(2)]
    ensemble.predict(folders, [shards], tmp_path / "out", split="validation")
    best, odds = (
        json.loads((tmp_path / f"out/{n}.json").read_text()) for n in ("nbest", "null_odds")
    )
    questions = side_texts.read_questions(shards, "validation", manifest.read(shards))
    spans, nulls = {}, {}
    for folder in folders:
        names = ("span_scores", "span_starts", "span_ends", "null_scores", "row")
        found = alone(folder, shards, "validation", *names)
        for window, (scores, starts, ends, null, row) in enumerate(zip(*found, strict=True)):
            nulls.setdefault((row, window), []).append(null)
            for score, start, end in zip(scores, starts, ends, strict=True):
                if score > -1e4:
                    spans.setdefault((row, window, start, end), []).append(score)
    assert {len(scores) for scores in spans.values()} == {2}
    for row, question in questions.items():
        mean = max(sum(scores) / 2 for key, scores in spans.items() if key[0] == row)
        null = min(sum(scores) / 2 for key, scores in nulls.items() if key[0] == row)
        found = max(span["score"] for span in best[question.id] if span["text"])
        assert found == pytest.approx(mean, abs=1e-5)
        assert odds[question.id] == pytest.approx(null - mean, abs=1e-5)
    with pytest.raises(UserError, match="read the same windows: give one folder for all of them"):
        ensemble.predict(folders, [shards, shards], tmp_path / "new")


@pytest.mark.slow
@pytest.mark.long
def test_tags(tmp_path):
    draw, lines = np.random.default_rng(0), []
    for _ in range(8):
        words = draw.choice(small.WORDS, draw.integers(1, 8)).tolist()  # of one row
        tagged = [("B-X" if word < "g" else "O") for word in words]
        lines.append(json.dumps({"words": words, "tags": tagged}) + "\n")
    (tmp_path / "test.jsonl").write_text("".join(lines))
    shards = tmp_path / "shards"
    task_builder.build(
        tasks.generic("tagging", "words", label="tags", labels=("O", "B-X", "I-X")),
        {"test": tmp_path / "test.jsonl"}, tokenizer(tmp_path / "t"), shards, 16, **SILENT,
    )  # fmt: skip
    head = {"type": "token_classification", "labels": ["O", "B-X", "I-X"]}
    folders = [member(tmp_path / f"{i}", shards, head, seed=i) for i in range(2)]
    metrics, members = ensemble.evaluate(folders, [shards], split="test")["test"]
    assert len({metrics["accuracy"], *(each["accuracy"] for each in members)}) > 1
    ensemble.predict(folders, [shards], tmp_path / "out.jsonl")
    records = [json.loads(line) for line in open(tmp_path / "out.jsonl")]
    words = [record["words"] for record in records]
    pairs = [
        (a, b)
        for record, line in zip(records, lines, strict=True)
        for a, b in zip(record["tags"], json.loads(line)["tags"], strict=True)
    ]
    assert metrics["accuracy"] == pytest.approx(np.mean([a == b for a, b in pairs]))
    for record in records:
        probabilities = np.mean([tag_probabilities(f, record["words"]) for f in folders], axis=0)
        assert record["tags"] == [head["labels"][i] for i in probabilities.argmax(-1)]


def tag_probabilities(folder, words):
    """The probabilities of the tags of words, [words, tags]."""
    _, known, model = model_folder.restore(folder)
    spelled = [known.encode([word])[0].tolist() for word in words]
    firsts = np.cumsum([1, *map(len, spelled)])[:-1]
    row = np.array([[known.cls_id, *sum(spelled, []), known.sep_id]], np.int32)
    logits = model.objectives[0].logits(model.encode({"token_ids": row}))[0]
    return tf.nn.softmax(tf.gather(logits, firsts)).numpy()
