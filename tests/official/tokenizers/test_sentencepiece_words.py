"""SentencePiece with a cache of words: the ids of whole texts; models that need whole texts."""

import random

import numpy as np
import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from official import tokenizers
from official.tokenizers import added_tokens, base
from official.tokenizers.base import strings
from official.tokenizers.sentencepiece_words import parts_at_blanks
from official.tokenizers.word_ids import WordIds, cut_at_blanks
from tests.official.tokenizers.test_word_ids import PARTS, TEXTS, check, odd_texts

BLANK = "\u2581"
# Quotes, numbers with commas, sentinels, the sign of a blank, and symbols of the models below.
MORE = [BLANK, BLANK * 2, f" {BLANK}", f"{BLANK} ", "``", "1,", "1990,", "<extra_id_0>", "of the"]
MORE += ["<x>", f"a{BLANK}b", "of", "the of the", "It flows"]
MODELS = {
    "unigram": {},
    "bpe": {"kind": "bpe"},
    "identity": {"normalization_rule_name": "identity"},
    "nfkc_cf": {"normalization_rule_name": "nfkc_cf"},
    "nmt_nfkc_cf": {"normalization_rule_name": "nmt_nfkc_cf"},
    "bytes": {"byte_fallback": True, "vocab_size": 480},
    "bpe, bytes": {"kind": "bpe", "byte_fallback": True, "vocab_size": 480},
    "symbols": {"user_defined_symbols": ["<x>", ".", "-", "U.S.", "é"]},
    "bpe, symbols": {"kind": "bpe", "user_defined_symbols": ["<x>", ".", "-", "U.S.", "é"]},
}
WHOLE = {
    "a piece of two words": {"kind": "bpe", "split_by_whitespace": False, "vocab_size": 500},
    "a symbol with a blank": {"user_defined_symbols": ["of the"]},
    "a symbol with the sign": {"user_defined_symbols": [f"a{BLANK}b"]},
    "a blank after a word": {"treat_whitespace_as_suffix": True},
    "no blank before a text": {"add_dummy_prefix": False},
    "runs of blanks": {"remove_extra_whitespaces": False},
    "characters": {"kind": "char", "vocab_size": 40},
    "words": {"kind": "word", "vocab_size": 60},
}
RELEASED = {
    "remove_space": True,
    "keep_accents": False,
    "replace_quotes": True,
    "split_digit_comma": True,
}
OPTIONS = {
    "albert": RELEASED | {"lower_case": True},
    "xlnet": RELEASED,
    "t5": {"extra_ids": 3},
    "lower case": {"lower_case": True},
    "last blank": {"last_blank": True},
    "last blank, composed": {"last_blank": True, "compose": True},
    "last blank, removed": {"last_blank": True, "remove_space": True},
    "blanks": {"blanks": "|=\u2028", "remove_marks": True, "keep_accents": False},
}


def texts_of(seed, count=600):
    rng = random.Random(seed)
    parts = [*PARTS, *MORE]
    mixed = ["".join(rng.choices(parts, k=rng.randrange(9))) for _ in range(count)]
    # Each part is before a blank and after one.
    ends = [f"{part} {rng.choice(parts)} {part}" for part in parts]
    return odd_texts(count, seed) + mixed + ends + TEXTS


@pytest.mark.parametrize("name", MODELS)
def test_ids_are_those_of_whole_texts(spiece_model, name):
    tokenizer = tokenizers.SentencePiece(spiece_model(**MODELS[name]))
    check(tokenizer, texts_of(1))
    assert tokenizer._words.count > 500


@pytest.mark.parametrize("name", OPTIONS)
def test_rules_of_texts(spiece_model, name):
    tokenizer = tokenizers.SentencePiece(spiece_model(), **OPTIONS[name])
    check(tokenizer, texts_of(2))
    assert tokenizer._words.count > 500


def test_added_tokens(spiece_model):
    data = spiece_model()
    count = len(sentencepiece_model_pb2.ModelProto.FromString(data).pieces)
    marks = (
        added_tokens.AddedToken("[E1]", lstrip=True),
        added_tokens.AddedToken("covid19", normalized=True, single_word=True),
    )
    listed = {t.content: added_tokens.Listed(count + i, t) for i, t in enumerate(marks)}
    tokenizer = tokenizers.SentencePiece(
        data, settings={added_tokens.LISTED: listed}, last_blank=True
    )
    assert len(tokenizer.added) == 2
    for special in (False, True):
        check(tokenizer, texts_of(3, 100), special)


@pytest.mark.parametrize("name", OPTIONS)
def test_plain_words_are_as_the_rules_leave_them(spiece_model, name):
    """Words with each pair of the characters that a tokenizer splits without its rules."""
    tokenizer = tokenizers.SentencePiece(spiece_model(), **OPTIONS[name])
    plain = tokenizer.module().plain_characters().decode()
    assert 60 < len(plain) <= 95 and " " in plain
    pairs = [f"{blank}{a}{b}{a}" for a in plain for b in plain for blank in ("", " ")]
    words = [word for word in pairs if " " not in word[1:]]
    module = tokenizer.module()
    np.testing.assert_array_equal(
        module.split_plain_words(strings(words)).values, module.split_words(strings(words)).values
    )


@pytest.mark.parametrize("name", WHOLE)
def test_models_that_need_whole_texts(spiece_model, name):
    data = spiece_model(**WHOLE[name])
    assert not parts_at_blanks(sentencepiece_model_pb2.ModelProto.FromString(data))
    check(tokenizers.SentencePiece(data), texts_of(4, 200))


@pytest.mark.parametrize("scheme", ["first", "never"])
def test_texts_without_a_blank_before_them_stay_whole(spiece_model, scheme):
    tokenizer = tokenizers.SentencePiece(spiece_model(), prepend_scheme=scheme)
    assert tokenizer._words is None
    check(tokenizer, texts_of(5, 200))


@pytest.mark.parametrize(
    ("rule", "parted"),
    [
        ("66 6F\t67", True),  # fo → g
        ("66 20 6F\t67", False),  # f o → g
        ("20 66\t67", False),
        ("66\t2581", False),
        ("66\t67 20 67", True),
    ],
)
def test_replacements_across_blanks(spiece_model, tmp_path, rule, parted):
    path = tmp_path / "rules.tsv"
    path.write_text(f"{rule}\n")
    data = spiece_model(normalization_rule_name="", normalization_rule_tsv=str(path))
    model = sentencepiece_model_pb2.ModelProto.FromString(data)
    assert parts_at_blanks(model) is parted
    check(tokenizers.SentencePiece(data), ["of of f off oof f f", "if o f", "f", " f", "f o f o "])


def changed(data, change):
    model = sentencepiece_model_pb2.ModelProto.FromString(data)
    change(model)
    return model


def test_unknown_characters_before_an_unknown_blank(spiece_model):
    """They are one unknown piece, also across words, if the blank is not a piece."""

    def rename(model):
        (blank,) = (piece for piece in model.pieces if piece.piece == BLANK)
        blank.piece = "\ue000"

    model = changed(spiece_model(), rename)
    assert not parts_at_blanks(model)
    tokenizer = tokenizers.SentencePiece(model.SerializeToString())
    assert tokenizer.encode(["国 国"])[0].tolist() == [tokenizer.unk_id]


@pytest.mark.parametrize("parts", [["a"], ["é"], ["a", "é"], ["1,"], ["a", "1,", "b,", "``"]])
def test_words_that_rules_change_beside_others(spiece_model, parts):
    """Alone, and between words that no rule changes; a number is split from its comma."""
    pieces = {"user_defined_symbols": ["1,"]}
    tokenizer = tokenizers.SentencePiece(spiece_model(**pieces), **RELEASED)
    check(tokenizer, [" ".join(parts), *(f"{a} {b}" for a in parts for b in parts)])


def test_ties(spiece_model):
    """Of segmentations with equal scores, a text and its words may have different ones."""

    def equal(model):
        for piece in model.pieces:
            piece.score = -0.1 if piece.type == piece.NORMAL else 0
        for name in ("66", "666", "6", "▁"):
            if name not in [piece.piece for piece in model.pieces]:
                model.pieces.add(piece=name, score=-0.1)

    data = changed(spiece_model(), equal).SerializeToString()
    tokenizer = tokenizers.SentencePiece(data)
    texts = ["It flows through Spain. " * 20 + "6666", "6666 " * 50]
    whole = tokenizer.tokenize(strings(texts)).to_list()
    scores = np.array([piece.score for piece in tokenizer.parsed().pieces])
    for ids, expected in zip(tokenizer.encode(texts), whole, strict=True):
        assert tokenizer.decode(ids) == tokenizer.decode(expected)
        np.testing.assert_allclose(scores[ids].sum(), scores[expected].sum(), rtol=1e-12)


def test_the_ids_of_a_word_do_not_depend_on_the_words_before_it(spiece_model):
    tokenizer = tokenizers.SentencePiece(spiece_model())
    (alone,) = tokenizer.encode(["through"])
    for before in ("It", "flows " * 500):
        np.testing.assert_array_equal(
            tokenizer.encode([f"{before} through"])[0][-len(alone) :], alone
        )


def test_offsets_have_the_same_ids(spiece_model):
    tokenizer = tokenizers.SentencePiece(spiece_model(), **OPTIONS["albert"])
    texts = [text for text in texts_of(6, 100) if "\ud800" not in text and "\udfff" not in text]
    for text, ids, (others, starts, ends) in zip(
        texts, tokenizer.encode(texts), tokenizer.encode_with_offsets(texts), strict=True
    ):
        np.testing.assert_array_equal(ids, others)
        assert len(starts) == len(ids) and all(ends <= len(text)), text


def test_forgetting_does_not_change_ids(spiece_model, monkeypatch):
    tokenizer = tokenizers.SentencePiece(spiece_model())
    tokenizer._words = WordIds(tokenizer._spell, max_words=7, cut=tokenizer._words._cut)
    monkeypatch.setattr(base, "_CHUNK_CHARACTERS", 100)
    check(tokenizer, odd_texts(60, 7))
    assert tokenizer._words.count <= 7


def test_where_texts_are_cut():
    texts = ["a  b", "c\td e", "", f"f{BLANK} g", " h"]
    data = "".join(texts).encode()
    bounds = np.cumsum([0, *(len(text.encode()) for text in texts)])
    cuts = cut_at_blanks(data, bounds, BLANK.encode())
    cuts[bounds[:-1]] = True
    begins = np.flatnonzero(cuts)
    words = [data[a:b].decode() for a, b in zip(begins, [*begins[1:], len(data)], strict=True)]
    assert words == ["a", " ", " b", "c\td", " e", f"f{BLANK} g", " h"]


def test_words_are_read_by_the_package_as_alone(spiece_model):
    data = spiece_model()
    package = sentencepiece.SentencePieceProcessor(model_proto=data)
    tokenizer = tokenizers.SentencePiece(data)
    text = "It flows through Spain, and it flows."
    expected = [i for word in text.split() for i in package.encode(word)]
    assert tokenizer.encode([text])[0].tolist() == expected == package.encode(text)
