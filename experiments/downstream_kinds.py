"""Runs one data set of `experiments.downstream`, and scores it.

`Run` makes the shards, trains and predicts, by commands of the project. `KINDS` has a function for
each kind of task, which scores the encoder and plain baselines on the same rows.
"""

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from experiments import commands, downstream_sets, plain_baselines
from experiments.downstream_sets import DataSet
from official import tasks
from official.evaluation.rows import compute
from official.shards import manifest, side_texts
from official.tasks import trec

Metrics = dict[str, float]


class Run:
    """A data set in its own folder."""

    def __init__(
        self,
        data_set: DataSet,
        options: argparse.Namespace,
        command: Callable[..., Any] | None = None,
    ):
        """Creates the folder and prepares the files of the data set.

        Args:
          data_set: the data set.
          options: the options of the command line.
          command: runs a command of the project, given its module and arguments. None = run it,
            print and return its output, and count its time.
        """
        self.set = data_set
        self.options = options
        self.command = command or self._command
        self.source = Path(options.data, data_set.folder)
        if not self.source.is_dir():
            raise SystemExit(f"error: there is no folder {self.source}: --data is the one above it")
        self.folder = Path(options.output, data_set.name)
        if self.folder.exists() and not options.baselines:
            raise SystemExit(f"error: {self.folder} is there already: name another --output")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.shards = self.folder / "shards"
        self.model = self.folder / "model"
        self.files = dict(data_set.files)
        if data_set.prepare:
            prepare = downstream_sets.PREPARE[data_set.prepare]
            self.files = prepare(self.source.resolve(), self.files, self.folder.resolve())
        self.seconds = self.core_seconds = 0.0

    def _command(self, module: str, *arguments: str, counted: bool = True) -> str:
        """Runs a command of the project and returns its output; exits if the command fails.

        Its time counts as the encoder's, unless it is not `counted`.
        """
        done = commands.run(module, *arguments)
        if counted:
            self.seconds += done.seconds
            self.core_seconds += done.core_seconds
        return done.printed

    def path(self, split: str) -> Path:
        """Returns the file of a split."""
        return self.source / (self.files.get(split) or tasks.TASKS[self.set.task].files[split])

    @property
    def tokenizer(self) -> Path:
        """The tokenizer folder of the encoder."""
        return Path(self.options.init, "tokenizer").resolve()

    def make_shards(self) -> None:
        """Builds the shards; those of a ranking are built from its converted files."""
        data_set = self.set
        arguments = [
            f"--task={data_set.task}",
            f"--input={self.source.resolve()}",
            *(f"--{split}_file={name}" for split, name in self.files.items()),
            f"--tokenizer={self.tokenizer}",
            f"--output={self.shards.resolve()}",
            f"--max_length={self.length}",
        ]
        if data_set.task == "ranking":
            arguments[1] = f"--input={self.ranking_data()}"
            arguments += [
                f"--{name}={name}.tsv" for name in ("queries", "documents")
            ] + ["--qrels=qrels"]  # fmt: skip
        if data_set.task in tasks.TASKS and tasks.TASKS[data_set.task].kind == "span":
            arguments.append(f"--doc_stride={min(data_set.stride, self.length * 3 // 4)}")
        self.command("tfrecords_tools.build_task_shards", *arguments)

    def ranking_data(self) -> Path:
        """Returns the queries, the documents, the judgments and the BM25 runs."""
        folder = (self.folder / "data").resolve()
        if not folder.exists():
            self.command(
                "tfrecords_tools.build_ranking_data",
                f"--format={self.set.format}",
                f"--input={self.source.resolve()}",
                f"--output={folder}",
            )
        return folder

    @property
    def length(self) -> int:
        """The length of a sequence: that of the data set, or the positions of the encoder."""
        encoder = read_config(self.options.init)["encoder"]
        return min(self.set.length, encoder.get("max_positions", self.set.length))

    def fine_tune(self, evaluate: bool = False) -> None:
        """Trains a model on the train split.

        Args:
          evaluate: whether its metrics of the validation split are reported at the end.
        """
        data_set = self.set
        buckets = [length for length in data_set.buckets if length < self.length]
        encoder = read_config(self.options.init)["encoder"]
        encoder |= {"dropout": data_set.dropout, "attention_dropout": data_set.dropout}
        overrides = [
            f"recipe.epochs={data_set.epochs}",
            f"recipe.batch_size={data_set.batch_size}",
            f"recipe.optimizer.learning_rate={data_set.learning_rate}",
            f"recipe.bucket_lengths={[*buckets, self.length]}".replace(" ", ""),
            f"recipe.eval_every={data_set.eval_every}",
            "recipe.eval_batch_size=64",
            "recipe.keep_checkpoints=1",
            "recipe.precision=mixed_bfloat16",
            # The config of the encoder, with the dropout of fine-tuning.
            f"encoder={yaml.safe_dump(encoder, default_flow_style=True, width=9999).strip()}",
            *data_set.overrides,
            *self.options.override,
        ]
        self.command(
            "official.main",
            f"--mode={'train_and_eval' if data_set.eval_every or evaluate else 'train'}",
            f"--config={config_file(data_set)}",
            f"--data={self.shards.resolve()}",
            f"--init={Path(self.options.init).resolve()}",
            f"--model_dir={self.model.resolve()}",
            *(f"--override={text}" for text in overrides),
        )

    def predict(self, split: str, name: str) -> Path:
        """Writes the predictions of a split, and returns the path of the file or folder."""
        output = self.folder.resolve() / name
        model = self.model
        if self.set.model_of:
            model = Path(self.options.output, self.set.model_of, "model")
            if not model.exists():
                raise SystemExit(
                    f"error: there is no {model}: give --task={self.set.model_of} before "
                    f"--task={self.set.name}, with the same --output"
                )
        self.command(
            "official.main",
            "--mode=predict",
            f"--split={split}",
            f"--data={self.shards.resolve()}",
            f"--model_dir={model.resolve()}",
            f"--output={output}",
        )
        return output


def config_file(data_set: DataSet) -> str:
    """Returns the config of fine-tuning, as a path in the checkout."""
    return f"configs/finetune/{data_set.config}.yaml"


def read_config(init: str) -> dict:
    """Returns the config of a model folder; exits if there is none."""
    path = Path(init, "config.yaml")
    if not path.exists():
        raise SystemExit(f"error: {init} is no model folder: there is no {path}")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def printed_metrics(text: str) -> Metrics:
    """Returns the metrics that a command printed, a name and a number on each line."""
    metrics = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2 and words[1].replace(".", "", 1).replace("-", "", 1).isdigit():
            metrics[words[0]] = float(words[1])
    return metrics


def predicted(path: Path, labels: tuple[str, ...]) -> tuple[list[int], np.ndarray]:
    """Returns the rows of a .tsv of predictions, and their class ids or scores."""
    lines = path.read_text(encoding="utf-8").splitlines()
    cells = [line.split("\t")[:2] for line in lines[1:]]
    values = [labels.index(value) if labels else float(value) for _, value in cells]
    return [int(number) for number, _ in cells], np.array(values)


def _row(split: str, train: int, rows: int, **metrics: Metrics) -> dict:
    return {"split": split, "train": train, "rows": rows, **metrics}


def tables_task(run: Run, learn: bool) -> list[dict]:
    """Scores a classification or a regression of texts or pairs of texts."""
    task = tasks.TASKS[run.set.task]
    if run.set.model_of:
        path = run.predict("test", "test.tsv") if learn else None
        count = len(predicted(path, task.labels)[0]) if learn else 0
        wanted = len(downstream_sets.read_rows(task, "test", run.path("test")).numbers)
        if learn and count != wanted:
            raise SystemExit(f"error: {path} has {count} predictions for {wanted} rows")
        return [_row("test", 0, wanted, ours={}, majority={}, plain={})]
    regression = task.kind == "regression"
    train = downstream_sets.read_rows(task, "train", run.path("train"))
    splits = {
        split: downstream_sets.read_rows(task, split, run.path(split)) for split in run.set.splits
    }
    names = run.set.metrics

    def metric(targets: np.ndarray, predictions: np.ndarray) -> float:
        return compute(names[:1], targets, predictions)[names[0]]

    fit = plain_baselines.score if regression else plain_baselines.classify
    texts = [rows.texts for rows in splits.values()]
    plain = fit(train.texts, train.targets, texts, metric)
    which = "TF-IDF, ridge" if regression else "TF-IDF, logistic regression"
    results = []
    for (split, rows), guess in zip(splits.items(), plain, strict=True):
        ours = {}
        if learn:
            numbers, predictions = predicted(run.predict(split, f"{split}.tsv"), task.labels)
            if numbers != rows.numbers:
                raise SystemExit(f"error: {split}: the rows predicted are not those of the file")
            ours = compute(names, rows.targets, predictions)
        if regression:
            often = np.full(len(rows.targets), train.targets.mean())
        else:
            often = plain_baselines.majority(train.targets, len(rows.targets))
        row = _row(
            split,
            len(train.texts),
            len(rows.texts),
            ours=ours,
            majority=compute(names, rows.targets, often),
            plain={which: compute(names, rows.targets, guess)},
        )
        results.append(row)
    return results


def choice_task(run: Run, learn: bool) -> list[dict]:
    """Scores questions with several choices."""
    task = tasks.TASKS[run.set.task]
    train = downstream_sets.read_choices(task, run.path("train"))
    choose = plain_baselines.Chooser(train)
    results = []
    for split in run.set.splits:
        questions = downstream_sets.read_choices(task, run.path(split))
        right = np.array([question.answer for question in questions])
        ours = {}
        if learn:
            numbers, predictions = predicted(run.predict(split, f"{split}.tsv"), task.labels)
            if numbers != [question.number for question in questions]:
                raise SystemExit(f"error: {split}: the rows predicted are not those of the file")
            ours = compute(["accuracy"], right, predictions)
        often = plain_baselines.majority(np.array([q.answer for q in train]), len(questions))
        plain = compute(["accuracy"], right, choose(questions))
        row = _row(
            split,
            len(train),
            len(questions),
            ours=ours,
            majority=compute(["accuracy"], right, often),
            plain={"TF-IDF overlap, logistic regression": plain},
        )
        results.append(row)
    return results


def span_task(run: Run, learn: bool) -> list[dict]:
    """Scores questions whose answers are spans of a text."""
    stored = manifest.read(run.shards)
    train, questions = (
        list(side_texts.read_questions(run.shards, split, stored).values())
        for split in ("train", "validation")
    )
    no_answers = tasks.TASKS[run.set.task].no_answers

    def score(folder: Path, counted: bool = False) -> Metrics:
        files = [f"--answers={folder / 'predictions.json'}"]
        if no_answers:
            files.append(f"--null_odds={folder / 'null_odds.json'}")
        command = [f"--data={run.shards.resolve()}", *files]
        return printed_metrics(
            run.command("official.commands.score_answers", *command, counted=counted)
        )

    def write(name: str, answers: Mapping[str, str], odds: Mapping[str, float]) -> Path:
        folder = run.folder.resolve() / name
        folder.mkdir(exist_ok=True)
        (folder / "predictions.json").write_text(json.dumps(answers), encoding="utf-8")
        (folder / "null_odds.json").write_text(json.dumps(odds), encoding="utf-8")
        return folder

    ours = score(run.predict("validation", "answers"), counted=True) if learn else {}
    plain = score(write("plain", *plain_baselines.answer(train, questions)))
    majority = {}
    if no_answers:
        ids = [question.id for question in questions]
        majority = score(write("none", dict.fromkeys(ids, ""), dict.fromkeys(ids, 0.0)))
    which = "the longest name in the likest sentence by TF-IDF"
    row = _row(
        "validation",
        len(train),
        len(questions),
        ours=ours,
        majority=majority,
        plain={which: plain},
    )
    return [row]


def ranking_task(run: Run, learn: bool) -> list[dict]:
    """Scores rankings of documents for queries."""
    data = run.ranking_data()

    def score(path: Path, counted: bool = False) -> Metrics:
        command = [f"--qrels={data / 'qrels'}", f"--run={path}"]
        return printed_metrics(
            run.command("official.commands.score_run", *command, counted=counted)
        )

    ours = score(run.predict("test", "test.run"), counted=True) if learn else {}
    bm25 = score(data / "test.run")
    texts = {
        name: dict(line.split("\t") for line in (data / f"{name}.tsv").read_text().splitlines()[1:])
        for name in ("queries", "documents")
    }
    qrels = trec.read_qrels(data / "qrels")
    runs = {split: trec.read_run(data / f"{split}.run") for split in ("train", "test")}
    pairs = {
        split: [(query, document) for query, them in run_of_split.items() for document in them]
        for split, run_of_split in runs.items()
    }
    lists = {
        split: ([texts["queries"][q] for q, _ in them], [texts["documents"][d] for _, d in them])
        for split, them in pairs.items()
    }
    relevant = np.array([qrels.get(q, {}).get(d, 0) > 0 for q, d in pairs["train"]])
    (scores,) = plain_baselines.rank(*lists["train"], relevant, [lists["test"]])
    ranked: trec.Run = {}
    for (query, document), value in zip(pairs["test"], scores, strict=True):
        ranked.setdefault(query, {})[document] = float(value)
    with open(run.folder / "plain.run", "w", encoding="utf-8") as stream:
        trec.write_run(stream, ranked, "plain")
    regression = score((run.folder / "plain.run").resolve())
    row = _row(
        "test",
        len(runs["train"]),
        len(runs["test"]),
        ours=ours,
        majority={},
        plain={"BM25": bm25, "TF-IDF, logistic regression": regression},
    )
    return [row]


def held_out_text(run: Run, learn: bool) -> list[dict]:
    """Scores the masked LM on unseen text, beside the entropy of the masked tokens."""
    results = []
    for split in run.set.splits if learn else ():
        shards = (run.folder / f"shards-{split}").resolve()
        model = Path(run.options.init).resolve()
        run.command(
            "tfrecords_tools.build_shards",
            f"--config={model / 'config.yaml'}",
            f"--input={run.files[split]}",
            f"--tokenizer={run.tokenizer}",
            f"--output={shards}",
            "--split_sentences",
        )
        metrics = printed_metrics(
            run.command("official.main", "--mode=eval", f"--data={shards}", f"--model_dir={model}")
        )
        entropy = {"masked_lm": metrics["target_entropy"]}
        examples = manifest.read(shards).totals.examples
        plain = {"entropy of the words": entropy}
        results.append(_row(split, 0, examples, ours=metrics, majority={}, plain=plain))
    return results


KINDS: dict[str, Callable[[Run, bool], list[dict]]] = {
    "classification": tables_task,
    "regression": tables_task,
    "choice": choice_task,
    "span": span_task,
    "ranking": ranking_task,
    "masked_lm": held_out_text,
}
