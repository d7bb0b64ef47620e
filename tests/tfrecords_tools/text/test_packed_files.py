"""Tests of official.utils.packed_files in a corpus: .zst and .parquet files."""

import gzip
import json
import time

import numpy as np
import pyarrow
import pytest
import zstandard
from pyarrow import parquet

from official.utils import input_files, packed_files, text_lines
from official.utils.errors import UserError
from tests.tfrecords_tools.text.test_documents import joined, odd_texts, read
from tfrecords_tools.text import corpus, documents, file_ranges
from tfrecords_tools.text.corpus import Corpus, Reading

TEXTS = [text for text in odd_texts(np.random.default_rng(2), 90) if text.strip()]


def write_parquet(path, texts, **columns):
    table = pyarrow.table({"id": list(range(len(texts))), "text": texts, **columns})
    parquet.write_table(table, path, row_group_size=7)
    return path


def jsonl(texts):
    return "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts).encode()


@pytest.mark.parametrize("size", [1 << 30, 200])
@pytest.mark.parametrize("name", ["a.txt.zst", "a.jsonl.zst", "a.parquet", "large.parquet"])
def test_documents_are_those_of_the_same_text_in_gzip(tmp_path, name, size):
    text = "\n\n".join(TEXTS).encode()
    if name.endswith(".parquet"):
        rows = pyarrow.array(TEXTS, pyarrow.large_string()) if name[0] == "l" else TEXTS
        path, other, data = write_parquet(tmp_path / name, rows), "b.jsonl.gz", jsonl(TEXTS)
    else:
        other = f"b{name[1:-4]}.gz"
        data = jsonl(TEXTS) if "jsonl" in name else text
        path = tmp_path / name
        # Two frames, one after the other, and a frame of nothing.
        frames = [data[:1000], b"", data[1000:]]
        path.write_bytes(b"".join(map(zstandard.ZstdCompressor().compress, frames)))
    (tmp_path / other).write_bytes(gzip.compress(data))
    found, read_counts = read(path, size)
    expected, expected_counts = read(tmp_path / other, size)
    assert found == expected and read_counts == expected_counts
    assert len(joined(found)) == len(TEXTS)


def test_groups_of_a_corpus(tmp_path):
    write_parquet(tmp_path / "a.parquet", TEXTS[:40])
    (tmp_path / "b.txt.zst").write_bytes(zstandard.compress("\n\n".join(TEXTS[40:]).encode()))
    files = Corpus.find(f"{tmp_path}/*")
    chunks = [
        chunk
        for group in files.groups(0)
        for chunk in corpus.read_chunks(group, Reading(files.range_bytes), shared=False)
    ]
    texts = [document.text for chunk in chunks for document in chunk.documents]
    assert sorted(texts) == sorted(text.strip(documents.WHITE_SPACE) for text in TEXTS)


def test_rows_that_are_no_text(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", ["one", "", " \n", "two", None, "three"])
    with pytest.raises(UserError, match=r"a\.parquet:5: no `text` field that is a string"):
        read(path)
    # Bytes that say to be text.
    kind = pyarrow.array([b"one", b"tw\xf6\n", b"three"], pyarrow.binary())
    offsets, data = kind.buffers()[1:]
    broken = pyarrow.StringArray.from_buffers(3, offsets, data)
    path = write_parquet(tmp_path / "b.parquet", broken)
    with pytest.raises(UserError, match=r"b\.parquet:2: not UTF-8 \(byte 0xf6 at column 3\)"):
        read(path)
    found, read_counts = read(path, skip=True)
    assert [document.text for document in found] == ["one", "three"]
    assert read_counts.skipped == {"lines not UTF-8": 1}


@pytest.mark.parametrize("cut", [1, 10, 50])
def test_files_that_are_cut_short_or_damaged(tmp_path, cut):
    text = "\n\n".join(TEXTS).encode()
    packed = zstandard.compress(text)
    path = tmp_path / "a.txt.zst"
    path.write_bytes(packed[:-cut])
    with pytest.raises(UserError, match=r"a\.txt\.zst: cannot be read past line \d+: Compressed"):
        read(path)
    path.write_bytes(b"plain text")
    with pytest.raises(UserError, match=r"a\.txt\.zst: cannot be read past line 0: zstd .*damaged"):
        read(path)
    table = write_parquet(tmp_path / "a.parquet", TEXTS)
    table.write_bytes(table.read_bytes()[:-cut])
    with pytest.raises(UserError, match=r"a\.parquet: not a Parquet file"):
        read(table)


def test_a_parquet_file_without_text(tmp_path):
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"body": ["x"], "text": [1]}), path)
    message = r"a\.parquet: no column `text` of strings; it has: body \(string\), text \(int64\)"
    with pytest.raises(UserError, match=message):
        read(path)
    for name in ("a.parquet.gz", "a.tar.zst"):
        (tmp_path / name).write_bytes(b"x")
        with pytest.raises(UserError, match=f"{name}: cannot read this format"):
            corpus.expand(str(tmp_path / name))


@pytest.mark.parametrize("package, name", [("zstandard", "a.jsonl.zst"), ("pyarrow", "a.parquet")])
def test_a_package_that_is_missing(tmp_path, monkeypatch, package, name):
    (tmp_path / name).write_bytes(b"x")
    find = packed_files.importlib.util.find_spec
    without = lambda found: None if found == package else find(found)  # noqa: E731
    monkeypatch.setattr(packed_files.importlib.util, "find_spec", without)
    message = rf"{name}: {package} is not installed, .*: pip install 'encoder-garden\[text\]'$"
    with pytest.raises(UserError, match=message):
        corpus.expand(f"{tmp_path}/*")
    monkeypatch.undo()
    assert len(corpus.expand(f"{tmp_path}/*")) == 1


def test_a_long_line_of_a_frame_that_unpacks_to_much(tmp_path, monkeypatch):
    """64 MB of one letter, in some kilobytes."""
    path = tmp_path / "a.txt.zst"
    path.write_bytes(zstandard.compress(b"x" * (64 << 20) + b"\n\nshort\n"))
    assert path.stat().st_size < 20_000
    with pytest.raises(UserError, match=r"a\.txt\.zst:1: the line has more than 16 MiB"):
        read(path)
    (found,) = list(file_ranges.read_packed(input_files.seen(path), 1 << 20, skip_long_lines=True))
    assert found.data == b"\nshort\n" and found.long_lines == 1


def test_a_long_window_is_named(tmp_path):
    """A frame by hand: its descriptor asks for 2^28 bytes, as `zstd --long=28` does."""
    path, text = tmp_path / "a.txt.zst", b"a line\n"
    for log, readable in ((27, True), (28, False)):
        block = (len(text) << 3 | 1).to_bytes(3, "little") + text
        path.write_bytes(b"\x28\xb5\x2f\xfd\x00" + bytes([(log - 10) << 3]) + block)
        if readable:
            assert [text for text, *_ in text_lines.lines(path, [])]
            continue
        with pytest.raises(UserError, match="a window of 256 MiB .* at most 128 MiB are unpacked"):
            list(text_lines.lines(path, []))
        with pytest.raises(UserError, match=r"unpack it before, with `zstd -d --long=31 .*zst`"):
            list(file_ranges.read_packed(input_files.seen(path), 100))


@pytest.mark.parametrize("name", ["a.txt.gz", "a.txt.zst", "a.jsonl.gz"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_millions_of_line_ends(tmp_path, name, end):
    """Some kilobytes that unpack to megabytes of them, between two documents."""
    first, second = (b'{"text": "%s"}' % text if "json" in name else text for text in (b"a", b"b"))
    data = first + end * (2 << 20) + second + end
    path = tmp_path / name
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else zstandard.compress(data))
    started, sizes, found = time.process_time(), [], []
    for piece in file_ranges.read_packed(input_files.seen(path), 1 << 16):
        sizes.append(len(piece.data))
        found += [document.text for document in documents.parse(piece)[0]]
    assert found == ["a", "b"] and max(sizes) < 1 << 19 and sum(sizes) == len(data)
    assert time.process_time() - started < 1


@pytest.mark.parametrize("kind", ["dictionary", "string_view", "binary", "binary_view"])
def test_kinds_of_texts_in_parquet(tmp_path, kind):
    """One rule with tables: Spark writes texts as bytes, pandas categories as dictionaries."""
    array = pyarrow.array(TEXTS)
    if kind == "dictionary":
        array = array.dictionary_encode()
    elif kind == "string_view":
        array = pyarrow.array(TEXTS, pyarrow.string_view())
    else:
        array = pyarrow.array([text.encode() for text in TEXTS], getattr(pyarrow, kind)())
    expected = read(write_parquet(tmp_path / "a.parquet", TEXTS), 1 << 30)
    assert read(write_parquet(tmp_path / "b.parquet", array), 1 << 30) == expected
