"""benchmarks.languages: what it counts in texts, and its tables."""

import json
import sys

import pytest

from benchmarks import languages

CONTEXTS = {
    "hi": ["भोपाल। यह नगर है।", "वह दिल्ली गया। क्यों?", "रवि पटना में है।"],
    "en": ["Ada wrote. Did she (really?) write?", "Mr. Ng left. He sang.", "A boat."],
}
ANSWERS = {"hi": ["भोपाल", "दिल्ली", "टना"], "en": ["Ada", "Ng", "oat"]}
QUESTIONS = {"hi": ["नगर?", "दिल्ली?", "रवि?"], "en": ["Ada?", "he?", "nothing?"]}


def write(folder, language):
    paragraphs = []
    for i, context in enumerate(CONTEXTS[language]):
        text = ANSWERS[language][i]
        answers = [{"text": text, "answer_start": context.index(text)}]
        asked = {"id": f"q{i}", "question": QUESTIONS[language][i], "answers": answers}
        paragraphs.append({"context": context, "qas": [asked]})
    file = folder / f"some.{language}.json"
    file.write_text(json.dumps({"data": [{"title": "a", "paragraphs": paragraphs}]}))
    return file


@pytest.fixture
def folder(tmp_path):
    for language in CONTEXTS:
        write(tmp_path, language)
    (tmp_path / "other.th.txt").write_text(
        "ภาษาไทยไม่มีช่องว่างระหว่างคำ\n\nภาษาไทยไม่มีช่องว่างระหว่างคำ\nข้อ ๑\n"
    )
    (tmp_path / "README.md").write_text("none")
    return tmp_path


def test_files_by_language(folder):
    found = list(languages.sources(folder, None, 240))
    assert [source.language for source in found] == ["en", "hi", "th"]
    assert [len(source.paragraphs) for source in found] == [3, 3, 2]  # each different one
    assert found[1].questions[1] == languages.Asked("दिल्ली?", 1, 3, 9)
    ((name, _, paragraphs, questions),) = languages.sources(folder, ["hi"], 2)
    assert name == "hi" and len(paragraphs) == len(questions) == 2


def test_the_unit_is_the_character_where_words_have_no_blanks():
    assert languages.of_letters(["ภาษาไทยไม่มีช่องว่างระหว่างคำ"])[0] == "character"
    assert languages.of_letters(["some words"]) == ("word", 0)
    assert languages.of_letters(["हि"]) == ("word", 100)  # a letter and its vowel sign


def test_stops_inside_paragraphs():
    # After "wrote" and after "really?)"; the last one ends the paragraph.
    assert languages.stops(CONTEXTS["en"][:1]) == (2, 1)
    assert languages.stops(["Mr. Ng left. He sang."]) == (2, 1)
    assert languages.stops(["3.5 is no stop."]) == (0, 0)
    marks, _ = languages.stops(["ပထမ။ဒုတိယ။"])  # without a blank
    assert marks == 1


def test_answers_that_are_words_and_paragraphs_that_are_found(folder):
    english, hindi, _ = languages.sources(folder, None, 240)
    assert languages.accepted(english, "words", None) == pytest.approx(2 / 3)  # not "oat"
    assert languages.accepted(english, "characters", None) == 1
    assert languages.accepted(hindi, "blanks", None) == pytest.approx(1 / 3)  # भोपाल has its stop
    assert languages.accepted(hindi, "basic", None) == pytest.approx(2 / 3)
    # A question without a word of its paragraph has no hit.
    assert languages.first_hits(english) == pytest.approx(2 / 3)


@pytest.mark.slow
def test_tables(folder, monkeypatch, capsys):
    text = "\n".join(f"some words of the text number {i} and more words" for i in range(40))
    (folder / "long.en.txt").write_text(text)
    flags = [f"--texts={folder}", "--languages", "en", "--vocab_size=40", "--text_vocab_size=60"]
    monkeypatch.setattr(sys, "argv", ["x", *flags])
    languages.main()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    (names, *counted), split, spans = cells[:3], cells[3:6], cells[6:]
    assert names[6:] == ["wordpiece", "unigram", "bpe", "byte_bpe", "unknown, % (wordpiece)"]
    assert [row[:6] for row in counted] == [
        ["en", "long.en.txt", f"{len(text) - 39:,}", "0", "60", "word"],
        ["en", "some.en.json", "63", "0", "40", "word"],
    ]
    # A byte-level vocabulary has 256 bytes at least.
    assert counted[0][9] == "refused" and float(counted[0][6]) >= 1
    assert [row[2:] for row in split[1:]] == [["0", ""], ["4", "0.500"]]
    assert spans[0][-2:] == ["`tokens`", "BM25"] and spans[1][2] == "3"
