"""build_vocab: from files to a tokenizer folder."""

import gzip
import json
import math
import os
import re
import subprocess
import sys
import unicodedata

import pytest

from official import tokenizers
from official.shards.text_filters import TextFilters
from official.utils import progress
from official.utils.errors import UserError
from tests import ROOT
from tfrecords_tools.text import corpus
from tfrecords_tools.vocabulary import TYPES, builder
from tfrecords_tools.writing.execution import Execution

GOLDEN = json.loads((ROOT / "tests" / "golden" / "tokenizer.json").read_text())
PROSE = [row["text"] for row in GOLDEN["cased"][:5]]
SIZES = {"wordpiece": 250, "unigram": 110, "bpe": 110, "byte_bpe": 330, "words": 60}


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(["\n".join(PROSE)] * 3) + "\n")
    return path


def build(text, output, kind="wordpiece", vocab_size=None, **options):
    size = vocab_size or SIZES[kind]
    return builder.build(str(text), output, kind, size, coverage=0.98, **options)


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "bpe"])
@pytest.mark.parametrize("lower_case", [False, True])
def test_folder(tmp_path, text, kind, lower_case):
    built = build(text, tmp_path / "out", kind, lower_case=lower_case)
    loaded = tokenizers.load(tmp_path / "out")
    assert loaded.fingerprint == built.fingerprint and loaded.files == built.files
    assert isinstance(loaded, tokenizers.WordPiece) == (kind == "wordpiece")
    assert loaded.vocab_size == SIZES[kind]
    assert loaded.pieces[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert loaded.special_ids == (0, 1, 2, 3, 4)
    capitals, small = loaded.encode(["The River", "the river"])
    assert (capitals.tolist() == small.tolist()) == lower_case
    assert 1 not in small
    assert not set(loaded.encode(["a [MASK] [CLS]"])[0].tolist()) & {0, 2, 3, 4}


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("lower_case", [False, True])
def test_sentinels(tmp_path, text, kind, lower_case):
    built = build(text, tmp_path / "out", kind, sentinels=100, lower_case=lower_case)
    loaded = tokenizers.load(tmp_path / "out")
    assert (loaded.fingerprint, loaded.files) == (built.fingerprint, built.files)
    assert loaded.pieces[:3] == ["<pad>", "</s>", "<unk>"] and loaded.vocab_size == 210
    assert (loaded.pad_id, loaded.cls_id, loaded.sep_id, loaded.unk_id) == (0, 1, 1, 2)
    assert loaded.mask_id is None and loaded.special_ids == (0, 1, 2)
    assert loaded.sentinel_ids == tuple(range(209, 109, -1))
    assert loaded.pieces[209] == "<extra_id_0>" and loaded.pieces[110] == "<extra_id_99>"
    odd = loaded.encode(["a </s> <extra_id_0> river"])[0].tolist()
    # A sentinel is found in text, and a special token is not.
    assert set(odd) & {0, 1, *loaded.sentinel_ids} == {loaded.sentinel_ids[0]}
    capitals, small = loaded.encode(["The River", "the river"])
    assert (capitals.tolist() == small.tolist()) == lower_case
    settings = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert (settings["tokenizer_class"], settings["eos_token"]) == ("T5Tokenizer", "</s>")
    assert settings["extra_ids"] == 100


def test_sentinels_of_wordpiece(tmp_path, text):
    build(text, tmp_path / "out", "wordpiece", sentinels=3)
    loaded = tokenizers.load(tmp_path / "out")
    assert loaded.pieces[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert loaded.pieces[250:] == ["<extra_id_2>", "<extra_id_1>", "<extra_id_0>"]
    assert loaded.sentinel_ids == (252, 251, 250)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_text_as_the_releases_prepare_it(tmp_path, text, kind):
    text.write_text(text.read_text() + "Caf\u00e9 \u00c9t\u00e9 in 1990, and 2000, ``yes''\n" * 20)
    options = {"normalize_text": True, "lower_case": True, "strip_accents": True}
    built = build(text, tmp_path / "out", kind, **options)
    loaded = tokenizers.load(tmp_path / "out")
    assert (loaded.fingerprint, loaded.files) == (built.fingerprint, built.files)
    assert loaded.lower_case and loaded.split_digit_comma and loaded.rules.remove_space
    assert not any(piece != unicodedata.normalize("NFKD", piece) for piece in loaded.pieces)
    odd, plain = loaded.encode(["``CAF\u00c9''\t1990,", '"cafe" 1990,'])
    assert odd.tolist() == plain.tolist() and loaded.unk_id not in odd
    assert loaded.pieces[odd[-1]] == ","


@pytest.mark.parametrize("prefix", [False, True])
def test_byte_bpe_folder(tmp_path, text, prefix):
    built = build(text, tmp_path / "out", "byte_bpe", add_prefix_space=prefix)
    loaded = tokenizers.load(tmp_path / "out")
    assert isinstance(loaded, tokenizers.ByteBPE) and loaded.vocab_size == 330
    assert loaded.fingerprint == built.fingerprint and loaded.files == built.files
    assert loaded.pieces[:5] == ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    assert loaded.special_ids == (0, 1, 2, 3, 4)
    first, second = loaded.encode(["river", " river"])
    assert (first.tolist() == second.tolist()) == prefix
    assert loaded.decode(second) == " river"
    lines = (tmp_path / "out" / "merges.txt").read_text().splitlines()
    assert lines[0] == "#version: 0.2" and len(lines) == 1 + 330 - 5 - 256


@pytest.mark.parametrize("splits", [False, True])
def test_words_folder(tmp_path, text, splits):
    text.write_text("The b. a b, a\nb <S> né z\n\nné c </S>\n")
    built = build(text, tmp_path / "out", "words", 8, split_punctuation=splits)
    loaded = tokenizers.load(tmp_path / "out")
    assert isinstance(loaded, tokenizers.Characters) and loaded.split_punctuation == splits
    assert loaded.fingerprint == built.fingerprint and loaded.files == built.files
    # Descending count, ties by the bytes; a mark in the text is no word of the vocabulary.
    by_count = ["b", "<", ">", "S", "a"] if splits else ["a", "né", "The", "b", "b,"]
    assert loaded.pieces == ["<S>", "</S>", "<UNK>", *by_count]
    assert (tmp_path / "out" / "words.txt").read_text() == "\n".join(loaded.pieces) + "\n"


@pytest.mark.parametrize("kind", TYPES)
def test_same_text_gives_the_same_bytes(tmp_path, text, kind):
    built = build(text, tmp_path / "a", kind)
    with gzip.open(tmp_path / "text.gz", "wt") as file:
        file.write(text.read_text())
    rows = [json.dumps({"text": "\n".join(PROSE)}) for _ in range(3)]
    (tmp_path / "one.jsonl").write_text(rows[0] + "\n")
    (tmp_path / "two.jsonl").write_text("\n".join(rows[1:]) + "\n")
    packed = build(tmp_path / "text.gz", tmp_path / "b", kind)
    lines = build(f"{tmp_path}/one.jsonl,{tmp_path}/t*.jsonl", tmp_path / "c", kind)
    assert built.files == packed.files == lines.files


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "words", "bpe"])
def test_any_number_of_workers_gives_the_same_bytes(tmp_path, monkeypatch, kind):
    """Of several chunks, some of whose lines are not in the sample."""
    monkeypatch.setattr(corpus, "MIN_RANGE_BYTES", 500)
    monkeypatch.setattr(corpus, "RANGES_IN_GROUP", 1)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_REPORTS", math.inf)
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"{line}\n{i} x{i * 7 % 13}" for i, line in enumerate(PROSE * 8)))
    built, lines = {}, {}
    for workers in (0, 2, 4):
        lines[workers] = []
        built[workers] = build(
            text, tmp_path / f"{workers}", kind, execution=Execution(workers), max_lines=60,
            report=lines[workers].append,
        ).files  # fmt: skip
    assert built[0] == built[2] == built[4]
    assert lines[0][1:-1] == lines[4][1:-1]
    assert kind != "bpe" or lines[2][1] == "learning from 60 of 80 lines"
    assert lines[4][0].endswith("MB/s, 40 documents")


def test_vocabulary_is_of_frequent_words(tmp_path):
    (tmp_path / "a.txt").write_text("the quick brown fox\n" * 50 + "a lazy dog\n" * 5)
    built = build(tmp_path / "a.txt", tmp_path / "out", vocab_size=55)
    assert [built.decode([i]) for i in built.encode(["the quick brown fox dog"])[0]] == [
        *["the", "quick", "brown", "fox", "dog"]
    ]


def test_report_of_text_without_blanks(tmp_path):
    (tmp_path / "text").write_text("日本語の文には空白がないので、単語の数は分からない。\n" * 9)
    lines = []
    build(tmp_path / "text", tmp_path / "out", vocab_size=34, report=lines.append)
    assert re.search(r"wordpiece: 34 pieces, [01]\.\d\d to a character and", lines[-2])


def test_report(tmp_path, text):
    lines = []
    build(text, tmp_path / "out", report=lines.append)
    size = text.stat().st_size / 1e6
    assert lines[0].startswith(f"read {size:.1f} of {size:.1f} MB (100%), ")
    assert lines[0].endswith("MB/s, 3 documents")
    assert lines[1].startswith("learning from ") and lines[1].endswith(" of them distinct")
    assert lines[2].startswith("left out of the alphabet by --character_coverage=0.98: 7 charact")
    assert lines[3].startswith("wordpiece: 250 pieces, ")
    assert "unknown in the first 15 lines; fingerprint " in lines[3]
    assert " to a word and " in lines[3]
    assert lines[4].startswith(f"wrote {tmp_path / 'out'} in ")
    build(text, tmp_path / "bpe", "bpe", report=lines.append, max_lines=10)
    assert "learning from 10 of 15 lines" in lines


def test_lines_left_out_are_counted(tmp_path, text):
    text.write_bytes(text.read_bytes() + b"caf\xe9\n")
    lines = []
    build(text, tmp_path / "out", on_bad_utf8="skip", report=lines.append)
    assert "skipped: 1 lines not UTF-8" in lines
    with pytest.raises(UserError, match=r"text.txt:18: not UTF-8 \(byte 0xe9 at column 4\)"):
        build(text, tmp_path / "other")


@pytest.mark.parametrize(
    "content, kind, size, message",
    [
        ("\n \n\x01\n", "wordpiece", 50, r"no text in the input \(1 files, 5 bytes\): nothing to"),
        ("\n \n\x01\n", "bpe", 50, r"no text in the input \(1 files, 5 bytes\): nothing to learn"),
        ("", "unigram", 50, r"the input is empty: .*text.txt hold no bytes"),
        (None, "wordpiece", 20, r"--vocab_size=20 is too small: the alphabet alone takes \d+ pie"),
        (None, "bpe", 20, r"--vocab_size=20 is too small: the alphabet and the special tokens"),
        (None, "unigram", 9000, r"--vocab_size=9000 is more than the text supports: lower it"),
        ("\n \n\x01\n", "byte_bpe", 300, r"no text in the input \(1 files, 5 bytes\): nothing to"),
        (None, "byte_bpe", 260, r"--vocab_size=260 is too small: the 256 bytes and 5 special tok"),
        (None, "byte_bpe", 9000, r"--vocab_size=9000 is more than the text supports: it has \d+"),
        ("\n \n\x01\n", "words", 300, r"no text in the input \(1 files, 5 bytes\): nothing to"),
        (None, "words", 3, r"--vocab_size=3 is too small: <S> </S> <UNK> take 3"),
        (None, "words", 9000, r"--vocab_size=9000 is more than the text supports: it has \d+"),
        (None, "wordpiece", 9000, r"--vocab_size=9000 is more than the text supports: it has \d+"),
    ],
)
def test_bad_input_leaves_nothing(tmp_path, text, content, kind, size, message):
    if content is not None:
        text.write_text(content)
    with pytest.raises(UserError, match=message):
        build(text, tmp_path / "out", kind, size)
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


@pytest.mark.parametrize(
    "kind, option, message",
    [
        ("byte_bpe", "lower_case", "--lower_case: byte-level BPE keeps text unchanged: remove"),
        (
            "wordpiece",
            "normalize_text",
            "--normalize_text is for --type=unigram or bpe, not for wordp",
        ),
        ("bpe", "add_prefix_space", "--add_prefix_space is for --type=byte_bpe, not for bpe"),
        ("words", "lower_case", "--lower_case: words keep text unchanged: remove the flag"),
        ("words", "sentinels", "--sentinels=True is for --type=wordpiece, unigram or bpe, not"),
        ("bpe", "split_punctuation", "--split_punctuation is for --type=words, not for bpe"),
    ],
)
def test_options_that_a_type_does_not_have(tmp_path, text, kind, option, message):
    with pytest.raises(UserError, match=message):
        build(text, tmp_path / "out", kind, **{option: True})


def test_missing_input(tmp_path):
    with pytest.raises(UserError, match="no file matches"):
        build(tmp_path / "*.txt", tmp_path / "out")


def test_output_that_is_there(tmp_path, text):
    build(text, tmp_path / "out")
    with pytest.raises(UserError, match=r"out is there already: name another folder or remove it"):
        build(text, tmp_path / "out")


def test_filters(tmp_path):
    """Words of documents that are left out are not counted."""
    (tmp_path / "a.txt").write_text("one two\nthree\n\nfour\n\n# five ##\n\none two three\n\n" * 3)
    lines = []
    made = builder.build(
        str(tmp_path / "a.txt"),
        tmp_path / "out",
        "words",
        6,
        text_filters=TextFilters(2, 0.4, "exact"),
        report=lines.append,
    )
    assert set(made.pieces) >= {"one", "two", "three"} and not {"four", "five"} & set(made.pieces)
    assert "skipped: 6 documents of too few words" in lines
    assert "skipped: 5 duplicate documents" in lines
    message = "nothing to learn from; filters left out 12 documents of too few words$"
    with pytest.raises(UserError, match=message):
        builder.build(
            str(tmp_path / "a.txt"), tmp_path / "none", "words", 50, text_filters=TextFilters(4)
        )


@pytest.mark.slow
@pytest.mark.long
def test_command_line(tmp_path, text):
    def run(*arguments, seed):
        return subprocess.run(
            [sys.executable, "-m", "tfrecords_tools.build_vocab", *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
        )

    arguments = [f"--input={text}", "--vocab_size=250", "--character_coverage=0.98"]
    done = run(*arguments, f"--output={tmp_path / 'out'}", seed=1)
    assert done.returncode == 0, done.stderr
    assert f"wrote {tmp_path / 'out'} in " in done.stderr
    # Another process with another hash seed, another kind of machine if you like: the same bytes.
    assert build(text, tmp_path / "here").files == tokenizers.load(tmp_path / "out").files
    done = run(*arguments, seed=2)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "error: --output is missing; --help says what it is"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "byte_bpe"])
def test_added_tokens_of_a_file(tmp_path, text, kind):
    added = tmp_path / "added.txt"
    added.write_text('[E1]\n{"content": "Spain", "single_word": true}\n')
    (tmp_path / "marked.txt").write_text(text.read_text().replace("river", "[E1] river"))
    built = build(tmp_path / "marked.txt", tmp_path / "out", kind, added_tokens=added)
    assert built.vocab_size == SIZES[kind] + 2
    plain = build(text, tmp_path / "plain", kind)
    # The text is learned from without the tokens; the words around them are not others.
    assert not [piece for piece in built.pieces[: SIZES[kind]] if "E1" in piece]
    loaded = tokenizers.load(tmp_path / "out")
    mark, word = loaded.added
    ids = loaded.encode(["a [E1] Spain, Spains"])[0].tolist()
    assert ids.count(mark) == ids.count(word) == 1
    assert loaded.fingerprint == built.fingerprint != plain.fingerprint


def test_accents_and_vowel_signs_may_stay(tmp_path):
    marks = tmp_path / "marks.txt"
    marks.write_text("मैं अपने घर में\nCó dấu và không\n" * 3)
    lines = []
    build(marks, tmp_path / "out", vocab_size=45, lower_case=True, report=lines.append)
    [line] = [line for line in lines if line.startswith("accents and vowel signs")]
    # Marks of category Mn: 5 of Hindi (ै ं े े ं) on 7 letters, 5 of Vietnamese on 12.
    assert "removed: 30, 52.6 to 100 letters, in the first 6 lines" in line
    assert "मैं becomes म" in line and line.endswith("--nostrip_accents keeps them")
    lines.clear()
    kept = build(marks, tmp_path / "kept", vocab_size=63, lower_case=True, strip_accents=False,
                 report=lines.append)  # fmt: skip
    assert not [line for line in lines if line.startswith("accents")]
    assert kept.decode(kept.encode(["Dấu में"])[0]) == "dấu में"
    assert tokenizers.load(tmp_path / "kept").fingerprint == kept.fingerprint
    with pytest.raises(UserError, match="--nostrip_accents is for --type=wordpiece, and for uni"):
        build(marks, tmp_path / "no", "byte_bpe", strip_accents=False)
    with pytest.raises(UserError, match="unigram without it keeps accents"):
        build(marks, tmp_path / "no", "unigram", strip_accents=True)


def test_normalized_text_may_keep_accents(tmp_path, text):
    text.write_text(text.read_text() + "\n\ncafé Été\n" * 9)
    kept = build(text, tmp_path / "out", "unigram", normalize_text=True, strip_accents=False)
    assert kept.rules.keep_accents and kept.rules.remove_space
    assert "é" in "".join(kept.pieces)
    plain = build(text, tmp_path / "plain", "unigram", normalize_text=True, strip_accents=True)
    assert not plain.rules.keep_accents and "é" not in "".join(plain.pieces)
