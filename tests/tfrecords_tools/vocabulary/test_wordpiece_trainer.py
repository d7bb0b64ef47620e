"""Word counts and the joining of pairs."""

import pytest

from official.utils.errors import UserError
from tfrecords_tools.vocabulary import word_counts
from tfrecords_tools.vocabulary.word_vocabularies import learn_wordpiece
from tfrecords_tools.vocabulary.word_vocabularies import wordpiece_counts as counter

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def counted(texts, lower_case=True, **options):
    counts = counter(lower_case, **options)
    for text in texts:
        counts.add([text])
    return counts


def test_words_are_those_of_the_tokenizer():
    texts = ["Don't STOP, café\u00ad中文!", "stop " + "x" * 201 + " " + "α" * 201]
    words = counted(texts).words()
    assert words == dict.fromkeys(["!", "'", ",", "cafe", "don", "t", "中", "文"], 1) | {"stop": 2}
    assert list(words)[0] == "stop"
    cased = counted(["Don't STOP, café"], lower_case=False).words()
    assert sorted(cased) == ["'", ",", "Don", "STOP", "café", "t"]


def test_totals_and_batches(monkeypatch):
    monkeypatch.setattr(word_counts, "CHARACTERS_AT_ONCE", 10)
    counts = counted(["the cat", "the dog sat.", "", "the end"])
    assert counts.words() == {"the": 3, ".": 1, "cat": 1, "dog": 1, "end": 1, "sat": 1}
    assert counts.total == 8


def test_number_of_words_is_bounded(monkeypatch):
    monkeypatch.setattr(word_counts, "CHARACTERS_AT_ONCE", 10)
    counts = counted([f"often once{i} often" for i in range(50)], max_words=8)
    assert len(counts.counts) <= 16 + 2
    words = counts.words()
    assert len(words) == 8
    assert words["often"] == 100


def test_pairs_are_joined_most_frequent_first():
    counts = {"low": 5, "lower": 2, "newest": 6, "widest": 3}
    letters = sorted(set("".join(counts)))
    start = [*SPECIAL, *letters, *("##" + c for c in letters)]
    # By hand: 9 times ##e##s (before ##s##t, whose pieces are newer), then ##es##t; 7 times l##o,
    # lo##w; 6 times n##e, ##w##est, ne##west; 3 times w##i, ##d##est, wi##dest; twice ##e##r,
    # low##er; nothing else is left that occurs twice.
    joined = "##es ##est lo low ne ##west newest wi ##dest widest ##er lower".split()
    assert learn_wordpiece(counts, len(start) + 12, 1.0) == start + joined
    assert learn_wordpiece(counts, len(start) + 5, 1.0) == start + joined[:5]


def test_runs_of_one_letter():
    # a ##a ##a ##a ##a: ##a##a stands there twice without overlap, and both are joined.
    pieces = learn_wordpiece({"aaaaa": 4}, 5 + 2 + 3, 1.0)
    assert pieces[5:] == ["a", "##a", "##aa", "a##aa".replace("##", ""), "aaaaa"]


def test_signs_and_chinese_characters_have_one_form():
    pieces = learn_wordpiece({"!": 3, "中": 2, "ab": 2}, 5 + 4 + 2 + 1, 1.0)
    assert pieces[5:] == ["!", "a", "b", "中", "##a", "##b", "ab"]


def test_rare_characters_are_left_out():
    counts = {"ab": 600, "ω": 1, "aωb": 1}
    assert learn_wordpiece(counts, 5 + 4 + 1, 0.99)[5:] == ["a", "b", "##a", "##b", "ab"]
    assert "ω" in learn_wordpiece(counts, 5 + 6 + 1, 1.0)


def test_order_of_words_does_not_matter():
    words = {f"{a}{b}{c}": 2 for a in "abc" for b in "abc" for c in "abc"}
    back = dict(reversed(words.items()))
    assert learn_wordpiece(words, 40, 1.0) == learn_wordpiece(back, 40, 1.0)


def test_vocabulary_too_small_for_the_alphabet():
    message = (
        r"--vocab_size=9 is too small: the alphabet alone takes 10 pieces \(3 characters, most of "
        r"them in two forms, and 5 special tokens\); make it larger, or --character_coverage small"
    )
    with pytest.raises(UserError, match=message):
        learn_wordpiece({"ab": 2, "!": 1}, 9, 1.0)


def test_vocabulary_larger_than_the_text_supports():
    message = (
        r"--vocab_size=100 is more than the text supports: it has 11 pieces that occur 2 times or "
        r"more; take --vocab_size=11 or more text"
    )
    with pytest.raises(UserError, match=message):
        learn_wordpiece({"ab": 2, "ba": 1, "!": 1}, 100, 1.0)
    assert len(learn_wordpiece({"ab": 2, "ba": 1, "!": 1}, 11, 1.0)) == 11


def test_progress():
    words = {f"{a}{b}{c}": 2 for a in "abcdefghijkl" for b in "mnopqrstuv" for c in "wxyz01234"}
    reported = []
    assert len(learn_wordpiece(words, 1100, 1.0, reported.append)) == 1100
    assert reported == [1000]
