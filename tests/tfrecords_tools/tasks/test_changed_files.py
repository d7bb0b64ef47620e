"""Files of tasks that change while shards are built of them, or rankings."""

import json
import shutil

import pyarrow
import pytest
from pyarrow import parquet

from official import tasks, tokenizers
from official.utils.errors import UserError
from tests import changed_files, small
from tests.tfrecords_tools.tasks import test_ranking
from tfrecords_tools import build_ranking_data
from tfrecords_tools.tasks import builder, tables

TASK = tasks.generic("classification", "text", label="label")
ROWS = [{"text": f"{word} {word}", "label": "yes" if i % 2 else "no"} for i, word in
        enumerate(small.WORDS)]  # fmt: skip


def write(path):
    """Writes the rows as a file, or as a folder with a file for each."""
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    elif path.suffix == ".tsv":
        path.write_text("text\tlabel\n" + "".join(f"{r['text']}\t{r['label']}\n" for r in ROWS))
    else:
        for number, row in enumerate(ROWS):
            (path / row["label"]).mkdir(parents=True, exist_ok=True)
            (path / row["label"] / f"{number:02}.txt").write_text(row["text"])
    return path


@pytest.fixture
def tokenizer(tmp_path):
    return tokenizers.load(small.tokenizer_folder(tmp_path / "tokenizer"))


@pytest.mark.parametrize("name", ["a.tsv", "a.jsonl", "a.parquet", "folder"])
def test_rows_that_change_are_refused(tmp_path, tokenizer, monkeypatch, name):
    """The labels are read first, and then the rows; of a folder, one of its files changes."""
    path, output = write(tmp_path / name), tmp_path / "made" / "out"
    changing = path / "no" / "30.txt" if path.is_dir() else path

    def run():
        shutil.rmtree(output.parent, ignore_errors=True)
        builder.build(TASK, {"train": path}, tokenizer, output, 16, report=len)

    refused = list(changed_files.refusals(monkeypatch, changing, run))
    assert refused == list(changed_files.CHANGES)
    assert not list(output.parent.glob("*"))


def test_a_file_that_is_new_in_a_folder_is_refused(tmp_path, tokenizer, monkeypatch):
    path = write(tmp_path / "folder")
    read = tables.folder_records

    def growing(*given):
        yield from read(*given)
        (path / "no" / "99.txt").write_text("ba")

    monkeypatch.setattr(tables, "folder_records", growing)
    with pytest.raises(UserError, match=r"99\.txt was added while the input was read: leave the"):
        builder.build(TASK, {"train": path}, tokenizer, tmp_path / "out", 16, report=len)


@pytest.mark.parametrize("name", ["documents.tsv", "train.run"])
def test_files_of_a_ranking_that_change_are_refused(tmp_path, monkeypatch, name):
    folder = test_ranking.write(tmp_path / "in")
    output = tmp_path / "out"

    def run():
        shutil.rmtree(output, ignore_errors=True)
        test_ranking.build(folder, output)

    list(changed_files.refusals(monkeypatch, folder / name, run))
    assert not output.exists()


def test_a_collection_that_changes_is_refused(tmp_path, monkeypatch):
    """The queries of a folder of BEIR are read for each split."""
    folder = tmp_path / "in"
    (folder / "qrels").mkdir(parents=True)
    for name, letter, texts in (("corpus", "d", small.WORDS), ("queries", "q", small.WORDS[:9])):
        rows = [{"_id": f"{letter}{i}", "text": text} for i, text in enumerate(texts)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for split, numbers in (("train", range(5)), ("test", range(5, 9))):
        judged = "".join(f"q{i}\td{i}\t1\n" for i in numbers)
        (folder / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")

    def run():
        build_ranking_data.read("beir", folder)

    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        refused = list(changed_files.refusals(monkeypatch, folder / name, run))
        assert refused == list(changed_files.CHANGES)
