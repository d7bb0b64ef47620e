import argparse
import sys

import pytest
import tensorflow as tf

from benchmarks import preprocess
from tests import commands, small


def write_corpus(folder):
    text = "\n\n".join("\n".join(sentences) for sentences in small.documents(40))
    (folder / "text.txt").write_text(text)
    return folder / "text.txt"


def test_text_of_a_size(tmp_path):
    source = write_corpus(tmp_path)
    whole = source.read_text()
    for megabytes in (0.0005, 0.004, 0.1):
        preprocess.write_text(source, tmp_path / "made.txt", megabytes)
        result = (tmp_path / "made.txt").read_text()
        assert megabytes * 1e6 <= len(result) < megabytes * 1e6 + 1000
        documents = result.rstrip("\n").split("\n\n")
        assert set(documents) <= set(whole.split("\n\n"))


@pytest.mark.slow
def test_our_side_is_measured(tmp_path):
    text = write_corpus(tmp_path)
    small.tokenizer_folder(tmp_path / "tokenizer")
    preprocess.write_config(tmp_path, "token")
    options = argparse.Namespace(workers=1)
    actual = preprocess.run_ours(text, tmp_path, options, "ours, tf_models")
    assert actual["examples"] > 100 and actual["bytes"] > 500 * actual["examples"]
    assert 100 < actual["worker"] < 700 and 10 < actual["main"] < 100 and actual["seconds"] > 0
    assert not (tmp_path / "ours").exists()


def test_records_are_counted(tmp_path):
    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord")) as writer:
        for size in (0, 3, 1000):
            writer.write(b"x" * size)
    assert preprocess.count_records(tmp_path / "a.tfrecord") == 3


def test_a_failing_side_is_shown(tmp_path):
    with pytest.raises(SystemExit, match="ended with 3:\nwhy\n"):
        code = "import sys; print('why', file=sys.stderr); sys.exit(3)"
        preprocess.measure([sys.executable, "-c", code], tmp_path / "out.tfrecord")


@pytest.mark.slow
@pytest.mark.long
def test_table_of_memory(tmp_path):
    text = write_corpus(tmp_path)
    vocabulary = small.tokenizer_folder(tmp_path / "tokenizer") / "vocab.txt"
    done = commands.run(
        "benchmarks.preprocess",
        f"--text={text}",
        "--workers=1",
        f"--vocabulary={vocabulary}",
        "--memory",
        "--memory_megabytes",
        "0.01",
        "0.03",
        status=0,
    )
    rows = [line.split("|") for line in done.stdout.splitlines() if line.startswith("| 0 |")]
    assert len(rows) == 2 and int(rows[0][2].replace(",", "")) < int(rows[1][2].replace(",", ""))
    assert "growth of the worker process: " in done.stdout
