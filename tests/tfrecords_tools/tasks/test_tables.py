import datetime
import decimal
import gzip
import json

import pyarrow
import pytest
from pyarrow import parquet

from official.utils.errors import UserError
from tfrecords_tools.tasks import tables
from tfrecords_tools.tasks.tables import BadRows, Row


def _file(folder, name, content):
    path = folder / name
    data = content if isinstance(content, bytes) else content.encode("utf-8")
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def _error(path, columns, **options):
    with pytest.raises(UserError) as error:
        list(tables.read(path, columns, **options))
    return str(error.value)


def test_tsv_keeps_quotation_marks_and_drops_the_byte_order_mark(tmp_path):
    path = _file(
        tmp_path,
        "a.tsv",
        '\ufeffQuality\t#1 String\t#2 String\n1\t" He said\tsaid "" he\n0\t"\ta, b\u2028c\n',
    )
    assert list(tables.read(path, ["#1 String", "#2 String", "Quality"])) == [
        Row(0, 2, ('" He said', 'said "" he', "1")),
        Row(1, 3, ('"', "a, b\u2028c", "0")),
    ]


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz", "a.txt"])
def test_line_ends_blank_lines_and_a_last_line_without_an_end(tmp_path, name):
    path = _file(tmp_path, name, "text\tlabel\r\na\t1\r\n\r\n\tb\r\nc\t2")
    assert list(tables.read(path, ["text", "label"])) == [
        Row(0, 2, ("a", "1")),
        Row(1, 4, ("", "b")),
        Row(2, 5, ("c", "2")),
    ]


def test_columns_by_index(tmp_path):
    path = _file(tmp_path, "a.tsv", "gj04\t1\t\tA sailor.\ngj04\t0\t*\tSailor a.\n")
    assert [r.cells for r in tables.read(path, ["3", "1"], header=False)] == [
        ("A sailor.", "1"),
        ("Sailor a.", "0"),
    ]
    # A header's own "1" goes before the index 1.
    path = _file(tmp_path, "b.tsv", "1\t0\nx\ty\n")
    assert [r.cells for r in tables.read(path, ["1"])] == [("x",)]


def test_csv_quoting_and_lines_of_rows_that_run_over_several(tmp_path):
    path = _file(
        tmp_path, "a.csv", '\ufefftext,label\n"a, ""b""\nc",1\nd\'s,0\n\n"",\u00e9\n'.encode()
    )
    assert list(tables.read(path, ["text", "label"])) == [
        Row(0, 2, ('a, "b"\nc', "1")),
        Row(1, 4, ("d's", "0")),
        Row(2, 6, ("", "\u00e9")),
    ]


def test_json_lines(tmp_path):
    path = _file(
        tmp_path,
        "a.jsonl",
        '{"text": "a\\tb", "label": 1, "other": [1]}\n\n{"label": true, "text": "\\ud83d\\ude00"}\n'
        '{"label": 2.5, "text": "half \\ud83d"}\n',
    )
    assert list(tables.read(path, ["text", "label"])) == [
        Row(0, 1, ("a\tb", "1")),
        Row(1, 3, ("\U0001f600", "true")),
        Row(2, 4, ("half \ufffd", "2.5")),
    ]


def test_a_folder_of_texts_for_each_label(tmp_path):
    for name, content in {
        "pos/1_9.txt": "\ufeffgood\n\nfilm\n", "pos/0_7.txt": "fine", "neg/0_2.txt": "bad",
        "unsup/0_0.txt": "what",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "labeledBow.feat").write_text("")
    rows = [
        Row(0, "neg/0_2.txt", ("bad", "neg")),
        Row(1, "pos/0_7.txt", ("fine", "pos")),
        Row(2, "pos/1_9.txt", ("good\n\nfilm", "pos")),
    ]
    assert list(tables.read(tmp_path, ["text", "label"], labels=["neg", "pos"])) == rows
    every = list(tables.read(tmp_path, ["text", "label"]))
    assert every == [*rows, Row(3, "unsup/0_0.txt", ("what", "unsup"))]
    assert _error(tmp_path, ["text"], labels=["good"]) == (
        f"{tmp_path} has no folder 'good', the texts of that label: it has neg, pos, unsup"
    )
    assert _error(tmp_path, ["rating"]) == (
        f"{tmp_path} has no column 'rating': its columns are 'label', 'text'"
    )
    (tmp_path / "pos" / "0_7.txt").write_bytes(b"caf\xe9")
    assert f"{tmp_path}/pos/0_7.txt: not UTF-8: convert the file" in _error(tmp_path, ["text"])
    bad = BadRows(skip=True)
    actual = list(tables.read(tmp_path, ["text"], bad=bad))
    assert [row.number for row in actual] == [0, 2, 3] and dict(bad.counts) == {"not UTF-8": 1}


def test_questions_of_trec(tmp_path):
    path = _file(
        tmp_path,
        "a.label",
        b"DESC:manner How did it go ?\nLOC:city What is the sister\xf0city of L.A. : tell\n",
    )
    assert list(tables.read(path, ["text", "label", "fine_label"])) == [
        Row(0, 1, ("How did it go ?", "DESC", "DESC:manner")),
        Row(1, 2, ("What is the sister city of L.A. : tell", "LOC", "LOC:city")),
    ]
    path = _file(tmp_path, "b.label", "DESC:manner How did it go ?\nHow did it go ?\n")
    assert _error(path, ["text"]) == (
        f"{path}, line 2: expected COARSE:fine and a question, such as 'NUM:date When did ...'; "
        "--skip_bad_rows leaves such rows out"
    )
    bad = BadRows(skip=True)
    assert [row.number for row in tables.read(path, ["text"], bad=bad)] == [0]
    assert dict(bad.counts) == {"no labeled question": 1}


def test_optional_columns(tmp_path):
    tsv = _file(tmp_path, "a.tsv", "index\ttext\n0\ta\n")
    assert list(tables.read(tsv, ["text"], "label", optional=True)) == [Row(0, 2, ("a",), None)]
    jsonl = _file(tmp_path, "a.jsonl", '{"text": "a"}\n{"text": "b", "label": null}\n')
    assert list(tables.read(jsonl, ["text"], "label", optional=True)) == [
        Row(0, 1, ("a",), None),
        Row(1, 2, ("b",), None),
    ]
    mixed = _file(tmp_path, "b.jsonl", '{"text": "a"}\n{"text": "b", "label": 1}\n')
    assert _error(mixed, ["text"], label="label", optional=True) == (
        f"{mixed}, line 2: has 'label', which the first row lacks: give it in all rows or in none; "
        "--skip_bad_rows leaves such rows out"
    )


def test_a_very_long_line(tmp_path):
    path = _file(tmp_path, "a.csv", "text\n" + "word " * 1_000_000 + "\n")
    assert [len(r.cells[0]) for r in tables.read(path, ["text"])] == [5_000_000]


@pytest.mark.parametrize(
    "name, content, message",
    [
        (
            "a.tsv",
            "sentence\tlabel\nx\t1\n",
            "{path} has no column 'text': its columns are 'sentence', 'label'",
        ),
        (
            "b.tsv",
            "Text\tlabel\nx\t1\n",
            "{path} has no column 'text' (did you mean 'Text'?): its columns are 'Text', 'label'",
        ),
        ("c.tsv", "text\ttext\nx\t1\n", "{path} has 2 columns named 'text'"),
        (
            "d.tsv",
            "text\tlabel\nx\t1\n\nx y\n",
            "{path}, line 4: 1 column where the header has 2",
        ),
        (
            "d.csv",
            'text,label\nx,1\n"a\nb",2\nx,y,1\n',
            "{path}, line 5: 3 columns where the header has 2",
        ),
        ("e.tsv", b"text\nok\n\xff\n", "{path}, line 3: not UTF-8: convert the file"),
        ("e.csv", b'text\nok\n"a\nb\xe9"\n', "{path}, line 4: not UTF-8: convert the file"),
        ("f.tsv", b"text\xff\nok\n", "{path}, line 1: the header is not UTF-8"),
        ("g.tsv", "", "{path} is empty: it has no rows"),
        ("h.tsv", "text\n\n", "{path} is empty: it has no rows"),
        ("i.jsonl", "\n", "{path} is empty: it has no rows"),
        (
            "j.csv",
            'text\na\n"b\nc\n',
            "{path}, line 3: not CSV from here on (unexpected end of data); is a quotation mark "
            "left open, or the file really TSV (--format=tsv)?",
        ),
        ("k.jsonl", '{"text": "a"}\n{"text"\n', "{path}, line 2: not JSON ("),
        ("l.jsonl", '["a"]\n', "{path}, line 1: every line is to be a JSON object"),
        (
            "m.jsonl",
            '{"text": "a"}\n{"txt": "b", "n": 1}\n',
            "{path}, line 2: no 'text' (did you mean 'txt'?): its keys are 'txt', 'n'",
        ),
        (
            "n.jsonl",
            '{"text": ["a"]}\n',
            "{path}, line 1: 'text' is a list, not a text or a number",
        ),
        ("o.jsonl", b'{"text": "a"}\n{"text": "\xe9"}\n', "{path}, line 2: not UTF-8"),
        (
            "p.dat",
            "text\nx\n",
            "{path}: cannot tell the format from the name: set --format=tsv, --format=csv or "
            "--format=jsonl",
        ),
    ],
)
def test_errors(tmp_path, name, content, message):
    path = _file(tmp_path, name, content)
    assert message.format(path=path) in _error(path, ["text"])


def test_errors_of_files(tmp_path):
    path = tmp_path / "none.tsv"
    assert _error(path, ["text"]) == f"there is no file {path}"
    folder = tmp_path / "folder.tsv"
    folder.mkdir()
    message = f"{folder} is a folder, not a file"
    assert _error(folder, ["text"], format="tsv") == message
    assert _error(folder, ["text"]) == f"{message}, and has no subfolder of texts for each label"
    cut = tmp_path / "cut.tsv.gz"
    cut.write_bytes(gzip.compress(b"text\n" + bytes(range(97, 123)) * 50)[:30])
    assert f"{cut} is damaged: it cannot be decompressed" in _error(cut, ["text"])
    fake = tmp_path / "fake.tsv.gz"
    fake.write_bytes(b"text\na\n")
    assert f"{fake} is damaged: it cannot be decompressed" in _error(fake, ["text"])
    plain = _file(tmp_path, "a.tsv", "x\ty\n")
    assert _error(plain, ["2"], header=False) == (
        f"{plain} has no column '2': without a header its columns are 0 to 1"
    )


def test_skipped_rows_are_counted_and_keep_their_numbers(tmp_path):
    path = _file(tmp_path, "a.tsv", b"text\tlabel\na\t1\nb\n\xff\t0\nc\t0\n")
    bad = BadRows(skip=True)
    assert list(tables.read(path, ["text"], bad=bad)) == [Row(0, 2, ("a",)), Row(3, 5, ("c",))]
    assert dict(bad.counts) == {"wrong number of columns": 1, "not UTF-8": 1}
    assert str(bad) == "1 not UTF-8, 1 wrong number of columns"
    path = _file(tmp_path, "a.jsonl", b'{"text": "a"}\n{\n[]\n{"no": 1}\n{"text": "\xff"}\n')
    bad = BadRows(skip=True)
    assert list(tables.read(path, ["text"], bad=bad)) == [Row(0, 1, ("a",))]
    assert dict(bad.counts) == {
        "not JSON": 1,
        "not a JSON object": 1,
        "missing key": 1,
        "not UTF-8": 1,
    }


def test_parquet_is_read_as_json_lines(tmp_path):
    rows = [
        {"a": "é\n", "b": 1, "c": ["x", "y"], "d": 0.5},
        {"a": None, "b": 2, "c": [], "d": 1.0},
        {"a": "z", "b": 3, "c": ["w"], "d": 2.0},
    ]
    path, lines = tmp_path / "t.parquet", tmp_path / "t.jsonl"
    parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=2)
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for label in (None, "d"):
        read = [
            list(tables.read(file, ["a", "c", "b"], label, bad=tables.BadRows(True), lists="|"))
            for file in (path, lines)
        ]
        assert read[0] == read[1] and len(read[0]) == 2
        assert read[0][0].cells == ("é\n", "x|y", "1") and read[0][1].number == 2
    with pytest.raises(UserError, match=f"{path}, line 2: no 'a'"):
        list(tables.read(path, ["a"]))
    with pytest.raises(UserError, match=f"{path} has no column 'e'.*: its columns are 'a', 'b'"):
        list(tables.read(path, ["b", "e"]))
    (tmp_path / "bad.parquet").write_bytes(path.read_bytes()[:-30])
    with pytest.raises(UserError, match="bad.parquet cannot be read as Parquet behind row 0"):
        list(tables.read(tmp_path / "bad.parquet", ["b"]))
    with pytest.raises(UserError, match="there is no file .*none.parquet"):
        list(tables.read(tmp_path / "none.parquet", ["b"]))


def test_bytes_and_dates_of_parquet(tmp_path):
    """Spark writes texts as bytes; a date is neither a text nor a number."""
    path = tmp_path / "t.parquet"
    day = datetime.date(2024, 1, 2)
    columns = {
        "a": pyarrow.array(["é".encode(), b"\xff", b"z"], pyarrow.binary()),
        "b": pyarrow.array([b"x", b"y", b"x"]).dictionary_encode(),
        "c": [day, day, day],
        "d": pyarrow.array([decimal.Decimal("1.5"), None, decimal.Decimal("2.0")]),
        "e": [0.5, float("nan"), 1.0],
        "answer": ["accept", "accept", "reject"],
    }
    parquet.write_table(pyarrow.table(columns), path)
    bad = BadRows(skip=True)
    assert [row.cells for row in tables.read(path, ["a", "b"], bad=bad)] == [("é", "x")]
    assert bad.counts == {"not UTF-8": 1, "marked answer=reject": 1}
    with pytest.raises(UserError, match="line 2: a binary value is not UTF-8: write texts"):
        list(tables.read(path, ["a"]))
    with pytest.raises(
        UserError, match=r"line 1: 'c' is datetime.date\(2024, 1, 2\), a date: write"
    ):
        list(tables.read(path, ["c"]))
    assert [row.label for row in tables.read(path, ["b"], "d")] == ["1.5", None]
    with pytest.raises(UserError, match="line 2: 'e' is nan, which is no number"):
        list(tables.read(path, ["b"], "e"))


def test_label_studio_tables(tmp_path):
    """JSON, JSON-MIN and CSV of one project, as label-studio-sdk 2.1.2 writes them."""
    texts = ["Ada ran.", "Nobody is here.", "Not yet done."]
    results = [["News"], ["News", "Sport"]]
    tasks = [
        {"id": i, "data": {"text": text}, "annotations": [], "predictions": []}
        for i, text in enumerate(texts)
    ]
    for task, choices in zip(tasks, results, strict=False):
        value = {"from_name": "topic", "type": "choices", "value": {"choices": choices}}
        stars = {"from_name": "stars", "type": "rating", "value": {"rating": 4}}
        task["annotations"] = [{"id": 9, "result": [value, stars], "was_cancelled": False}]
    small = [
        {"text": texts[0], "topic": "News", "stars": [{"rating": 4}], "annotation_id": 9},
        {
            "text": texts[1],
            "topic": {"choices": results[1]},
            "stars": [{"rating": 4}],
            "annotation_id": 9,
        },
        {"text": texts[2], "annotation_id": None},
    ]
    cells = ['"News","9"', '"{""choices"":[""News"",""Sport""]}","9"', '"",""']
    table = "".join(f'"{text}",{more}\n' for text, more in zip(texts, cells, strict=True))
    files = [
        _file(tmp_path, "full.json", json.dumps(tasks, indent=2)),
        _file(tmp_path, "min.json", json.dumps(small)),
        _file(tmp_path, "a.csv", "text,topic,annotation_id\n" + table),
    ]
    for path in files:
        bad = BadRows()
        rows = list(tables.read(path, ["text"], "topic", bad=bad, lists="|"))
        assert [(row.cells[0], row.label) for row in rows] == [
            (texts[0], "News"), (texts[1], "News|Sport")
        ], path  # fmt: skip
        assert bad.counts == {"without an annotation": 1}
    for path in files[:2]:
        rows = list(tables.read(path, ["text"], "stars"))
        assert [row.label for row in rows] == ["4", "4"]
    with pytest.raises(UserError, match="line 1: 'topic' is a list, not a text or a number"):
        list(tables.read(_file(tmp_path, "b.json", json.dumps(tasks[1:2])), ["text"], "topic"))
