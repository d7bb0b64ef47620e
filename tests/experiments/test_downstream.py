import argparse
import json
from pathlib import Path

import numpy as np
import pytest

from experiments import commands, downstream, downstream_kinds, downstream_sets, plain_baselines
from experiments.downstream_sets import SETS
from official import config as configs
from official import tasks, tokenizers
from official.saving import checkpoints, model_folder, named_arrays
from official.shards.side_texts import Question
from tests import choices, small, squads
from tfrecords_tools.tasks import multiple_choice

ROOT = Path(downstream.__file__).parents[1]
GOOD, BAD = small.WORDS[:20], small.WORDS[20:40]


def encoder_folder(folder):
    """A pretrained encoder as random weights have it."""
    settings = small.config()
    configs.save(settings, folder / "config.yaml")
    tokenizers.load(small.tokenizer_folder(folder / "words")).save(folder / "tokenizer")
    variables = named_arrays.values(model_folder.build(settings).variables_by_path())
    checkpoints.save(folder, 1, variables, {})
    return folder


def sentiment(folder, count=80):
    """SST-2's files, in which some words are good ones."""
    draw = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for name, rows in (("train.tsv", count), ("dev.tsv", count // 2)):
        lines = ["sentence\tlabel"]
        for _ in range(rows):
            label = int(draw.random() < 0.7)
            lines.append(f"{' '.join(draw.choice(GOOD if label else BAD, 5))} \t{label}")
        (folder / name).write_text("\n".join(lines) + "\n")
    labels = [line[-1] for line in (folder / "dev.tsv").read_text().splitlines()[1:]]
    return labels.count("1") / len(labels)


def test_every_data_set_has_its_config_and_files():
    for name, given in SETS.items():
        assert (ROOT / f"configs/finetune/{given.config}.yaml").exists(), name
        metrics = {"masked_lm": ("masked_lm",), "ranking": tasks.METRICS["ranking"]}
        task = tasks.TASKS.get(given.task)
        known = metrics.get(given.task) or tasks.METRICS[task.kind]
        assert set(given.metrics) <= set(known), name
        assert list(given.buckets) == sorted(given.buckets) and given.buckets[-1] < given.length
        files = given.files if task is None else {**task.files, **given.files}
        assert all(files[split] for split in given.splits), name
        # What picks a checkpoint is not what is shown.
        assert not given.eval_every or "validation" not in given.splits, name
        assert not given.prepare or given.prepare in downstream_sets.PREPARE


def test_list(capsys):
    downstream.main(["--list"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(SETS)
    assert lines[0].endswith(
        "GLUE: is a sentence acceptable?; glue/CoLA, configs/finetune/classification.yaml"
    )


def test_what_is_missing_is_said(tmp_path, capsys):
    given = ["--data=d", "--task=cola", f"--output={tmp_path}/o"]
    with pytest.raises(SystemExit):
        downstream.main(given)
    assert "--init is missing" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="d is no model folder: there is no d/config.yaml"):
        downstream.main([*given, "--init=d"])
    (tmp_path / "config.yaml").write_text("{}")
    with pytest.raises(SystemExit, match="no folder d/glue/CoLA: --data is the one above it"):
        downstream.main([*given, f"--init={tmp_path}"])
    (tmp_path / "glue/CoLA").mkdir(parents=True)
    (tmp_path / "o/cola").mkdir(parents=True)
    with pytest.raises(SystemExit, match="cola is there already: name another --output"):
        downstream.main([f"--data={tmp_path}", *given[1:], f"--init={tmp_path}"])


def test_baselines_alone(tmp_path, capsys):
    share = sentiment(tmp_path / "data/glue/SST-2")
    (tmp_path / "config.yaml").write_text("{}")
    downstream.main(
        [f"--data={tmp_path}/data", "--task=sst2", f"--init={tmp_path}", "--baselines",
         f"--output={tmp_path}/o"]
    )  # fmt: skip
    (row,) = map(json.loads, (tmp_path / "o/results.jsonl").read_text().splitlines())
    assert row["majority"] == {"accuracy": share} and row["ours"] == {}
    assert row["plain"] == {"TF-IDF, logistic regression": {"accuracy": 1.0}}
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"| sst2 | 80 | 40 | accuracy | - | {share:.4g} | 1 | TF-IDF, logistic regression "
        "| 0.0 (0.0) |"
    )


def test_the_best_plain_baseline_is_shown():
    row = {
        "data_set": "wikiqa", "split": "test", "train": 2118, "rows": 243,
        "metrics": ["mrr", "map"], "ours": {"mrr": 0.61, "map": 0.6}, "majority": {},
        "plain": {"BM25": {"mrr": 0.5, "map": 0.7}, "other": {"mrr": 0.6, "map": 0.5}},
        "minutes": 1.25, "core_minutes": 1.0,
    }  # fmt: skip
    assert downstream.line(row) == (
        "| wikiqa | 2,118 | 243 | mrr / map | 0.61 / 0.6 | - | 0.6 / 0.5 | other | 1.2 (1.0) |"
    )
    text = {"metrics": ["masked_lm"], "ours": {"masked_lm": 4.5}, "train": 0, "split": "test"}
    text["plain"] = {"entropy": {"masked_lm": 7.25}}
    shown = "| wikiqa (test) | - | 243 | masked_lm | 4.5 | - | 7.25 | entropy | 1.2 (1.0) |"
    assert downstream.line({**row, **text}) == shown


def test_what_a_command_printed():
    text = "train: 3 examples\nqueries                  243\nndcg_20   0.5\nloss -1.5\ndone: x\n"
    assert downstream_kinds.printed_metrics(text) == {"queries": 243, "ndcg_20": 0.5, "loss": -1.5}


def test_a_command_that_fails_ends_the_run(tmp_path):
    with pytest.raises(SystemExit, match="official.main ended with 2"):
        commands.run("official.main", "--mode=eval", f"--data={tmp_path}")


def test_commands_print_no_notices_of_tensorflow(monkeypatch):
    def popen(words, env, **options):
        raise SystemExit(env["TF_CPP_MIN_LOG_LEVEL"])

    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "1")  # as the import of JAX sets it
    monkeypatch.setattr(commands.subprocess, "Popen", popen)
    with pytest.raises(SystemExit, match="3"):
        commands.run("official.main")


def test_rows_are_those_of_the_shards(tmp_path):
    path = tmp_path / "dev.tsv"
    path.write_text(
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
        "0\t1\t2\tbada?\tfefe\t1\n1\t3\t4\tbroken\n2\t5\t6\tgogo\tbada\t0\n"
    )
    rows = downstream_sets.read_rows(tasks.TASKS["qqp"], "validation", path)
    assert rows.numbers == [0, 2] and rows.targets.tolist() == [1, 0]
    assert rows.texts == [("bada?", "fefe"), ("gogo", "bada")]
    path.write_text("index\tsentence\n0\tbada\n")
    rows = downstream_sets.read_rows(tasks.TASKS["cola"], "test", path)
    assert rows.targets is None and rows.texts == [("bada",)]
    path.write_text("text\tlabel\nbada<br />fefe\t1\n")
    rows = downstream_sets.read_rows(tasks.TASKS["imdb"], "test", path)
    assert rows.texts == [("bada fefe",)] and rows.targets.tolist() == [1]


def test_prepared_files(tmp_path):
    for name, seed in (("a.json", 0), ("b.json", 1)):
        (tmp_path / name).write_text(json.dumps(squads.make(2, seed=seed)))
    result = downstream_sets.join_squad(tmp_path, {"train": "a.json + b.json"}, tmp_path)
    assert result == {"train": str(tmp_path / "train.json")}
    joined = json.loads((tmp_path / "train.json").read_text())["data"]
    assert joined == squads.make(2, seed=0)["data"] + squads.make(2, seed=1)["data"]

    lines = [json.dumps({"article": f"a{i // 2}", "question": i}) for i in range(40)]
    (tmp_path / "race_1000.jsonl").write_text("\n".join(lines) + "\n")
    names = {"train": "t.jsonl", "validation": "v.jsonl", "test": ""}
    result = downstream_sets.split_race(tmp_path, names, tmp_path)
    assert result["test"] == ""
    parts = [
        [json.loads(line)["article"] for line in Path(result[split]).read_text().splitlines()]
        for split in ("train", "validation")
    ]
    assert list(map(len, parts)) == [32, 8] and not set(parts[0]) & set(parts[1])

    (tmp_path / "valid.txt").write_text(
        " \n = One = \n \n a b . \n = = Part = = \n \n c \n = Two = \n d \n"
    )
    result = downstream_sets.articles(tmp_path, {"test": "valid.txt"}, tmp_path)
    assert Path(result["test"]).read_text() == "a b .\nc\n\nd\n"


def accuracy(labels, actual):
    return np.mean(labels == actual)


def test_pairs_by_what_they_share():
    draw = np.random.default_rng(0)

    def pairs(count):
        labels = draw.integers(0, 2, count)
        texts = []
        for label in labels:
            words = draw.permutation(small.WORDS)[:12]
            texts.append((" ".join(words[:6]), " ".join(words[3:9] if label else words[6:])))
        return texts, labels

    (train, labels), (others, right) = pairs(120), pairs(60)
    (actual,) = plain_baselines.classify(train, labels, [others], accuracy)
    assert accuracy(right, actual) > 0.95
    correlation = lambda a, b: np.corrcoef(a, b)[0, 1]  # noqa: E731
    (actual,) = plain_baselines.score(train, labels * 2.5, [others], correlation)
    assert correlation(right, actual) > 0.9
    first, second = zip(*train, strict=True)
    given = [tuple(zip(*others, strict=True))]
    (actual,) = plain_baselines.rank(first, second, labels, given)
    assert actual[right == 1].min() > actual[right == 0].max()
    assert plain_baselines.majority(np.array([0, 2, 2]), 2).tolist() == [2, 2]


def test_a_choice_by_the_words_of_its_context(tmp_path):
    draw = np.random.default_rng(0)
    rows = choices.rows(60)
    for row in rows:
        row["choices"] = [" ".join(draw.choice(small.WORDS[:50], 3)) for _ in row["choices"]]
        row["context"] = f"{row['context']} {row['choices'][row['answer']]}"
    path = choices.write(tmp_path / "train.jsonl", rows)
    task = tasks.Task("choice", "choice", tasks.choice().columns, labels=("A", "B", "C"))
    asked = downstream_sets.read_choices(task, path)
    assert isinstance(asked[0], multiple_choice.Question)
    choose = plain_baselines.Chooser(asked[:40])
    right = [question.answer for question in asked[40:]]
    assert accuracy(np.array(right), choose(asked[40:])) > 0.9


def test_an_answer_is_a_name_of_the_likest_sentence():
    context = "Mary likes tea.  In 1912 the old Tower of London fell down! It rains."
    asked = [
        Question("a", "When did the tower fall down?", context, ()),
        Question("b", "When in 1912 did the old tower fall?", context, ()),
        Question("c", "What does the rain do when it rains?", context, ()),
    ]
    answers, odds = plain_baselines.answer(asked, asked)
    assert answers == {"a": "Tower of London", "b": "Tower of London", "c": "It rains."}
    assert all(0 < value < 1 for value in odds.values())
    assert plain_baselines.sentences("") == [""]


@pytest.mark.slow
@pytest.mark.long
def test_from_files_to_a_line_of_the_table(tmp_path, capsys):
    share = sentiment(tmp_path / "data/glue/SST-2")
    init = encoder_folder(tmp_path / "encoder")
    options = ["--override=recipe.epochs=12", "--override=recipe.optimizer.learning_rate=1e-2"]
    downstream.main(
        [f"--data={tmp_path}/data", "--task=sst2", f"--init={init}", f"--output={tmp_path}/o",
         *options]
    )  # fmt: skip
    said = capsys.readouterr().out
    commands = [line.split()[3] for line in said.splitlines() if line.startswith("$ ")]
    assert commands == ["tfrecords_tools.build_task_shards", "official.main", "official.main"]
    assert "--max_length=32" in said and "bucket_lengths=[8,16,32]" in said  # as the encoder can
    (row,) = map(json.loads, (tmp_path / "o/results.jsonl").read_text().splitlines())
    assert row["ours"]["accuracy"] > share + 0.1 and row["majority"] == {"accuracy": share}
    # The figure is that of the labels predicted.
    lines = (tmp_path / "o/sst2/validation.tsv").read_text().splitlines()[1:]
    right = (tmp_path / "data/glue/SST-2/dev.tsv").read_text().splitlines()[1:]
    hits = [
        (line.split("\t")[1] == "positive") == (text[-1] == "1")
        for line, text in zip(lines, right, strict=True)
    ]
    assert row["ours"]["accuracy"] == np.mean(hits)
    assert 0 < row["minutes"] and 0 < row["core_minutes"]

    without = argparse.Namespace(output=tmp_path / "p")
    run = downstream_kinds.Run.__new__(downstream_kinds.Run)
    run.set, run.options, run.folder, run.model = SETS["ax"], without, tmp_path, None
    with pytest.raises(SystemExit, match="no .*mnli/model: give --task=mnli before --task=ax"):
        run.predict("test", "test.tsv")
