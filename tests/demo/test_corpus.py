import re

import pytest

from demo import corpus

SOURCE = '''"""What this module does, in a few plain words.

    >>> code_is_left_out()
"""
# A comment that goes on
# for two lines and ends here.
x = 1  # A short remark.

class Reader:
    """Reads one thing after another until nothing is left.

    table ===== ===== 12 34 56 78 90 12 34 56 78 90
    """

    def read(self):
        """Gives the next thing there is. It waits when none is ready, e.g. Sockets."""
'''


@pytest.fixture(scope="module")
def real():
    return list(corpus.passages())


@pytest.fixture
def library(tmp_path):
    folder = tmp_path / "lib"
    (folder / "http" / "test").mkdir(parents=True)
    (folder / "http" / "__init__.py").write_text(SOURCE)
    (folder / "http" / "test" / "test_it.py").write_text(SOURCE)
    (folder / "bad.py").write_bytes(b"'\xff'")
    (folder / "old.py").write_text("print 'no longer Python'\n")
    return folder


def test_passages_of_a_source_in_its_order(library):
    actual = [p for p in corpus.passages(library) if p.module != "pydoc"]
    assert actual == [
        ("http", "", ["What this module does, in a few plain words."]),
        ("http", "line 5", ["A comment that goes on for two lines and ends here."]),
        ("http", "Reader", ["Reads one thing after another until nothing is left."]),
        (
            "http",
            "Reader.read",
            ["Gives the next thing there is. It waits when none is ready, e.g. Sockets."],
        ),
    ]


def test_documents_have_one_sentence_a_line():
    passage = corpus.Passage("http", "", ["One is here. Two, e.g. the next. Is it?"])
    sides = corpus.documents([passage])
    assert sides[passage.held_out] == [["One is here.", "Two, e.g. the next.", "Is it?"]]
    assert sides[not passage.held_out] == []


def test_rows_blank_names_of_modules_and_hold_no_text_twice():
    text = "The EMAIL package, threading and subprocess are named here."
    actual = [
        corpus.Passage("email.message", "a", [text, "too short a row"]),
        corpus.Passage("http", "b", [text]),
        corpus.Passage("nowhere", "c", ["Not one of the areas that the task knows of."]),
    ]
    train, validation = corpus.rows(actual)
    assert [*train, *validation] == [
        ("The module package, module and module are named here.", "internet")
    ]


@pytest.mark.slow
def test_the_real_corpus_is_enough_to_learn_from(real):
    train, validation = corpus.rows(real)
    assert len(train) > 5000 and len(validation) > 1000
    for rows in (train, validation):
        areas = [area for _, area in rows]
        shares = {area: areas.count(area) / len(rows) for area in corpus.AREAS}
        assert min(shares.values()) > 0.05 and max(shares.values()) < 0.4
    characters = sum(len(text) for p in real for text in p.paragraphs)
    assert characters > 1_500_000


@pytest.mark.slow
def test_nothing_of_the_real_task_leaks(real):
    train, validation = corpus.rows(real)
    assert not {text for text, _ in train} & {text for text, _ in validation}
    names = re.compile(r"(?i)\b(asyncio|logging|email|multiprocessing|xml)\b")
    assert not [text for text, _ in train + validation if names.search(text)]
    pretraining, held_out = ({s for doc in side for s in doc} for side in corpus.documents(real))
    assert pretraining and held_out and not pretraining & held_out


@pytest.mark.slow
@pytest.mark.long
def test_write_is_the_same_each_time(tmp_path, monkeypatch, real):
    sizes = corpus.write(tmp_path / "a")
    monkeypatch.setattr(corpus, "passages", lambda: real)  # those of another reading
    assert sizes == corpus.write(tmp_path / "b")
    names = ["text/train.txt", "text/heldout.txt", "task/train.tsv", "task/dev.tsv"]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    lines = (tmp_path / "a" / "task" / "dev.tsv").read_text().splitlines()
    assert lines[0] == "text\tarea" and len(lines) == sizes["dev rows"] + 1
    assert all(line.count("\t") == 1 for line in lines)
