"""How each kind of task is scored in `benchmarks.downstream`: an encoder beside plain baselines."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from benchmarks import downstream_files, plain_baselines
from benchmarks.downstream_run import Run
from official import tasks
from official.evaluation import task_metrics
from official.shards import manifest
from official.shards import questions as questions_lib
from official.tasks import trec

Figures = dict[str, float]


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


def _row(split: str, train: int, rows: int, **figures: Figures) -> dict:
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
        return [_row("test", 0, wanted, ours={}, majority={}, plain={})]
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

    def score(folder: Path, counted: bool = False) -> Figures:
        files = [f"--answers={folder / 'predictions.json'}"]
        if no_answers:
            files.append(f"--null_odds={folder / 'null_odds.json'}")
        command = [f"--data={run.shards.resolve()}", *files]
        return printed_figures(run.command("official.score_answers", *command, counted=counted))

    def write(name: str, answers: Mapping[str, str], odds: Mapping[str, float]) -> Path:
        folder = run.folder.resolve() / name
        folder.mkdir(exist_ok=True)
        (folder / "predictions.json").write_text(json.dumps(answers), encoding="utf-8")
        (folder / "null_odds.json").write_text(json.dumps(odds), encoding="utf-8")
        return folder

    ours = score(run.predict("validation", "answers"), counted=True) if learn else {}
    plain = score(write("plain", *plain_baselines.answer(train, asked)))
    majority = {}
    if no_answers:
        ids = [question.id for question in asked]
        majority = score(write("none", dict.fromkeys(ids, ""), dict.fromkeys(ids, 0.0)))
    which = "the longest name in the likest sentence by TF-IDF"
    row = _row(
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
    data = run.ranking_data()

    def score(path: Path, counted: bool = False) -> Figures:
        command = [f"--qrels={data / 'qrels'}", f"--run={path}"]
        return printed_figures(run.command("official.score_run", *command, counted=counted))

    ours = score(run.predict("test", "test.run"), counted=True) if learn else {}
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
        examples = manifest.read(shards).totals.examples
        plain = {"entropy of the words": entropy}
        made.append(_row(split, 0, examples, ours=figures, majority={}, plain=plain))
    return made


KINDS: dict[str, Callable[[Run, bool], list[dict]]] = {
    "classification": tables_task,
    "regression": tables_task,
    "choice": choice_task,
    "span": span_task,
    "ranking": ranking_task,
    "masked_lm": held_out_text,
}
