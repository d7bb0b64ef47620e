"""Phrases of a text that is made of known ones."""

import collections
import math
import re

import numpy as np
import pytest

from official.utils import parallel
from official.utils.errors import UserError
from tests import commands
from tfrecords_tools.text import corpus
from tfrecords_tools.vocabulary import phrases
from tfrecords_tools.writing.execution import Execution

PHRASES = ["new york", "machine learning theory", "one of a kind"]


def write(path, lines=600, seed=0):
    """Lines of 12 words, some of them phrases."""
    rng = np.random.default_rng(seed)
    words = [f"w{i}" for i in range(40)] + ["york", "of", "a", "learning"]
    text = []
    for number in range(lines):
        line = rng.choice(words, 12).tolist()
        line[rng.integers(12)] = PHRASES[rng.integers(3)]
        line[rng.integers(12)] += ","
        text.append(" ".join(line) + "\n" * (number % 20 == 19))
    path.write_text("\n".join(text) + "\n")
    return path


def npmi_slowly(path, most):
    """Every run of words with its count and its mutual information, by definition."""
    words, runs = 0, collections.Counter()
    for line in path.read_text().splitlines():
        for part in re.split("[^a-z0-9 ]", line):
            part = part.split()
            words += len(part)
            for size in range(1, most + 1):
                runs.update(tuple(part[i : i + size]) for i in range(len(part) - size + 1))
    p = {run: n / words for run, n in runs.items()}
    return {
        run: (
            runs[run],
            min(
                math.log(p[run] / (p[run[:i]] * p[run[i:]])) / -math.log(p[run])
                for i in range(1, len(run))
            ),
        )
        for run in runs
        if len(run) > 1
    }


@pytest.mark.parametrize("at_once", [1 << 20, 100])
def test_phrases_are_those_of_the_definition(tmp_path, monkeypatch, at_once):
    """Chunks of one document or all of them, whose counts are added up at once or all together."""
    monkeypatch.setattr(corpus, "MIN_RANGE_BYTES", at_once)
    monkeypatch.setattr(corpus, "RANGES_IN_GROUP", 1)
    monkeypatch.setattr(phrases, "_SUMMED_AT_ONCE", at_once)
    path = write(tmp_path / "a.txt")
    built = phrases.build(str(path), tmp_path / "out", min_count=15, threshold=0.3)
    expected = [
        (-score, " ".join(run))
        for run, (count, score) in npmi_slowly(path, 4).items()
        if count >= 15 and score >= 0.3
    ]
    assert built == [run for _, run in sorted(expected)]
    assert set(PHRASES) <= set(built)
    assert (tmp_path / "out").read_text() == "\n".join(built) + "\n"


def test_case_and_longest_phrase(tmp_path):
    (tmp_path / "a.txt").write_text("New York City x\nnew york city y, z\n" * 20)
    build = phrases.build
    assert "New York City" in build(str(tmp_path / "a.txt"), tmp_path / "out", max_words=3)
    lower = build(str(tmp_path / "a.txt"), tmp_path / "out", max_words=2, lower_case=True)
    assert set(lower) == {"new york", "york city", "city x", "city y"}


@pytest.mark.parametrize(
    "text, expected",
    [
        # Letters of a script without blanks are words, and the phrase has no blanks.
        ("我在北京大学读书。\n他去北京大学。\n", ["北京大学"]),
        ("हिन्दी भाषा सीखो\nयह हिन्दी भाषा है\n", ["हिन्दी भाषा"]),
        ("Kia Élan’s x\ny Kia Élan’s\n", ["Kia Élan’s"]),
    ],
)
def test_phrases_of_all_scripts(tmp_path, text, expected):
    (tmp_path / "a.txt").write_text(text * 20)
    built = phrases.build(str(tmp_path / "a.txt"), tmp_path / "out", min_count=40)
    assert [phrase for phrase in built if len(phrase) == max(map(len, built))] == expected


def test_memory_is_bounded(tmp_path, monkeypatch):
    path = write(tmp_path / "a.txt")
    monkeypatch.setattr(corpus, "MIN_RANGE_BYTES", 4000)
    monkeypatch.setattr(corpus, "RANGES_IN_GROUP", 1)
    monkeypatch.setattr(phrases, "_SUMMED_AT_ONCE", 1)
    monkeypatch.setattr(phrases, "MAX_RUNS", 300)
    said = []
    built = phrases.build(str(path), tmp_path / "out", 15, 0.3, report=said.append)
    assert "dropping runs counted less than 2 times so far, to save memory" in said
    assert "machine learning" in built


def test_words_are_bounded(tmp_path, monkeypatch):
    """Of words that each chunk has once, the most frequent are kept."""
    monkeypatch.setattr(corpus, "MIN_RANGE_BYTES", 1)
    monkeypatch.setattr(corpus, "RANGES_IN_GROUP", 1)
    monkeypatch.setattr(phrases, "MAX_WORDS", 4)
    rare = [f"one of it x{i} y{i}" for i in range(30)]
    (tmp_path / "a.txt").write_text("\n\n".join(rare))
    said = []
    built = phrases.build(str(tmp_path / "a.txt"), tmp_path / "out", report=said.append)
    assert built == ["of it", "one of", "one of it"]
    assert "150 words, 4 distinct, 3 of them frequent" in said


@pytest.mark.parametrize("forget", [False, True])
def test_any_number_of_workers_gives_the_same_bytes(tmp_path, monkeypatch, forget):
    monkeypatch.setattr(corpus, "MIN_RANGE_BYTES", 4000)
    monkeypatch.setattr(corpus, "RANGES_IN_GROUP", 1)
    if forget:
        monkeypatch.setattr(phrases, "_SUMMED_AT_ONCE", 1)
        monkeypatch.setattr(phrases, "MAX_RUNS", 300)
    # Workers of later tests are forked from the same process, which must not lack TensorFlow.
    parallel.start("tfrecords_tools.vocabulary.builder")
    path = write(tmp_path / "a.txt")
    said = {workers: [] for workers in (0, 2, 4)}
    for workers, lines in said.items():
        output = tmp_path / f"{workers}"
        phrases.build(str(path), output, 15, 0.3, execution=Execution(workers), report=lines.append)
        assert output.read_bytes() == (tmp_path / "0").read_bytes()
    assert any("dropping" in line for line in said[0]) == forget
    assert said[0][0].startswith("pass 1 of 4: 0.0 of 0.0 MB (100%), ")
    assert said[4][0].endswith("MB/s, 30 documents")
    assert [line for line in said[0] if "frequent" in line] == [
        line for line in said[4] if "frequent" in line
    ]
    assert said[0][-1].startswith(f"wrote {tmp_path / '0'} in ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_count": 1}, "--min_count=1 is too small: the minimum is 2"),
        ({"threshold": 1.5}, "--threshold=1.5 is not between -1 and 1"),
        ({"max_words": 1}, "--max_words=1 is too small: the minimum is 2"),
        ({"min_count": 10**6}, "no phrase of 1000000 occurrences and a mutual information of 0.4"),
    ],
)
def test_bad_options(tmp_path, options, message):
    path = write(tmp_path / "a.txt", lines=5)
    with pytest.raises(UserError, match=message):
        phrases.build(str(path), tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_command_line(tmp_path):
    def run(*options):
        return commands.run("tfrecords_tools.build_phrases", *options)

    write(tmp_path / "a.txt")
    done = run(f"--input={tmp_path}/*.txt", f"--output={tmp_path}/out", "--min_count=15")
    assert done.returncode == 0, done.stderr
    assert "new york" in (tmp_path / "out").read_text().splitlines()
    assert f"phrases in {tmp_path}/out, such as: " in done.stderr
    done = run(f"--input={tmp_path}/*.txt")
    assert done.returncode == 2 and "error: --output is missing" in done.stderr
