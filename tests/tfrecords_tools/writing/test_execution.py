"""Where the work is done, by the flags and the size of the input."""

import os

import pytest
from absl import flags

from official.utils import packed_files
from official.utils.engines import Engine
from tfrecords_tools.text import corpus
from tfrecords_tools.writing import execution
from tfrecords_tools.writing.execution import Execution


def chosen(*arguments, files=()):
    values = flags.FlagValues()
    execution.define_flags(values)
    argv = values(["build", *arguments])
    return execution.from_flags(argv, lambda: files, values)


@pytest.fixture(autouse=True)
def cores(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 6)


def sized(path, size):
    path.touch()
    os.truncate(path, size)
    return path


def test_little_input_starts_no_processes(tmp_path):
    small, large = sized(tmp_path / "a.txt", (8 << 20) - 1), sized(tmp_path / "b.txt", 1)
    assert chosen(files=[small]) == Execution()
    assert chosen(files=[small, large]) == Execution(6)
    assert chosen("--workers=2", files=[small]) == Execution(2)
    assert chosen("--runner=beam", files=[small]) == Execution(engine=Engine("beam", ()))


def test_packed_files_are_as_large_as_their_text(tmp_path):
    size = (8 << 20) // packed_files.RATIO
    assert chosen(files=[sized(tmp_path / "a.txt.gz", size - 1)]) == Execution()
    assert chosen(files=[sized(tmp_path / "a.txt.gz", size)]) == Execution(6)


def test_a_pipe_may_have_any_number_of_bytes(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert chosen(files=[tmp_path / "pipe"]) == Execution(6)


def test_files_are_found_only_where_their_size_decides(tmp_path):
    values = flags.FlagValues()
    execution.define_flags(values)
    argv = values(["build", "--workers=3"])
    assert execution.from_flags(argv, lambda: corpus.expand("none.txt"), values) == Execution(3)
    argv = values(["build"])
    assert execution.from_flags(argv, values=values) == Execution(3)
    values["workers"].value = None
    assert execution.from_flags(argv, values=values) == Execution(6)
    assert "or 1 for files of less than 8 MB" in values["workers"].help
