"""Tests of tfrecords_tools.pretraining.builder and of its command line."""

import contextlib
import fcntl
import glob
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import tensorflow as tf
import yaml
import zstandard
from pyarrow import parquet

from official import config, data, tokenizers
from official.shards import manifest, shard_folder, stored_arrays
from official.shards.text_filters import TextFilters
from official.utils import progress, strict
from official.utils.errors import UserError
from tests import ROOT, small, systems
from tfrecords_tools.pretraining import builder, examples
from tfrecords_tools.pretraining.settings import Settings
from tfrecords_tools.text import corpus, file_ranges, filters
from tfrecords_tools.text.corpus import Corpus, Reading
from tfrecords_tools.vocabulary import word_vocabularies
from tfrecords_tools.writing import shards
from tfrecords_tools.writing.execution import Execution


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return small.tokenizer_folder(tmp_path_factory.mktemp("made") / "tokenizer")


def write_text(path, documents, seed=0, times=1):
    text = "\n\n".join("\n".join(d) for d in small.documents(documents, seed)) + "\n\n"
    path.write_text(text * times)
    return path


def build(
    tokenizer, inputs, output, run_config=None, report=print, seed=None, workers=0, **options
):
    in_settings = {
        k: options.pop(k)
        for k in ("format", "split_sentences", "phrases", "entities", "filters")
        if k in options
    }
    settings = Settings.from_config(run_config or small.config(), tokenizer, seed, **in_settings)
    where = Execution(workers)
    return builder.build(settings, str(inputs), output, where, report=report, **options)


def contents(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def records(folder):
    paths = sorted(str(path) for path in folder.glob("*.tfrecord"))
    return list(tf.data.TFRecordDataset(paths).as_numpy_iterator())


@pytest.mark.slow
def test_a_shard_folder(tmp_path, tokenizer):
    write_text(tmp_path / "a.txt", 40, seed=1)
    rows = [{"text": "\n".join(d)} for d in [*small.documents(30, seed=2), ["\u200b"], []]]
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    lines = []
    inputs = f"{tmp_path}/a.txt,{tmp_path}/b.*"
    built = build(tokenizer, inputs, tmp_path / "out", num_shards=3, report=lines.append)
    assert manifest.read(tmp_path / "out") == built
    assert shard_folder.problems(tmp_path / "out", deep=True) == []
    documents = small.documents(40, seed=1) + small.documents(30, seed=2)
    sentences = [s for d in documents for s in d]
    assert built.totals.documents == 70
    assert built.totals.sentences == len(sentences)
    assert built.totals.tokens == sum(len(s.replace(" ", "")) // 2 for s in sentences)
    assert built.totals.skipped == {"empty documents": 2}
    actual = records(tmp_path / "out")
    assert built.totals.examples == len(actual) == sum(s.records for s in built.shards)
    names = [f"train-{i:05d}-of-00003.tfrecord" for i in range(3)]
    assert [shard.name for shard in built.shards] == names
    lengths = [len(tf.train.Example.FromString(r).features.feature["token_ids"].int64_list.value)
               for r in actual]  # fmt: skip
    assert list(built.length_histogram) == [lengths.count(n) for n in range(33)]
    assert max(lengths) == 32
    assert built.features == ("token_ids", "segment_lengths", "next_sentence_label")
    assert (built.kind, built.seed, built.max_length) == ("pretraining", 0, 32)
    assert built.config.segments.duplicates == 1 and built.config.corruption is None
    # The examples are those of the pure function, in the order of their keys.
    settings = Settings.from_config(small.config(), tokenizer)
    files = Corpus.find(inputs)
    made = []
    for group in files.groups(settings.seed):
        made += examples.process_group(group, settings, Reading(files.range_bytes))
    keys = np.concatenate([each.keys for each in made])
    expected = [record for each in made for record in each.records]
    assert actual == [expected[i] for i in np.argsort(keys)]
    summary = "\n".join(lines)
    for part in (
        f"out: {len(actual)} examples in 3 shards",
        f"70 documents, {len(sentences)} sentences, {built.totals.tokens:,} tokens",
        "left out: 2 empty documents",
        f"{sum(lengths):,} tokens in the examples",
    ):
        assert part in summary


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"format": "tf_models"}, {"filters": TextFilters(9, 0.3, "near")}]
)
def test_same_bytes_for_any_number_of_workers(tmp_path, tokenizer, monkeypatch, options):
    monkeypatch.setattr(corpus, "MIN_RANGE_BYTES", 2000)  # dozens of ranges
    write_text(tmp_path / "a.txt", 300, times=1 + ("filters" in options))
    settings = small.config(segments__duplicates=2)
    for workers in (0, 2, 3):
        build(
            tokenizer,
            tmp_path / "a.txt",
            tmp_path / f"out{workers}",
            settings,
            workers=workers,
            num_shards=2,
            **options,
        )
    first, second, third = (contents(tmp_path / f"out{n}") for n in (0, 2, 3))
    assert first == second == third
    assert len(first) == 6  # two shards, manifest, counts, vocabulary and its settings
    totals = manifest.read(tmp_path / "out0").totals
    if "filters" in options:
        few = sum(len(" ".join(each).split()) < 9 for each in small.documents(300))
        assert totals.documents == totals.skipped["near-duplicate documents"] == 300 - few
        assert totals.skipped["documents of too few words"] == 2 * few > 0
    else:
        assert totals.documents == 300 and not totals.skipped


@pytest.mark.slow
@pytest.mark.parametrize("format_", ["joined", "documents"])
def test_rows_of_text_alone_with_any_number_of_workers(tmp_path, monkeypatch, format_):
    monkeypatch.setattr(corpus, "MIN_RANGE_BYTES", 2000)  # dozens of ranges
    write_text(tmp_path / "a.txt", 300)
    tokenizer = small.tokenizer_folder(tmp_path / "tokenizer", sentinels=8)
    settings = small.config(
        **{**systems.T5, "segments": {"format": format_, "max_length": 32, "duplicates": 2}}
    )
    for workers in (0, 2):
        out = tmp_path / f"out{workers}"
        built = build(tokenizer, tmp_path / "a.txt", out, settings, workers=workers, num_shards=2)
        assert built.max_length == 34 and built.segments.format == format_
    assert contents(tmp_path / "out0") == contents(tmp_path / "out2")


def test_packed_rows_in_the_manifest(tmp_path, tokenizer):
    write_text(tmp_path / "a.txt", 60)
    lines = []
    settings = small.config(
        segments__format="sentence_pairs", segments__packing=4, segments__max_length=64,
        encoder__max_positions=64,
    )  # fmt: skip
    built = build(tokenizer, tmp_path / "a.txt", tmp_path / "out", settings, report=lines.append)
    assert "part_lengths" in built.features and built.config.segments.packing == 4
    tokens = sum(n * count for n, count in enumerate(built.length_histogram))
    padding = 1 - tokens / (64 * built.totals.examples)
    assert f"{padding:.1%} of the rows is padding" in lines[-1] and padding < 0.1


@pytest.mark.slow
def test_one_sentence_has_no_order(tmp_path, tokenizer):
    ordered = small.config(segments__relation="sentence_order", objectives=[{"type": "masked_lm"}])
    (tmp_path / "a.txt").write_text("ba be\n\nbi bo\nbu da\n\nde di\n")
    lines = []
    built = build(tokenizer, tmp_path / "a.txt", tmp_path / "out", ordered, report=lines.append)
    assert built.totals.examples == 1 and built.totals.documents == 3
    assert built.totals.skipped == {"documents of one sentence": 2}
    assert built.features == ("token_ids", "segment_lengths", "sentence_order_label")
    assert "left out: 2 documents of one sentence" in lines[-1]
    (tmp_path / "a.txt").write_text("ba be\n\nbi bo\n")
    message = (
        r"2 documents of one sentence and no longer ones in the input \(.*a.txt\): one "
        "sentence has no order, which segments.relation: sentence_order needs; give longer "
        "documents, .* or set "
        "segments.random_negatives: true"
    )
    with pytest.raises(UserError, match=message):
        build(tokenizer, tmp_path / "a.txt", tmp_path / "none", ordered)
    message = (
        r"a sentence a line \(--split_sentences finds no stop in these\), or set segments.random"
    )
    with pytest.raises(UserError, match=message):
        build(tokenizer, tmp_path / "a.txt", tmp_path / "c", ordered, split_sentences=True)


@pytest.mark.slow
def test_sentences_of_other_scripts_have_an_order(tmp_path, tokenizer):
    """Documents of a line each: Urdu with its stops, and Thai, which has none."""
    ordered = small.config(segments__relation="sentence_order", objectives=[{"type": "masked_lm"}])
    clause = "มนุษย์ทั้งปวงเกิดมามีอิสระและเสมอภาคกันในศักดิ์ศรีและสิทธิ"
    lines = ["وہ ba آیا۔ وہ be گئے۔", " ".join([clause] * 8)]
    (tmp_path / "a.txt").write_text("\n\n".join(lines))
    said = []
    built = build(
        tokenizer, tmp_path / "a.txt", tmp_path / "out", ordered, report=said.append,
        split_sentences=True,
    )  # fmt: skip
    assert (built.totals.documents, built.totals.sentences) == (2, 6)
    assert built.totals.at_blanks == 3 and not built.totals.skipped
    assert "3 sentences end at a blank: their script has no full stops" in said[-1]


THAI = "มนุษย์ทั้งปวงเกิดมามีอิสระ"


@pytest.mark.parametrize(
    "text, changes, share",
    [
        # Two words of 26 and one of 2 tokens, and two of 10, which are no long ones.
        (f"{THAI} {THAI} ba", {"corruption__unit": "word"}, "66.7% of all, with 96.3%"),
        (
            f"{THAI} {THAI} ba",
            {"corruption__unit": "span", "corruption__max_span": 2},
            "66.7% of all, with 96.3%",
        ),
        (f"{THAI} {THAI} ba", {}, None),
        (f"{THAI[:10]} {THAI[:10]} ba", {"corruption__unit": "word"}, None),
    ],
    ids=["word", "span", "token", "short"],
)
def test_words_that_are_phrases_are_counted(tmp_path, text, changes, share):
    """Where a mask hides a whole word, and text without blanks is one word."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(THAI), "b", "a"]
    pieces += [f"##{piece}" for piece in pieces[5:]]
    tokenizers.WordPiece(pieces, False).save(tmp_path)
    (tmp_path / "a.txt").write_text("\n\n".join([text] * 20))
    said = []
    where = {"report": said.append, "run_config": small.config(**changes)}
    build(tmp_path, tmp_path / "a.txt", tmp_path / "out", **where)
    lines = [line for line in said[-1].splitlines() if "words of more than 10 tokens" in line]
    assert lines == ([] if share is None else [
        f"  words of more than 10 tokens: {share} of the tokens; corruption.unit: "
        f"{changes['corruption__unit']} hides whole words: separate words by blanks first, set "
        "corruption.unit: token, or take a vocabulary of --type=unigram, whose pieces are words in "
        "scripts without blanks"
    ])  # fmt: skip


def test_the_seed_decides(tmp_path, tokenizer):
    write_text(tmp_path / "a.txt", 30)
    for name, seed in {"a": 1, "b": 2, "c": None}.items():
        settings = small.config(seed=1)
        build(tokenizer, tmp_path / "a.txt", tmp_path / name, settings, seed=seed)
    a, b, c = (records(tmp_path / name) for name in "abc")
    assert a == c and a != b


@pytest.mark.slow
def test_static_masks_in_the_manifest(tmp_path, tokenizer):
    write_text(tmp_path / "a.txt", 30)
    settings = small.config(segments__static_masks=True)
    built = build(tokenizer, tmp_path / "a.txt", tmp_path / "out", settings)
    assert built.features[-2:] == ("masked_positions", "masked_ids")
    assert built.config.corruption.max_predictions == 5
    built = build(tokenizer, tmp_path / "a.txt", tmp_path / "their", format="tf_models")
    assert built.kind == "tf_models" and built.features[0] == "input_ids"
    assert len(records(tmp_path / "their")) == built.totals.examples


@pytest.mark.slow
def test_static_masks_drawn_by_the_counts_of_the_corpus(tmp_path, tokenizer):
    # Words that are no piece of their own become [UNK]; "ba" and "be" are all that is left.
    rng = np.random.default_rng(0)
    lines = [" ".join(rng.choice(["ba", "be"], 20, p=[0.75, 0.25])) for _ in range(400)]
    (tmp_path / "a.txt").write_text("\n\n".join(f"{line}\n{line}" for line in lines))
    settings = small.config(
        segments__static_masks=True,
        corruption__random_tokens="unigram",
        corruption__mask_prob=0.0,
        corruption__random_prob=1.0,
    )
    built = build(tokenizer, tmp_path / "a.txt", tmp_path / "out", settings)
    counts = stored_arrays.read_token_counts(tmp_path / "out", built)
    ba, be = 5, 6
    assert counts.sum() == counts[[ba, be]].sum() == 400 * 40 == built.totals.tokens
    assert counts[ba] == 2 * " ".join(lines).split().count("ba")
    drawn = []
    for record in records(tmp_path / "out"):
        feature = tf.train.Example.FromString(record).features.feature
        ids = np.array(feature["token_ids"].int64_list.value)
        drawn += ids[feature["masked_positions"].int64_list.value].tolist()
    assert set(drawn) == {ba, be} and len(drawn) > 2000
    share = counts[ba] / counts.sum()
    deviation = np.sqrt(share * (1 - share) / len(drawn))
    assert abs(np.mean(np.array(drawn) == ba) - share) < 4 * deviation


@pytest.mark.slow
@pytest.mark.parametrize("static", [False, True])
def test_phrases_and_entities(tmp_path, tokenizer, static):
    # Each word is two pieces: the phrase has four, the entity six.
    text = ["bade bido bofu", "gapa boda bedo", "gapa bido fufu", "mema bade bido gapa"] * 16
    (tmp_path / "a.txt").write_text("\n\n".join(f"{a}\n{b}" for a, b in pairwise(text)))
    (tmp_path / "phrases").write_text("bade bido\n\nbade  bido\nnever there\nbade bi\n")
    (tmp_path / "entities").write_text("mema bade bido\n")
    settings = small.config(
        corruption__unit="phrase",
        corruption__mask_prob=1.0,
        corruption__random_prob=0.0,
        corruption__mask_rate=0.3,
        segments__static_masks=static,
    )
    lines = []
    built = build(
        tokenizer,
        tmp_path / "a.txt",
        tmp_path / "out",
        settings,
        phrases=tmp_path / "phrases",
        entities=tmp_path / "entities",
        report=lines.append,
    )
    assert {"phrase_inner", "entity_inner"} < set(built.features)
    sentences = [s for pair in pairwise(text) for s in pair]
    assert strict.to_dict(built.totals.lexicons) == {
        "phrase_inner": {
            "lines": 4,
            "never_matched": 3,
            "matches": sum("bade bido" in s for s in sentences),
        },
        "entity_inner": {
            "lines": 1,
            "never_matched": 0,
            "matches": sum("mema bade bido" in s for s in sentences),
        },
    }
    assert "3 lines never match, such as 'bade  bido', 'never there', 'bade bi'" in lines[-1]
    assert lines[-1].endswith("1 lines; 0 lines never match")
    spelled = tokenizers.load(tokenizer).pieces
    wholes = 0
    for record in records(tmp_path / "out"):
        feature = tf.train.Example.FromString(record).features.feature
        values = {name: list(item.int64_list.value) for name, item in feature.items()}
        hidden = dict(
            zip(values.get("masked_positions", []), values.get("masked_ids", []), strict=True)
        )
        ids = [hidden.get(i, token) for i, token in enumerate(values["token_ids"])]
        actual = [spelled[i] for i in ids]
        expected = []
        for i in range(len(actual) - 3):
            if actual[i : i + 4] == ["ba", "##de", "bi", "##do"]:
                expected += [i + 1, i + 2, i + 3]
                parts = [j in hidden for j in range(i, i + 4)]
                assert all(parts) or not any(parts)  # hidden as a whole
                wholes += all(parts)
        # (What remains of a phrase that was cut at the front goes on with nothing before it.)
        assert set(expected) <= set(values["phrase_inner"])
        if "[MASK]" not in actual and len(actual) < 30:
            assert expected == values["phrase_inner"]
    assert wholes > 2 or not static


def test_units_without_a_lexicon(tokenizer):
    for unit, flag in (("phrase", "--phrases"), ("entity", "--entities")):
        message = f"corruption.unit: {unit} needs {flag}=FILE, one {unit} a line"
        with pytest.raises(UserError, match=message):
            Settings.from_config(small.config(corruption__unit=unit), tokenizer)


def test_number_of_shards_follows_the_size(tmp_path, tokenizer, monkeypatch):
    path = write_text(tmp_path / "a.txt", 60)
    (one,) = build(tokenizer, path, tmp_path / "one").shards
    monkeypatch.setattr(shards, "MIN_SHARD_BYTES", one.bytes // 4)
    assert len(build(tokenizer, path, tmp_path / "more").shards) == 5
    monkeypatch.setattr(shards, "MAX_SHARD_BYTES", one.bytes // 30)
    assert len(build(tokenizer, path, tmp_path / "few").shards) == -(-one.records // 32)
    monkeypatch.setattr(shards, "MIN_SHARD_RECORDS", 1)
    many = build(tokenizer, path, tmp_path / "many").shards
    assert len(many) == 31 and max(shard.bytes for shard in many) < one.bytes // 12


def test_progress(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_REPORTS", 0)
    lines = []
    build(tokenizer, write_text(tmp_path / "a", 40), tmp_path / "out", report=lines.append)
    note, line, _ = lines
    assert "text is lower-cased: no file says it" in note
    assert line.startswith("0.0 of 0.0 MB (100%), ") and line.endswith("0:00:00 left")
    assert " MB/s, 40 documents, " in line and " examples/s, " in line


FORMATS = {
    "pairs": {},
    "halves": {"segments__format": "halves", "segments__relation": "none"},
    "stream": {"segments": {"format": "stream", "max_length": 32, "rows": 8}},
}


@pytest.mark.parametrize("format_", FORMATS)
def test_many_tokens_that_are_lost_are_told_with_what_helps(tmp_path, tokenizer, capsys, format_):
    """A line is a paragraph."""
    sentences = [f"{s.capitalize()}." for d in small.documents(120) for s in d]
    lines = [" ".join(sentences[i : i + 9]) for i in range(0, len(sentences), 9)]
    (tmp_path / "a.txt").write_text("\n\n".join(map("\n".join, pairwise(lines))))
    said = []
    settings = small.config(
        **{"corruption": None, "objectives": []} | FORMATS[format_], segments__short_seq_prob=0.0
    )
    for split in (False, True):
        built = build(
            tokenizer, tmp_path / "a.txt", tmp_path / f"{split}", settings,
            said.append, split_sentences=split,
        )  # fmt: skip
        warning, kept = (
            capsys.readouterr().err,
            sum(n * count for n, count in enumerate(built.length_histogram)),
        )
        cut = built.totals.cut_tokens
        share = cut / (cut + kept)
        told = f"{cut:,} did not fit and were cut off; {share:.1%} of the tokens are in no exa"
        assert told in said[-1]
        many = format_ != "stream" and not split
        assert (share > 0.2) == many
        expected = (
            f"warning: {share:.0%} of the tokens are in no example: lines are too long for "
            "segments.max_length: 32. If a line is a paragraph, --split_sentences splits it into "
            "sentences\n"
        )
        assert warning == (expected if many else "")


def test_what_helps_where_splitting_does_not(tmp_path, tokenizer, capsys):
    write_text(tmp_path / "a.txt", 8)
    stream = {"corruption": None, "objectives": [], "segments": {"format": "stream", "rows": 20}}
    stream["segments"]["max_length"] = 12
    build(tokenizer, tmp_path / "a.txt", tmp_path / "a", small.config(**stream))
    assert "the text is too short for 20 rows of 12 tokens: low" in capsys.readouterr().err
    settings = small.config(segments__max_length=8)
    build(tokenizer, tmp_path / "a.txt", tmp_path / "b", settings, split_sentences=True)
    assert "sentences are too long for segments.max_length: 8: raise" in capsys.readouterr().err
    write_text(tmp_path / "a.txt", 4)
    with open(tmp_path / "a.txt", "a") as stream:
        stream.write("\n\n".join("badi bado fela " * 3 for _ in range(30)))
    settings = small.config(segments__relation="sentence_order", **{"objectives": []})
    built = build(tokenizer, tmp_path / "a.txt", tmp_path / "c", settings)
    assert built.totals.skipped == {"documents of one sentence": 30}
    assert ", 540 belong to documents that were left out; " in capsys.readouterr().out
    assert built.totals.left_out_tokens == 30 * 18


def test_documents_that_were_cut_are_told(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(corpus, "MIN_RANGE_BYTES", 40)
    monkeypatch.setattr(corpus, "MAX_RANGE_BYTES", 40)
    lines = []
    built = build(tokenizer, write_text(tmp_path / "a", 10), tmp_path / "out", report=lines.append)
    files = Corpus.find(str(tmp_path / "a"))
    whole = file_ranges.PlainFile(files.files[0], 40)
    found = filter(None, map(whole.read, range(files.bytes // 40 + 1)))
    long = sum(
        each.unfinished and each.data.strip() != b""
        for each in found
        if each.begins_in == each.number or b"\n\n" in each.data
    )
    assert f"  {long} documents are longer than a chunk of the text and were read in" in lines[-1]
    assert long > 3 and built.totals.documents == 10 and "skipped" not in lines[-1]


LONG = {
    "first": (4000, 60, 60),
    "in the middle": (60, 4000, 60),
    "last": (60, 60, 4000),
    "two": (4000, 4000),
}


@pytest.mark.parametrize("lengths", LONG.values(), ids=LONG)
def test_a_random_segment_is_never_of_the_same_long_document(tmp_path, monkeypatch, lengths):
    """Each document has a word of its own; the long ones are in several ranges of a group."""
    monkeypatch.setattr(corpus, "MIN_RANGE_BYTES", 2000)
    several = len(lengths) == 2  # the others need no processes
    words = ["ba", "be", "bi"]
    tokenizer = small.tokenizer_folder(tmp_path / "tok", words)
    documents = [[" ".join([word] * 6)] * (n // 6) for word, n in zip(words, lengths, strict=False)]
    (tmp_path / "a.txt").write_text("\n\n".join("\n".join(d) for d in documents) + "\n")
    for workers in (2, 0) if several else (0,):
        lines = []
        built = build(
            tokenizer, tmp_path / "a.txt", tmp_path / f"out{workers}", workers=workers,
            report=lines.append,
        )  # fmt: skip
    if several:
        assert contents(tmp_path / "out0") == contents(tmp_path / "out2")
    assert built.totals.documents == len(lengths) and built.totals.skipped == {}
    assert built.totals.tokens == sum(len(d) * 6 for d in documents)
    long = sum(n == 4000 for n in lengths)
    assert f"{long} documents are longer than a chunk of the text" in lines[-1]
    drawn = 0
    for record in records(tmp_path / "out0"):
        feature = tf.train.Example.FromString(record).features.feature
        ids = list(feature["token_ids"].int64_list.value)
        first, _ = feature["segment_lengths"].int64_list.value
        (a,), (b,) = set(ids[1 : first - 1]), set(ids[first:-1])
        random = feature["next_sentence_label"].int64_list.value[0]
        assert (a != b) == random
        drawn += random
    assert drawn > 90


@pytest.mark.parametrize("format", ["full_sentences", "blocks", "stream"])
def test_the_parts_of_a_document_have_no_separator_between_them(tmp_path, monkeypatch, format):
    monkeypatch.setattr(corpus, "MIN_RANGE_BYTES", 5000)
    words = [f"w{i}" for i in range(5000)]
    tokenizer = small.tokenizer_folder(tmp_path / "tok", words)
    ends = [0, 30, 4000, 4100, 5000]
    documents = [[" ".join(words[i : min(i + 7, stop)]) for i in range(start, stop, 7)]
                 for start, stop in pairwise(ends)]  # fmt: skip
    (tmp_path / "a.txt").write_text("\n\n".join("\n".join(d) for d in documents) + "\n")
    segments = {"format": format, "max_length": 16, "short_seq_prob": 0.0}
    segments |= {"rows": 2} if format == "stream" else {}
    settings = small.config(segments=segments, objectives=[{"type": "masked_lm"}])
    lines = []
    built = build(tokenizer, tmp_path / "a.txt", tmp_path / "out", settings, lines.append)
    assert built.totals.documents == 4 and built.totals.tokens == 5000
    assert "1 documents are longer than a chunk of the text" in lines[-1]
    firsts = {5 + start for start in ends[:-1]}
    seen, separators = [], 0
    for record in records(tmp_path / "out"):
        feature = tf.train.Example.FromString(record).features.feature
        ids = list(feature["token_ids"].int64_list.value)
        if "next_id" in feature:
            ids += feature["next_id"].int64_list.value
        elif format == "full_sentences":
            ids = ids[1:-1]
        for a, b in pairwise(ids):
            if a == 3:
                assert b in firsts
            elif b == 3:
                assert a + 1 in firsts | {5005}
                separators += 1
            else:
                assert b == a + 1 and b not in firsts
        seen += [token for token in ids if token != 3]
    if format != "stream":
        assert set(seen) == set(range(5, 5005))
    assert separators >= 1 if format == "full_sentences" else separators == 4 - (format == "stream")


def assert_nothing_left(folder, *names):
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"ba\n\xff\n", {}, r"a\.txt:2: not UTF-8 \(byte 0xff"),
        (b"", {}, "the input is empty"),
        (b"\n \n\n", {}, r"no text in the input \(.*a\.txt\): no examples"),
        (b"\xe2\x80\x8b\n", {}, "no text in the input"),
        (
            b"ba be\nbi\n\nbo\n",
            {"num_shards": 9},
            r"\d examples do not fill 9 shards.*--num_shards",
        ),
    ],
)
def test_bad_input_leaves_nothing(tmp_path, tokenizer, content, options, message):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(UserError, match=message):
        build(tokenizer, tmp_path / "a.txt", tmp_path / "out", **options)
    assert_nothing_left(tmp_path, "a.txt")


def test_missing_input(tmp_path, tokenizer):
    with pytest.raises(UserError, match=r"no file matches '.*\*\.txt'"):
        build(tokenizer, tmp_path / "*.txt", tmp_path / "out")
    assert_nothing_left(tmp_path)


def test_bad_lines_can_be_skipped(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(file_ranges, "MAX_LINE_BYTES", 100)
    (tmp_path / "a.txt").write_bytes(b"ba be\nbi \xff\nbo\n\n" + b"ba " * 100 + b"\nda de\n")
    options = {"on_bad_utf8": "skip", "on_long_line": "skip"}
    built = build(tokenizer, tmp_path / "a.txt", tmp_path / "out", **options)
    assert built.totals.skipped == {"lines not UTF-8": 1, "lines too long": 1}
    assert built.totals.sentences == 3


def test_a_finished_folder_is_not_overwritten(tmp_path, tokenizer):
    path = write_text(tmp_path / "a.txt", 10)
    build(tokenizer, path, tmp_path / "out")
    before = contents(tmp_path / "out")
    with pytest.raises(UserError, match="out is there already: name another folder or remove it"):
        build(tokenizer, path, tmp_path / "out")
    assert contents(tmp_path / "out") == before


def test_what_killed_runs_left_is_swept(tmp_path, tokenizer):
    path = write_text(tmp_path / "a.txt", 10)
    for name in (".tmp-out-abcd1234", ".tmp-out-2-abcd1234", ".tmp-other-abcd1234"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train").write_text("x")
    build(tokenizer, path, tmp_path / "out")
    others = [".tmp-other-abcd1234", ".tmp-out-2-abcd1234"]
    assert_nothing_left(tmp_path, "a.txt", "out", *others)


def test_two_runs_at_once(tmp_path, tokenizer):
    path = write_text(tmp_path / "a.txt", 10)
    (tmp_path / ".tmp-out-abcd1234").mkdir()
    descriptor = os.open(tmp_path / ".tmp-out-abcd1234", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    with pytest.raises(UserError, match=r"\.tmp-out-abcd1234 is being written by another run"):
        build(tokenizer, path, tmp_path / "out")
    os.close(descriptor)
    build(tokenizer, path, tmp_path / "out")


@pytest.fixture
def tiny_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder]).returncode:
        pytest.skip("needs the right to mount a file system")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_full_disk(tmp_path, tokenizer, tiny_disk):
    path = write_text(tmp_path / "a.txt", 500)
    with pytest.raises(UserError, match=r"no room to write .*disk/out \(No space left on device\)"):
        build(tokenizer, path, tiny_disk / "out")
    assert_nothing_left(tiny_disk)


def test_full_disk_without_mounting(tmp_path, tokenizer, monkeypatch):
    def full(*_):
        raise tf.errors.ResourceExhaustedError(None, None, "x; No space left on device")

    monkeypatch.setattr(tf.io.TFRecordWriter, "close", full)
    path = write_text(tmp_path / "a.txt", 10)
    with pytest.raises(UserError, match="no room to write .*out .No space left on device"):
        build(tokenizer, path, tmp_path / "out")
    assert_nothing_left(tmp_path, "a.txt")


def test_settings_that_cannot_be(tokenizer):
    raw = config.to_dict(small.config())
    no_masks = {**raw, "corruption": None, "objectives": [{"type": "sentence_pair"}]}
    with pytest.raises(UserError, match="'tiny' has no `corruption`.*tf_models needs masks"):
        Settings.from_config(config.from_dict(no_masks), tokenizer, format="tf_models")
    tuning = {"name": "tuning", "encoder": raw["encoder"], "recipe": raw["recipe"]}
    tuning["objectives"] = [{"type": "classification"}]
    sentences = small.config(segments__format="full_sentences", objectives=[])
    with pytest.raises(
        UserError, match="next-sentence labels, but the config has segments.format: full_sent"
    ):
        Settings.from_config(sentences, tokenizer, format="tf_models")
    shared = small.config(segments__packing=3)
    with pytest.raises(UserError, match="one example a row, but the config has .*packing: 3"):
        Settings.from_config(shared, tokenizer, format="tf_models")
    permuted = small.config(
        corruption={"type": "permutation", "num_predict": 5, "max_span": 4}, objectives=[]
    )
    with pytest.raises(
        UserError, match="corruption.type: permutation is drawn whenever .*use token_masks"
    ):
        Settings.from_config(permuted, tokenizer, format="tf_models")
    with pytest.raises(UserError, match="'tuning' has no `segments`: it is not for pretraining"):
        Settings.from_config(config.from_dict(tuning), tokenizer)
    with pytest.raises(UserError, match="seed: -1 is negative"):
        Settings.from_config(small.config(), tokenizer, seed=-1)


def command(tmp_path, tokenizer, *options):
    raw = config.to_dict(small.config())
    raw["segments"]["duplicates"] = 5
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(raw))
    return [
        sys.executable, "-m", "tfrecords_tools.build_shards", f"--config={tmp_path}/config.yaml",
        f"--input={tmp_path}/*.txt", f"--tokenizer={tokenizer}", f"--output={tmp_path}/out",
        "--workers=2", *options,
    ]  # fmt: skip


def run(arguments):
    return subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_command_line(tmp_path, tokenizer):
    write_text(tmp_path / "a.txt", 20)
    done = run(command(tmp_path, tokenizer, "--override=segments.duplicates=2", "--seed=5"))
    assert done.returncode == 0, done.stderr
    assert "examples in 1 shards" in done.stdout
    record = manifest.read(tmp_path / "out")
    assert (record.seed, record.config.segments.duplicates) == (5, 2)
    expected = build(
        tokenizer,
        tmp_path / "a.txt",
        tmp_path / "again",
        small.config(segments__duplicates=2),
        seed=5,
    )
    assert record.shards == expected.shards


@pytest.mark.slow
def test_command_line_errors(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_bytes(b"\xff\n")
    done = run(command(tmp_path, tokenizer))
    assert done.returncode == 2
    assert f"error: {tmp_path}/a.txt:1: not UTF-8" in done.stderr
    assert "Traceback" not in done.stderr
    done = run([part for part in command(tmp_path, tokenizer) if "--tokenizer" not in part])
    assert done.returncode == 2 and "error: --tokenizer is missing; --help says" in done.stderr


def processes_with(mark):
    actual = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark.encode() in path.read_bytes():
                actual.append(path.parent.name)
    return actual


@pytest.mark.slow
@pytest.mark.long
def test_a_killed_build_goes_on_to_the_same_bytes(tmp_path, tokenizer):
    """Killed once when some groups are done, and once when shards are written."""
    write_text(tmp_path / "a.txt", 500, times=40)
    arguments = command(tmp_path, tokenizer, "--min_words=20")
    runs = tmp_path / ".unfinished-out" / "runs"
    times = {}
    for what in (f"{runs}/*.counts", f"{tmp_path}/.tmp-out-*/*.tfrecord"):
        mark = f"TEST_MARK={uuid.uuid4()}"
        environment = {**os.environ, "TEST_MARK": mark.partition("=")[2]}
        process = subprocess.Popen(
            arguments, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None and not glob.glob(what):
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert not (tmp_path / "out").exists() and glob.glob(what)
        deadline = time.monotonic() + 60
        while (left := processes_with(mark)) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not left  # neither workers nor the process that they are forked from
        found = {path.name: path.stat().st_mtime_ns for path in runs.glob("*.counts")}
        assert times.items() <= found.items()
        times = found
    done = run(arguments)
    assert done.returncode == 0, done.stderr
    assert f"continuing an earlier run: {len(times)} parts of the text are" in done.stdout
    assert not list(tmp_path.glob(".*"))
    settings = small.config(segments__duplicates=5)
    filtered = TextFilters(20)
    build(tokenizer, tmp_path / "a.txt", tmp_path / "again", settings, filters=filtered)
    assert contents(tmp_path / "out") == contents(tmp_path / "again")


@pytest.mark.parametrize("left", ["counts", "all but one"])
def test_files_that_a_power_cut_has_emptied_are_made_again(tmp_path, tokenizer, monkeypatch, left):
    monkeypatch.setattr(corpus, "MIN_RANGE_BYTES", 2000)  # several groups
    write_text(tmp_path / "a.txt", 60)
    with monkeypatch.context() as patch:
        patch.setattr(shards, "write_shard", lambda part, **_: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            build(tokenizer, tmp_path / "a.txt", tmp_path / "out")
    runs = tmp_path / ".unfinished-out" / "runs"
    emptied = sorted(path for path in runs.iterdir() if path.suffix != ".counts")
    for path in emptied if left == "counts" else emptied[:1]:
        os.truncate(path, 0)
    build(tokenizer, tmp_path / "a.txt", tmp_path / "out")
    build(tokenizer, tmp_path / "a.txt", tmp_path / "again")
    assert contents(tmp_path / "out") == contents(tmp_path / "again")


def test_another_build_starts_anew(tmp_path, tokenizer, monkeypatch):
    """What is done of other text or other settings is not used."""
    write_text(tmp_path / "a.txt", 60)
    work = tmp_path / ".unfinished-out"
    stopped = []

    def stop(part, **_):
        stopped.append(sorted(path.name for path in (work / "runs").iterdir()))
        raise KeyboardInterrupt

    for changed in ("nothing", "settings", "text"):
        lines = []
        with monkeypatch.context() as patch:
            patch.setattr(shards, "write_shard", stop)
            with pytest.raises(KeyboardInterrupt):
                build(tokenizer, tmp_path / "a.txt", tmp_path / "out", report=lines.append)
        assert lines[1:] == [  # after the note of the tokenizer's case
            f"the finished part is kept in {work}: the same command continues from there"
        ]
        if changed == "text":
            write_text(tmp_path / "a.txt", 61)
        seed = 5 if changed == "settings" else None
        built = build(tokenizer, tmp_path / "a.txt", tmp_path / "out", None, lines.append, seed)
        went_on = "continuing an earlier run: 1 parts of the text are done" in lines
        assert went_on == (changed == "nothing")
        assert built.totals.documents == (61 if changed == "text" else 60)
        build(tokenizer, tmp_path / "a.txt", tmp_path / "again", seed=seed)
        assert contents(tmp_path / "out") == contents(tmp_path / "again")
        for name in ("out", "again"):
            shutil.rmtree(tmp_path / name)
        assert not work.exists()
    assert len(stopped) == 3


def test_filters(tmp_path, tokenizer, monkeypatch):
    """The shards are those of the text that passes; a build that goes on does not filter again."""
    monkeypatch.setattr(corpus, "MIN_RANGE_BYTES", 1000)
    texts = ["\n".join(lines) for lines in small.documents(60)]
    few = sum(len(text.split()) < 20 for text in texts)
    (tmp_path / "a.txt").write_text("\n\n".join([*texts, "# * #\n**", *texts[:20], "ba be"]))
    chosen = TextFilters(20, 0.5, "exact")
    lines = []
    with monkeypatch.context() as patch:
        patch.setattr(shards, "write_shard", lambda part, **_: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            build(tokenizer, tmp_path / "a.txt", tmp_path / "out", filters=chosen)
        patch.undo()
        patch.setattr(filters, "measure", None)
        built = build(
            tokenizer, tmp_path / "a.txt", tmp_path / "out", report=lines.append, filters=chosen
        )
    again = build(tokenizer, tmp_path / "a.txt", tmp_path / "again", filters=chosen)
    assert contents(tmp_path / "out") == contents(tmp_path / "again") and built == again
    copies_of_few = sum(len(text.split()) < 20 for text in texts[:20])
    assert built.totals.documents == 60 - few
    assert built.totals.skipped == {
        "documents of too few words": few + copies_of_few + 2,
        "duplicate documents": 20 - copies_of_few,
    }
    assert f"left out: {few + copies_of_few + 2} documents of too few words, " in lines[-1]
    assert few > copies_of_few > 0
    stored = json.loads((tmp_path / "out" / manifest.FILE).read_text())["config"]["filters"]
    assert stored == {"min_words": 20, "max_symbol_share": 0.5, "deduplicate": "exact"}
    assert manifest.read(tmp_path / "out").config.filters == chosen
    # A build without filters says nothing of them.
    (tmp_path / "b.txt").write_text("\n\n".join(text for text in texts if len(text.split()) >= 20))
    plain = build(tokenizer, tmp_path / "b.txt", tmp_path / "plain")
    assert "filters" not in (tmp_path / "plain" / manifest.FILE).read_text()
    assert plain.totals.tokens == built.totals.tokens
    message = r"no examples; filters left out 8\d documents of too few words$"
    with pytest.raises(UserError, match=message):
        build(tokenizer, tmp_path / "a.txt", tmp_path / "none", filters=TextFilters(1000))


def test_packed_files_of_all_kinds_give_the_same_shards(tmp_path, tokenizer):
    rows = [{"text": "\n".join(lines)} for lines in small.documents(50)]
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(data))
    (tmp_path / "a.jsonl.zst").write_bytes(zstandard.compress(data))
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    made = []
    for name in ("a.jsonl.gz", "a.jsonl.zst", "a.parquet"):
        built = build(tokenizer, tmp_path / name, tmp_path / f"{name}-out", num_shards=2)
        made.append(contents(tmp_path / f"{name}-out"))
        assert built.totals.documents == 50
    assert made[0] == made[1] == made[2]


def test_pairs_with_two_separators(tmp_path):
    documents = small.documents(60)
    write_text(tmp_path / "a.txt", 60)
    counts = word_vocabularies.byte_bpe_counts()
    counts.add([s for d in documents for s in d])
    loaded = tokenizers.ByteBPE(*word_vocabularies.learn_byte_bpe(counts.words(), 320))
    loaded.save(tmp_path / "tok")
    built = build(tmp_path / "tok", tmp_path / "a.txt", tmp_path / "out")
    sentences = {s for d in documents for s in d}
    lengths, whole = [], 0
    for record in records(tmp_path / "out"):
        example = tf.train.Example.FromString(record).features.feature
        ids = list(example["token_ids"].int64_list.value)
        first, second = example["segment_lengths"].int64_list.value
        assert ids[0] == loaded.cls_id and len(ids) == first + second <= 32
        assert [i for i, piece in enumerate(ids) if piece == loaded.sep_id] == [
            first - 2, first - 1, len(ids) - 1,
        ]  # fmt: skip
        whole += loaded.decode(ids[1 : first - 2]) in sentences
        lengths.append(len(ids))
    assert whole > 5 and max(lengths) == 32
    assert list(built.length_histogram) == [lengths.count(n) for n in range(33)]
    packed = small.config(segments__packing=4)
    built = build(tmp_path / "tok", tmp_path / "a.txt", tmp_path / "packed", packed)
    lengths = [
        len(tf.train.Example.FromString(r).features.feature["token_ids"].int64_list.value)
        for r in records(tmp_path / "packed")
    ]
    assert list(built.length_histogram) == [lengths.count(n) for n in range(33)]


def test_a_vocabulary_without_a_mask_token(tmp_path):
    write_text(tmp_path / "a.txt", 10)
    folder = small.tokenizer_folder(tmp_path / "tok")
    pieces = (folder / "vocab.txt").read_text()
    (folder / "vocab.txt").write_text(pieces.replace("[MASK]", "other"))
    message = r"tok has no mask token, and corruption.mask_prob is 0.8: name another with"
    for static in (True, False):  # masks are drawn here, or in training
        wanted = small.config(segments__static_masks=static)
        with pytest.raises(UserError, match=message):
            build(folder, tmp_path / "a.txt", tmp_path / "x", wanted)
        assert not (tmp_path / "x").exists()
    # Shards for a config without masks want none; reading them for masked LM does.
    bare = config.from_dict({"name": "bare", "segments": {"max_length": 32}}, "bare")
    build(folder, tmp_path / "a.txt", tmp_path / "out", bare)
    with pytest.raises(UserError, match=r"the tokenizer of .*out has no mask token, and corrup"):
        data.ShardDataset(tmp_path / "out", small.config())


def test_what_training_would_refuse_of_a_vocabulary_is_said_first(tmp_path, capsys):
    write_text(tmp_path / "a.txt", 10)
    t5 = config.load(ROOT / "configs" / "smoke" / "t5.yaml")
    tokenizer, nine = (small.tokenizer_folder(tmp_path / f"{n}", sentinels=n) for n in (0, 9))
    message = r"has {} sentinels .* needs 20: build the vocabulary with --sentinels=20, or lower"
    for folder, count in ((tokenizer, 0), (nine, 9)):
        with pytest.raises(UserError, match=message.format(count)):
            build(folder, tmp_path / "a.txt", tmp_path / "out", t5)
    assert not (tmp_path / "out").exists()
    build(tokenizer, tmp_path / "a.txt", tmp_path / "out", small.config(encoder__vocab_size=50))
    message = "will be refused: encoder.vocab_size: 50 is less than the 125 pieces of the data"
    assert message in capsys.readouterr().err


def test_what_is_missing_is_said(tmp_path, tokenizer):
    write_text(tmp_path / "a.txt", 10)
    nowhere, phrases = tmp_path / "nowhere", small.config(corruption__unit="phrase")
    with pytest.raises(UserError, match=f"tokenizer folder {nowhere} is missing: it should hold"):
        build(nowhere, tmp_path / "a.txt", tmp_path / "out")
    with pytest.raises(UserError, match="a.txt is a file, not a folder: it should hold"):
        build(tmp_path / "a.txt", tmp_path / "a.txt", tmp_path / "out")
    with pytest.raises(UserError, match=f"{nowhere} is missing"):
        build(tokenizer, tmp_path / "a.txt", tmp_path / "out", phrases, phrases=nowhere)
    assert not (tmp_path / "out").exists()


def test_what_training_would_refuse_of_a_stream_is_said(tmp_path, tokenizer, capsys):
    text = write_text(tmp_path / "a.txt", 20)
    encoder = {
        "type": "transformer_xl", "attention": "uni", "hidden_size": 8, "num_layers": 1,
        "num_heads": 2, "intermediate_size": 8, "memory_length": 100_000,
    }  # fmt: skip
    stream = {
        "segments": {"format": "stream", "max_length": 16, "rows": 4},
        "corruption": None,
        "objectives": [{"type": "causal_lm"}],
    }
    build(tokenizer, text, tmp_path / "out", small.config(**stream, encoder=encoder))
    said = capsys.readouterr().err
    assert "will be refused: " in said and "is a stream of 4 rows, and the batch has" in said
    assert "encoder.memory_length: 100000, and the longest text that a row continues has" in said
    encoder["memory_length"] = 16
    good = small.config(**stream, encoder=encoder, recipe__batch_size=4)
    build(tokenizer, text, tmp_path / "good", good)
    assert "will be refused" not in capsys.readouterr().err


@pytest.mark.slow
def test_one_folder_serves_the_three_stages_of_ernie(tmp_path, tokenizer):
    """Boundaries go with the examples: each stage hides its own units of the same shards."""
    text = ["bade bido bofu gapa", "mema bade bido fufu"] * 30
    (tmp_path / "a.txt").write_text("\n\n".join(f"{a}\n{b}" for a, b in pairwise(text)))
    (tmp_path / "phrases").write_text("bade bido\n")
    (tmp_path / "entities").write_text("mema bade bido\n")
    stages = {
        unit: small.config(
            corruption__unit=unit,
            corruption__mask_rate=0.3,
            corruption__max_predictions=8,
            corruption__mask_prob=1.0,
            corruption__random_prob=0.0,
        )
        for unit in ("token", "phrase", "entity")
    }
    lexicons = {"phrases": tmp_path / "phrases", "entities": tmp_path / "entities"}
    build(tokenizer, tmp_path / "a.txt", tmp_path / "out", stages["token"], **lexicons)
    pieces = np.array(tokenizers.load(tokenizer).pieces)
    spelled = {"phrase": "ba ##de bi ##do", "entity": "me ##ma ba ##de bi ##do"}
    parts = dict.fromkeys([(s, u) for s in stages for u in spelled], 0)
    wholes = dict(parts)
    for stage, settings in stages.items():
        source = data.ShardDataset(tmp_path / "out", settings)
        for batch in source.dataset(8).as_numpy_iterator():
            ids = batch["token_ids"].copy()
            for row, places, was, real in zip(
                ids, batch["masked_positions"], batch["masked_ids"], batch["masked_weights"],
                strict=True,
            ):  # fmt: skip
                row[places[real > 0]] = was[real > 0]
            hidden = batch["token_ids"] != ids
            for unit, wanted in spelled.items():
                size = len(wanted.split())
                for i, j in np.ndindex(len(ids), ids.shape[1] - size + 1):
                    if pieces[ids[i, j : j + size]].tolist() == wanted.split():
                        share = hidden[i, j : j + size].mean()
                        wholes[stage, unit] += share == 1
                        parts[stage, unit] += 0 < share < 1
    assert parts["token", "phrase"] > 20 and parts["token", "entity"] > 20
    # A phrase is hidden as a whole or not at all, and so is an entity, of which it may be a part.
    assert parts["phrase", "phrase"] == 0 < wholes["phrase", "phrase"]
    assert parts["phrase", "entity"] > 5
    assert parts["entity", "entity"] == 0 < wholes["entity", "entity"]


@pytest.mark.slow
def test_second_segments_of_the_only_document_are_told(tmp_path, tokenizer, capsys):
    for number, text in enumerate(["ba be\nbi bo\nbu da\n", "ba be\nbi bo\n\nbu da\n"]):
        (tmp_path / "a.txt").write_text(text)
        build(tokenizer, tmp_path / "a.txt", tmp_path / f"{number}", report=[].append)
        warned = "warning: the corpus is one document" in capsys.readouterr().err
        assert warned == (number == 0)
