"""What the builder of a vocabulary says about a text that the vocabulary suits badly."""

import unicodedata

import pytest

from official import tokenizers
from official.utils.errors import UserError
from tfrecords_tools.vocabulary import builder, notes

HINDI = "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।"


def test_characters_without_a_piece_are_listed_with_their_counts():
    line = notes.left_out({"a": 90, "b": 50, "Ö": 7, "'": 2}, ["a", "##b", "ab"], 0.95)
    assert line == (
        "left out of the alphabet by --character_coverage=0.95: 2 characters that occur 9 times "
        "(Ö 7, ' 2); text with them is unknown; the text has 4 characters: "
        "--character_coverage=1.0 keeps all of them"
    )
    many = {chr(0x4E00 + i): 1000 - i for i in range(500)}
    line = notes.left_out(many, [chr(0x4E00 + i) for i in range(480)], 0.9995)
    assert "20 characters that occur" in line and ", …)" in line and "keeps all" not in line
    assert notes.left_out({"a": 1}, ["a"], 1.0) is None


def test_marks_that_end_the_words_of_gpt2():
    assert notes.many_marks(["plain text", "crème brûlée"]) is None
    line = notes.many_marks([HINDI])
    assert line.startswith("64 marks to 100 letters in the first 1 lines")
    assert "--pattern=marks" in line


def test_lines_that_are_not_composed():
    lines = ["été", unicodedata.normalize("NFD", "été"), "plain"]
    assert notes.not_composed(lines, True).startswith("1 of the first 3 lines are not composed")
    assert "--nfc" in notes.not_composed(lines, True)
    assert "--nfc" not in notes.not_composed(lines, False)
    assert notes.not_composed(lines[::2], True) is None


def test_words_that_are_too_long():
    assert notes.long_runs(["a" * 200, "中" * 900, "a," * 300]) is None
    line = notes.long_runs(["ཀ" * 300, "a" * 100])
    assert line.startswith("1 words of more than 200 characters, 75.0% of the first 2 lines")


def test_a_pattern_with_marks(tmp_path):
    """Fewer tokens, the same ids in a graph, in a saved folder, and as `tokenizer.json`."""
    words = HINDI.split()
    lines = [" ".join(words[i:] + words[:i]) for i in range(len(words))] * 2
    (tmp_path / "text.txt").write_text("\n".join(lines))
    said, made = [], {}
    for pattern in ("gpt2", "marks"):
        made[pattern] = builder.build(
            [str(tmp_path / "text.txt")], tmp_path / pattern, "byte_bpe", 300,
            report=said.append, pattern=pattern,
        )  # fmt: skip
    assert sum("--pattern=marks" in line for line in said) == 1
    texts = [*lines[:3], "हिन्दी  \n पाठ!\u0301 ไทย é e\u0301", "", "a\u0301 \u0301 1\u0301"]
    sizes = {name: sum(map(len, each.encode(texts))) for name, each in made.items()}
    assert sizes["marks"] < sizes["gpt2"]
    marks = tokenizers.load(tmp_path / "marks")
    assert marks.pattern == "marks" and marks.fingerprint == made["marks"].fingerprint
    ids = [row.tolist() for row in marks.encode(texts)]
    assert marks.tokenize(texts).to_list() == ids
    assert [marks.decode(row) for row in ids] == texts
    with pytest.raises(UserError, match="'marks' is not for add_prefix_space"):
        tokenizers.ByteBPE(marks.pieces, marks.merges, True, pattern="marks")


@pytest.mark.parametrize(
    "kind, options, message",
    [
        ("wordpiece", {"pattern": "marks"}, "--pattern=marks is for --type=byte_bpe, not for word"),
        ("byte_bpe", {"pattern": "marks", "add_prefix_space": True}, "is not for --add_prefix_s"),
        ("unigram", {"nfc": True}, "--nfc is for --type=byte_bpe, not for unigram"),
    ],
)
def test_options_that_a_kind_does_not_have(tmp_path, kind, options, message):
    with pytest.raises(UserError, match=message):
        builder.build([str(tmp_path / "no.txt")], tmp_path / "out", kind, 300, **options)


def test_composed_characters(tmp_path):
    decomposed = unicodedata.normalize("NFD", "été à la crème brûlée\n")
    (tmp_path / "text.txt").write_text(decomposed * 9)
    said = []
    plain = builder.build(
        [str(tmp_path / "text.txt")], tmp_path / "plain", "byte_bpe", 270, report=said.append
    )
    assert any("9 of the first 9 lines are not composed" in line for line in said)
    composed = builder.build(
        [str(tmp_path / "text.txt")], tmp_path / "nfc", "byte_bpe", 270, nfc=True
    )
    first, second = composed.encode(["été", unicodedata.normalize("NFD", "été")])
    assert first.tolist() == second.tolist() and composed.nfc
    assert plain.encode(["été"])[0].tolist() != plain.encode([decomposed[:5]])[0].tolist()
