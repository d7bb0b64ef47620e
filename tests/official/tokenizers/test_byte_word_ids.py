"""The words of Python strings and their ids: those of the graph, with words kept and forgotten."""

import json
import random

import numpy as np
import pytest
import tensorflow as tf

from official import tokenizers
from official.tokenizers import byte_bpe
from official.tokenizers.base import strings
from official.tokenizers.byte_bpe import WordIds, find
from tests import ROOT

GOLDEN = json.loads((ROOT / "tests" / "golden" / "byte_bpe.json").read_text())
MERGES = [tuple(line.split(" ")) for line in GOLDEN["merges.txt"].splitlines()[1:]]
# White space, contractions, digits, letters of several planes, a letter and a digit of Unicode
# 15.1 and 16.0, marks, emoji, unassigned, private, control and lone surrogate characters.
ODD = [
    *" \t\n\v\f\r\x85\xa0\u1680\u2003\u2028\u202f\u3000",
    *["'s", "'re", "'", "'S", "'ll", " '", "  ", "\n\n", " \n", "\x1c\x1f", "\0"],
    *"aZéßſK中日ﬁ\u0301\u0640\u0e33٣²Ⅷ½1٠",
    *"\U00010400\U0001d7d8\U0001f600\U00020000\U0002ebf0\U00010d40\U0001fbf0\ua7cb\u1c89",
    *"\u0378\ue000\ufeff\ufffd\uffff\U000e0001\U0010ffff\u200b\u200d\xad",
    *["\ud800", "\udfff", "\ud83d\ude00"],
]


def odd_texts(count, seed=0, parts=ODD):
    rng = random.Random(seed)
    return ["".join(rng.choices(parts, k=rng.randrange(12))) for _ in range(count)]


def graph_words(texts):
    """The words of the graph, without empty ones."""
    with_surrogates = byte_bpe.words(strings(texts)).to_list()
    return [[word.decode() for word in words if word] for words in with_surrogates]


def valid(text):
    """A text with U+FFFD in the place of the bytes that are not UTF-8."""
    return tf.strings.unicode_transcode(strings([text]), "UTF-8", "UTF-8").numpy()[0].decode()


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "prefixed"])
def tokenizer(request):
    return tokenizers.ByteBPE(GOLDEN["vocab.json"], MERGES, request.param)


def test_words_are_those_of_the_graph():
    texts = odd_texts(3000) + GOLDEN["texts"]
    for text, words in zip(texts, graph_words(texts), strict=True):
        assert "".join(find(text)) == text
        assert [valid(word) for word in find(text)] == words, repr(text)


@pytest.mark.parametrize("last", [0xFFFF, 0x10FFFF])
def test_each_character_has_the_class_of_the_graph(last):
    """A character joins letters, digits or other characters, or it parts words."""
    codes = [code for code in range(last + 1) if not 0xD800 <= code < 0xE000]
    if last > 0xFFFF:
        codes = codes[:0x300] + codes[0x10000 - 0x800 : 0x33480] + codes[-0x20000::0x101]
    lines = [
        "".join(f"a{c}1{c} ?{c}" for c in map(chr, codes[start : start + 500]))
        for start in range(0, len(codes), 500)
    ]
    for line, words in zip(lines, graph_words(lines), strict=True):
        assert find(line) == words


def test_ids_are_those_of_the_graph(tokenizer):
    texts = odd_texts(2000, 1) + GOLDEN["texts"]
    expected = tokenizer.tokenize(strings(texts))
    for _ in range(2):  # new words, and kept ones
        values, splits = tokenizer.encode_ragged(texts)
        np.testing.assert_array_equal(splits, expected.row_splits)
        np.testing.assert_array_equal(values, expected.values)
    assert values.dtype == np.int32


def test_ids_of_slices_are_those_of_their_whole(tokenizer):
    documents = [odd_texts(5, seed, ODD[:-3]) for seed in range(100)]  # no lone surrogates
    blank = tokenizer.add_prefix_space
    wholes = ["".join(each) for each in documents]
    wholes = [" " * (blank and bool(byte_bpe.begins_with_text(w))) + w for w in wholes]
    expected = tokenizers.ByteBPE(GOLDEN["vocab.json"], MERGES).tokenize(strings(wholes))
    np.testing.assert_array_equal(tokenizer.encode_slices(documents)[0], expected.values)


def test_words_are_spelled_once_until_they_are_forgotten():
    spelled = []

    def spell(words):
        """The id of a word is its length."""
        spelled.append([word.decode() for word in words.numpy()])
        return tf.RaggedTensor.from_row_lengths(tf.strings.length(words), [1] * len(words))

    ids = WordIds(spell, max_bytes=600)
    texts = ["a bb", "a", "", " bb bb a"]
    for _ in range(2):
        assert ids.split(texts).to_list() == [[1, 3], [1], [], [3, 3, 2]]
    assert spelled == [["a", " bb", " a"]]
    assert ids.split(["c a"]).to_list() == [[1, 2]]
    assert spelled[1:] == [["c"]]  # now there are more bytes than are kept
    assert ids.split(["a bb"]).to_list() == [[1, 3]]
    assert spelled[2:] == []
    assert ids.split(["a d"]).to_list() == [[1, 2]]
    assert spelled[2:] == [["a", " d"]]


def test_memory_is_bounded():
    tokenizer = tokenizers.ByteBPE(GOLDEN["vocab.json"], MERGES)
    tokenizer._words = WordIds(tokenizer._splitter.spell, max_bytes=20_000)
    for number in range(20):
        tokenizer.encode([f"{number * 100 + i}x{'y' * i}" for i in range(100)])
        assert len(tokenizer._words._known) < 300
