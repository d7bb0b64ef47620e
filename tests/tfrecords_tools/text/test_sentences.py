"""Tests of tfrecords_tools.text.sentences."""

import time

import pytest

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


def test_blank_paragraphs():
    assert sentences.split("") == []
    assert sentences.split(" \t ") == [" \t "]


@pytest.mark.parametrize("part", [".", ".)", "。", "Mr. ", "a. ", "a! ", " ", "x", '."\t'])
def test_linear_on_odd_text(part):
    text = part * (1_000_000 // len(part))
    start = time.process_time()
    actual = sentences.split(text)
    assert time.process_time() - start < 10
    assert "".join(actual) == text
