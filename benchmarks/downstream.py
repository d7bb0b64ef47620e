"""An encoder on data sets with labels: shards, fine-tuning, predictions and a figure of each.

  python -m benchmarks.downstream --data=DATA --task=sst2 --init=PRETRAINED --output=WORK

is one line of a table: the figure beside those of a majority and of a plain baseline (TF-IDF with
logistic regression, or what `plain_baselines` has for the kind of task) on the same rows. Every
step is a command of the project, printed before it runs; --task may be given many times, and --list
shows what there is. Each result is a line of WORK/results.jsonl too. With --baselines no encoder
learns.
"""

import argparse
import json
import resource
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import yaml

from benchmarks import downstream_files, plain_baselines
from benchmarks.downstream_sets import SETS, DataSet
from official import manifest, tasks
from official import questions as questions_lib
from official.training import task_metrics

ROOT = Path(__file__).resolve().parents[1]
HEADER = (
    "| data set | rows to learn from | rows | metric | ours | majority | plain baseline | which "
    "| minutes of the clock (of a core) |\n|---|---:|---:|---|---:|---:|---:|---|---:|"
)
Figures = dict[str, float]


class Run:
    """One data set, in a folder of its own."""

    def __init__(self, data_set: DataSet, options: argparse.Namespace):
        """Makes the folder, and the files that the set is prepared as."""
        self.set = data_set
        self.options = options
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
            prepare = downstream_files.PREPARE[data_set.prepare]
            self.files = prepare(self.source.resolve(), self.files, self.folder.resolve())
        self.seconds = self.core_seconds = 0.0

    def command(self, module: str, *arguments: str) -> str:
        """Runs a command of the project and returns what it printed; ends where it fails."""
        words = [module, *map(str, arguments)]
        print("$ python -m", shlex.join(words), flush=True)
        started, before = time.monotonic(), _cores()
        process = subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        printed = []
        for line in process.stdout:
            print(line, end="", flush=True)
            printed.append(line)
        if code := process.wait():
            raise SystemExit(f"error: {module} ended with {code}")
        self.seconds += time.monotonic() - started
        self.core_seconds += _cores() - before
        return "".join(printed)

    def path(self, split: str) -> Path:
        """The file of a split."""
        return self.source / (self.files.get(split) or tasks.TASKS[self.set.task].files[split])

    @property
    def tokenizer(self) -> Path:
        """The encoder's."""
        return Path(self.options.init, "tokenizer").resolve()

    def make_shards(self) -> None:
        """Makes the shards, of a ranking from files made before."""
        given = self.set
        arguments = [
            f"--task={given.task}",
            f"--input={self.source.resolve()}",
            *(f"--{split}_file={name}" for split, name in self.files.items()),
            f"--tokenizer={self.tokenizer}",
            f"--output={self.shards.resolve()}",
            f"--max_length={self.length}",
        ]
        if given.task == "ranking":
            arguments[1] = f"--input={self.ranking_data()}"
            arguments += [
                f"--{name}={name}.tsv" for name in ("queries", "documents")
            ] + ["--qrels=qrels"]  # fmt: skip
        if given.task in tasks.TASKS and tasks.TASKS[given.task].kind == "span":
            arguments.append(f"--doc_stride={min(given.stride, self.length * 3 // 4)}")
        self.command("tfrecords_tools.build_task_shards", *arguments)

    def ranking_data(self) -> Path:
        """Queries, documents, what is relevant, and BM25's runs."""
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
        """Tokens of a sequence: as many as are wanted, if the encoder has so many positions."""
        return min(self.set.length, _config(self.options.init)["encoder"]["max_positions"])

    def fine_tune(self) -> None:
        """Trains a model on the train split."""
        given = self.set
        buckets = [length for length in given.buckets if length < self.length]
        encoder = _config(self.options.init)["encoder"]
        encoder |= {"dropout": given.dropout, "attention_dropout": given.dropout}
        overrides = [
            f"recipe.epochs={given.epochs}",
            f"recipe.batch_size={given.batch_size}",
            f"recipe.optimizer.learning_rate={given.learning_rate}",
            f"recipe.bucket_lengths={[*buckets, self.length]}".replace(" ", ""),
            f"recipe.eval_every={given.eval_every}",
            "recipe.eval_batch_size=64",
            "recipe.keep_checkpoints=1",
            "recipe.precision=mixed_bfloat16",
            # As the encoder is, with the dropout of fine-tuning.
            f"encoder={yaml.safe_dump(encoder, default_flow_style=True, width=9999).strip()}",
            *given.overrides,
            *self.options.override,
        ]
        self.command(
            "official.main",
            f"--mode={'train_and_eval' if given.eval_every else 'train'}",
            f"--config=configs/finetune/{given.config}.yaml",
            f"--data={self.shards.resolve()}",
            f"--init={Path(self.options.init).resolve()}",
            f"--model_dir={self.model.resolve()}",
            *(f"--override={text}" for text in overrides),
        )

    def predict(self, split: str, name: str) -> Path:
        """Predicts a split into a file or folder, and returns where that is."""
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


def _cores() -> float:
    """Seconds of a core that the commands have taken so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _config(init: str) -> dict:
    path = Path(init, "config.yaml")
    if not path.exists():
        raise SystemExit(f"error: {init} is no model folder: there is no {path}")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def printed_figures(text: str) -> Figures:
    """The figures that a command printed, a name and a number on each line."""
    found = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2 and words[1].replace(".", "", 1).replace("-", "", 1).isdigit():
            found[words[0]] = float(words[1])
    return found


def predicted(path: Path, labels: tuple[str, ...]) -> tuple[list[int], np.ndarray]:
    """Rows of a .tsv that predict wrote, and class ids or scores."""
    lines = path.read_text(encoding="utf-8").splitlines()
    cells = [line.split("\t")[:2] for line in lines[1:]]
    values = [labels.index(value) if labels else float(value) for _, value in cells]
    return [int(number) for number, _ in cells], np.array(values)


def _row(run: Run, split: str, train: int, rows: int, **figures: Figures) -> dict:
    return {"split": split, "train": train, "rows": rows, **figures}


def tables_task(run: Run, learn: bool) -> list[dict]:
    """A classification or a regression of texts or pairs of texts."""
    task = tasks.TASKS[run.set.task]
    if run.set.model_of:
        path = run.predict("test", "test.tsv") if learn else None
        count = len(predicted(path, task.labels)[0]) if learn else 0
        wanted = len(downstream_files.read_rows(task, "test", run.path("test")).numbers)
        if learn and count != wanted:
            raise SystemExit(f"error: {path} has {count} predictions for {wanted} rows")
        return [_row(run, "test", 0, wanted, ours={}, majority={}, plain={})]
    regression = task.kind == "regression"
    train = downstream_files.read_rows(task, "train", run.path("train"))
    splits = {
        split: downstream_files.read_rows(task, split, run.path(split)) for split in run.set.splits
    }
    names = run.set.metrics
    metric = lambda right, found: task_metrics.compute(names[:1], right, found)[names[0]]  # noqa: E731
    fit = plain_baselines.score if regression else plain_baselines.classify
    texts = [rows.texts for rows in splits.values()]
    plain = fit(train.texts, train.targets, texts, metric)
    which = "TF-IDF, ridge" if regression else "TF-IDF, logistic regression"
    made = []
    for (split, rows), guess in zip(splits.items(), plain, strict=True):
        ours = {}
        if learn:
            numbers, found = predicted(run.predict(split, f"{split}.tsv"), task.labels)
            if numbers != rows.numbers:
                raise SystemExit(f"error: {split}: the rows predicted are not those of the file")
            ours = task_metrics.compute(names, rows.targets, found)
        if regression:
            often = np.full(len(rows.targets), train.targets.mean())
        else:
            often = plain_baselines.majority(train.targets, len(rows.targets))
        row = _row(
            run,
            split,
            len(train.texts),
            len(rows.texts),
            ours=ours,
            majority=task_metrics.compute(names, rows.targets, often),
            plain={which: task_metrics.compute(names, rows.targets, guess)},
        )
        made.append(row)
    return made


def choice_task(run: Run, learn: bool) -> list[dict]:
    """Questions with several choices."""
    task = tasks.TASKS[run.set.task]
    train = downstream_files.read_choices(task, run.path("train"))
    choose = plain_baselines.Chooser(train)
    made = []
    for split in run.set.splits:
        asked = downstream_files.read_choices(task, run.path(split))
        right = np.array([question.answer for question in asked])
        ours = {}
        if learn:
            numbers, found = predicted(run.predict(split, f"{split}.tsv"), task.labels)
            if numbers != [question.number for question in asked]:
                raise SystemExit(f"error: {split}: the rows predicted are not those of the file")
            ours = task_metrics.compute(["accuracy"], right, found)
        often = plain_baselines.majority(np.array([q.answer for q in train]), len(asked))
        plain = task_metrics.compute(["accuracy"], right, choose(asked))
        row = _row(
            run,
            split,
            len(train),
            len(asked),
            ours=ours,
            majority=task_metrics.compute(["accuracy"], right, often),
            plain={"TF-IDF overlap, logistic regression": plain},
        )
        made.append(row)
    return made


def span_task(run: Run, learn: bool) -> list[dict]:
    """Questions whose answers are parts of a text."""
    found = manifest.read(run.shards)
    train, asked = (
        questions_lib.read(run.shards, split, found) for split in ("train", "validation")
    )
    no_answers = tasks.TASKS[run.set.task].no_answers

    def score(folder: Path) -> Figures:
        files = [f"--answers={folder / 'predictions.json'}"]
        if no_answers:
            files.append(f"--null_odds={folder / 'null_odds.json'}")
        command = [f"--data={run.shards.resolve()}", *files]
        return printed_figures(run.command("official.score_answers", *command))

    def write(name: str, answers: Mapping[str, str], odds: Mapping[str, float]) -> Path:
        folder = run.folder.resolve() / name
        folder.mkdir(exist_ok=True)
        (folder / "predictions.json").write_text(json.dumps(answers), encoding="utf-8")
        (folder / "null_odds.json").write_text(json.dumps(odds), encoding="utf-8")
        return folder

    ours = score(run.predict("validation", "answers")) if learn else {}
    seconds = run.seconds, run.core_seconds
    plain = score(write("plain", *plain_baselines.answer(train, asked)))
    majority = {}
    if no_answers:
        ids = [question.id for question in asked]
        majority = score(write("none", dict.fromkeys(ids, ""), dict.fromkeys(ids, 0.0)))
    run.seconds, run.core_seconds = seconds
    which = "the longest name in the likest sentence by TF-IDF"
    row = _row(
        run,
        "validation",
        len(train),
        len(asked),
        ours=ours,
        majority=majority,
        plain={which: plain},
    )
    return [row]


def ranking_task(run: Run, learn: bool) -> list[dict]:
    """Documents in an order, for queries."""
    from official import trec

    data = run.ranking_data()

    def score(path: Path) -> Figures:
        printed = run.command("official.score_run", f"--qrels={data / 'qrels'}", f"--run={path}")
        return printed_figures(printed)

    ours = score(run.predict("test", "test.run")) if learn else {}
    seconds = run.seconds, run.core_seconds
    bm25 = score(data / "test.run")
    texts = {
        name: dict(line.split("\t") for line in (data / f"{name}.tsv").read_text().splitlines()[1:])
        for name in ("queries", "documents")
    }
    qrels = trec.read_qrels(data / "qrels")
    runs = {split: trec.read_run(data / f"{split}.run") for split in ("train", "test")}
    pairs = {
        split: [(query, document) for query, them in found.items() for document in them]
        for split, found in runs.items()
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
    run.seconds, run.core_seconds = seconds
    row = _row(
        run,
        "test",
        len(runs["train"]),
        len(runs["test"]),
        ours=ours,
        majority={},
        plain={"BM25": bm25, "TF-IDF, logistic regression": regression},
    )
    return [row]


def held_out_text(run: Run, learn: bool) -> list[dict]:
    """Text that the encoder has not seen: its masked LM beside the entropy of what was masked."""
    made = []
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
        figures = printed_figures(
            run.command("official.main", "--mode=eval", f"--data={shards}", f"--model_dir={model}")
        )
        entropy = {"masked_lm": figures["target_entropy"]}
        examples = manifest.read(shards).totals["examples"]
        plain = {"entropy of the words": entropy}
        made.append(_row(run, split, 0, examples, ours=figures, majority={}, plain=plain))
    return made


KINDS: dict[str, Callable[[Run, bool], list[dict]]] = {
    "classification": tables_task,
    "regression": tables_task,
    "choice": choice_task,
    "span": span_task,
    "ranking": ranking_task,
    "masked_lm": held_out_text,
}


def measure(data_set: DataSet, options: argparse.Namespace) -> list[dict]:
    """Runs one data set and returns its rows of the table, one for each split evaluated."""
    run = Run(data_set, options)
    kind = tasks.TASKS[data_set.task].kind if data_set.task in tasks.TASKS else data_set.task
    learn = not options.baselines
    if kind != "masked_lm" and (learn or kind == "span"):
        if not run.shards.exists():
            run.make_shards()
        if learn and not data_set.model_of:
            run.fine_tune()
    rows = KINDS[kind](run, learn)
    about = {
        "data_set": data_set.name,
        "metrics": list(data_set.metrics),
        "minutes": run.seconds / 60,
        "core_minutes": run.core_seconds / 60,
        "init": str(options.init),
        "override": options.override,
    }
    return [{**about, **row} for row in rows]


def line(row: dict) -> str:
    """A row as Markdown; of several plain baselines the one that is best by the first metric."""
    names = row["metrics"]

    def cell(figures: Figures) -> str:
        shown = [f"{figures[name]:.4g}" if name in figures else "-" for name in names]
        return " / ".join(shown) if figures else "-"

    best = max if names[0] != "masked_lm" else min
    which = best(row["plain"], key=lambda name: row["plain"][name][names[0]], default="-")
    split = "" if row["split"] in ("validation", "test") else f" ({row['split']})"
    if row["metrics"] == ["masked_lm"]:
        split = f" ({row['split']})"
    cells = [
        row["data_set"] + split,
        f"{row['train']:,}" if row["train"] else "-",
        f"{row['rows']:,}",
        " / ".join(names),
        cell(row["ours"]),
        cell(row["majority"]),
        cell(row["plain"].get(which, {})),
        which,
        f"{row['minutes']:.1f} ({row['core_minutes']:.1f})",
    ]
    return f"| {' | '.join(cells)} |"


def listing() -> str:
    """What --list prints."""
    return "\n".join(
        f"{name:10} {given.about}; {given.folder}, configs/finetune/{given.config}.yaml"
        for name, given in SETS.items()
    )


def main(arguments: list[str] | None = None) -> None:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="print the data sets, and end")
    parser.add_argument("--data", help="folder with the folders of the data sets")
    parser.add_argument("--task", action="append", choices=SETS, help="may be given many times")
    parser.add_argument("--init", help="model folder of the pretrained encoder")
    parser.add_argument("--output", help="folder to make")
    parser.add_argument(
        "--override", action="append", default=[], help="key=value, of the fine-tuning config"
    )
    parser.add_argument("--baselines", action="store_true", help="no encoder learns")
    options = parser.parse_args(arguments)
    if options.list:
        print(listing())
        return
    for name in ("data", "task", "init", "output"):
        if not getattr(options, name):
            parser.error(f"--{name} is missing")
    _config(options.init)
    made = []
    for name in options.task:
        made += measure(SETS[name], options)
        with open(Path(options.output, "results.jsonl"), "a", encoding="utf-8") as stream:
            stream.writelines(json.dumps(row) + "\n" for row in made if row["data_set"] == name)
        print("\n".join([HEADER, *map(line, made)]), flush=True)


if __name__ == "__main__":
    main()
