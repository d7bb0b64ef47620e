"""Where tokens come from: slices of the user's text, whatever a tokenizer does to it first."""

import itertools
import json
import os
import re
import unicodedata

import numpy as np
import pytest
import tensorflow as tf

from official import tokenizers
from official.tokenizers import byte_vocabulary, windows
from tests import GOLDEN

# How many random contexts; 10,000 take about a minute.
CONTEXTS = int(os.environ.get("GARDEN_CONTEXTS", "400"))
KINDS = ("uncased", "cased", "unigram", "bpe", "released", "byte_bpe", "prefixed")
# What is likely to go wrong: marks on letters, ligatures, signs spelled with several others,
# blanks of no width, syllables that fall apart, long words, what is dropped.
BLANKS = "".join(filter(str.isspace, map(chr, range(0x3001)))) + "\u200b\ufeff"
ODD = [
    *map(chr, range(0x300, 0x310)), "\u200b", "\u200d", "\ufeff", "\ufffd",
    *"éÉßİΣςσＡﬃ½㍿㎿한글字。¡…“”",
    "\u3000", "\x85", "\u2028", "\0", "\t", "\n", "\ue000", "\U0001d15e", "\U0001d165", "\u302e",
    "\U0001f600", "\U0010ffff", "\u0378", "x" * 101, "y" * 100, "é" * 60, "αβ" * 51,
    "[MASK]", "<mask>", "  ",
]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer_of(spiece_model):
    vocabulary = json.loads((GOLDEN / "tokenizer.json").read_text())["vocabulary"]
    byte_bpe = json.loads((GOLDEN / "byte_bpe.json").read_text())
    merges = [tuple(line.split(" ")) for line in byte_bpe["merges.txt"].splitlines()[1:]]
    bpe = lambda prefix: tokenizers.ByteBPE(byte_bpe["vocab.json"], merges, prefix)  # noqa: E731
    return {
        "uncased": tokenizers.WordPiece(vocabulary, True, max_input_chars_per_word=100),
        "cased": tokenizers.WordPiece(vocabulary, False, max_input_chars_per_word=12),
        "unigram": tokenizers.SentencePiece(spiece_model("unigram"), lower_case=True),
        "bpe": tokenizers.SentencePiece(spiece_model("bpe"), lower_case=False),
        "released": tokenizers.SentencePiece(
            spiece_model("unigram"),
            lower_case=True,
            remove_space=True,
            keep_accents=False,
            replace_quotes=True,
            split_digit_comma=True,
        ),
        "byte_bpe": bpe(False),
        "prefixed": bpe(True),
    }


def contexts(count):
    rng = np.random.default_rng(5)
    letters = [*"abcdeinorst  AEH.,'-0129`"]
    for _ in range(count):
        points = rng.integers(0, 0x110000, rng.integers(0, 12))
        rare = [chr(point) for point in points if not 0xD800 <= point < 0xE000]
        parts = [*rng.choice(letters, rng.integers(0, 60)), *rng.choice(ODD, 4), *rare]
        yield "".join(parts[i] for i in rng.permutation(len(parts)))


def plain(text, lower):
    """What WordPiece pieces are spelled with, by Python's tables."""
    text = unicodedata.normalize("NFD", text.lower()) if lower else text
    dropped = ("Cc", "Cf", "Cn", "Co", *(["Mn"] if lower else []))
    kept = (c for c in text if unicodedata.category(c) not in dropped and c != "\ufffd")
    return "".join(kept).replace("ς", "σ")


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_slices_of_random_contexts(tokenizer_of, kind):
    tokenizer = tokenizer_of[kind]
    texts = list(contexts(CONTEXTS))
    rng = np.random.default_rng(6)
    checked = 0
    rows = tokenizer.encode_with_offsets(texts)
    for text, ids, (same, starts, ends) in zip(texts, tokenizer.encode(texts), rows, strict=True):
        assert same.tolist() == ids.tolist()
        assert (starts >= 0).all() and (starts < ends).all() and (ends <= len(text)).all()
        assert (np.diff(starts) >= 0).all() and (np.diff(ends) >= 0).all()
        for i, start, end in zip(ids.tolist(), starts.tolist(), ends.tolist(), strict=True):
            token = text[start:end]
            assert token.strip(BLANKS) in (token, ""), (text, token)
            piece = tokenizer.pieces[i]
            if i == tokenizer.unk_id:
                continue
            checked += 1
            if kind in ("uncased", "cased"):
                spelled = piece.removeprefix("##").replace("ς", "σ")
                assert spelled in plain(token, kind == "uncased"), (text, token)
            elif kind in ("unigram", "bpe", "released"):
                shown = token.lower() if kind != "bpe" else token
                if kind == "released":
                    shown = shown.replace("``", '"').replace("''", '"')
                    shown = unicodedata.normalize("NFKD", shown)
                    shown = "".join(c for c in shown if not unicodedata.combining(c)).lower()
                spelled = unicodedata.normalize("NFKC", shown)
                # The model's rules are another NFKC's; marks may be composed over its edge.
                first = piece.lstrip("▁")[:1]
                new = any(unicodedata.category(character) == "Cn" for character in token)
                assert (
                    new or first in spelled or first in unicodedata.normalize("NFKC", text.lower())
                )
            else:
                spelled = byte_vocabulary.spelling(piece)
                assert spelled.lstrip(b" ") in text[start - 1 if start else 0 : end + 1].encode()
        # An answer comes back as its tokens' slice, which covers it and no other token.
        for _ in range(3):
            place = np.sort(rng.integers(0, len(text) + 1, 2))
            actual = windows.answer_tokens(starts, ends, *place.tolist())
            if actual is None:
                continue
            answer = text[starts[actual[0]] : ends[actual[1]]]
            assert text.find(answer, starts[actual[0]]) == starts[actual[0]]
            again = windows.answer_tokens(
                starts, ends, int(starts[actual[0]]), int(ends[actual[1]])
            )
            assert again[0] <= actual[0] and again[1] >= actual[1]
            # More only where a character is spelled by two tokens that have others too.
            assert answer in text[starts[again[0]] : ends[again[1]]]
            begin, end = int(starts[actual[0]]), int(ends[actual[1]])
            uncovered = text[place[0] : max(place[0], begin)] + text[min(end, place[1]) : place[1]]
            if kind in ("byte_bpe", "prefixed"):
                assert not uncovered.strip(BLANKS), (text, uncovered)
    assert checked > CONTEXTS


def slices(tokenizer, text):
    ids, starts, ends = tokenizer.encode_with_offsets([text])[0]
    return [(tokenizer.pieces[i], text[a:b]) for i, a, b in zip(ids, starts, ends, strict=True)]


PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cafe", "x", "##s", "!", "ᄒ", "##ᅡ", "##ᆫ"]


def test_word_pieces_have_their_letters_accents_and_what_was_dropped_between():
    tokenizer = tokenizers.WordPiece(PIECES, lower_case=True)
    assert slices(tokenizer, "Cafe\u0301s\u0301! CAFÉ") == [
        ("cafe", "Cafe\u0301"), ("##s", "s\u0301"), ("!", "!"), ("cafe", "CAFÉ"),
    ]  # fmt: skip
    # A syllable is three pieces; a control character between two letters is neither's.
    assert slices(tokenizer, "한 ca\0fe\0 x") == [
        ("ᄒ", "한"), ("##ᅡ", "한"), ("##ᆫ", "한"), ("cafe", "ca\0fe"), ("x", "x"),
    ]  # fmt: skip


def test_long_words_are_unknown_as_a_whole():
    tokenizer = tokenizers.WordPiece(PIECES, lower_case=True, max_input_chars_per_word=100)
    longs = "Ab\u0301" + "c" * 99, "α\u0301" * 101, "한" * 34, "😀" * 101
    for text in (text for long in longs for text in
                 (f"x {long} x", f"x {long}\u0301! x", f"é{long}ø x")):  # fmt: skip
        (piece, actual), *_ = [pair for pair in slices(tokenizer, text) if pair[0] == "[UNK]"]
        assert actual == re.search(r"\S+?(?=[ !])", text.removeprefix("x "))[0], text
        assert slices(tokenizer, text)[-1] == ("x", "x")
    assert slices(tokenizer, "x" + "a" * 100) == [("[UNK]", "x" + "a" * 100)]
    # A hundred characters are not too many.
    assert slices(tokenizer, "x" + "s" * 99)[1:] == [("##s", "s")] * 99


def test_signs_that_are_spelled_with_several_others(spiece_model):
    tokenizer = tokenizers.SentencePiece(spiece_model("unigram"))
    actual = slices(tokenizer, "  a…b ½")
    assert [token for _, token in actual if token.strip()][0] == "a"
    assert "…" in [token for _, token in actual] and actual[-1][1] == "½"
    assert all(token.strip(BLANKS) in (token, "") for _, token in actual)


@pytest.mark.parametrize("known", ["user_defined_symbols", "byte_fallback", None])
def test_tokens_of_white_space_have_their_own_places(spiece_model, known):
    options = {"user_defined_symbols": {known: ["\x85"]}, "byte_fallback": {known: True}}
    size = 220 + 256 * (known == "byte_fallback")
    tokenizer = tokenizers.SentencePiece(spiece_model("unigram", size, **options.get(known, {})))
    tokens = [token for _, token in slices(tokenizer, "a\x85e\x85i\x85")]
    distinct = [token for token, _ in itertools.groupby(tokens)]
    assert distinct == ["a", "\x85", "e", "\x85", "i", "\x85"]


def test_bytes_of_a_character_have_the_whole_of_it(tokenizer_of):
    for kind in ("byte_bpe", "prefixed"):
        tokens = [token for _, token in slices(tokenizer_of[kind], "a 😀 b")]
        assert set(tokens) - {" "} == {"a", "😀", "b"}
        assert tokens[0] == "a" and tokens[-1] == "b"


@pytest.mark.parametrize("kind", KINDS)
def test_the_graph_gives_the_same(tokenizer_of, kind):
    texts = ["", " ", "Café 한 ½x", "y" * 130, "[MASK] <mask>"]
    rows = tokenizer_of[kind].encode_with_offsets(texts)
    assert tokenizer_of[kind].encode_with_offsets([]) == []
    signature = [tf.TensorSpec([None], tf.string)]
    function = tf.function(tokenizer_of[kind].tokenize_with_offsets, input_signature=signature)
    for i, part in enumerate(function(tf.constant(texts))):
        assert part.to_list() == [row[i].tolist() for row in rows]
    assert function(tf.constant([], tf.string)).ids.to_list() == []


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_that_are_no_utf8_count_as_a_character_each(tokenizer_of, kind):
    actual = tokenizer_of[kind].tokenize_with_offsets(tf.constant([b"the \xff\xfe the"]))
    text = b"the \xff\xfe the".decode(errors="replace")
    assert text[actual.starts[0, 0] : actual.ends[0, 0]] in "the"
    assert actual.ends[0, -1] == len(text) == 10
    # A lone surrogate, which a string of Python's may hold, is one character too.
    ids, starts, ends = tokenizer_of[kind].encode_with_offsets(["the \ud800 the"])[0]
    assert ends[-1] == 9 and "the \ud800 the"[starts[-1] : ends[-1]] in "the"


def test_one_text_is_refused(tokenizer_of):
    with pytest.raises(TypeError, match="expected a list of texts, got one text"):
        tokenizer_of["cased"].encode_with_offsets("text")
