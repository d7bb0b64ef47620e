"""Lexicons over a vocabulary of small words."""

import numpy as np
import pytest

from official import tokenizers
from official.errors import UserError
from tests import small
from tfrecords_tools import lexicon, segments


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    words = [*small.WORDS, ",", "x"]
    return tokenizers.load(small.tokenizer_folder(tmp_path_factory.mktemp("made"), words))


def find(tmp_path, tokenizer, lines, *sentences):
    """The words that go on with a phrase, joined to what is before; matches by line."""
    (tmp_path / "lexicon").write_text("\n".join(lines))
    found = lexicon.Lexicon(tmp_path / "lexicon", tokenizer)
    ids, splits = tokenizer.encode_ragged(sentences)
    piece = segments.Piece.of(ids, splits, [len(sentences)])
    inner, matches = found.find(piece)
    joined = ""
    for token, goes_on in zip(ids, inner, strict=True):
        joined += ("+" if goes_on else " ") + tokenizer.pieces[token]
    return joined.split(), dict(zip(found.lines, matches.tolist(), strict=True))


def test_matches_are_whole_words(tmp_path, tokenizer):
    joined, matches = find(
        tmp_path, tokenizer, ["ba be", "bi"], "ba be bi", "bo ba bebi", "x ba be, bi"
    )
    assert joined == "ba+be bi bo ba be ##bi x ba+be , bi".split()
    assert matches == {"ba be": 2, "bi": 2}


def test_the_first_and_then_the_longest_match_counts(tmp_path, tokenizer):
    lines = ["be bi bo", "ba be", "ba be bi", "bo bu"]
    joined, matches = find(tmp_path, tokenizer, lines, "ba be bi bo bu", "be bi bu", "be bi bo bu")
    assert joined == "ba+be+bi bo+bu be bi bu be+bi+bo bu".split()
    assert matches == {"be bi bo": 1, "ba be": 0, "ba be bi": 1, "bo bu": 1}


def test_no_match_reaches_over_a_sentence(tmp_path, tokenizer):
    joined, matches = find(tmp_path, tokenizer, ["ba be bi", "ba be"], "x ba be", "bi ba", "be bi")
    assert joined == "x ba+be bi ba be bi".split()
    assert matches == {"ba be bi": 0, "ba be": 1}


def test_lines_that_match_nothing(tmp_path, tokenizer):
    # An unknown word, and one that is known by its first half only.
    joined, matches = find(tmp_path, tokenizer, ["ba §", "ba bebo", "\u200b"], "ba § ba be bo")
    assert "+" not in " ".join(joined)
    assert set(matches.values()) == {0}


def test_in_a_vocabulary_that_marks_the_beginning_of_words(tmp_path):
    class Marked:
        """Pieces with a mark where a space is before them, as byte-level vocabularies have."""

        pieces = ["<s>", "New", "ĠNew", "ĠYork", ",", "Ġis", "er"]
        vocab_size, special_ids = 7, (0,)
        word_starts = np.array([True, False, True, True, False, True, False])

        def encode(self, texts):
            known = {"New York": [1, 3], " New York": [2, 3]}
            return [np.array(known[text], np.int32) for text in texts]

    (tmp_path / "lexicon").write_text("New York\n")
    found = lexicon.Lexicon(tmp_path / "lexicon", Marked())
    ids = np.array([5, 2, 3, 4, 2, 3, 6, 2, 3], np.int32)
    inner, matches = found.find(segments.Piece(ids, np.array([0, 9]), np.array([0, 1])))
    assert np.flatnonzero(inner).tolist() == [2, 8]  # before a comma and at the end, not "Yorker"
    assert matches.tolist() == [2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"lexicon .*file: cannot be read: No such file or directory"),
        (b"ba \xff", r"lexicon .*file: not UTF-8 \(.*0xff.*\): convert it"),
        (b" \n\n", r"lexicon .*file is empty: give it one phrase or entity a line"),
    ],
)
def test_bad_files(tmp_path, content, message):
    if content is not None:
        (tmp_path / "file").write_bytes(content)
    with pytest.raises(UserError, match=message):
        lexicon.read(tmp_path / "file")
