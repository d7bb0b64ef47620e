"""Folders of BEIR: what is read, what is written, and their errors."""

import json

import pytest

from official.tasks import beir, text_files
from official.utils.errors import UserError

CORPUS = [("d1", "A title", "a text"), ("d2", "", "two"), ("q1", "", "a query")]
QUERIES = {"q1": "a query", "q2": "why ?", "q3": "who ?"}
NAMES = "query-id\tcorpus-id\tscore\n"


@pytest.fixture
def folder(tmp_path):
    lines = [json.dumps({"_id": i, "title": title, "text": t}) for i, title, t in CORPUS]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    lines = [json.dumps({"_id": i, "text": text, "metadata": {}}) for i, text in QUERIES.items()]
    (tmp_path / "queries.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "qrels").mkdir()
    judgments = "q1\td1\t2\nq1\tgone\t1\nq2\td1\t0\nq9\td1\t1\nq9\td2\t1\n"
    (tmp_path / "qrels" / "test.tsv").write_text(NAMES + judgments)
    (tmp_path / "qrels" / "dev.tsv").write_text(NAMES + "q3\td2\t1\n")
    return tmp_path


def test_the_judged_queries_of_a_split(folder):
    judged = beir.read(folder)
    assert judged.queries == {"q1": "a query", "q2": "why ?"}
    assert judged.qrels == {"q1": {"d1": 2, "gone": 1}, "q2": {"d1": 0}}
    assert (judged.unjudged, judged.left_out) == (1, 2)
    documents = dict(text_files.unique(judged.documents))
    assert documents == {"d1": "A title a text", "d2": "two", "q1": "a query"}
    assert judged.unknown(documents) == 1
    assert beir.read(folder, "validation").qrels == beir.read(folder, "dev").qrels
    assert beir.read(folder, "dev").queries == {"q3": "who ?"}


def test_a_run_without_the_queries_themselves():
    run = {"q1": {"q1": 3.0, "d1": 2.0}, "q2": {"q1": 1.0}}
    assert beir.without_own(run) == {"q1": {"d1": 2.0}, "q2": {"q1": 1.0}}


def test_what_is_written_is_read(folder, tmp_path):
    documents = dict(text_files.unique(folder / "corpus.jsonl"))
    qrels = {"validation": {"q1": {"d1": 1, "d2": 0}}, "test": {"q2": {"d2": 3}}}
    beir.write(tmp_path / "new", {**QUERIES, "q4": "é"}, documents.items(), qrels)
    assert dict(text_files.unique(tmp_path / "new" / "corpus.jsonl")) == documents
    assert beir.read(tmp_path / "new", "dev").qrels == qrels["validation"]
    assert beir.read(tmp_path / "new").qrels == qrels["test"]
    assert beir.read(tmp_path / "new").unjudged == 3
    first = json.loads((tmp_path / "new" / "corpus.jsonl").read_text().splitlines()[0])
    assert first == {"_id": "d1", "title": "", "text": "A title a text"}
    assert '"é"' in (tmp_path / "new" / "queries.jsonl").read_text()
    with pytest.raises(UserError, match="new is there already"):
        beir.write(tmp_path / "new", QUERIES, documents.items(), qrels)


@pytest.mark.parametrize(
    "content, message",
    [
        ("q1\td1\t1\n", "line 1: expected the names query-id corpus-id score, separated by tabs"),
        (NAMES + "q1 d1 1\n", "line 2: expected a judgment of query-id corpus-id score"),
        (NAMES + "q1\td1\tyes\n", "line 2: .*expected ids without blanks and a whole number"),
        (NAMES + "q1\td 1\t1\n", "line 2: .*expected ids without blanks and a whole number"),
        (NAMES + "q1\td1\t1\nq1\td1\t2\n", "line 3: document 'd1' is judged twice for 'q1'"),
        (NAMES + "q9\td1\t1\n", "judges none of the 3 queries of "),
        (NAMES, "judges none of the 3 queries of "),
    ],
)
def test_judgments_that_are_not_valid(folder, content, message):
    (folder / "qrels" / "test.tsv").write_text(content)
    with pytest.raises(UserError, match=message):
        beir.read(folder)


def test_folders_that_are_not_complete(folder):
    with pytest.raises(UserError, match=r"train.tsv is missing: the splits of .* 'dev', 'test'"):
        beir.read(folder, "train")
    with (folder / "queries.jsonl").open("a") as stream:
        stream.write('{"_id": "q1", "text": "again"}\n')
    with pytest.raises(UserError, match="queries.jsonl: the id 'q1' occurs twice"):
        beir.read(folder)
    (folder / "corpus.jsonl").unlink()
    with pytest.raises(UserError, match="corpus.jsonl is missing: a folder of BEIR has corpus.js"):
        beir.read(folder)
