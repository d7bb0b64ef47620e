"""The words of raw text, in Python and in a graph."""

import random
import sys

import pytest
import tensorflow as tf

from official.tokenizers import text_words

ODD = [
    *" \t\n\r\v\f\x1c\x85\u00a0\u1680\u2003\u2028\u202f\u3000\ufeff\u200b\u200d\u00ad\0\x07",
    *"aZß9.,;:!?…\"'。、，！？：；()[]{}«»“”‘’„‚「」（）-_@#/&%",
    *"漢字𠀀豈かな한글שלוםمرحباé\u0301\u0323😀👩🇬🇧\ufffd\ue000\U0010ffff\u202e\u200f",
    "don't", "U.S.", "3.5", "@user", "http://x.y/z?", "👩‍👩‍👧", "...", "''",
]  # fmt: skip


def pairs(texts):
    """The offsets and words that the graph function returns."""
    found = text_words.split(tf.constant(texts, tf.string))
    starts, ends, words = (part.to_list() for part in (found.starts, found.ends, found.texts))
    return [list(zip(*row, strict=True)) for row in zip(starts, ends, words, strict=True)]


def expected(text):
    return [(a, b, text[a:b].encode()) for a, b in text_words.words(text)]


@pytest.mark.parametrize(
    "text, words",
    [
        ("", ""),
        (" \u3000\t", ""),
        ("Mr. Smith's U.S. bank (3.5%).", "Mr|.|Smith's|U.S|.|bank|(|3.5%|)|."),
        ("“Don't,” he said…", "“|Don't|,|”|he|said|…"),
        ("see http://x.y/z?q @user #tag", "see|http://x.y/z?q|@user|#tag"),
        ("我爱Berlin。好", "我|爱|Berlin|。|好"),
        ("\"'", "\"|'"),
        ("a\u200bb \u200d", "a\u200bb|\u200d"),
        ("'.a.'b", "'|.|a.'b"),
    ],
)
def test_words(text, words):
    assert "|".join(text[a:b] for a, b in text_words.words(text)) == words
    assert pairs([text]) == [expected(text)]


def test_the_graph_splits_as_python():
    draw = random.Random(0)
    texts = ["".join(draw.choices(ODD, k=draw.randrange(30))) for _ in range(3000)]
    texts += ["x" * 10_000, "." * 10_000, "漢" * 3_000, " " * 10_000, "", "(" * 5_000 + "a"]
    assert pairs(texts) == [expected(text) for text in texts]
    assert pairs([]) == []


@pytest.mark.slow
def test_every_character_has_the_same_class_in_python_and_in_a_graph():
    characters = [chr(i) for i in range(sys.maxunicode + 1) if not 0xD800 <= i < 0xE000]
    # A mark is a word of its own; an ideograph and a blank part the letters around it as well.
    texts = [f"a{c}b{c}" for c in characters]
    found = text_words.split(tf.constant(texts, tf.string))
    ends = found.ends.to_list()
    wrong = [
        f"U+{ord(c):04X}"
        for c, text, each in zip(characters, texts, ends, strict=True)
        if [b for _, b in text_words.words(text)] != each
    ]
    assert not wrong
