"""The words of raw text, by each rule."""

import random

import numpy as np
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
    "L'A", "Xi'an", "।", "،", "3،5", "・", "\ufe0f", "각", "Ada\u200f",
]  # fmt: skip
BLANKS = {c for c in ODD if len(c) == 1 and c.isspace()}
INVISIBLE = set("\ufeff\u200b\u200d\u00ad\u202e\u200f")  # those of ODD


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


UNICODE = [
    # The stops, commas and question marks of all scripts, with a blank after them or without.
    ("मैं दिल्ली। गया।वह", "मैं|दिल्ली|।|गया|।|वह"),
    ("ذهب إلى لندن، ثم هل؟ (3،5)", "ذهب|إلى|لندن|،|ثم|هل|؟|(|3،5|)"),
    ("لاہور۔ ភ្នំពេញ។ ရန်ကုန်၊ အ။", "لاہور|۔|ភ្នំពេញ|។|ရန်ကုန်|၊|အ|။"),
    ("አዲስ፡አበባ፣ ናት። Երևան։ Ինչո՞ւ", "አዲስ|፡|አበባ|፣|ናት|።|Երևան|։|Ինչո՞ւ"),
    ("ｱﾌﾘｶ､アフリカ・アジア ＡＢＣ．次", "ｱﾌﾘｶ|､|アフリカ|・|アジア|ＡＢＣ|．|次"),
    ("قال«أحمد»ثم ３．５ １０：３０", "قال|«|أحمد|»|ثم|３．５|１０|：|３０"),
    # Characters without a sign are in no word at its ends, and hide no mark.
    ("(باريس)\u200f \ufeff\u200eAda.\u200e می\u200cخواهم", "(|باريس|)|Ada|.|می\u200cخواهم"),
    ("ភាសា\u200bខ្មែរ a\u200bb \u200d", "ភាសា|ខ្មែរ|a|b"),
    # Endings of names and numbers, and elided words.
    ("Ankara'nın 1944'teki Kennedy’ego 5'i", "Ankara|'nın|1944|'teki|Kennedy|’ego|5|'i"),
    ("don't Don't O'Brien's I'm l'eau", "don't|Don't|O'Brien|'s|I'm|l'eau"),
    ("l'Europe L'Aquila, dell'Unione D’A", "l'|Europe|L'|Aquila|,|dell'|Unione|D’|A"),
    ("Лук'яненко צ׳ ג״י col·lega", "Лук'яненко|צ׳|ג״י|col·lega"),
    # As with "words".
    ("Mr. Smith's U.S. bank (3.5%).", "Mr|.|Smith|'s|U.S|.|bank|(|3.5%|)|."),
    ("@user #tag Q&A 5% 2,500 -5 X-1", "@user|#tag|Q&A|5%|2,500|-5|X|-|1"),
    ("http://x.y/a(b),c's we,you f(x)", "http://x.y/a(b),c's|we|,|you|f|(|x|)"),
    ("2017-18 1185–1226 東京〜大阪", "2017-18|1185|–|1226|東|京|〜|大|阪"),
    # Marks and variants belong to the character before them.
    ("葛\U000e0100城。\ufe00ア\u0301", "葛\U000e0100|城|。\ufe00|ア\u0301"),
    ("🏴\U000e0067\U000e007f 👩‍👩‍👧\ufe0fb", "🏴\U000e0067\U000e007f|👩‍👩‍👧\ufe0fb"),
]


def test_unicode():
    found = text_words.spans([text for text, _ in UNICODE], "unicode")
    for (text, words), spans in zip(UNICODE, found, strict=True):
        assert "|".join(text[a:b] for a, b in spans) == words


@pytest.mark.parametrize(
    "rule, text, words",
    [
        ("blanks", "Ada's (York-based),\u3000東京", "Ada's|(York-based),|東京"),
        ("basic", "Ada's U.S. $3.5 東京タワーに", "Ada|'|s|U|.|S|.|$|3|.|5|東|京|タワーに"),
        ("characters", "é e\u0301 東京タワーに", "é|e\u0301|東|京|タ|ワ|ー|に"),
        ("characters", "서울에서 ก็ไทย", "서|울|에|서|ก็|ไ|ท|ย"),
        ("characters", "👍🏽a👩‍👩‍👧\ufe0fb", "👍🏽|a|👩‍👩‍👧\ufe0f|b"),
        ("graphemes", "👍🏽a👩‍👩‍👧\ufe0fb กำ ก็ไ", "👍🏽|a|👩‍👩‍👧\ufe0f|b|กำ|ก็|ไ"),
        (
            "graphemes",
            "한\u1112\u1161\u11ab가\u11ab가\u1161",
            "한|\u1112\u1161\u11ab|가\u11ab|가|\u1161",
        ),
        ("graphemes", "🇬🇧🇫🇷🇬 🇧🇬a", "🇬🇧|🇫🇷|🇬|🇧🇬|a"),
    ],
)
def test_other_rules(rule, text, words):
    assert parts(text, rule) == words


def test_offsets_inside_a_grapheme_are_moved_to_its_bounds():
    texts = [
        "กำ ก็\u0301ไ",
        "plain",
        "",
        "🇬🇧🇫🇷🇬 a\u0301",
        "\u0301e\u0301 \u1112\u1161\u11ab가\u11ab",
        " \n e\u0301",
    ]
    offsets = [[(a, b) for a in range(len(t)) for b in range(a + 1, len(t) + 1)] for t in texts]
    given = [np.array(row, np.int32).reshape(-1, 2).T for row in offsets]
    found = text_words.whole_grapheme_spans(texts, [tuple(row) for row in given])
    ragged = [tf.ragged.constant([row[i].tolist() for row in given], tf.int32) for i in (0, 1)]
    graph = tf.function(text_words.whole_graphemes)(tf.constant(texts), *ragged)
    for i, (text, row) in enumerate(zip(texts, offsets, strict=True)):
        words = [*text_words.spans([text], "graphemes")[0]]
        words += [(k, k + 1) for k, character in enumerate(text) if character.isspace()]
        expected = [
            (
                max(start for start, _ in words if start <= a),
                min(end for _, end in words if end >= b),
            )
            for a, b in row
        ]
        assert list(zip(*(part.tolist() for part in found[i]), strict=True)) == expected
        assert list(zip(*(part[i].numpy().tolist() for part in graph), strict=True)) == expected
    assert text_words.whole_grapheme_spans([], []) == []


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
    left_out = BLANKS | (INVISIBLE if rule == "unicode" else set())
    for text, starts, ends, words in zip(texts, *columns, strict=True):
        covered = [i for a, b in zip(starts, ends, strict=True) for i in range(a, b)]
        assert covered == sorted(set(covered))
        left = {text[i] for i in set(range(len(text))) - set(covered)}
        assert left <= left_out and all(a < b for a, b in zip(starts, ends, strict=True))
        spelled = [text[a:b].encode() for a, b in zip(starts, ends, strict=True)]
        assert words == spelled
    assert text_words.spans([], rule) == []


def test_other_names_of_rules_are_refused():
    with pytest.raises(ValueError, match="split_words: 'word' is not one of unicode, words"):
        text_words.split(tf.constant(["a"]), "word")
