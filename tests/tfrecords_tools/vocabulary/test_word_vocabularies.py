"""The pieces and merges that are learned from words, worked out by hand."""

import pytest

from official import tokenizers
from official.tokenizers.byte_vocabulary import ALPHABET
from official.utils.errors import UserError
from tfrecords_tools.vocabulary import word_counts
from tfrecords_tools.vocabulary.word_vocabularies import (
    BYTE_BPE_SPECIALS,
    byte_bpe_counts,
    learn_byte_bpe,
    learn_wordpiece,
)
from tfrecords_tools.vocabulary.word_vocabularies import wordpiece_counts as counter

BYTES = list(ALPHABET.values())
LEAST = len(BYTE_BPE_SPECIALS) + 256


def test_bytes_come_in_the_order_of_gpt2():
    pieces, merges = learn_byte_bpe({}, LEAST)
    assert pieces == [*BYTE_BPE_SPECIALS, *BYTES] and merges == []
    assert BYTES[:3] == ["!", '"', "#"] and BYTES[93:96] == ["~", "\u00a1", "\u00a2"]
    assert BYTES[188:191] == ["\u0100", "\u0101", "\u0102"] and BYTES[220] == "\u0120"


def test_words_are_those_of_byte_bpe():
    counts = byte_bpe_counts()
    counts.add(["Don't  stop", "stop\n", "stop"])
    assert counts.words() == {b"stop": 2} | dict.fromkeys([b" ", b" stop", b"'t", b"Don", b"\n"], 1)
    assert counts.total == 7


def test_pairs_of_bytes_are_joined_most_frequent_first():
    counts = {b"low": 5, b"lower": 2, b"newest": 6, b"widest": 3}
    # By hand: 9 times e+s (its pieces come before those of s+t), es+t; 7 times l+o, lo+w; 6 times
    # e+w, n+ew, new+est; 3 times d+est, i+dest, w+idest; twice e+r, low+er.
    result = "es est lo low ew new newest dest idest widest er lower".split()
    pieces, merges = learn_byte_bpe(counts, LEAST + 12)
    assert pieces[LEAST:] == result
    assert ["".join(pair) for pair in merges] == pieces[LEAST:]
    assert learn_byte_bpe(counts, LEAST + 4)[0] == pieces[: LEAST + 4]
    tokenizer = tokenizers.ByteBPE(pieces, merges)
    spelled = [[pieces[i] for i in ids] for ids in tokenizer.encode(["lowest", "newer", "wider"])]
    assert spelled == [["low", "est"], ["new", "er"], ["w", "i", "d", "er"]]


def test_two_ways_to_one_piece():
    # a+b (30 times), then ab+c and b+c, then a+bc spells what is there already.
    counts = {b"ab": 20, b"abc": 10, b"xbc": 12, b"bc": 5}
    pieces, merges = learn_byte_bpe(counts, LEAST + 4)
    assert len(pieces) == len(set(pieces)) == LEAST + 4
    assert tokenizers.ByteBPE(pieces, merges).vocab_size == LEAST + 4


def test_more_than_the_text_supports():
    with pytest.raises(UserError, match=f"more than the text supports: it has {LEAST + 2} pieces"):
        learn_byte_bpe({b"abc": 2, b"x": 100}, 9000)


SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def counted(texts, lower_case=True, **options):
    counts = counter(lower_case, **options)
    for text in texts:
        counts.add([text])
    return counts


def test_words_are_those_of_wordpiece():
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
        r"more: lower it to 11, or use more text"
    )
    with pytest.raises(UserError, match=message):
        learn_wordpiece({"ab": 2, "ba": 1, "!": 1}, 100, 1.0)
    assert len(learn_wordpiece({"ab": 2, "ba": 1, "!": 1}, 11, 1.0)) == 11


def test_progress():
    words = {f"{a}{b}{c}": 2 for a in "abcdefghijkl" for b in "mnopqrstuv" for c in "wxyz01234"}
    reported = []
    assert len(learn_wordpiece(words, 1100, 1.0, reported.append)) == 1100
    assert reported == [1000]
