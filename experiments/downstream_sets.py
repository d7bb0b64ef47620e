"""The data sets of `experiments.downstream`: files, settings of fine-tuning, and how rows are read.

Files have the names of the samples of these sets; files with other names than the task expects are
given to `build_task_shards` by their flags. All are read with the readers that build the shards, so
the plain baselines see the same rows as the encoder, and the rows have the same numbers as in the
predictions.
"""

import dataclasses
import json
import random
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from official import tasks
from tfrecords_tools.tasks import multiple_choice, tables


@dataclasses.dataclass(frozen=True)
class DataSet:
    """One data set.

    Attributes:
      name: its name in `--task`.
      about: a short description, for `--list`.
      folder: its folder in `--data`.
      task: a task of `official.tasks`; "ranking"; or "masked_lm": nothing is trained, and the
        encoder's own masked LM is evaluated.
      files: split → file; "" = the split is not used. Splits that are not named have the
        task's own files.
      splits: the splits that are evaluated.
      metrics: the metrics that are shown for each split.
      config: a config in `configs/finetune`.
      length: the length of a sequence in tokens; at most the positions of the encoder.
      buckets: shorter lengths to which batches are padded.
      stride: of a span task: tokens from the start of a window to the start of the next one.
      learning_rate: the peak learning rate.
      epochs: passes over the training rows.
      batch_size: the batch size of training.
      dropout: the dropout rate of the encoder in fine-tuning.
      eval_every: steps between evaluations on the validation split, which pick the best checkpoint;
        `splits` then does not have this split. 0 = no evaluations; the last weights are used.
      overrides: further values of `--override`.
      prepare: converts the files of the folder to `files`; see `PREPARE`.
      model_of: the data set whose model is used; nothing is trained.
      format: the format for `build_ranking_data`.
    """

    name: str
    about: str
    folder: str
    task: str
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    splits: tuple[str, ...] = ("validation",)
    metrics: tuple[str, ...] = ("accuracy",)
    config: str = "classification"
    length: int = 128
    buckets: tuple[int, ...] = (16, 32, 64)
    stride: int = 128
    learning_rate: float = 2e-4
    epochs: float = 3
    batch_size: int = 32
    dropout: float = 0.1
    eval_every: int = 0
    overrides: tuple[str, ...] = ()
    prepare: str = ""
    model_of: str = ""
    format: str = ""


def _sample(**files: str) -> dict[str, str]:
    return {"train": "train_sample.tsv", **files}


_RANKING = {"train": "train.run", "validation": "validation.run", "test": "test.run"}
_RANKED = {"task": "ranking", "files": _RANKING, "splits": ("test",), "config": "ranking"}
_NDCG = ("ndcg_20", "mrr", "map")
_MEAN = {"overrides": ("objectives.0.pooling=mean",)}
_SQUAD = {"buckets": (96,), "stride": 96, "epochs": 1, "dropout": 0.0}
_ANSWERS = ("f1", "exact_match")

SETS: dict[str, DataSet] = {
    data_set.name: data_set
    for data_set in (
        DataSet(
            "cola",
            "GLUE: is a sentence acceptable?",
            "glue/CoLA",
            "cola",
            metrics=("matthews_correlation", "accuracy"),
            learning_rate=1e-4,
            **_MEAN,
        ),
        DataSet(
            "sst2",
            "GLUE: sentiment",
            "glue/SST-2",
            "sst2",
            config="sst2",
            epochs=1,
            buckets=(8, 16, 32),
            **_MEAN,
        ),
        DataSet(
            "mrpc",
            "GLUE: paraphrases",
            "glue/MRPC",
            "mrpc",
            config="mrpc",
            metrics=("accuracy", "f1"),
        ),
        DataSet(
            "stsb",
            "GLUE: similarity, a score",
            "glue/STS-B",
            "stsb",
            config="regression",
            metrics=("pearson", "spearman"),
            epochs=4,
            dropout=0.0,
        ),
        DataSet(
            "qqp",
            "GLUE: duplicate questions, samples of the train file",
            "glue/QQP",
            "qqp",
            _sample(validation="dev_sample.tsv"),
            metrics=("accuracy", "f1"),
        ),
        DataSet(
            "mnli",
            "GLUE: entailment, a sample of the train file",
            "glue/MNLI",
            "mnli",
            _sample(validation_mismatched="dev_mismatched_sample.tsv"),
            splits=("validation", "validation_mismatched"),
            epochs=2,
        ),
        DataSet(
            "qnli",
            "GLUE: does the sentence answer? A sample of the train file",
            "glue/QNLI",
            "qnli",
            _sample(),
        ),
        DataSet("rte", "GLUE: entailment", "glue/RTE", "rte"),
        DataSet("wnli", "GLUE: what a pronoun means", "glue/WNLI", "wnli"),
        DataSet(
            "ax",
            "GLUE: the diagnostic set, with the model of mnli",
            "glue/diagnostic",
            "ax",
            splits=("test",),
            model_of="mnli",
        ),
        DataSet(
            "squad1",
            "SQuAD 1.1: two parts of the train file; the dev file",
            "squad",
            "squad1",
            {"train": "train-v1.1-subset.json + train-v1.1-extra.json"},
            metrics=_ANSWERS,
            config="squad1",
            length=256,
            buckets=(128, 192),
            epochs=2,
            prepare="join_squad",
        ),
        DataSet(
            "squad2",
            "SQuAD 2.0: a part of the train file; the dev file",
            "squad",
            "squad2",
            {"train": "train-v2.0-subset.json"},
            metrics=("best_f1", "best_exact_match", "f1"),
            config="squad2",
            **_SQUAD,
        ),
        DataSet(
            "new_wiki",
            "SQuADShifts' new Wikipedia articles to learn from; SQuAD 1.1's dev file",
            "squadshifts",
            "squad1",
            {"train": "new_wiki_v1.0.json", "validation": "../squad/dev-v1.1.json"},
            metrics=_ANSWERS,
            config="squad1",
            **_SQUAD,
        ),
        DataSet(
            "race",
            "RACE: 1,000 questions, a fifth of them held out",
            "race",
            "race",
            {"train": "train.jsonl", "validation": "validation.jsonl", "test": ""},
            config="race",
            buckets=(96,),
            learning_rate=3e-5,
            batch_size=8,
            overrides=("recipe.steps=0", "recipe.schedule.warmup_steps=20"),
            prepare="split_race",
        ),
        DataSet(
            "dream",
            "DREAM: dialogues, three choices",
            "dream",
            "dream",
            splits=("test",),
            config="dream",
            buckets=(64, 96),
            learning_rate=3e-5,
            batch_size=16,
        ),
        DataSet(
            "imdb",
            "IMDB: sentiment of reviews, a sample",
            "imdb",
            "imdb",
            {"train": "train.tsv.gz", "test": "test.tsv.gz"},
            splits=("test",),
            length=256,
            buckets=(128, 192),
            epochs=2,
            **_MEAN,
        ),
        DataSet(
            "dbpedia",
            "DBpedia: 14 classes, a sample",
            "dbpedia14",
            "dbpedia",
            {"train": "train.tsv", "test": "test.tsv"},
            splits=("test",),
            buckets=(32, 48, 64, 96),
            learning_rate=3e-4,
            epochs=4,
            dropout=0.0,
            **_MEAN,
        ),
        DataSet(
            "wikiqa",
            "WikiQA: answer sentences, ranked",
            "wikiqa",
            length=64,
            buckets=(32,),
            metrics=("mrr", "map", "ndcg_20"),
            learning_rate=5e-5,
            epochs=1,
            batch_size=16,
            eval_every=75,
            format="wikiqa",
            **_RANKED,
        ),
        DataSet(
            "cranfield",
            "Cranfield: abstracts, ranked; a share of the queries held out",
            "cranfield",
            metrics=_NDCG,
            learning_rate=1e-4,
            epochs=2,
            batch_size=16,
            eval_every=123,
            format="cranfield",
            **_RANKED,
        ),
        DataSet(
            "cisi",
            "CISI: abstracts, ranked; a share of the queries held out",
            "cisi",
            metrics=_NDCG,
            learning_rate=1e-4,
            epochs=1,
            batch_size=16,
            eval_every=123,
            format="cisi",
            **_RANKED,
        ),
        DataSet(
            "wikitext2",
            "WikiText-2's held-out text, by the encoder's own masked LM",
            "wikitext-2",
            "masked_lm",
            {"validation": "valid.txt", "test": "test.txt"},
            splits=("validation", "test"),
            metrics=("masked_lm",),
            prepare="articles",
        ),
    )
}


class Rows(NamedTuple):
    """Texts of a split.

    Attributes:
      numbers: the numbers of the rows in their file.
      texts: one or two texts of each row.
      targets: class ids or scores; None if the file has none.
    """

    numbers: list[int]
    texts: list[tuple[str, ...]]
    targets: np.ndarray | None


def read_rows(task: tasks.Task, split: str, path: Path) -> Rows:
    """Reads a split of a classification or a regression, without the rows that shards leave out."""
    columns = task.columns_for(split, tables.file_format(path))
    texts = [name for name in (columns.text, columns.text_pair) if name is not None]
    bad = tables.BadRows(known=task.skipped)
    optional = split.startswith("test")
    source = tables.read(path, texts, columns.label, optional, columns.header, bad=bad)
    ids = {name: i for names in (task.labels, task.values) for i, name in enumerate(names)}
    rows = [row for row in source if all(text.strip() for text in row.cells)]
    cells = [row.cells for row in rows]
    if task.line_break:
        cells = [tuple(text.replace(task.line_break, " ") for text in row) for row in cells]
    targets = None
    if rows[0].label is not None:
        values = [row.label.strip() for row in rows]
        kind = task.kind == "regression"
        targets = np.array([float(v) if kind else ids[v] for v in values])
    return Rows([row.number for row in rows], cells, targets)


def read_choices(task: tasks.Task, path: Path) -> list[multiple_choice.Question]:
    """Reads the questions of a choice task."""
    return list(multiple_choice.read(task, path, False, tables.BadRows()))


def join_squad(source: Path, files: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Joins files in the format of SQuAD, whose names are given with + between them."""
    prepared = {}
    for split, names in files.items():
        articles = []
        for name in names.split(" + "):
            articles += json.loads((source / name).read_text(encoding="utf-8"))["data"]
        prepared[split] = str(folder / f"{split}.json")
        Path(prepared[split]).write_text(json.dumps({"data": articles}), encoding="utf-8")
    return prepared


def split_race(source: Path, files: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Holds out a fifth of the articles of race_1000.jsonl, drawn at random."""
    lines = (source / "race_1000.jsonl").read_text(encoding="utf-8").splitlines()
    articles = [json.loads(line)["article"] for line in lines]
    order = sorted(set(articles))
    random.Random(0).shuffle(order)
    held_out = set(order[: len(order) // 5])
    prepared = dict(files)
    for split in ("train", "validation"):
        prepared[split] = str(folder / files[split])
        chosen = [
            line
            for line, article in zip(lines, articles, strict=True)
            if (article in held_out) == (split == "validation")
        ]
        Path(prepared[split]).write_text("\n".join(chosen) + "\n", encoding="utf-8")
    return prepared


_TITLE = re.compile(r" = [^=].*[^=] = ")


def articles(source: Path, files: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Converts the text of WikiText to documents, one paragraph on each line, without titles."""
    prepared = {}
    for split, name in files.items():
        paragraphs: list[str] = []
        for line in (source / name).read_text(encoding="utf-8").splitlines():
            if _TITLE.fullmatch(line):
                paragraphs.append("")
            elif line.strip() and not line.startswith(" = "):
                paragraphs.append(line.strip())
        prepared[split] = str(folder / f"{split}.txt")
        Path(prepared[split]).write_text("\n".join(paragraphs).strip() + "\n", encoding="utf-8")
    return prepared


PREPARE: dict[str, Callable[[Path, Mapping[str, str], Path], dict[str, str]]] = {
    "join_squad": join_squad,
    "split_race": split_race,
    "articles": articles,
}
