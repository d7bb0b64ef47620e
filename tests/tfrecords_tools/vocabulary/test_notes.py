"""What the builder of a vocabulary says about a text that the vocabulary suits badly."""

import json
import unicodedata

import pytest

from official import tokenizers
from official.tokenizers import components, extension, tokenizer_json
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
    with pytest.raises(UserError, match="'marks' does not allow add_prefix_space"):
        tokenizers.ByteBPE(marks.pieces, marks.merges, True, pattern="marks")


@pytest.mark.parametrize(
    "kind, options, message",
    [
        ("wordpiece", {"pattern": "marks"}, "--pattern=marks is for --type=byte_bpe, not for word"),
        ("byte_bpe", {"pattern": "marks", "add_prefix_space": True}, "is not for --add_prefix_s"),
        ("unigram", {"nfc": True}, "not for unigram: its model composes characters already"),
        ("words", {"nfc": True}, "--nfc is for --type=wordpiece or byte_bpe, not for words: compo"),
    ],
)
def test_options_that_a_kind_does_not_have(tmp_path, kind, options, message):
    with pytest.raises(UserError, match=message):
        builder.build([str(tmp_path / "no.txt")], tmp_path / "out", kind, 300, **options)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_models_of_sentencepiece_compose_characters(tmp_path, kind):
    """All that have a composed form, if the marks are in Unicode's order."""
    (tmp_path / "text.txt").write_text("été à la crème brûlée ab cd ef\n" * 9)
    made = builder.build([str(tmp_path / "text.txt")], tmp_path / "out", kind, 20)
    letters = map(chr, (*range(0xD800), *range(0xE000, 0x30000)))
    letters = [c for c in letters if unicodedata.is_normalized("NFC", c)]
    pairs = [(unicodedata.normalize("NFD", c), c) for c in letters]
    apart, whole = zip(*(pair for pair in pairs if pair[0] != pair[1]), strict=True)
    assert len(apart) > 12_000
    normalized = made.module().normalized
    assert normalized(list(apart)).numpy().tolist() == normalized(list(whole)).numpy().tolist()


def test_composed_words(tmp_path):
    """A WordPiece of composed characters, in Python, in a graph, and as `tokenizer.json`."""
    whole = "été à la crème brûlée ếệ\n"
    decomposed = unicodedata.normalize("NFD", whole)
    (tmp_path / "text.txt").write_text(decomposed * 9)
    said: list[str] = []
    options = {"lower_case": True, "strip_accents": False, "report": said.append}
    builder.build([str(tmp_path / "text.txt")], tmp_path / "plain", "wordpiece", 40, **options)
    assert any("--nfc composes them" in line for line in said)
    said.clear()
    made = builder.build(
        [str(tmp_path / "text.txt")], tmp_path / "nfc", "wordpiece", 40, nfc=True, **options
    )
    assert not any("not composed" in line for line in said)
    assert made.nfc and "ệ" in "".join(made.pieces) and "\u0323" not in "".join(made.pieces)
    (tmp_path / "composed.txt").write_text(whole * 9)
    same = builder.build(
        [str(tmp_path / "composed.txt")], tmp_path / "same", "wordpiece", 40, **options
    )
    assert same.pieces == made.pieces
    loaded = tokenizers.load(tmp_path / "nfc")
    first, second = loaded.encode([whole, decomposed])
    assert first.tolist() == second.tolist() and made.unk_id not in first
    grown = extension.extend(loaded, ["de\u0301ja"]).tokenizer
    assert grown.nfc and len(grown.encode(["déja"])[0]) == 1
    described = tokenizer_json.described(loaded)
    assert [step["type"] for step in described["normalizer"]["normalizers"]] == [
        "NFC", "BertNormalizer",
    ]  # fmt: skip
    folder = tmp_path / "alone"
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(described))
    settings = (tmp_path / "nfc" / "tokenizer_config.json").read_text()
    (folder / "tokenizer_config.json").write_text(settings)
    again = tokenizers.load(folder)
    assert isinstance(again, tokenizers.WordPiece) and again.fingerprint == made.fingerprint
    # Of another tool, which does not name the form in its settings, it is of components.
    (folder / "tokenizer_config.json").unlink()
    other = tokenizers.load(folder)
    assert isinstance(other, components.Components)
    assert other.encode([decomposed])[0].tolist() == second.tolist()


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
