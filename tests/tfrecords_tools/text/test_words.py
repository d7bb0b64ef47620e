"""Tests of tfrecords_tools.text.words."""

import unicodedata

import numpy as np
import pytest

from tfrecords_tools.text import words

ALONE = ("CJK UNIFIED", "HIRAGANA LETTER", "KATAKANA", "THAI CHAR", "LAO", "MYANMAR", "KHMER")


def split(text):
    """The words, the symbols and the number of characters of a text, character by character."""
    found, symbols, characters = [], "", 0
    inside = alone = False
    for character in text:
        category, name = unicodedata.category(character), unicodedata.name(character, "")
        if category == "Cf":
            continue
        if category[0] == "Z" or category == "Cc":
            inside = alone = False
            continue
        characters += 1
        if category[0] not in "LMN":
            symbols += character
            inside = alone = False
            continue
        begins_alone = category[0] == "L" and name.startswith(ALONE)
        if begins_alone or not inside or (alone and category[0] != "M"):
            found.append("")
        found[-1] += character
        inside, alone = True, begins_alone
    return found, symbols, characters


@pytest.mark.parametrize(
    "text, expected, symbols",
    [
        ("Don't panic!", ["Don", "t", "panic"], "'!"),
        ("  3.5% of well-known\tw\u00f6rds\n", "3 5 of well known w\u00f6rds".split(), ".%-"),
        ("\u6211\u7231\u5317\u4eac\u3002", list("\u6211\u7231\u5317\u4eac"), "\u3002"),
        ("\u30d7\u30ed BERT\u3067", ["\u30d7", "\u30ed", "BERT", "\u3067"], ""),
        # A vowel sign that is a mark belongs to its letter; others are letters.
        ("\u0e19\u0e49\u0e33 \u0e14\u0e35", ["\u0e19\u0e49", "\u0e33", "\u0e14\u0e35"], ""),
        ("\u0939\u093f\u0928\u094d\u0926\u0940 \u092d\u093e\u0937\u093e\u0964", 
         ["\u0939\u093f\u0928\u094d\u0926\u0940", "\u092d\u093e\u0937\u093e"], "\u0964"),
        ("\u0645\u06cc\u200c\u062e\u0648\u0627", ["\u0645\u06cc\u062e\u0648\u0627"], ""),
        ("\ud55c\uad6d\uc5b4 \ubb38\uc7a5", ["\ud55c\uad6d\uc5b4", "\ubb38\uc7a5"], ""),
        ("\U0001f600\U0001f600 ### \ufffd", [], "\U0001f600\U0001f600###\ufffd"),
        ("\x01\u200b\xad", [], ""),
        ("", [], ""),
    ],
)  # fmt: skip
def test_scripts(text, expected, symbols):
    assert split(text) == (expected, symbols, len(symbols) + sum(map(len, expected)))
    measured = words.measure([text, "x", text])
    characters = len(symbols) + sum(map(len, expected))
    assert measured.characters.tolist() == [characters, 1, characters]
    assert measured.symbols.tolist() == [len(symbols), 0, len(symbols)]
    assert np.diff(measured.words).tolist() == [len(expected), 1, len(expected)]


def test_all_characters_as_a_loop_has_them():
    rng = np.random.default_rng(0)
    ranges = [(0, 0x250), (0x300, 0x370), (0x900, 0xF00), (0x1000, 0x10A0), (0x2000, 0x2100)]
    ranges += [(0x3041, 0x3097), (0x4E00, 0x4F00), (0xAC00, 0xAD00), (0x1F600, 0x1F650)]
    codes = np.concatenate([np.arange(*each) for each in ranges])
    # Python's version of Unicode is an earlier one.
    codes = [code for code in codes.tolist() if unicodedata.category(chr(code)) != "Cn"]
    texts = ["".join(map(chr, rng.choice(codes, rng.integers(0, 30)))) for _ in range(2000)]
    measured = words.measure(texts, hashed=True)
    expected = [split(text) for text in texts]
    assert np.diff(measured.words).tolist() == [len(found) for found, *_ in expected]
    assert measured.symbols.tolist() == [len(symbols) for _, symbols, _ in expected]
    assert measured.characters.tolist() == [characters for *_, characters in expected]
    # Words have the same hash if, and only if, they are the same with small letters.
    small = [
        "".join(c.lower() if len(c.lower()) == 1 else c for c in word)
        for found, *_ in expected
        for word in found
    ]
    hashes = measured.hashes.tolist()
    assert len(small) == len(hashes) > 10_000
    assert len(set(small)) == len(set(hashes)) == len(set(zip(small, hashes, strict=True)))
    assert len(set(small)) < len(small)


def test_nothing():
    measured = words.measure([], hashed=True)
    assert measured.words.tolist() == [0] and not len(measured.characters)
    assert words.measure(["", ""], hashed=True).words.tolist() == [0, 0, 0]
