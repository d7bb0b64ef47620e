"""Tests of tfrecords_tools.text.corpus and tfrecords_tools.text.corpus."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from absl import flags

from official.utils.errors import UserError
from official.utils.input_files import InputFile
from tfrecords_tools.text import corpus, file_ranges
from tfrecords_tools.text.corpus import Corpus, Reading


def numbered(first, count, words=9):
    """Documents, each of which says its number in all its lines."""
    return [f"d{i}\n" * words for i in range(first, first + count)]


def texts_of(group, size, shared=False):
    read = corpus.read_chunks(group, Reading(size), shared)
    return [[document.text for document in chunk.documents] for chunk in read]


@pytest.fixture
def small_ranges(monkeypatch):
    monkeypatch.setattr(corpus, "MIN_RANGE_BYTES", 100)
    monkeypatch.setattr(corpus, "MAX_RANGE_BYTES", 200)
    monkeypatch.setattr(corpus, "CHUNK_BYTES", 200)
    monkeypatch.setattr(corpus, "SHARED_CHUNK_BYTES", 8 * 200)


@pytest.mark.parametrize("shared", [False, True])
def test_every_document_is_in_one_group(tmp_path, small_ranges, shared):
    expected = []
    for number, count in enumerate([700, 3, 1, 90, 0, 250]):
        documents = numbered(1000 * number, count)
        expected += [text.strip() for text in documents]
        path = tmp_path / f"{number}.txt"
        content = "\n".join(documents).encode()
        if number == 3:
            path, content = path.with_suffix(".txt.gz"), gzip.compress(content)
        path.write_bytes(content)
    files = Corpus.find(f"{tmp_path}/*")
    size = files.range_bytes
    assert 100 <= size <= 200
    orders = []
    for seed in (None, 1, 2):
        groups = files.groups(seed)
        assert [group.number for group in groups] == list(range(len(groups)))
        assert sum(group.bytes for group in groups) == files.bytes
        read = [
            text for group in groups for chunk in texts_of(group, size, shared) for text in chunk
        ]
        assert sorted(read) == sorted(expected)
        orders.append(read)
    assert orders[0] == expected
    assert orders[1] != orders[2]
    assert files.groups(1) == groups[:0] + files.groups(1)


def test_a_group_is_a_sample_of_the_corpus(tmp_path, small_ranges):
    (tmp_path / "a.txt").write_text("\n".join(numbered(0, 4000)))
    (tmp_path / "b.txt").write_text("\n".join(numbered(4000, 4000)))
    files = Corpus.find(f"{tmp_path}/*")
    groups = files.groups(0)
    sizes = [group.bytes for group in groups]
    assert len(groups) > 50 and max(sizes) <= 1.5 * np.median(sizes)
    shares = []
    for group in groups:
        (chunk,) = texts_of(group, files.range_bytes, True)
        shares.append(np.mean([int(text.split()[0][1:]) < 4000 for text in chunk]))
    # 8 or 9 ranges, each of the one or the other file.
    assert abs(np.mean(shares) - 0.5) < 0.02 and np.std(shares) < 1.5 * np.sqrt(0.25 / 8)


def test_many_small_files_share_groups(tmp_path, small_ranges):
    for i in range(300):
        (tmp_path / f"{i:03}.txt").write_text(f"text {i}\n")
    files = Corpus.find(f"{tmp_path}/*")
    groups = files.groups(0)
    assert len(groups) < 8
    read = [
        text for group in groups for chunk in texts_of(group, files.range_bytes) for text in chunk
    ]
    assert sorted(read) == sorted(f"text {i}" for i in range(300))


def test_parts_of_long_documents_are_chunks_alone(tmp_path, small_ranges):
    text = "\n".join(f"line {i}" for i in range(100))
    (tmp_path / "a.txt").write_text(
        f"{''.join(numbered(0, 4))}\n\n{text}\n\n" + "\n".join(numbered(5, 9))
    )
    files = Corpus.find(f"{tmp_path}/a.txt")
    (group,) = files.groups(None)
    read = list(corpus.read_chunks(group, Reading(files.range_bytes), shared=False))
    for chunk in read:
        parts = [document for document in chunk.documents if document.part or document.unfinished]
        assert len(parts) == len(chunk.documents) or not parts or (
            # The text_range in which it begins, and that in which it ends.
            parts == [chunk.documents[-1]] or parts == [chunk.documents[0]]
        )  # fmt: skip
    (whole,) = corpus.read_chunks(group, Reading(files.range_bytes), shared=True)
    assert whole.documents == [document for chunk in read for document in chunk.documents]


def test_a_large_packed_file_is_read_in_chunks(tmp_path, small_ranges):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress("\n".join(numbered(0, 800)).encode()))
    files = Corpus.find(str(path))
    (group,) = files.groups(0)
    read = texts_of(group, files.range_bytes, shared=True)
    assert len(read) > 5 and min(map(len, read)) > 0.4 * max(map(len, read))
    assert [text for chunk in read for text in chunk] == [text.strip() for text in numbered(0, 800)]


def test_sizes_of_ranges():
    sizes = {10**5: 64 << 10, 41 * 10**6: 320_312, 2 * 10**9: 1 << 20, 10**12: 1 << 20}
    for size, expected in sizes.items():
        assert Corpus([InputFile(Path("a.txt"), size)]).range_bytes == expected


def test_groups_of_a_terabyte(tmp_path):
    """The sizes are all that is looked at."""
    files = Corpus([InputFile(tmp_path / f"{i}.txt", 10**9) for i in range(1000)])
    groups = files.groups(0)
    assert len(groups) == 10**12 // (8 << 20)
    assert sum(len(group.ranges) for group in groups) == 1000 * -(-(10**9) // (1 << 20))
    assert max(group.bytes for group in groups) < 10 << 20
    assert len({place.file for place in groups[0].ranges}) > 6


def test_expand(tmp_path):
    for name in ("b.txt", "a.txt", "c.jsonl", "sub/d.txt", "odd[1].txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    names = lambda globs: [path.name for path in corpus.expand(globs)]  # noqa: E731
    assert names(f"{tmp_path}/?.txt, {tmp_path}/c.jsonl") == ["a.txt", "b.txt", "c.jsonl"]
    assert names([f"{tmp_path}/b.txt", f"{tmp_path}/?.txt"]) == ["b.txt", "a.txt"]
    assert names(f"{tmp_path}/**/d.txt") == ["d.txt"]
    assert names(f"{tmp_path}/odd[1].txt") == ["odd[1].txt"]


def test_a_file_under_several_names_is_read_once(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "link.txt").symlink_to(tmp_path / "a.txt")
    (tmp_path / "folder").symlink_to(tmp_path / "sub")
    monkeypatch.chdir(tmp_path)
    for globs in ("a.txt,./a.txt", f"a.txt,{tmp_path}/sub/../a.txt", "a.txt,**/*.txt"):
        assert [str(path) for path in corpus.expand(globs)] == ["a.txt"]
    assert [str(path) for path in corpus.expand("sub/*,folder/*,a.txt")] == ["sub/link.txt"]


def test_names_with_commas(tmp_path):
    for name in ("a,b.txt", "c, d.txt", "e.txt"):
        (tmp_path / name).write_text("x")
    names = lambda globs: [path.name for path in corpus.expand(globs)]  # noqa: E731
    assert names(f'"{tmp_path}/a,b.txt",{tmp_path}/e.txt') == ["a,b.txt", "e.txt"]
    assert names(f'{tmp_path}/e.txt, "{tmp_path}/c, *.txt"') == ["e.txt", "c, d.txt"]
    assert names(f"{tmp_path}/a,b.txt") == ["a,b.txt"]
    assert names([f"{tmp_path}/a,*.txt", f"{tmp_path}/e.txt"]) == ["a,b.txt", "e.txt"]
    values = flags.FlagValues()
    corpus.define_flags("output", values)
    values(["build", f'--input="{tmp_path}/a,b.txt",{tmp_path}/e.txt'])
    assert names(values.input) == ["a,b.txt", "e.txt"]
    values(["build", f"--input={tmp_path}/a,b.txt"])
    with pytest.raises(UserError, match="/a: no such file; put a name with a comma in quotes"):
        corpus.expand(values.input)
    with pytest.raises(UserError, match="unexpected end of data: a name with a comma is"):
        corpus.expand('"a.txt')


def test_expand_errors(tmp_path):
    with pytest.raises(UserError, match=r"no file matches '.*/\*\.txt': check the pattern"):
        corpus.expand(f"{tmp_path}/*.txt")
    with pytest.raises(UserError, match=r"missing\.txt: no such file"):
        corpus.expand([f"{tmp_path}/missing.txt"])
    with pytest.raises(UserError, match=r"is a folder: name the files in it"):
        corpus.expand([str(tmp_path)])
    with pytest.raises(UserError, match="no input files are given"):
        corpus.expand(" , ")
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(UserError, match=r"the input is empty: .*empty\.txt hold no bytes"):
        corpus.expand(f"{tmp_path}/*.txt")
    (tmp_path / "a.txt.xz").write_text("x")
    with pytest.raises(UserError, match=r"a\.txt\.xz: cannot read this format: unpack"):
        corpus.expand(f"{tmp_path}/*.xz")


def test_a_pipe_is_no_file_of_a_corpus(tmp_path):
    """It has no size: beside a file it was taken for an empty one."""
    (tmp_path / "a.txt").write_text("text")
    os.mkfifo(tmp_path / "b.txt")
    with pytest.raises(UserError, match=r"b\.txt is not a regular file: text is read by several"):
        Corpus.find(f"{tmp_path}/*")


def test_a_file_that_cannot_be_opened(tmp_path):
    with pytest.raises(UserError, match=r"there is no file .*missing\.txt"):
        file_ranges.PlainFile(InputFile(tmp_path / "missing.txt", 10), 10).read(0)
