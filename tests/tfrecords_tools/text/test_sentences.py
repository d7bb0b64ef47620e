"""Tests of tfrecords_tools.text.sentences."""

import pytest

from tests import linear
from tfrecords_tools.text import sentences


@pytest.mark.parametrize(
    "expected",
    [
        ["One sentence, no stop"],
        ["It rained.", "We stayed in!", "Did you?", "No…", "Well..."],
        ["The race began at 1:13 p.m.", "The flag fell with A.J. Allmendinger ahead of J. K. Row."],
        ["Mr. Smith of St. Ives met Dr. Jones, e.g. on Oct. 5 in the U.S. Army.", "He left."],
        ["It grew 3.14 percent to $5.50 (see Fig. 3 and no. 7).", "I said no.", "He went."],
        ["Sammy Davis, Jr. sang for Foo Inc. and left.", "Bar Co.", "It was 12 a.m.", "The end."],
        ['"Really?" he asked.', '"Yes."', "She left (at last).", "(It was over.)", "“So?”", "Ok."],
        ["He was third... but only then.", "In 2015 he won.", "5 others lost."],
        ["Plan B or vitamin C. elegans?", "It was I.", "Then came World War I.", "He fell."],
        ["¿Qué pasa?", "¡Nada!", "Élan vital.", "Ночь.", "Улица."],
    ],
)
def test_split(expected):
    paragraph = "  " + " \t".join(expected) + " "
    actual = sentences.split(paragraph)
    assert [sentence.strip() for sentence in actual] == expected
    assert "".join(actual) == paragraph
    assert all(sentence.startswith(" \t") for sentence in actual[1:])


def test_ideographic_stops_need_no_blank():
    text = "今天很好。你好吗？「是的。」他说。第3.5節！！終わり"
    assert sentences.split(text) == [
        "今天很好。", "你好吗？", "「是的。」", "他说。", "第3.5節！！", "終わり"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "expected",
    [
        # The stops of other scripts, with a blank after them or without.
        ["मैं घर गया।", "वह आया।", "क्या वह आया?", "हाँ।”", "ठीक।"],
        ["او رفت۔", "وہ آیا۔", "کیا وہ آیا؟", "ہاں!"],
        ["هل ذهبت؟", "نعم!", "ذهبت."],
        ["သူသွားသည်။", "သူ၊ သူမ၊ လာသည်။"],
        ["គាត់ទៅ។", "ផ្លែឈើ ។ល។ និងបន្លែ។", "នាងមក៕"],
        ["ናት።", "እሱ፧", "እሷ።"],
        ["Նա գնաց։", "Նա եկավ:", "Ո՞վ է նա։", "Ժամը 10։30 է։"],
        ["ཀ་ཁ།", "ག་ང་༎", "ཅ།"],
        ["ＡＢＣ．", "次の３．５文。", "１．序文。"],
        ["Τι κάνεις;", "Καλά· εσύ;", "Ναι."],
        # Abbreviations and ordinals of other languages.
        ["डॉ. राम और श्री. मोहन आए।", "ए. पी. जे. कलाम गए।"],
        ["डॉ. राम आए.", "वे गए."],
        ["TP. Hồ Chí Minh đẹp.", "GS. Nguyễn và ThS. Lê nói.", "Năm 1999.", "Tốt."],
        ["3. Sınıf öğrencileri geldi.", "II. Dünya Savaşı bitti.", "Yıl 1945.", "Ş."],
        ["Er kam am 3. Oktober für Dr. Müller, z. B. im Jahr 1990.", "Über 30 kamen."],
        ["В 1990 г. Иванов и проф. Петров жили на ул. Ленина.", "Ему было 30.", "Он ушёл."],
        # A note, initials, a second stop, and the number of a verse.
        ["वह गया।[1]", "वह आया।[citation needed] फिर।"],
        ["م۔ ر۔ کیانی آئے۔", "وہ گئے۔"],
        ["ཀ་ཁ། །", "ག་ང་།"],
        ["राम वन गए॥१॥", "सीता भी॥२॥"],
        # In English the same words and numbers end a sentence.
        ["It was number 3.", "The café closed.", "See II.", "Then we ate ks.", "Ok."],
    ],
)
@pytest.mark.parametrize("blank", [" ", ""])
def test_other_languages(expected, blank):
    if not blank and any(text.rstrip("”")[-1] in ".!?:;" for text in expected[:-1]):
        return  # these need a blank
    paragraph = blank.join(expected)
    actual = sentences.split(paragraph)
    assert [sentence.strip() for sentence in actual] == expected
    assert "".join(actual) == paragraph


def test_text_without_stops_is_cut_at_blanks():
    clauses = ["มนุษย์ทั้งปวงเกิดมามีอิสระและเสมอภาคกันในศักดิ์ศรี", "และสิทธิ"] * 20
    paragraph = " ".join(clauses)
    found = sentences.find(paragraph)
    assert "".join(found.texts) == paragraph and found.at_blanks == len(found.texts) - 1 > 8
    assert 90 <= min(map(len, found.texts)) <= max(map(len, found.texts)) < 200
    assert sentences.find(paragraph[:150]) == ([paragraph[:150]], 0)
    # Blanks of other text are no borders.
    assert sentences.find("मनुष्य " * 100).at_blanks == sentences.find("é word " * 100).at_blanks == 0


def test_blank_paragraphs():
    assert sentences.split("") == []
    assert sentences.split(" \t ") == [" \t "]


@pytest.mark.parametrize(
    "part", [".", ".)", "。", "Mr. ", "a. ", "a! ", " ", "x", '."\t', "है। ", "।[1]", "ก "]
)
def test_linear_on_odd_text(part):
    text = part * (100_000 // len(part))
    assert "".join(sentences.split(text)) == text
    linear.check(sentences.split, part, 100_000)
