"""Lexicons over a vocabulary of small words."""

import re

import pytest

from official import tokenizers
from official.tokenizers.byte_vocabulary import ALPHABET
from official.utils.errors import UserError
from tests import small
from tfrecords_tools.pretraining import lexicon
from tfrecords_tools.vocabulary import sentencepiece as sentencepiece_trainer
from tfrecords_tools.vocabulary import word_vocabularies as byte_bpe_trainer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    words = [*small.WORDS, ",", "x"]
    return tokenizers.load(small.tokenizer_folder(tmp_path_factory.mktemp("made"), words))


def find(tmp_path, tokenizer, lines, *sentences):
    """The words that go on with a phrase, joined to what is before; matches by line."""
    (tmp_path / "lexicon").write_text("\n".join(lines))
    words = lexicon.Lexicon(tmp_path / "lexicon", tokenizer)
    ids, splits = tokenizer.encode_ragged(sentences)
    piece = small.tokenized(ids, splits, [len(sentences)])
    inner, matches = words.find(piece)
    joined = ""
    for token, goes_on in zip(ids, inner, strict=True):
        joined += ("+" if goes_on else " ") + tokenizer.pieces[token]
    return joined.split(), dict(zip(words.lines, matches.tolist(), strict=True))


def test_matches_are_whole_words(tmp_path, tokenizer):
    joined, matches = find(
        tmp_path, tokenizer, ["ba be", "bi"], "ba be bi", "bo ba bebi", "x ba be, bi"
    )
    assert joined == "ba+be bi bo ba be ##bi x ba+be , bi".split()
    assert matches == {"ba be": 2, "bi": 2}


def test_the_first_and_then_the_longest_match_counts(tmp_path, tokenizer):
    lines = ["be bi bo", "ba be", "ba be bi", "bo bu"]
    joined, matches = find(tmp_path, tokenizer, lines, "ba be bi bo bu", "be bi bu", "be bi bo bu")
    assert joined == "ba+be+bi bo+bu be bi bu be+bi+bo bu".split()
    assert matches == {"be bi bo": 1, "ba be": 0, "ba be bi": 1, "bo bu": 1}


def test_no_match_reaches_over_a_sentence(tmp_path, tokenizer):
    joined, matches = find(tmp_path, tokenizer, ["ba be bi", "ba be"], "x ba be", "bi ba", "be bi")
    assert joined == "x ba+be bi ba be bi".split()
    assert matches == {"ba be bi": 0, "ba be": 1}


def test_lines_that_match_nothing(tmp_path, tokenizer):
    # An unknown word, and one that is known by its first half only.
    joined, matches = find(tmp_path, tokenizer, ["ba §", "ba bebo", "\u200b"], "ba § ba be bo")
    assert "+" not in " ".join(joined)
    assert set(matches.values()) == {0}


LETTERS = "NewYorkisnotfacpul-g()“”\"',.é東京大学hिक "


def wordpiece():
    letters = dict.fromkeys(LETTERS.replace(" ", ""))
    return tokenizers.WordPiece(
        [*small.SPECIALS, *letters, *(f"##{c}" for c in letters), "New", "York", "##er"], False
    )


def sentencepiece():
    text = "New York (New York) is not “New York” New York's, and Yorker New-York. 東京大学 कि é a"
    model = sentencepiece_trainer.learn([text] * 50, "bpe", 60, 1.0, False)
    return tokenizers.SentencePiece(model, lower_case=False)


def byte_bpe(**options):
    """The pieces of released vocabularies: "New" and "York" with and without the blank mark."""
    merges = [tuple(pair.split()) for pair in (
        "e w", "N ew", "Y o", "r k", "Yo rk", "Ġ N", "ĠN ew", "Ġ Yo", "ĠYo rk", "e r", ". )",
    )]  # fmt: skip
    pieces = [*byte_bpe_trainer.BYTE_BPE_SPECIALS, *ALPHABET.values()]
    return tokenizers.ByteBPE(pieces + ["".join(pair) for pair in merges], merges, **options)


KINDS = {
    "wordpiece": wordpiece,
    "sentencepiece": sentencepiece,
    "byte_bpe": byte_bpe,
    "byte_bpe, blank before a text": lambda: byte_bpe(add_prefix_space=True),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("New York is", 1),
        ("is New York", 1),
        ("is\nNew York", 1),
        ("is not. New York's is", 1),
        ("(New York) is", 1),
        ("“New York” and 'New York', \"New York\"", 3),
        ("is-New York-is (New  York", 2),
        ("New\tYork", 1),
        ("NewYork, New-York, New. York, New Yorker, aNew York, NewéYork", 0),
        ("is New\nYork", 0),  # two lines
    ],
)
def test_a_line_matches_wherever_its_words_stand(tmp_path, kind, text, wanted):
    """At the start of a text, a line and a sentence, after brackets, quotes and hyphens."""
    tokenizer = KINDS[kind]()
    (tmp_path / "lexicon").write_text("New York\n")
    words = lexicon.Lexicon(tmp_path / "lexicon", tokenizer)
    lines = [line if not i else f"\n{line}" for i, line in enumerate(text.split("\n"))]
    ids, splits = tokenizer.encode_slices([lines])
    piece = small.tokenized(ids, splits, [len(lines)])
    inner, matches = words.find(piece)
    assert matches.tolist() == [wanted]
    # What is joined are the tokens of the two words, and no other.
    spelled = b"".join(
        b"|" * (not goes_on and bool(i)) + tokenizer.spellings[token]
        for i, (token, goes_on) in enumerate(zip(ids, inner, strict=True))
    ).decode(errors="replace")
    assert len(re.findall(r"\| ?New *\t?York\|", f"|{spelled}|")) == wanted
    assert inner.sum() >= wanted if wanted else not inner.any()


@pytest.mark.parametrize("kind", KINDS)
def test_letters_of_scripts_without_blanks_are_words(tmp_path, kind):
    """And a mark belongs to its letter."""
    tokenizer = KINDS[kind]()
    (tmp_path / "lexicon").write_text("京大\nक\n")
    words = lexicon.Lexicon(tmp_path / "lexicon", tokenizer)
    ids, splits = tokenizer.encode_slices([["東京大学 कि", " क"]])
    spelled = [tokenizer.spellings[token] for token in ids]
    inner, matches = words.find(small.tokenized(ids, splits, [2]))
    alone = kind != "sentencepiece" or "京".encode() in spelled and "大".encode() in spelled
    assert matches.tolist() == [int(alone), 1]


def test_a_match_ends_where_a_token_does(tmp_path):
    """The last sign of the line is in one piece with the next one."""
    (tmp_path / "lexicon").write_text("York.\n")
    words = lexicon.Lexicon(tmp_path / "lexicon", byte_bpe())
    ids, splits = byte_bpe().encode_slices([["York.", " (York.) York. York.é"]])
    assert words.find(small.tokenized(ids, splits, [2]))[1].tolist() == [3]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"lexicon .*file: cannot be read: No such file or directory"),
        (b"ba \xff", r"lexicon .*file: not UTF-8 \(.*0xff.*\): convert it"),
        (b" \n\n", r"lexicon .*file is empty: give it one phrase or entity a line"),
    ],
)
def test_bad_files(tmp_path, content, message):
    if content is not None:
        (tmp_path / "file").write_bytes(content)
    with pytest.raises(UserError, match=message):
        lexicon.read_lines(tmp_path / "file")
