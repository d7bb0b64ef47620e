"""Tests of tfrecords_tools.text.documents."""

import gzip
import itertools
import json
import tracemalloc

import numpy as np
import pytest

from official.utils.errors import UserError
from tfrecords_tools.text import documents


def _write(path, content: str | bytes):
    content = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def _read(*paths, **options):
    tally = documents.Tally()
    return list(documents.read(paths, tally=tally, **options)), tally


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_text_documents(tmp_path, name):
    path = _write(tmp_path / name, "\n\nOne.\n Two. \r\n\n \t\n  Three.\t\n\n\nFour.\n")
    actual, tally = _read(path)
    assert actual == [
        (["One.", "\n Two."], path, 3, 8, False),
        (["Three."], path, 7, 6, False),
        (["Four."], path, 10, 5, False),
    ]
    assert (tally.documents, tally.bytes_read, tally.skipped) == (3, path.stat().st_size, {})


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_json_documents(tmp_path, name):
    rows = [{"text": "\n One.\n \n\nTwo.\n"}, {"text": "", "id": 1}, {"text": " \x00\n"}]
    path = _write(tmp_path / name, "\n".join(map(json.dumps, [*rows, {"text": "é"}])) + "\n\n")
    actual, tally = _read(path)
    assert actual == [(["One.", "\n \n\nTwo."], path, 1, 8, False), (["é"], path, 4, 1, False)]
    assert tally.skipped == {"empty documents": 2}


def test_documents_do_not_cross_files(tmp_path):
    first, second = _write(tmp_path / "1.txt", "a"), _write(tmp_path / "2.txt", "b\n")
    actual, tally = _read(first, second)
    assert [document.sentences for document in actual] == [["a"], ["b"]]
    assert tally.bytes_read == 3


def test_control_characters(tmp_path):
    """The text has them; they are gone for tokenizers that do not keep white space."""
    text = "nu\0l\x07 form\x0cfeed tab\tbed\x7f\u0085x"
    path = _write(tmp_path / "a", f"\ufeff{text}\n\0\0\n\n\0\n")
    ((sentences, _, _, characters, _),), tally = _read(path)
    assert sentences == [text, "\n\0\0"]
    assert documents.cleaned(sentences) == ["nul form feed tab bed x"] and characters == 23
    assert tally.skipped == {"empty documents": 1}


def test_slices_begin_where_words_of_gpt2_do(tmp_path):
    """U+001C to U+001F are white space for Python, and none for Unicode and GPT-2."""
    path = _write(tmp_path / "a", "\x1cone\x1f \n\u2003\x1etwo\x1c\u3000\n\x1d\x1d\nthree")
    actual, _ = _read(path)
    assert [document.sentences for document in actual] == [
        ["\x1cone\x1f", " \n\u2003\x1etwo\x1c"], ["three"]
    ]  # fmt: skip
    assert documents.cleaned(actual[0].sentences) == ["one", "two"]
    blank = [c for c in map(chr, range(0x110000)) if c.isspace() and c not in "\x1c\x1d\x1e\x1f"]
    assert sorted(documents.WHITE_SPACE) == blank


def _text(rng):
    """Lines of odd pieces, in documents with a line in each that is not blank."""
    parts = [
        "Foo.",
        " ",
        "\t",
        "\x00",
        "\x1c",
        "\x85",
        "\xa0",
        "\u2003",
        "é",
        "😀",
        "\r",
        "\x0c",
        "",
    ]
    line = lambda: "".join(rng.choice(parts, rng.integers(0, 9)))  # noqa: E731
    lines = lambda: [f"{line()}x{line()}" for _ in range(rng.integers(1, 6))]  # noqa: E731
    return ["\n".join(lines()) for _ in range(200)]


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.txt.gz", "a.jsonl.gz"])
def test_slices_are_the_text(tmp_path, name, monkeypatch):
    texts = _text(np.random.default_rng(0))
    content = "\n \n".join(texts)
    if "jsonl" in name:
        texts = [text.replace("x", "x\n \n") for text in texts]
        content = "\n".join(json.dumps({"text": text}) for text in texts)
    path = _write(tmp_path / name, content)
    expected = [text.strip(documents.WHITE_SPACE) for text in texts]
    actual, _ = _read(path)
    assert ["".join(document.sentences) for document in actual] == expected
    monkeypatch.setattr(documents, "MAX_PART_CHARACTERS", 10)
    parts, tally = _read(path)
    joined = []
    for part in parts:
        joined[len(joined) - part.continues :] = [
            (joined[-1] if part.continues else "") + "".join(part.sentences)
        ]
    assert joined == expected and tally.documents == len(texts)
    assert tally.long == sum(a.continues < b.continues for a, b in itertools.pairwise(parts)) > 50
    for document in actual + parts:
        assert document.characters == sum(map(len, documents.cleaned(document.sentences)))
        for number, text in enumerate(document.sentences):
            assert text[-1] not in documents.WHITE_SPACE
            begins = number or document.continues
            assert (text[0] in documents.WHITE_SPACE) == bool(begins)


def test_bytes_that_are_not_utf8(tmp_path):
    path = _write(tmp_path / "a.txt", b"one\ntw\xf6\n\nthree\n")
    with pytest.raises(UserError, match=r"a\.txt:2: not UTF-8 \(byte 0xf6 at column 3\).*--on_bad"):
        _read(path)
    actual, tally = _read(path, on_bad_utf8="skip")
    assert [document.sentences for document in actual] == [["one"], ["three"]]
    assert tally.skipped == {"lines not UTF-8": 1}


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
@pytest.mark.parametrize("end", ["\n", "\nlast", "\nlast\n", ""])
@pytest.mark.parametrize("longer", [-1, 0, 1, 2])
def test_a_line_of_about_the_limit_is_left_out_alone(tmp_path, monkeypatch, name, end, longer):
    monkeypatch.setattr(documents, "MAX_LINE_BYTES", 20)
    line = "é" * 9 + "xy" + "z" * longer if longer >= 0 else "é" * 9 + "x"
    assert len(line.encode()) == 20 + longer
    path = _write(tmp_path / name, f"first\n{line}{end}")
    actual, tally = _read(path, on_long_line="skip")
    expected = ["first", *([f"\n{line}"] if longer <= 0 else []), *["\nlast"] * ("last" in end)]
    assert [document.sentences for document in actual] == [expected]
    assert tally.skipped == ({"lines too long": 1} if longer > 0 else {})
    if longer > 0:
        with pytest.raises(UserError, match=rf"{name}:2: the line has more than 0 MiB: break"):
            _read(path)


def test_lone_surrogate_in_json(tmp_path):
    path = _write(tmp_path / "a.jsonl", '{"text": "ok"}\n{"text": "x\\ud83d"}\n')
    with pytest.raises(UserError, match=r"a\.jsonl:2: not UTF-8 \(lone surrogate \\ud83d"):
        _read(path)
    actual, tally = _read(path, on_bad_utf8="skip")
    assert len(actual) == 1 and tally.skipped == {"lines not UTF-8": 1}


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
        actual, tally = _read(path, on_long_line="skip")
        assert tracemalloc.get_traced_memory()[1] < 5 * documents.MAX_LINE_BYTES
    finally:
        tracemalloc.stop()
    assert "last" in actual[-1].sentences[-1]
    assert tally.skipped == {"lines too long": 1}


def test_a_document_without_end_comes_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "MAX_PART_CHARACTERS", 10)
    text = "\n".join(f"line {i}" for i in range(7))
    actual, tally = _read(_write(tmp_path / "a.txt", f"{text}\n\0\n\nnext\n"))
    assert [(len(part.sentences), part.line, part.continues) for part in actual] == [
        (2, 1, False), (2, 3, True), (2, 5, True), (2, 7, True), (1, 10, False)
    ]  # fmt: skip
    assert (tally.documents, tally.long) == (2, 1)
    actual, tally = _read(_write(tmp_path / "a.jsonl", json.dumps({"text": text})))
    assert [len(document.sentences) for document in actual] == [2, 2, 2, 1]
    assert (tally.documents, tally.long) == (1, 1)


def test_parts_are_bounded_where_nothing_counts(tmp_path, monkeypatch):
    """Lines of control characters alone, and much white space."""
    monkeypatch.setattr(documents, "MAX_LINE_BYTES", 40)
    actual, tally = _read(_write(tmp_path / "a.txt", "x\n" + "\0\n" * 100 + f"y{' ' * 30}\n" * 9))
    assert max(sum(map(len, part.sentences)) for part in actual) < 40 + 2 * 40
    assert (tally.documents, tally.long) == (1, 1) and len(actual) > 5


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
