"""Words that are split once: where texts are cut, and the ids of whole texts by both tokenizers."""

import itertools
import json
import random

import numpy as np
import pytest
import tensorflow as tf

from official import tokenizers
from official.tokenizers import added_tokens, base, word_ids
from official.tokenizers.base import strings
from official.tokenizers.word_ids import WordIds
from tests import ROOT

BYTE_BPE = json.loads((ROOT / "tests" / "golden" / "byte_bpe.json").read_text())
WORDPIECE = json.loads((ROOT / "tests" / "golden" / "tokenizer.json").read_text())
TEXTS = [row["text"] for row in WORDPIECE["uncased"]] + BYTE_BPE["texts"]
# White space, control characters, apostrophes, signs, sigmas, marks, Chinese, emoji, characters
# that are dropped, lone surrogates; and words of about the longest that is kept.
PARTS = [
    *" \t\n\v\f\r\x1c\x1f\x7f\0\x85\xa0\u1680\u2003\u200a\u2028\u202f\u205f\u3000",
    *["  ", "   ", " \n", "\n ", "\n\n", " \u3000", "\xa0 ", "\r\n", "\u2028 "],
    *["'", "'s", "'S", "'re", "n't", "''", "'''s", "s'", ".'", "'.", ":'s"],
    *'.,:;!?^`-_/()[]"$%&*+<=>@#~|{}\\',
    *["a", "b", "the", "The", "THE", "cat", "un", "x1", "7", "42", "3.5", "U.S.", "a,b", "e-mail"],
    *[
        "Σ",
        "σ",
        "ς",
        "ΑΣ",
        "ΟΔΟΣ",
        "é",
        "E\u0301",
        "\u0301",
        "ß",
        "İ",
        "ﬁ",
        "½",
        "…",
        "“",
        "”",
        "–",
    ],
    *[
        "中",
        "国",
        "東京",
        "ひ",
        "한",
        "ก็",
        "д",
        "Привет",
        "कि",
        "😀",
        "👍🏽",
        "\U0002a6d6",
        "\U0001d6ba",
    ],
    *[
        "\u200b",
        "\u200d",
        "\xad",
        "\ufeff",
        "\ufffd",
        "\ue000",
        "\u0378",
        "\U000e0001",
        "\U0010ffff",
    ],
    *["\ud800", "\udfff", "[MASK]", "<mask>", "[E1]", "Covid19", "covid19"],
    *["w" * 30, "w" * 31, "w" * 32, "é" * 15, "é" * 16, "x" * 99, "x" * 101, "-" * 31],
]


def odd_texts(count, seed, most=12):
    rng = random.Random(seed)
    return ["".join(rng.choices(PARTS, k=rng.randrange(most))) for _ in range(count)]


MERGES = [tuple(line.split(" ")) for line in BYTE_BPE["merges.txt"].splitlines()[1:]]


def listed(count):
    """The settings of added tokens after `count` pieces."""
    marks = (
        added_tokens.AddedToken("[E1]", lstrip=True),
        added_tokens.AddedToken("covid19", normalized=True, single_word=True),
    )
    return {
        added_tokens.LISTED: {
            token.content: added_tokens.Listed(count + i, token) for i, token in enumerate(marks)
        }
    }


def wordpiece(lower_case, settings=None):
    pieces = WORDPIECE["vocabulary"]
    return tokenizers.WordPiece(pieces, lower_case, settings=settings, max_input_chars_per_word=100)


MAKE = {
    "uncased": lambda: wordpiece(True),
    "cased": lambda: wordpiece(False),
    "uncased, added": lambda: wordpiece(True, listed(len(WORDPIECE["vocabulary"]))),
    "byte BPE": lambda: tokenizers.ByteBPE(BYTE_BPE["vocab.json"], MERGES),
    "byte BPE, prefixed": lambda: tokenizers.ByteBPE(BYTE_BPE["vocab.json"], MERGES, True),
    "byte BPE, added": lambda: tokenizers.ByteBPE(
        BYTE_BPE["vocab.json"], MERGES, settings=listed(len(BYTE_BPE["vocab.json"]))
    ),
}


@pytest.fixture(scope="module", params=[name for name in MAKE if "added" not in name])
def tokenizer(request):
    return MAKE[request.param]()


def check(tokenizer, texts, special=False):
    """Compares the ids of texts with those of the whole texts, which are not cut."""
    expected = tokenizer.tokenize(strings(texts), special)
    for _ in range(2):  # of new words, and of known ones
        values, splits = tokenizer.encode_ragged(texts, special)
        if not np.array_equal(values, expected.values):
            for text, ids in zip(texts, expected.to_list(), strict=True):
                assert tokenizer.encode([text], special)[0].tolist() == ids, repr(text)
        np.testing.assert_array_equal(values, expected.values)
        np.testing.assert_array_equal(splits, expected.row_splits)
        assert (values.dtype, splits.dtype) == (np.int32, np.int64)


def test_ids_are_those_of_the_whole_texts(tokenizer):
    check(tokenizer, odd_texts(2000, 1) + TEXTS)


@pytest.mark.parametrize("name", ["uncased, added", "byte BPE, added"])
def test_ids_around_added_tokens(name):
    tokenizer = MAKE[name]()
    assert len(tokenizer.added) == 2
    for special in (False, True):
        check(tokenizer, odd_texts(600, 9) + TEXTS, special)


def test_a_sigma_in_one_text_alone(tokenizer):
    texts = [text.replace("Σ", "Ω") for text in odd_texts(500, 2)]
    check(tokenizer, texts)
    check(tokenizer, [*texts, "ΑΣ'.a ΑΣ.' a.Σ"])


def test_every_pair_of_ascii_characters(tokenizer):
    """With letters around it, and after a blank: each pair of a cut, and what it may depend on."""
    pairs = itertools.product(map(chr, range(128)), repeat=2)
    check(
        tokenizer, [form.format(a, b) for a, b in pairs for form in ("a{}{}s", " {}{} a", "{}{}")]
    )


def test_large_batches(tokenizer):
    rng = random.Random(3)
    some = odd_texts(500, 4, most=4)
    check(tokenizer, [" ".join(rng.choices(some, k=300)) for _ in range(40)])


def test_forgetting_does_not_change_ids(monkeypatch):
    for name in ("uncased", "byte BPE"):
        tokenizer = MAKE[name]()
        tokenizer._words = WordIds(tokenizer._spell, name == "uncased", max_words=7)
        monkeypatch.setattr(base, "_CHUNK_CHARACTERS", 100)
        check(tokenizer, odd_texts(60, 5))
        assert tokenizer._words.count <= 7


def cut(words, lengths):
    ends = np.cumsum(lengths)
    return [words[end - n : end] for n, end in zip(lengths, ends, strict=True)]


class Recorder:
    """The id of a word is its length; it remembers what it is asked."""

    def __init__(self):
        self.asked = []

    def __call__(self, words, lengths):
        self.asked.append(cut(words, lengths))
        return lengths.astype(np.int32), np.arange(len(lengths) + 1)


def check_words(texts, expected, lower_case=False):
    recorder = Recorder()
    ids = WordIds(recorder, lower_case).split(texts).to_list()
    (asked,) = recorder.asked
    assert ids == [[len(word) for word in words] for words in _by_length(ids, texts)]
    assert len(asked) == len(expected) and set(asked) == set(expected)


def _by_length(ids, texts):
    for lengths, text in zip(ids, texts, strict=True):
        ends = np.cumsum(lengths)
        yield [text[end - n : end] for n, end in zip(lengths, ends, strict=True)]


def test_where_texts_are_cut():
    check_words([b"Don't stop, Ada!"], [b"Don", b"'t", b" stop", b",", b" Ada", b"!"])
    check_words(
        [b"a  b", b"a \n b", b"c ", b"c", b"\nd"], [b"a", b" ", b" b", b" \n", b"c", b"\nd"]
    )
    check_words(
        ["a “b” c – 东 京".encode()],
        [text.encode() for text in ("a", " “b”", " c", " –", " 东", " 京")],
    )
    # The second blank may be in a run: what follows is white space, or might be.
    check_words(["x\u3000 y  \u3000z".encode()], ["x\u3000".encode(), b" y", "  \u3000z".encode()])


def test_capital_sigma():
    """Signs are words beside it, unless words are lower-cased; other texts are as they are."""
    texts = [b"a.b", "Σ c.d α.β".encode(), b"e.f", "g.Σ".encode()]
    others = [b"a", b".", b"b", b"e", b"f", " α".encode() + ".β".encode()]
    whole = [*others, "Σ".encode(), b" c.d", "g.Σ".encode()]
    check_words(texts, whole, lower_case=True)
    cut = [*others, "Σ".encode(), b" c", b"d", b"g", ".Σ".encode()]
    check_words(texts, cut)


def test_words_are_split_once_until_they_are_forgotten():
    recorder = Recorder()
    ids = WordIds(recorder, max_words=4)
    texts = [b"a bb", b"a", b"", b" bb bb a"]
    for _ in range(2):
        assert ids.split(texts).to_list() == [[1, 3], [1], [], [3, 3, 2]]
    # Four words are looked up at once, and there is room for four.
    assert set(recorder.asked[0]) == {b"a", b" bb"}
    assert {word for words in recorder.asked for word in words} == {b"a", b" bb", b" a"}
    recorder.asked.clear()
    ids = WordIds(recorder, max_words=100)
    for _ in range(3):
        assert ids.split(texts).to_list() == [[1, 3], [1], [], [3, 3, 2]]
    assert [set(words) for words in recorder.asked] == [{b"a", b" bb", b" a"}]
    assert ids.split([b"c a"]).to_list() == [[1, 2]]
    assert recorder.asked[1:] == [[b"c"]]


def test_long_words_are_not_kept():
    recorder = Recorder()
    ids = WordIds(recorder)
    texts = [b"w" * 33, b"w" * 32, b"w" * 300, b"w" * 33]
    for _ in range(2):
        assert ids.split(texts).to_list() == [[33], [32], [300], [33]]
    long = [b"w" * 33, b"w" * 300, b"w" * 33]
    assert recorder.asked == [[b"w" * 32, *long], long]
    assert ids.split([b"v"]).to_list() == [[1]]
    assert ids.count == 2


def test_words_that_differ_little():
    """In length, in zero bytes at the end, and in any byte."""
    rng = random.Random(6)
    words = {bytes(n) for n in range(40)} | {b"\1" + bytes(n) for n in range(40)}
    for n in range(1, 34):
        word = bytes(rng.choices(range(128, 192), k=n))
        words |= {word, *(word[:i] + b"\xfe" + word[i + 1 :] for i in range(n))}
    words = sorted(words)
    number = {word: i for i, word in enumerate(words)}

    def spell(texts, lengths):
        numbers = [number[text] for text in cut(texts, lengths)]
        return np.array(numbers, np.int32), np.arange(len(numbers) + 1)

    ids = WordIds(spell)
    for _ in range(2):
        assert ids.split(words).to_list() == [[i] if word else [] for i, word in enumerate(words)]


def test_words_without_ids():
    """They are between others, at the ends of a text, and alone."""

    def spell(words, lengths):
        sizes = np.where(lengths == 2, 0, lengths)
        return np.repeat(lengths, sizes).astype(np.int32), np.cumsum(np.append(0, sizes))

    ids = WordIds(spell)
    expected = [[1] + [3] * 9, [], [1]]
    for _ in range(2):
        assert ids.split([b"a b cc d dd ee", b"aa b", b"f b"]).to_list() == expected


def test_a_failure_forgets_all():
    """Words without ids are not kept."""
    recorder = Recorder()
    failing = True

    def spell(words, lengths):
        if failing:
            raise KeyboardInterrupt
        return recorder(words, lengths)

    ids = WordIds(spell)
    with pytest.raises(KeyboardInterrupt):
        ids.split([b"a bb"])
    failing = False
    assert ids.split([b"a bb"]).to_list() == [[1, 3]]


def test_memory_is_bounded():
    """Of words with many ids."""

    def spell(words, lengths):
        return np.zeros(50 * len(lengths), np.int32), np.arange(len(lengths) + 1) * 50

    ids = WordIds(spell, max_words=100)
    for number in range(30):
        assert ids.split([b"%d" % (90 * number + i) for i in range(90)]).values.shape == (4500,)
        assert ids.count <= 100 and len(ids._ids) <= 2 * (1200 + 4500)


def test_the_number_of_words_is_bounded():
    """Words of all lengths, each more than once."""
    rng = random.Random(7)
    ids = WordIds(Recorder(), max_words=100)
    for _ in range(30):
        texts = [b"w" * rng.randrange(1, 33) + b"%d" % rng.randrange(100) for _ in range(95)]
        assert ids.split(texts).to_list() == [[len(text)] for text in texts]
        assert ids.count <= 100


def test_default_memory():
    """Words, spans and ids of both kinds take what the module says."""
    ids = WordIds(Recorder())
    fixed = sum(group.table._places.nbytes for group in ids._groups)
    row = max(group.table._rows[0].nbytes + group.spans[0].nbytes for group in ids._groups)
    assert fixed + (row + 4 * word_ids._IDS) * word_ids.MAX_WORDS <= 64 << 20


def test_no_texts():
    ids = WordIds(Recorder())
    assert ids.split([]).to_list() == [] and ids.split([b"", b""]).to_list() == [[], []]


@pytest.mark.parametrize("name", ["uncased", "byte BPE"])
def test_offsets_are_those_of_the_same_ids(name):
    tokenizer = MAKE[name]()
    texts = [text for text in odd_texts(300, 7) if text.isprintable()]
    found = tokenizer.encode_with_offsets(texts)
    for text, ids, (with_offsets, starts, ends) in zip(
        texts, tokenizer.encode(texts), found, strict=True
    ):
        assert ids.tolist() == with_offsets.tolist(), repr(text)
        assert (starts < ends).all() and (ends <= len(text)).all()


@pytest.mark.slow
def test_the_ids_are_those_of_a_graph():
    tokenizer = MAKE["uncased"]()
    graph = tf.function(tokenizer.tokenize)
    texts = odd_texts(50, 8)
    assert graph(strings(texts)).to_list() == [ids.tolist() for ids in tokenizer.encode(texts)]
