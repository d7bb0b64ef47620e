"""Tests of tfrecords_tools.text.documents and tfrecords_tools.text.file_ranges."""

import gzip
import itertools
import json
import tracemalloc

import numpy as np
import pytest

from official.utils import input_files, packed_files
from official.utils.errors import UserError
from tfrecords_tools.text import documents, file_ranges
from tfrecords_tools.text.documents import LAST, ReadCounts
from tfrecords_tools.text.file_ranges import PlainFile

WHOLE = 1 << 30  # a range that is larger than any file here


def write(path, content: str | bytes):
    content = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def ranges_of(path, size=WHOLE, skip_long_lines=False):
    if packed_files.is_packed(path):
        return list(file_ranges.read_packed(input_files.seen(path), size, skip_long_lines))
    source = input_files.seen(path)
    file, numbers = PlainFile(source, size, skip_long_lines), range(-(-source.size // size))
    return [text_range for number in numbers if (text_range := file.read(number))]


def read(path, size=WHOLE, skip=False):
    """The documents of a file, part by part, and the counts."""
    found, read_counts = [], ReadCounts()
    for text_range in ranges_of(path, size, skip):
        parts, counts = documents.parse(text_range, 7, skip)
        found += parts
        read_counts.add(counts)
    return found, read_counts


def texts(path, **options):
    return [document.text for document in read(path, **options)[0]]


def joined(parts):
    """The text of each document, whose parts are told by their identity."""
    groups = itertools.groupby(parts, lambda part: part.identity)
    return ["".join(part.text for part in group) for _, group in groups]


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_text_documents(tmp_path, name):
    path = write(tmp_path / name, "\n\nOne.\n Two. \r\n\n \t\n  Three.\t\n\n\nFour.\n")
    parts, read_counts = read(path)
    assert [part.text for part in parts] == ["One.\n Two.", "Three.", "Four."]
    assert [part.identity for part in parts] == [(7, 0, 0), (7, 0, 1), (7, 0, 2)]
    assert not any(part.part or part.unfinished for part in parts)
    assert (read_counts.documents, read_counts.long, read_counts.skipped) == (3, 0, {})


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_json_documents(tmp_path, name):
    rows = [{"text": "\n One.\n \n\nTwo.\n"}, {"text": "", "id": 1}, {"text": " \x00\n"}]
    path = write(tmp_path / name, "\n".join(map(json.dumps, [*rows, {"text": "é"}])) + "\n\n")
    parts, read_counts = read(path)
    assert [part.text for part in parts] == ["One.\n \n\nTwo.", "é"]
    assert read_counts.skipped == {"empty documents": 2} and read_counts.documents == 2


def test_control_characters(tmp_path):
    """The text has them; they are gone for tokenizers that do not keep white space."""
    text = "nu\0l\x07 form\x0cfeed tab\tbed\x7f\u0085x"
    path = write(tmp_path / "a", f"\ufeff{text}\n\0\0\n\n\0\n")
    (part,), read_counts = read(path)
    assert part.text == f"{text}\n\0\0"
    assert documents.slices(part.text) == [text, "\n\0\0"]
    assert documents.cleaned(part.text) == ["nul form feed tab bed x"]
    assert read_counts.skipped == {"empty documents": 1} and read_counts.documents == 1


def test_slices_begin_where_words_of_gpt2_do(tmp_path):
    """U+001C to U+001F are white space for Python, and none for Unicode and GPT-2."""
    path = write(tmp_path / "a", "\x1cone\x1f \n\u2003\x1etwo\x1c\u3000\n\x1d\x1d\nthree")
    first, second = texts(path)
    assert documents.slices(first) == ["\x1cone\x1f", " \n\u2003\x1etwo\x1c"] and second == "three"
    assert documents.cleaned(first) == ["one", "two"]
    blank = [c for c in map(chr, range(0x110000)) if c.isspace() and c not in "\x1c\x1d\x1e\x1f"]
    assert sorted(documents.WHITE_SPACE) == blank


def odd_texts(rng, count=200):
    """Lines of odd parts, in documents with a line in each that is not blank."""
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
    return ["\n".join(lines()) for _ in range(count)]


@pytest.mark.parametrize("size", [WHOLE, 1000, 64, 17, 5])
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.txt.gz", "a.jsonl.gz"])
def test_ranges_of_any_size_have_the_documents(tmp_path, name, size):
    rng = np.random.default_rng(0)
    originals = odd_texts(rng)
    separators = ["\n\n", "\n \n", "\n\t\r\n\n", "\n\u2003\x1c\n", "\n\n\n\n\n\n\n\n\n"]
    content = " \n" + "".join(text + rng.choice(separators) for text in originals)
    if "jsonl" in name:
        originals = [text.replace("x", "x\n \n") for text in originals]
        content = "\n".join(json.dumps({"text": text}, ensure_ascii=False) for text in originals)
    path = write(tmp_path / name, content)
    found = ranges_of(path, size)
    if "gz" in name or "jsonl" not in name:
        assert b"".join(text_range.data for text_range in found) == content.encode()
    assert [text_range.start for text_range in found] == np.cumsum(
        [0, *(len(text_range.data) for text_range in found[:-1])]
    ).tolist()
    numbers = [text_range.number for text_range in found]
    assert numbers == sorted(set(numbers))
    parts, read_counts = read(path, size)
    expected = [text.strip(documents.WHITE_SPACE) for text in originals]
    assert joined(parts) == expected
    assert read_counts.documents == len(originals) and not read_counts.skipped
    begun = {part.identity for part in parts if not part.part}
    assert len(begun) == len(originals) == len({part.identity for part in parts})
    assert read_counts.long == sum(part.unfinished and not part.part for part in parts)
    if size != 64:
        assert (read_counts.long > 10) == (size < 64 and "jsonl" not in name)
    for part in parts:
        assert (part.identity[2] == LAST) == (part.unfinished or part.part > 0)
        lines = documents.slices(part.text)
        assert "".join(lines) == part.text
        for number, text in enumerate(lines):
            assert text[-1] not in documents.WHITE_SPACE
            assert (text[0] in documents.WHITE_SPACE) == bool(number or part.part)


def test_a_range_is_read_without_the_others(tmp_path):
    """What is before and behind a text_range and the next begin makes no difference."""
    originals = odd_texts(np.random.default_rng(1), 60)
    path = write(tmp_path / "a.txt", "\n\n".join(originals))
    data, size = path.read_bytes(), 64
    for text_range in ranges_of(path, size)[3:-3]:
        if text_range.begins_in != text_range.number or text_range.unfinished:
            continue
        other = bytearray(data)
        low = max(0, text_range.number * size - 2)
        for i in [*range(low), *range(text_range.start + len(text_range.data) + 1, len(data))]:
            other[i] = ord("?")
        path.write_bytes(bytes(other))
        again = PlainFile(input_files.seen(path), size).read(text_range.number)
        assert again.data[: len(text_range.data)] == text_range.data
    path.write_bytes(data)


def test_a_long_document_is_read_in_parts(tmp_path):
    text = "\n".join(f"line {i}" for i in range(100))
    path = write(tmp_path / "a.txt", f"first\n\n{text}\n\0\n\nnext\n")
    parts, read_counts = read(path, 100)
    first, *long, last = parts
    assert (first.text, last.text) == ("first", "next")
    assert "".join(part.text for part in long) == f"{text}\n\0"
    assert [part.part for part in long] == list(range(len(long))) and len(long) > 5
    assert [part.unfinished for part in long] == [True] * (len(long) - 1) + [False]
    assert {part.identity for part in long} == {(7, 0, LAST)}
    assert (read_counts.documents, read_counts.long) == (3, 1)


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_a_document_without_end_is_divided(tmp_path, monkeypatch, name):
    monkeypatch.setattr(file_ranges, "MAX_DOCUMENT_BYTES", 400)
    text = "\n".join(f"line {i:03}" for i in range(1000))  # 9 bytes each
    path = write(tmp_path / name, f"first\n\n{text}\n\nnext\n")
    parts, read_counts = read(path, 100)
    found = joined(parts)
    assert "\n".join(each.strip() for each in found[1:-1]) == text
    sizes = [len(each) for each in found[1:-1]]
    assert 300 <= min(sizes[:-1]) and max(sizes) < 2 * 400 + 100 and len(sizes) > 9
    assert read_counts.documents == len(found)
    for part in parts:  # Nobody looked further back.
        assert part.part * 100 < 2 * 400


def test_bytes_that_are_not_utf8(tmp_path):
    path = write(tmp_path / "a.txt", b"one\ntw\xf6\n\nthree\n")
    with pytest.raises(UserError, match=r"a\.txt:2: not UTF-8 \(byte 0xf6 at column 3\).*--on_bad"):
        read(path)
    parts, read_counts = read(path, skip=True)
    assert [part.text for part in parts] == ["one", "three"]
    assert read_counts.skipped == {"lines not UTF-8": 1}
    path = write(tmp_path / "b.txt", b"\n".join([b"fine " * 9, b""] * 40 + [b"\xff"]))
    with pytest.raises(UserError, match=r"b\.txt:81: not UTF-8"):
        read(path, 100)


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
@pytest.mark.parametrize("end", ["\n", "\nlast", "\nlast\n", ""])
@pytest.mark.parametrize("longer", [-1, 0, 1, 2])
@pytest.mark.parametrize("size", [WHOLE, 7])
def test_a_line_of_about_the_limit_is_left_out_alone(
    tmp_path, monkeypatch, name, end, longer, size
):
    monkeypatch.setattr(file_ranges, "MAX_LINE_BYTES", 20)
    line = "é" * 9 + "xy" + "z" * longer if longer >= 0 else "é" * 9 + "x"
    assert len(line.encode()) == 20 + longer
    path = write(tmp_path / name, f"first\n{line}{end}")
    parts, read_counts = read(path, size, skip=True)
    expected = ["first", *([line] if longer <= 0 else []), *["last"] * ("last" in end)]
    assert "".join(part.text for part in parts) == "\n".join(expected)
    assert read_counts.skipped == ({"lines too long": 1} if longer > 0 else {})
    if longer > 0:
        with pytest.raises(UserError, match=rf"{name}:2: the line has more than 0 MiB: break"):
            read(path, size)


def test_lone_surrogate_in_json(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text": "ok"}\n{"text": "x\\ud83d"}\n')
    with pytest.raises(UserError, match=r"a\.jsonl:2: not UTF-8 \(lone surrogate \\ud83d"):
        read(path)
    parts, read_counts = read(path, skip=True)
    assert len(parts) == 1 and read_counts.skipped == {"lines not UTF-8": 1}


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
            read(path, 1 << 20)
        parts, read_counts = read(path, 1 << 20, skip=True)
        assert tracemalloc.get_traced_memory()[1] < 5 * file_ranges.MAX_LINE_BYTES
    finally:
        tracemalloc.stop()
    assert "first" in parts[0].text and "last" in parts[-1].text
    assert read_counts.skipped == {"lines too long": 1}


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
    path = write(tmp_path / "a.jsonl", '{"text": "a"}\n' + line)
    for size in (WHOLE, 10):
        with pytest.raises(UserError, match=message):
            read(path, size)


def test_damaged_gzip(tmp_path):
    path = write(tmp_path / "a.txt.gz", "one\ntwo\n")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UserError, match=r"a\.txt\.gz: cannot be read past line .*damaged or cut"):
        read(path)
    path.write_bytes(b"plain text\n")
    with pytest.raises(UserError, match=r"a\.txt\.gz: cannot be read past line 0"):
        read(path)
