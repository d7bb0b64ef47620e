"""Shards of all kinds of tasks: random samples in training, the same bytes from any runner."""

import functools
import hashlib
import json

import numpy as np
import pytest
import tensorflow as tf

from official import tasks, tokenizers
from official.shards import manifest, shard_folder, side_texts
from official.tasks import embeddings, trec
from official.tasks import text_to_text as forms
from official.utils.engines import Engine
from official.utils.errors import UserError
from tests import choices, commands, small, squads
from tfrecords_tools.tasks import builder as task_builder
from tfrecords_tools.tasks import (
    embedding,
    labelled_text,
    multiple_choice,
    ranking,
    span,
    splits,
    tables,
    tagging,
    text_to_text,
)
from tfrecords_tools.writing import shards
from tfrecords_tools.writing.execution import Execution

BEAM = Execution(engine=Engine("beam"))
SILENT = {"report": lambda line: None}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = small.tokenizer_folder(tmp_path_factory.mktemp("t") / "t", sentinels=2)
    return tokenizers.load(folder)


@pytest.fixture(autouse=True)
def several_chunks(monkeypatch):
    """Few rows are several chunks; their examples are several shards."""
    modules = labelled_text, text_to_text, multiple_choice, span, tagging, ranking, embedding
    for module in modules:
        monkeypatch.setattr(module.Builder, "rows_at_once", 7)
    monkeypatch.setattr(ranking, "ENCODE_AT_ONCE", 7)


def table(count, pair=False):
    """Lines of a table that is sorted by its labels."""
    rng = np.random.default_rng(count)
    lines = []
    for i in range(count):
        texts = [" ".join(rng.choice(small.WORDS, rng.integers(1, 9))) for _ in range(1 + pair)]
        lines.append("\t".join([*texts, f"{2 * i // count}"]) + "\n")
    return "text\t" + "other\t" * pair + "label\n" + "".join(lines)


def tables_of(folder, pair=False):
    files = {"train": folder / "train.tsv", "validation": folder / "dev.tsv"}
    for path, count in zip(files.values(), (40, 25), strict=True):
        path.write_text(table(count, pair))
    return files


def build_labeled(folder, tokenizer, output, pair=False, **options):
    task = tasks.generic("classification", "text", "other" if pair else None, "label")
    return task_builder.build(task, tables_of(folder, pair), tokenizer, output, **options)


def build_embedding(folder, tokenizer, output, **options):
    task = tasks.generic("classification", "text", None, "label")
    task = embeddings.of_task(task, "pairs")
    return task_builder.build(task, tables_of(folder), tokenizer, output, **options)


def build_text_to_text(folder, tokenizer, output, **options):
    task = forms.generation("text", "other")
    return task_builder.build(task, tables_of(folder, True), tokenizer, output, **options)


def build_choices(folder, tokenizer, output, **options):
    files = {
        split: choices.write(folder / f"{split}.jsonl", choices.rows(20, seed))
        for seed, split in enumerate(("train", "validation"))
    }
    return task_builder.build(tasks.choice(), files, tokenizer, output, **options)


def build_spans(folder, tokenizer, output, **options):
    files = {"train": folder / "train.json", "validation": folder / "dev.json"}
    for seed, path in enumerate(files.values()):
        path.write_text(json.dumps(squads.make(12, True, seed)))
    return task_builder.build(
        tasks.TASKS["squad2"], files, tokenizer, output, **squads.SIZES, **options
    )


def build_tags(folder, tokenizer, output, **options):
    rng = np.random.default_rng(1)
    files = {"train": folder / "train.conll", "validation": folder / "dev.conll"}
    for path in files.values():
        texts = [
            "".join(f"{word} {rng.choice(['O', 'B-X'])}\n" for word in rng.choice(small.WORDS, 9))
            for _ in range(20)
        ]
        path.write_text("\n".join(texts))
    task = tasks.generic("tagging", "0", label="-1")
    return task_builder.build(task, files, tokenizer, output, 8, **options)


def build_ranking(folder, tokenizer, output, **options):
    rng = np.random.default_rng(2)
    text = lambda: " ".join(rng.choice(small.WORDS, rng.integers(2, 9)))  # noqa: E731
    documents = {f"d{i}": text() for i in range(20)}
    queries = {f"q{i}": text() for i in range(12)}
    qrels = {query: {f"d{i}": 1} for i, query in enumerate(queries)}
    files = {}
    for split, some in (("train", list(queries)[:8]), ("validation", list(queries)[8:])):
        run = {query: {f"d{i}": float(i) for i in range(0, 20, 3)} for query in some}
        files[split] = folder / f"{split}.run"
        with open(files[split], "w") as stream:
            trec.write_run(stream, run, "bm25")
    for name, texts in (("queries", queries), ("documents", documents)):
        rows = [json.dumps({"id": key, "text": value}) for key, value in texts.items()]
        (folder / f"{name}.jsonl").write_text("\n".join(rows))
    with open(folder / "qrels", "w") as stream:
        trec.write_qrels(stream, qrels)
    names = {"queries": "queries.jsonl", "documents": "documents.jsonl", "qrels": "qrels"}
    return task_builder.build(
        tasks.ranking(), files, tokenizer, output, 24, input=folder, **names, **options
    )


KINDS = {
    "labeled": build_labeled,
    "pairs": functools.partial(build_labeled, pair=True),
    "embedding": build_embedding,
    "choices": build_choices,
    "spans": build_spans,
    "tags": build_tags,
    "ranking": build_ranking,
    "text_to_text": build_text_to_text,
}


def digests(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def read(folder, written, name):
    """The values of a feature that is one number."""
    files = [str(folder / shard.name) for shard in written]
    records = tf.data.TFRecordDataset(files).as_numpy_iterator()
    parsed = [tf.train.Example.FromString(record).features.feature for record in records]
    return np.array([each[name].int64_list.value[0] for each in parsed])


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_shuffled_and_validation_is_not(tmp_path, tokenizer, kind, monkeypatch):
    monkeypatch.setattr(shards, "MIN_SHARD_BYTES", 500)
    monkeypatch.setattr(shards, "MIN_SHARD_RECORDS", 12)
    built = KINDS[kind](tmp_path, tokenizer, tmp_path / "out", **SILENT)
    assert shard_folder.problems(tmp_path / "out", deep=True) == []
    written = {split: built.split(split) for split in ("train", "validation")}
    assert len(written["train"]) > 1 and len(written["validation"]) == 1
    rows = read(tmp_path / "out", written["validation"], "row")
    assert (np.diff(rows) >= 0).all()
    parts = [read(tmp_path / "out", [s], "row") for s in written["train"]]
    falls = np.concatenate([np.diff(rows) < 0 for rows in parts])
    assert 0.25 < falls.mean() < 0.75  # a shard is not in order
    bounds = [(part.min(), part.max()) for part in parts]
    assert max(low for low, _ in bounds) < min(high for _, high in bounds)  # nor are the shards
    assert sum(map(len, parts)) == built.totals.splits["train"].examples
    # Another seed gives another order of the same rows.
    again = KINDS[kind](tmp_path, tokenizer, tmp_path / "again", seed=1, **SILENT)
    assert (built.seed, again.seed) == (0, 1)
    rows = read(tmp_path / "again", again.split("train"), "row")
    assert rows.tolist() != np.concatenate(parts).tolist()
    assert sorted(rows) == sorted(np.concatenate(parts))
    assert [s.sha256 for s in again.split("validation")] == [
        s.sha256 for s in written["validation"]
    ]


def test_shards_of_a_sorted_file_have_the_labels_of_the_file(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(shards, "MIN_SHARD_BYTES", 10_000)
    monkeypatch.setattr(labelled_text.Builder, "rows_at_once", 300)
    path = tmp_path / "train.tsv"
    path.write_text(table(2000))
    task = tasks.generic("classification", "text", label="label")
    built = task_builder.build(task, {"train": path}, tokenizer, tmp_path / "out", **SILENT)
    assert len(built.shards) > 8
    for shard in built.shards:
        labels = read(tmp_path / "out", [shard], "label")
        sigma = 0.5 / shard.records**0.5
        assert abs(labels.mean() - 0.5) < 4 * sigma
        # The size of a shard is binomial, too.
        share = 1 / len(built.shards)
        assert abs(shard.records - 2000 * share) < 4 * (2000 * share * (1 - share)) ** 0.5


def test_the_size_of_chunks_does_not_matter(tmp_path, tokenizer, monkeypatch):
    expected = build_spans(tmp_path, tokenizer, tmp_path / "a", **SILENT)
    monkeypatch.setattr(span.Builder, "rows_at_once", 5)
    monkeypatch.setattr(splits, "EXAMPLES_AT_ONCE", 3)
    assert build_spans(tmp_path, tokenizer, tmp_path / "b", **SILENT) == expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bytes_from_any_runner(tmp_path, tokenizer, kind):
    runners = {"here": Execution(), "two": Execution(2), "beam": BEAM}
    if kind == "labeled":
        runners |= {"one": Execution(1), "four": Execution(4)}
    for name, where in runners.items():
        KINDS[kind](tmp_path, tokenizer, tmp_path / name, execution=where, **SILENT)
        assert digests(tmp_path / name) == digests(tmp_path / "here")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.slow
@pytest.mark.long
def test_several_processes_of_beam(tmp_path, tokenizer):
    """The command, whose workers are processes that Beam starts."""
    tokenizer.save(tmp_path / "tokenizer")
    tables_of(tmp_path)
    options = [
        "--task=classification", f"--input={tmp_path}", "--train_file=train.tsv",
        "--validation_file=dev.tsv", "--text_column=text", "--label_column=label",
        f"--tokenizer={tmp_path / 'tokenizer'}", "--seed=3",
    ]  # fmt: skip
    beam = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")
    for name, given in {"beam": ["--runner=beam", "--", *beam], "here": []}.items():
        output = f"--output={tmp_path / name}"
        commands.run("tfrecords_tools.build_task_shards", *options, output, *given, status=0)
    assert digests(tmp_path / "here") == digests(tmp_path / "beam")
    assert manifest.read(tmp_path / "here").seed == 3


@pytest.mark.slow
@pytest.mark.parametrize("where", [Execution(2), BEAM])
def test_errors_in_workers_are_those_of_this_process(tmp_path, tokenizer, where):
    rows = choices.rows(20)
    rows[13]["question"] = " ".join(small.WORDS)
    path = choices.write(tmp_path / "train.jsonl", rows)
    build = functools.partial(
        task_builder.build, tasks.choice(), {"train": path}, tokenizer, tmp_path / "out", 24,
        execution=where, **SILENT,
    )  # fmt: skip
    with pytest.raises(UserError, match=r"line 14: question and choice have 6\d tokens.*leaves su"):
        build()
    assert [each.name for each in tmp_path.iterdir()] == ["train.jsonl"]
    assert build(skip_bad_rows=True).totals.skipped == {"question too long": 1}


def test_counts_of_parts_are_those_of_the_whole():
    whole = text_to_text.SplitCounts(tables.BadRows(True, ("known",)))
    whole.targets.update(a=0, b=0)
    total = whole.blank()
    assert (total.bad.skip, total.bad.known) == (True, ("known",))
    for label, length in (("a", 3), ("a", 5), ("b", 3)):
        part = whole.blank()
        part.count(length)
        part.targets[label] += 1
        part.bad("reason", "message")
        part.longest_target = length
        part.references.append(side_texts.Reference(length, "", (label,)))
        part.labeled = label == "a"
        total.add(part)
    assert (total.examples, total.tokens, total.longest_target) == (3, 11, 5)
    assert list(total.targets.items()) == [("a", 2), ("b", 1)]
    assert total.lengths == {3: 2, 5: 1} and total.bad.counts == {"reason": 3}
    assert [each.row for each in total.references] == [3, 5, 3] and total.labeled is False


@pytest.mark.parametrize("kind", ["spans", "ranking"])
def test_a_remote_folder_has_the_same_files(tmp_path, ram, tokenizer, kind):
    KINDS[kind](tmp_path, tokenizer, tmp_path / "here", **SILENT)
    KINDS[kind](tmp_path, tokenizer, ram / "there", **SILENT)
    found = {
        str(path)[len(str(ram / "there")) + 1 :]: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (ram / "there").rglob("*")
        if path.is_file()
    }
    assert found == digests(tmp_path / "here")
    assert shard_folder.problems(ram / "there", deep=True) == []
