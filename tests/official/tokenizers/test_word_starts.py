"""Which pieces begin a word: as the releases say, in every script."""

import numpy as np
import pytest
import tensorflow as tf

from official import tokenizers
from official.corruption import units
from official.corruption.vocabulary import Vocabulary
from official.tokenizers import byte_vocabulary, word_starts

SIGNS = '!"#$%&()*+,-./:;?@[\\]^_`{|}~'
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def albert(piece):
    """What ALBERT's `_is_start_piece_sp` says."""
    if piece[0] in "▁<" or (len(piece) == 1 and piece in SIGNS):
        return True
    for character in piece:
        if character.lower() not in LETTERS and character not in SIGNS:
            return True
    return False


def xlnet(piece):
    """What XLNet's `_is_start_piece` says."""
    return piece[0] in "▁<" or (len(piece) == 1 and piece in SIGNS)


def all_pieces():
    """Pieces of one to three of all sorts of characters."""
    some = [*SIGNS, *"▁<>='abzAZ059éßяλא你かア한กK'’“–€£½", "İ"]
    rng = np.random.default_rng(0)
    longer = {"".join(rng.choice(some, n)) for n in rng.integers(2, 4, 20_000)}
    return [*some, *sorted(longer)]


def test_the_table_of_the_docstring():
    columns = "▁New . com ) 18 's ий 東京".split()
    for rule, expected in (("blank", "x"), ("xlnet", "xx x   x"), ("albert", "xx xxxxx")):
        actual = [word_starts.of_piece(piece, rule) for piece in columns]
        assert actual == [c == "x" for c in expected.ljust(8)], rule


def test_alberts_rule():
    for piece in all_pieces():
        assert word_starts.of_piece(piece, "albert") == albert(piece), piece


def test_xlnets_rule_and_scripts_without_blanks():
    unspaced = set("你かアก")
    for piece in all_pieces():
        expected = xlnet(piece) or bool(set(piece) & unspaced)
        assert word_starts.of_piece(piece, "xlnet") == expected, piece


def test_the_blank_mark_alone():
    for piece in all_pieces():
        assert word_starts.of_piece(piece, "blank") == piece.startswith("▁"), piece


@pytest.mark.parametrize(
    "text, unspaced",
    [
        ("漢字かなカナ々ー、。㐀𠀀ㄅ", True),  # Chinese and Japanese
        ("ภาษาไทยພາສາລາວភាសាខ្មែរမြန်မာབོད་", True),  # Thai, Lao, Khmer, Burmese, Tibetan
        ("한국어русскийελληνικάעבריתعربيहिन्दीԱբგდçßı", False),
    ],
)
def test_scripts(text, unspaced):
    for character in text:
        assert word_starts.of_piece(character, "xlnet") == unspaced, character
        assert word_starts.of_bytes(character.encode()) == unspaced, character


@pytest.mark.parametrize(
    "piece, begins, ends",
    [
        (b" the", True, False),
        (b"\n", True, True),
        (b"\n\n", True, True),
        (b"\t", True, True),
        (b"\r\n", True, True),
        ("\u00a0".encode(), True, True),  # a blank of two bytes
        ("\u3000".encode(), True, True),  # and of three
        (" \u2003".encode(), True, True),
        (b"the", False, False),
        (b".", False, False),
        ("é".encode(), False, False),
        ("的".encode(), True, False),
        ("的".encode()[:1], True, False),  # the rest is in the next piece
        ("的".encode()[1:], False, False),
        ("ไ".encode()[:2], True, False),
        ("ไ".encode()[:1], False, False),  # Hindi begins with this byte too
        ("“".encode()[:1], False, False),
        (b"\xff", False, False),
        (b"", False, False),
    ],
)
def test_pieces_of_bytes(piece, begins, ends):
    assert word_starts.of_bytes(piece) == begins
    assert word_starts.ends_in_space(piece) == ends


def words_of(tokenizer, text, backward=False):
    """The words of a text as the units are numbered, in the order of the text."""
    (ids,) = tokenizer.encode([text])
    row = np.array([tokenizer.cls_id, *ids, tokenizer.sep_id], np.int32)
    batch = {
        "token_ids": tf.constant([row[::-1] if backward else row]),
        "padding_mask": tf.ones([1, len(row)], tf.bool),
        "backward": tf.constant([backward]),
    }
    numbers = units.words(Vocabulary.from_tokenizer(tokenizer), batch).numpy()[0]
    if backward:
        numbers = numbers[::-1]
    groups = [np.flatnonzero(numbers == n) for n in dict.fromkeys(numbers) if n >= 0]
    return [tokenizer.decode(row[group]) for group in groups]


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(
    "text, words",
    [
        ("It is.", ["It", " is."]),
        ("It is\nthe end", ["It", " is", "\n", "the", " end"]),
        ("a\tb c", ["a", "\t", "b", " c"]),
        ("a\n\n  b", ["a", "\n\n ", " b"]),
        ("a\u00a0b", ["a", "\u00a0", "b"]),
        ("see 東京 now", ["see", " ", "東", "京", " now"]),
    ],
)
def test_words_of_byte_level_bpe(text, words, backward):
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *byte_vocabulary.ALPHABET.values()]
    merges = []
    for word in ("It", " is", "the", " end", "see", " now", " b", " c", "\n\n ", "\u00a0"):
        spelled = "".join(byte_vocabulary.ALPHABET[byte] for byte in word.encode())
        for end in range(2, len(spelled) + 1):
            if spelled[:end] not in pieces:
                pieces.append(spelled[:end])
                merges.append((spelled[: end - 1], spelled[end - 1]))
    assert words_of(tokenizers.ByteBPE(pieces, merges), text, backward) == words
