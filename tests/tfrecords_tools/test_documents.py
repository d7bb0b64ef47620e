"""Tests of tfrecords_tools.documents."""

import gzip
import json
import tracemalloc

import pytest

from official.errors import UserError
from tfrecords_tools import documents


def _write(path, content: str | bytes):
    content = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def _read(*paths, **options):
    tally = documents.Tally()
    return list(documents.read(paths, tally=tally, **options)), tally


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_text_documents(tmp_path, name):
    path = _write(tmp_path / name, "\n\nOne.\n Two. \r\n\n \t\nThree.\nFour.")
    found, tally = _read(path)
    assert found == [(["One.", "Two."], path, 3), (["Three.", "Four."], path, 7)]
    assert (tally.documents, tally.bytes_read, tally.skipped) == (2, path.stat().st_size, {})


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_json_documents(tmp_path, name):
    rows = [{"text": "One.\n\nTwo."}, {"text": "", "id": 1}, {"text": " \x00\n"}, {"text": "é"}]
    path = _write(tmp_path / name, "\n".join(map(json.dumps, rows)) + "\n\n")
    found, tally = _read(path)
    assert found == [(["One.", "Two."], path, 1), (["é"], path, 4)]
    assert tally.skipped == {"empty documents": 2}


def test_documents_do_not_cross_files(tmp_path):
    first, second = _write(tmp_path / "1.txt", "a"), _write(tmp_path / "2.txt", "b\n")
    found, tally = _read(first, second)
    assert [document.sentences for document in found] == [["a"], ["b"]]
    assert tally.bytes_read == 3


def test_control_characters(tmp_path):
    path = _write(tmp_path / "a", "\ufeffnu\0l\x07 form\x0cfeed tab\tbed\x7f\u0085x\n\0\0\n\n\0\n")
    found, tally = _read(path)
    assert [document.sentences for document in found] == [["nul form feed tab bed x"]]
    assert tally.skipped == {"empty documents": 1}


def test_bytes_that_are_not_utf8(tmp_path):
    path = _write(tmp_path / "a.txt", b"one\ntw\xf6\n\nthree\n")
    with pytest.raises(UserError, match=r"a\.txt:2: not UTF-8 \(byte 0xf6 at column 3\).*--on_bad"):
        _read(path)
    found, tally = _read(path, on_bad_utf8="skip")
    assert [document.sentences for document in found] == [["one"], ["three"]]
    assert tally.skipped == {"lines not UTF-8": 1}


def test_lone_surrogate_in_json(tmp_path):
    path = _write(tmp_path / "a.jsonl", '{"text": "ok"}\n{"text": "x\\ud83d"}\n')
    with pytest.raises(UserError, match=r"a\.jsonl:2: not UTF-8 \(lone surrogate \\ud83d"):
        _read(path)
    found, tally = _read(path, on_bad_utf8="skip")
    assert len(found) == 1 and tally.skipped == {"lines not UTF-8": 1}


@pytest.mark.parametrize("name", ["long.txt", "long.txt.gz", "long.jsonl"])
def test_line_of_100_megabytes(tmp_path, name):
    path = tmp_path / name
    with gzip.open(path, "wb", 1) if name.endswith(".gz") else open(path, "wb") as file:
        file.write(b'{"text": "first"}\n')
        for _ in range(100):
            file.write(b"x" * (1 << 20))
        file.write(b'\n{"text": "last"}\n')
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=rf"{name}:2: the line has more than 16 MiB: break"):
            _read(path)
        found, tally = _read(path, on_long_line="skip")
        assert tracemalloc.get_traced_memory()[1] < 5 * documents.MAX_LINE_BYTES
    finally:
        tracemalloc.stop()
    assert "last" in found[-1].sentences[-1]
    assert tally.skipped == {"lines too long": 1}


def test_document_without_end_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "MAX_DOCUMENT_CHARACTERS", 10)
    text = "\n".join(f"line {i}" for i in range(7))
    found, tally = _read(_write(tmp_path / "a.txt", text))
    assert [(len(document.sentences), document.line) for document in found] == [
        (2, 1), (2, 3), (2, 5), (1, 7)
    ]  # fmt: skip
    assert (tally.documents, tally.cut) == (4, 3)
    found, tally = _read(_write(tmp_path / "a.jsonl", json.dumps({"text": text})))
    assert [len(document.sentences) for document in found] == [2, 2, 2, 1]
    assert (tally.documents, tally.cut) == (4, 3)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"a\.jsonl:2: not a JSON object \(.*one object a line"),
        ("[" * 100_000, r"a\.jsonl:2: not a JSON object"),
        ("[1]", r"a\.jsonl:2: no `text` field that is a string; it has: list"),
        ('{"txt": "a", "id": 3}', r"a\.jsonl:2: no `text` field.*it has: 'txt', 'id'"),
        ('{"text": 5}', r"a\.jsonl:2: no `text` field.*it has: 'text'"),
    ],
)
def test_bad_json(tmp_path, line, message):
    path = _write(tmp_path / "a.jsonl", '{"text": "a"}\n' + line)
    with pytest.raises(UserError, match=message):
        _read(path)


def test_damaged_gzip(tmp_path):
    path = _write(tmp_path / "a.txt.gz", "one\ntwo\n")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UserError, match=r"a\.txt\.gz: cannot be read past line .*damaged or cut"):
        _read(path)
    path.write_bytes(b"plain text\n")
    with pytest.raises(UserError, match=r"a\.txt\.gz: cannot be read past line 0"):
        _read(path)


def test_expand(tmp_path):
    for name in ("b.txt", "a.txt", "c.jsonl", "sub/d.txt", "odd[1].txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        _write(tmp_path / name, "x")
    names = lambda globs: [path.name for path in documents.expand(globs)]  # noqa: E731
    assert names(f"{tmp_path}/?.txt, {tmp_path}/c.jsonl") == ["a.txt", "b.txt", "c.jsonl"]
    assert names([f"{tmp_path}/b.txt", f"{tmp_path}/?.txt"]) == ["b.txt", "a.txt"]
    assert names(f"{tmp_path}/**/d.txt") == ["d.txt"]
    assert names(f"{tmp_path}/odd[1].txt") == ["odd[1].txt"]


def test_expand_errors(tmp_path):
    with pytest.raises(UserError, match=r"no file matches '.*/\*\.txt': check the pattern"):
        documents.expand(f"{tmp_path}/*.txt")
    with pytest.raises(UserError, match=r"missing\.txt: no such file"):
        documents.expand([f"{tmp_path}/missing.txt"])
    with pytest.raises(UserError, match=r"is a folder: name the files in it"):
        documents.expand([str(tmp_path)])
    with pytest.raises(UserError, match="no input files named"):
        documents.expand(" , ")
    _write(tmp_path / "empty.txt", "")
    with pytest.raises(UserError, match=r"the input is empty: .*empty\.txt hold no bytes"):
        documents.expand(f"{tmp_path}/*.txt")
    _write(tmp_path / "a.txt.xz", "x")
    with pytest.raises(UserError, match=r"a\.txt\.xz: cannot read this format: unpack"):
        documents.expand(f"{tmp_path}/*.xz")
