import gzip
import io

import numpy as np
import pytest

from official.tasks import trec
from official.utils.errors import UserError


def test_qrels_and_runs_go_in_and_out(tmp_path):
    path = tmp_path / "qrels"
    path.write_bytes(b"\xef\xbb\xbf1 0 d1 2\r\n1\t0\td2  -1\n\nq\xc3\xa9 0 d1 0\n")
    qrels = trec.read_qrels(path)
    assert qrels == {"1": {"d1": 2, "d2": -1}, "qé": {"d1": 0}}
    out = io.StringIO()
    trec.write_qrels(out, qrels)
    assert out.getvalue() == "1 0 d1 2\n1 0 d2 -1\nqé 0 d1 0\n"

    path = tmp_path / "run.gz"
    path.write_bytes(gzip.compress(b"1 Q0 d1 7 0.25 a\n1 Q0 d2 1 3e-1 a\n2 Q0 d1 1 -1 b\n"))
    run = trec.read_run(path)
    assert run == {"1": {"d1": 0.25, "d2": 0.3}, "2": {"d1": -1.0}}
    out = io.StringIO()
    trec.write_run(out, run, "my run")
    assert out.getvalue().splitlines() == [
        "1 Q0 d2 1 0.3 my_run",
        "1 Q0 d1 2 0.25 my_run",
        "2 Q0 d1 1 -1.0 my_run",
    ]
    out = io.StringIO()
    trec.write_run(out, run, " ", top=1)
    assert out.getvalue() == "1 Q0 d2 1 0.3 run\n2 Q0 d1 1 -1.0 run\n"


def test_order_is_by_score_then_by_id_from_the_greatest():
    scores = {"a": 1.0, "c": 2.0, "b": 1.0 + 1e-12, "é": 1.0, "z": 1.0}
    # 1 + 1e-12 is 1 as float32.
    assert [d for d, _ in trec.ordered(scores)] == ["c", "é", "z", "b", "a"]
    assert trec.ordered({"a": np.float32(0.5), "b": np.float32(0.75)})[0][0] == "b"


def test_runs_join_by_ranks():
    """By hand: 1 / (60 + rank), summed; scores of any size count by their order alone."""
    words = {"1": {"a": 9.0, "b": 7.0, "c": 7.0}, "2": {"a": 0.5}}  # of equal ones c is second
    vectors = {"1": {"b": -0.1, "d": -0.2, "a": -0.3}, "3": {"x": 1.0}}
    assert trec.fused([words, vectors]) == {
        "1": {"a": 1 / 61 + 1 / 63, "c": 1 / 62, "b": 1 / 63 + 1 / 61, "d": 1 / 62},
        "2": {"a": 1 / 61},
        "3": {"x": 1 / 61},
    }
    # Documents with equal sums have the order of every run.
    found = trec.fused([words, vectors])["1"]
    assert [name for name, _ in trec.ordered(found)] == ["b", "a", "d", "c"]
    assert trec.fused([words]) == {"1": {"a": 1 / 61, "c": 1 / 62, "b": 1 / 63}, "2": {"a": 1 / 61}}


FAULTS = [
    (trec.read_qrels, b"1 0 d1", "wrong number of columns", "3 columns, expected 4"),
    (trec.read_qrels, b"1", "wrong number of columns", "1 column, expected 4"),
    (trec.read_qrels, b"1 0 d1 high", "grade not a whole number", "grade 'high' is not a whole"),
    (trec.read_qrels, b"1 0 d1 1.5", "grade not a whole number", "grade '1.5'"),
    (
        trec.read_qrels,
        b"1 0 d1 1\n1 0 d1 2",
        "judged twice",
        "'d1' is judged twice for '1'",
    ),
    (trec.read_qrels, b"1 0 d9 1", "unknown document", "there is no document 'd9'"),
    (trec.read_qrels, b"9 0 d1 1", "unknown query", "there is no query '9'"),
    (trec.read_qrels, b"1 0 d\xff 1", "not UTF-8", "not UTF-8: convert the file"),
    (trec.read_run, b"1 0 d1 1", "wrong number of columns", "4 columns, expected 6"),
    (trec.read_run, b"1 Q0 d1 1 nan x", "score not a number", "score 'nan' is not a number"),
    (trec.read_run, b"1 Q0 d1 1 x x", "score not a number", "score 'x' is not a number"),
    (trec.read_run, b"1 Q0 d1 1 2 x\n1 Q0 d1 2 1 x", "found twice", "'d1' is listed twice for '1'"),
    (trec.read_run, b"1 Q0 d9 1 2 x", "unknown document", "there is no document 'd9'"),
    (trec.read_run, b"9 Q0 d1 1 2 x", "unknown query", "there is no query '9'"),
]


@pytest.mark.parametrize("read, text, reason, message", FAULTS)
def test_faults_name_file_and_line_or_are_counted(tmp_path, read, text, reason, message):
    path = tmp_path / "file"
    good = b"2 0 d2 1\n" if read is trec.read_qrels else b"2 Q0 d2 1 0.5 x\n"
    path.write_bytes(good + text + b"\n")
    known = {"queries": {"1", "2"}, "documents": {"d1", "d2"}}
    line = 2 + text.count(b"\n")
    with pytest.raises(UserError) as error:
        read(path, **known)
    assert str(error.value).startswith(f"{path}, line {line}: ")
    assert message in str(error.value)
    told = []
    actual = read(path, **known, bad=lambda *words: told.append(words[0]))
    assert told == [reason]
    assert actual["2"] == {"d2": 1 if read is trec.read_qrels else 0.5}


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(UserError, match="there is no file .*none"):
        trec.read_run(tmp_path / "none")
    with pytest.raises(UserError, match="is a folder, not a file"):
        trec.read_run(tmp_path)
    (tmp_path / "empty").write_text("\n \n")
    with pytest.raises(UserError, match="empty is empty: it has no lines"):
        trec.read_qrels(tmp_path / "empty")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"1 0 d1 1\n")[:-9])
    with pytest.raises(UserError, match="cut.gz is damaged: it cannot be decompressed"):
        trec.read_qrels(tmp_path / "cut.gz")


def test_ids_have_no_blanks():
    assert trec.check_id(" d1\n") == "d1"
    for text in ("", " ", "d 1", "d\t1"):
        with pytest.raises(ValueError, match="cannot be an id: it is empty or has a blank in it"):
            trec.check_id(text)
