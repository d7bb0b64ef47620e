"""The words of raw text, by each rule."""

import random

import pytest
import tensorflow as tf

from official import tokenizers
from official.tokenizers import text_words
from official.utils import word_rules
from tests import small

ODD = [
    *" \t\n\r\v\f\x1c\x85\u00a0\u1680\u2003\u2028\u202f\u3000\ufeff\u200b\u200d\u00ad\0\x07",
    *"aZß9.,;:!?…\"'。、，！？：；()[]{}«»“”‘’„‚「」（）-_@#/&%",
    *"漢字𠀀豈かな한글שלוםمرحباé\u0301\u0323😀👩🇬🇧\ufffd\ue000\U0010ffff\u202e\u200f",
    "don't", "U.S.", "3.5", "@user", "http://x.y/z?", "👩‍👩‍👧", "...", "''", "Ada's", "X-1", "a/b",
]  # fmt: skip
BLANKS = {c for c in ODD if len(c) == 1 and c.isspace()}


def parts(text, rule, tokenizer=None):
    (spans,) = text_words.spans([text], rule, tokenizer)
    return "|".join(text[a:b] for a, b in spans)


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
def test_edges(text, words):
    assert parts(text, "edges") == words


@pytest.mark.parametrize(
    "text, words",
    [
        ("Mr. Smith's U.S. bank (3.5%).", "Mr|.|Smith|'s|U.S|.|bank|(|3.5%|)|."),
        ("Ada's cat, James’s, o'clock's", "Ada|'s|cat|,|James|’s|,|o'clock|'s"),
        ("Ada 's it's don't O'Brien's-end 'S.", "Ada|'s|it|'s|don't|O'Brien|'s|-|end|'S|."),
        ("York-based AMD/Intel and/or X-Files", "York|-|based|AMD|/|Intel|and|/|or|X|-|Files"),
        ("COVID-19 2017-18 1/2 -5 F-16s", "COVID|-|19|2017-18|1/2|-5|F|-|16s"),
        ("-- a--b (Ada)-St.-Denis", "--|a|--|b|(|Ada|)|-|St|.|-|Denis"),
        ("http://x-y/z's www.a-b.c a@b-c", "http://x-y/z's|www.a-b.c|a@b-c"),
        ("@user's @a-b", "@user|'s|@a|-|b"),
        ("東京-Ada’sの", "東|京|-|Ada’sの"),
    ],
)
def test_words(text, words):
    assert parts(text, "words") == words


@pytest.mark.parametrize(
    "rule, text, words",
    [
        ("blanks", "Ada's (York-based),\u3000東京", "Ada's|(York-based),|東京"),
        ("basic", "Ada's U.S. $3.5 東京タワーに", "Ada|'|s|U|.|S|.|$|3|.|5|東|京|タワーに"),
        ("characters", "é e\u0301 東京タワーに", "é|e\u0301|東|京|タ|ワ|ー|に"),
        ("characters", "서울에서 ก็ไทย", "서|울|에|서|ก็|ไ|ท|ย"),
        ("characters", "👍🏽a👩‍👩‍👧\ufe0fb", "👍🏽|a|👩‍👩‍👧\ufe0f|b"),
    ],
)
def test_other_rules(rule, text, words):
    assert parts(text, rule) == words


def test_words_are_tokens(tmp_path):
    tokenizer = tokenizers.load(small.tokenizer_folder(tmp_path / "tokenizer"))
    text = " bábe (zü)\u200b 東"
    ids, starts, ends = tokenizer.encode_with_offsets([text])[0]
    assert text_words.spans([text], "tokens", tokenizer) == [
        list(zip(starts.tolist(), ends.tolist(), strict=True))
    ]
    # The bytes of a character are tokens, and one word.
    letters = {chr(i): i - 0x21 for i in range(0x21, 0x7F)}
    pieces = [*letters, *(chr(i) for i in range(0xA1, 0x144) if i != 0xAD)]
    vocabulary = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *pieces]
    byte_bpe = tokenizers.ByteBPE({piece: i for i, piece in enumerate(vocabulary)}, [])
    assert parts("aé👍🏽", "tokens", byte_bpe) == "a|é|👍|🏽"


@pytest.mark.parametrize("rule", [rule for rule in word_rules.RULES if rule != "tokens"])
def test_words_are_all_characters_but_blanks(rule):
    draw = random.Random(0)
    texts = ["".join(draw.choices(ODD, k=draw.randrange(30))) for _ in range(1000)]
    texts += ["x" * 10_000, "." * 10_000, "漢" * 3_000, " " * 10_000, "", "(" * 5_000 + "a"]
    found = text_words.split(tf.constant(texts, tf.string), rule)
    columns = (part.to_list() for part in (found.starts, found.ends, found.texts))
    for text, starts, ends, words in zip(texts, *columns, strict=True):
        covered = [i for a, b in zip(starts, ends, strict=True) for i in range(a, b)]
        assert covered == sorted(set(covered))
        left = {text[i] for i in set(range(len(text))) - set(covered)}
        assert left <= BLANKS and all(a < b for a, b in zip(starts, ends, strict=True))
        spelled = [text[a:b].encode() for a, b in zip(starts, ends, strict=True)]
        assert words == spelled
    assert text_words.spans([], rule) == []


def test_other_names_of_rules_are_refused():
    with pytest.raises(ValueError, match="split_words: 'word' is not one of words, edges"):
        text_words.split(tf.constant(["a"]), "word")
