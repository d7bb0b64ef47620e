"""The pieces and merges that are learned, worked out by hand."""

import pytest

from official import tokenizers
from official.tokenizers.byte_vocabulary import ALPHABET
from official.utils.errors import UserError
from tfrecords_tools.vocabulary.word_vocabularies import (
    BYTE_BPE_SPECIALS,
    byte_bpe_counts,
    learn_byte_bpe,
)

BYTES = list(ALPHABET.values())
LEAST = len(BYTE_BPE_SPECIALS) + 256


def test_bytes_come_in_the_order_of_gpt2():
    pieces, merges = learn_byte_bpe({}, LEAST)
    assert pieces == [*BYTE_BPE_SPECIALS, *BYTES] and merges == []
    assert BYTES[:3] == ["!", '"', "#"] and BYTES[93:96] == ["~", "\u00a1", "\u00a2"]
    assert BYTES[188:191] == ["\u0100", "\u0101", "\u0102"] and BYTES[220] == "\u0120"


def test_words_are_those_of_the_tokenizer():
    counts = byte_bpe_counts()
    counts.add(["Don't  stop", "stop\n", "stop"])
    assert counts.words() == {b"stop": 2} | dict.fromkeys([b" ", b" stop", b"'t", b"Don", b"\n"], 1)
    assert counts.total == 7


def test_pairs_are_joined_most_frequent_first():
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
