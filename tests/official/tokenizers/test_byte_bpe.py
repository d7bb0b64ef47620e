"""Byte-level BPE: ids of the references, in a graph and outside; folders; errors."""

import itertools
import json
import random
import unicodedata

import numpy as np
import pytest
import tensorflow as tf

from official import tokenizers
from official.tokenizers import byte_bpe, byte_vocabulary
from official.tokenizers.base import strings
from official.tokenizers.byte_bpe import find
from official.tokenizers.byte_vocabulary import ALPHABET, reachable
from official.utils.errors import UserError
from tests import ROOT
from tests.official.tokenizers.byte_bpe_reference import Reference, texts
from tfrecords_tools.vocabulary import word_vocabularies

GOLDEN = json.loads((ROOT / "tests" / "golden" / "byte_bpe.json").read_text())
PIECES = GOLDEN["vocab.json"]
MERGES = [tuple(line.split(" ")) for line in GOLDEN["merges.txt"].splitlines()[1:]]


def write(folder, pieces=None, merges=None, settings=None):
    """A folder with the golden files, some of them replaced."""
    folder.mkdir(exist_ok=True)
    pieces = {piece: i for i, piece in enumerate(PIECES)} if pieces is None else pieces
    text = pieces if isinstance(pieces, str) else json.dumps(pieces)
    (folder / "vocab.json").write_text(text)
    merges = GOLDEN["merges.txt"] if merges is None else merges
    (folder / "merges.txt").write_bytes(merges if isinstance(merges, bytes) else merges.encode())
    if settings is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.mark.parametrize("name", ["plain", "prefixed"])
def test_ids_are_those_of_the_tokenizers_package(tmp_path, name):
    folder = write(tmp_path / "tok", settings={"add_prefix_space": name == "prefixed"})
    tokenizer = tokenizers.load(folder)
    assert isinstance(tokenizer, tokenizers.ByteBPE)
    for text, ids, expected in zip(
        GOLDEN["texts"], tokenizer.encode(GOLDEN["texts"]), GOLDEN[name], strict=True
    ):
        assert ids.tolist() == expected, text
        blank = " " if name == "prefixed" and text and not text.startswith(" ") else ""
        assert tokenizer.decode(ids) == blank + text


@pytest.mark.slow
@pytest.mark.long
def test_a_million_characters():
    """Mixed scripts, emoji, controls: by hand, eagerly, in a function, in a dataset."""
    lines = texts(1_000_000)
    learned = texts(30_000, seed=1) + GOLDEN["texts"]
    counts = word_vocabularies.byte_bpe_counts()
    counts.add(learned)
    pieces, merges = word_vocabularies.learn_byte_bpe(counts.words(), 900)
    tokenizer = tokenizers.ByteBPE(pieces, merges)
    assert sum(map(len, lines)) >= 1_000_000
    values, splits = tokenizer.encode_ragged(lines)
    reference = Reference({piece: i for i, piece in enumerate(pieces)}, merges)
    for line, start, end in zip(lines, splits[:-1], splits[1:], strict=True):
        assert values[start:end].tolist() == reference.encode(line), line
    assert tokenizer.decode(values) == "".join(lines)
    graph = tf.function(tokenizer.tokenize, input_signature=[tf.TensorSpec([None], tf.string)])
    in_function = graph(tf.constant(lines))
    np.testing.assert_array_equal(in_function.values, values)
    np.testing.assert_array_equal(in_function.row_splits, splits)
    dataset = tf.data.Dataset.from_tensor_slices(lines).batch(1024).map(tokenizer.tokenize)
    in_dataset = tf.concat([batch.values for batch in dataset], 0)
    np.testing.assert_array_equal(in_dataset, values)


def test_equal_pairs_are_joined_from_the_left():
    pieces = [*word_vocabularies.BYTE_BPE_SPECIALS, *ALPHABET.values(), "aa", "aaaa", "ab"]
    tokenizer = tokenizers.ByteBPE(pieces, [("a", "a"), ("aa", "aa"), ("a", "b")])
    spelled = [
        [tokenizer.pieces[i] for i in ids]
        for ids in tokenizer.encode(["a" * 7, "aaab", "aab", "ab"])
    ]
    assert spelled == [["aaaa", "aa", "a"], ["aa", "ab"], ["aa", "b"], ["ab"]]
    reference = Reference({piece: i for i, piece in enumerate(pieces)}, tokenizer.merges)
    for n in range(40):
        text = "a" * n + "b" + "a" * n
        assert tokenizer.encode([text])[0].tolist() == reference.encode(text)


def random_merges(rng, letters, count):
    """Merges of random results so far, many of which occur in no text."""
    results, merges = list(letters), []
    for _ in range(count):
        pair = rng.choice(results), rng.choice(results)
        if pair not in merges and len("".join(pair)) <= 12:
            merges.append(pair)
            results += {"".join(pair)} - set(results)
    return merges


def test_merges_in_any_order():
    """Exact also where merges occur in no text, or two merges make the same piece."""
    rng = random.Random(0)
    tried = idle = 0
    for _ in range(60):
        letters = "abc"[: rng.randint(1, 3)]
        merges = random_merges(rng, letters, rng.choice([5, 20, 60]))
        pieces = dict.fromkeys([*ALPHABET.values(), *map("".join, merges)])
        pieces = [*word_vocabularies.BYTE_BPE_SPECIALS, *pieces]
        tokenizer = tokenizers.ByteBPE(pieces, merges)
        idle += len(merges) - len(reachable(merges))
        reference = Reference({piece: i for i, piece in enumerate(pieces)}, merges)
        words = ["".join(rng.choices(letters, k=rng.randint(1, 60))) for _ in range(100)]
        for word, ids in zip(words, tokenizer.encode(words), strict=True):
            assert ids.tolist() == reference.encode(word), (merges, word)
            tried += 1
    assert tried == 6000 and idle > 300


def joined(word, ranks):
    """Joins the pairs of a word as the `tokenizers` package does."""
    symbols = list(word)
    while found := [(ranks[p], i) for i, p in enumerate(itertools.pairwise(symbols)) if p in ranks]:
        i = min(found)[1]
        symbols[i : i + 2] = ["".join(symbols[i : i + 2])]
    return symbols


def test_merges_may_come_before_those_that_make_their_parts():
    merges = [("a", "b"), ("ab", "c"), ("x", "abc"), ("b", "c"), ("a", "bc")]
    assert reachable(merges) == ["ab", "abc", "xabc", "bc"]
    # "bb" is joined first of "abb", so that "ab" and "b" never meet, and "a" and "bb" do.
    merges = [("b", "b"), ("a", "b"), ("ab", "b"), ("abb", "c"), ("a", "bb")]
    assert reachable(merges) == ["bb", "ab", "abbc", "abb"]
    rng = random.Random(0)
    early = 0
    for number in range(400):
        letters = "abcd"[: rng.randint(1, 4)]
        merges = random_merges(rng, letters, rng.choice([5, 20, 40]))
        rng.shuffle(merges)
        if number % 2:  # all pairs that spell a piece, at its place, as in files of tiktoken
            pieces = list(dict.fromkeys(map("".join, merges)))
            known = {*letters, *pieces}
            pairs = [(piece[:cut], piece[cut:]) for piece in pieces for cut in range(1, len(piece))]
            merges = [pair for pair in pairs if known.issuperset(pair)]
        ranks = {pair: rank for rank, pair in enumerate(merges)}
        alone = {piece for piece in map("".join, merges) if joined(piece, ranks) == [piece]}
        found = reachable(merges)
        assert alone == set(found), merges
        early += found != sorted(found, key=len)
    assert early > 100


@pytest.mark.slow
def test_long_words():
    """The cost is n log n: a cost of n² would take minutes here."""
    rng = random.Random(0)
    tokenizer = tokenizers.ByteBPE(PIECES, MERGES)
    reference = Reference({piece: i for i, piece in enumerate(PIECES)}, MERGES)
    for letters in ("etaoin", "abcdefghijklmnopqrstuvwxyz", "é中", "a"):
        word = "".join(rng.choices(letters, k=1500))
        assert tokenizer.encode([word])[0].tolist() == reference.encode(word)
        long = "".join(rng.choices(letters, k=400_000))
        assert tokenizer.decode(tokenizer.encode([long])[0]) == long
    (ids, starts, ends), *_ = tokenizer.encode_with_offsets([long])
    assert starts[0] == 0 and ends[-1] == len(long)
    np.testing.assert_array_equal(starts[1:], ends[:-1])
    assert tokenizer.encode([long])[0].tolist() == ids.tolist()


def test_characters_may_be_composed_first(tmp_path):
    composed = tokenizers.ByteBPE(PIECES, MERGES, nfc=True)
    plain = tokenizers.ByteBPE(PIECES, MERGES)
    apart, one = "A cafe\u0301 in A\u030angstro\u0308m", "A caf\u00e9 in \u00c5ngstr\u00f6m"
    expected = plain.encode([one])[0].tolist()
    assert plain.encode([apart])[0].tolist() != expected
    assert composed.fingerprint != plain.fingerprint
    composed.save(tmp_path / "tok")
    loaded = tokenizers.load(tmp_path / "tok")
    assert loaded.fingerprint == composed.fingerprint and loaded.nfc
    for tokenizer in (composed, loaded):
        assert [ids.tolist() for ids in tokenizer.encode([apart, one, "a"])][:2] == [expected] * 2
        assert tf.function(tokenizer.tokenize)(tf.constant([apart])).to_list() == [expected]
    ids, starts, ends = composed.encode_with_offsets([apart])[0]
    assert ids.tolist() == expected
    # Each token covers the characters that it was composed from.
    at = 0
    for i, start, end in zip(ids, starts, ends, strict=True):
        size = len(byte_vocabulary.spelling(PIECES[i]))
        letters = {place for place, _ in bytes_of(apart)[at : at + size]}
        covered = set(range(start, end)) | {p for p in letters if apart[p] == " "}
        accents = [apart[p] for p in covered - letters]
        assert covered >= letters and all(map(unicodedata.combining, accents))
        at += size
    # Both bytes of a letter that is no piece have its place, and a text may be empty.
    texts = ["", "x\u03c9\u0301", "", "\u03c9\u0301 a", ""]
    rows = composed.encode_with_offsets(texts)
    places = [list(zip(*(row[1:]), strict=True)) for row in rows]
    assert places[0] == places[2] == places[4] == []
    assert places[1] == [(0, 1), (1, 3), (1, 3)]
    assert places[3] == [(0, 2), (0, 2), (3, 4)]
    # A slice may begin with the accent of the letter before it.
    cuts = [["A cafe", "\u0301 in", " A\u030angstro\u0308m"], ["a", "b"]]
    flat, bounds = composed.encode_slices(cuts)
    assert flat.tolist() == [*expected, *composed.encode(["ab"])[0]]
    sizes = [len(byte_vocabulary.spelling(PIECES[i])) for i in expected]
    begins = np.cumsum(sizes) - sizes
    lengths = [len("A caf\u00e9".encode()) - 1, len("A caf\u00e9 in".encode())]
    assert bounds[:3].tolist() == [0, *(int((begins < size).sum()) for size in lengths)]
    with pytest.raises(UserError, match="unicode_normalization: 'NFD' in its settings is not sup"):
        tokenizers.load(write(tmp_path / "nfd", settings={"unicode_normalization": "NFD"}))


def bytes_of(text):
    """The place of the letter and the value of each byte of a text whose letters are composed."""
    result, place = [], 0
    while place < len(text):
        both = unicodedata.normalize("NFC", text[place : place + 2])
        result += [(place, byte) for byte in both[:1].encode()]
        place += 3 - len(both) if place + 1 < len(text) else 1
    return result


def test_attributes():
    tokenizer = tokenizers.ByteBPE(PIECES, MERGES)
    assert (
        tokenizer.cls_id,
        tokenizer.pad_id,
        tokenizer.sep_id,
        tokenizer.unk_id,
        tokenizer.mask_id,
    ) == (0, 1, 2, 3, 4)
    assert tokenizer.special_ids == (0, 1, 2, 3, 4)
    assert tokenizer.pieces == PIECES and tokenizer.vocab_size == len(PIECES)
    assert tokenizer.pair_separators == 2
    plain = [i for i, piece in enumerate(PIECES) if piece.isascii() and i > 4]
    assert not tokenizer.word_starts[plain].any() and not tokenizer.word_ends[plain].any()
    for piece, starts, ends in (
        ("Ġ", 1, 1), ("Ċ", 1, 1), ("Ġa", 1, 0), ("a", 0, 0), ("ç", 1, 0), ("Ã", 0, 0),
    ):  # fmt: skip
        i = PIECES.index(piece)
        assert (tokenizer.word_starts[i], tokenizer.word_ends[i]) == (starts, ends), piece
    assert tokenizer.word_starts[:5].all() and not tokenizer.word_ends[:5].any()
    np.testing.assert_array_equal(tokenizer.word_starts_by("blank"), tokenizer.word_starts)
    assert tokenizer.tokenize(tf.constant(["a"])).dtype == tf.int32
    assert tokenizer.tokenize(tf.constant([], tf.string)).shape == (0, None)
    assert tokenizer.encode(["", ""])[1].tolist() == []


def test_merges_may_be_none():
    pieces = PIECES[: 5 + 256]
    tokenizer = tokenizers.ByteBPE(pieces, [])
    assert (
        tokenizer.decode(tokenizer.encode(["né"])[0]) == "né"
        and len(tokenizer.encode(["né"])[0]) == 3
    )


def test_text_never_gives_special_tokens():
    text = "<s> and all</s> <mask>"
    plain = tokenizers.ByteBPE(PIECES, MERGES)
    ids = plain.encode([text])[0].tolist()
    assert not set(ids) & {0, 1, 2, 3, 4} and plain.decode(ids) == text
    # Not even where the special tokens are pieces of the alphabet.
    settings = {"mask_token": "Ġand", "sep_token": "all"}
    tokenizer = tokenizers.ByteBPE(PIECES, MERGES, settings=settings)
    named = [PIECES.index("Ġand"), PIECES.index("all")]
    assert [tokenizer.mask_id, tokenizer.sep_id] == named and named[0] in ids
    assert tokenizer.encode([text])[0].tolist() == [3 if i in named else i for i in ids]
    assert tokenizer.encode(["all"])[0].tolist() == [tokenizer.unk_id]


@pytest.mark.parametrize("text", [b"\xff\xfe It", b"a\x80 It", b"\xc3", b"\xed\xa0\x80 It", b"\0"])
def test_bytes_that_are_not_utf8(text):
    tokenizer = tokenizers.ByteBPE(PIECES, MERGES)
    ids = tokenizer.tokenize(tf.constant([text, b"It"])).to_list()
    assert ids[1] == tokenizer.encode(["It"])[0].tolist()
    assert tokenizer.decode(ids[0]) == text.decode(errors="replace")


def test_save_and_load(tmp_path):
    tokenizer = tokenizers.load(write(tmp_path / "given"))
    tokenizer.save(tmp_path / "tok")
    again = tokenizers.load(tmp_path / "tok")
    assert again.files == tokenizer.files and again.fingerprint == tokenizer.fingerprint
    assert set(tokenizer.files) == {"vocab.json", "merges.txt", "tokenizer_config.json"}
    assert json.loads((tmp_path / "tok" / "vocab.json").read_text()) == {
        piece: i for i, piece in enumerate(PIECES)
    }
    assert (tmp_path / "tok" / "merges.txt").read_text().splitlines() == [
        "#version: 0.2",
        *GOLDEN["merges.txt"].splitlines()[1:],
    ]
    settings = json.loads((tmp_path / "tok" / "tokenizer_config.json").read_text())
    assert settings["tokenizer_class"] == "RobertaTokenizer"
    assert settings["add_prefix_space"] is False and settings["mask_token"] == "<mask>"
    prints = {tokenizer.fingerprint}
    prints.add(tokenizers.ByteBPE(PIECES, MERGES, add_prefix_space=True).fingerprint)
    prints.add(tokenizers.ByteBPE(PIECES, MERGES[:-1]).fingerprint)
    prints.add(tokenizers.ByteBPE([*PIECES, "x y"], MERGES).fingerprint)
    assert len(prints) == 4


def test_a_vocabulary_without_a_mask_token(tmp_path):
    pieces = [piece for piece in PIECES if piece != "<mask>"]
    tokenizer = tokenizers.load(write(tmp_path / "a", {piece: i for i, piece in enumerate(pieces)}))
    assert tokenizer.mask_id is None and tokenizer.special_ids == (0, 1, 2, 3)
    tokenizer.save(tmp_path / "b")
    assert "mask_token" not in json.loads((tmp_path / "b" / "tokenizer_config.json").read_text())
    assert tokenizers.load(tmp_path / "b").fingerprint == tokenizer.fingerprint


def swapped(a, b):
    ids = {piece: i for i, piece in enumerate(PIECES)}
    return {**ids, a: ids[b]}


@pytest.mark.parametrize(
    "options, message",
    [
        ({"pieces": "{"}, r"vocab.json is not JSON \(.*\): expected an object, such as"),
        ({"pieces": "[1]"}, r"vocab.json: expected an object"),
        ({"pieces": "{}"}, r"vocab.json is empty: expected an object"),
        ({"pieces": {"a": 1}}, r"'a' has id 1, but 1 pieces have the whole numbers from 0 to 0"),
        ({"pieces": {"a": "0"}}, r"'a' has id '0', but 1 pieces"),
        ({"pieces": swapped("<s>", "a")}, r"vocab.json: '<s>' and 'a' have the same id, \d+"),
        ({"pieces": '{"a": 0, "b": 1, "a": 2}'}, r"vocab.json: 'a' is listed twice"),
        ({"pieces": {"the": 0}}, r"lacks 256 of the 256 characters that stand for bytes \(! \" #"),
        (
            {"pieces": {p: i for i, p in enumerate(PIECES[2:])}, "merges": ""},
            r"lacks special tokens: pad_token \(<pad> or <\|endoftext\|>\), cls_token \(<s> or",
        ),
        ({"settings": {"mask_token": "[M]"}}, r"lacks special tokens: mask_token \(\[M\]\)"),
        (
            {"settings": {"add_prefix_space": 1}},
            r"add_prefix_space is 1, but must be true or",
        ),
        ({"merges": b"\xff"}, r"merges.txt is not UTF-8: expected one merge on each line"),
        (
            {"merges": "#version: 0.2\nth"},
            r"merges.txt:2: 'th': expected two pieces with a blank between",
        ),
        ({"merges": "t h e"}, r"merges.txt:1: 't h e': expected two pieces with a blank between"),
        ({"merges": "th e\n"}, r"merge 1 \(th e\): 'th' is neither a byte nor what an earlier"),
        ({"merges": "e r\ne r\n"}, r"merge 2 \(e r\): is listed twice"),
        ({"merges": "q q\n"}, r"merge 1 \(q q\): makes 'qq', which the vocabulary lacks: are"),
    ],
)
def test_bad_folders(tmp_path, options, message):
    folder = write(tmp_path / "tok", **options)
    with pytest.raises(UserError, match=message):
        tokenizers.load(folder)


def test_merges_that_are_missing(tmp_path):
    folder = write(tmp_path / "tok")
    (folder / "merges.txt").unlink()
    with pytest.raises(UserError, match=r"merges.txt is missing: byte-level BPE needs it beside"):
        tokenizers.load(folder)


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
