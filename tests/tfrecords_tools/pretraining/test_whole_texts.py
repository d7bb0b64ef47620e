"""Rows of byte-level BPE hold slices of the user's text: nothing is glued, cleaned or left out."""

import gzip
import itertools
import json

import numpy as np
import pytest
import tensorflow as tf

from official import tokenizers
from official.config import Segments
from official.shards import parsing
from official.utils import input_files, packed_files
from tfrecords_tools.pretraining import builder, examples
from tfrecords_tools.pretraining.settings import Settings
from tfrecords_tools.text import documents, file_ranges, sentences
from tfrecords_tools.text.corpus import DocumentChunk
from tfrecords_tools.text.file_ranges import PlainFile
from tfrecords_tools.vocabulary import word_vocabularies

ODD = [" ", "  ", "\t", "\x00", "\x1c ", "\x85", "\xa0", "\u2003", "\r", "\x0c", "\x07"]
BLANK_LINES = ["\n\n", "\n\x1c\n", "\n \n"]  # which end a document of a text file
SIGNS = [". ", ". ", "! ", "? ", "。", "。“", "…) ", ", ", " (", ") ", "'s ", "é", "😀", "ö", " - "]


def corpus(seed=0, count=40, json_lines=True):
    """Texts of documents: numbered words with odd white space and signs between them."""
    rng = np.random.default_rng(seed)
    numbers = itertools.count(100)
    odd = [*ODD, "\n", *(BLANK_LINES if json_lines else [])]
    texts = []
    for _ in range(count):
        text = "W"
        for _ in range(rng.integers(3, 60)):
            text += f"ord{next(numbers)}{rng.choice(SIGNS)}"
            text += "".join(rng.choice(odd, rng.integers(0, 3))) * (rng.random() < 0.5)
            text += "w" if rng.random() < 0.7 else "W"
        # A blank line would end the document.
        lines = text.split("\n") if json_lines else [s for s in text.split("\n") if s.strip()]
        texts.append("\n".join(lines).strip(documents.WHITE_SPACE))
    return texts


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "blank before a text"])
def folder(request, tmp_path_factory):
    """Of a tokenizer with merges that have white space, signs and bytes of characters in them."""
    counts = word_vocabularies.byte_bpe_counts()
    counts.add(corpus(seed=1))
    tokenizer = tokenizers.ByteBPE(
        *word_vocabularies.learn_byte_bpe(counts.words(), 400), request.param
    )
    path = tmp_path_factory.mktemp("made") / "tokenizer"
    tokenizer.save(path)
    return str(path)


def written(path, texts):
    """A file of documents, which is read in ranges of a few of them."""
    if ".jsonl" in path.name:
        content = "".join(json.dumps({"text": f"\n {text} \n\n"}) + "\n" for text in texts)
    else:
        content = " \n" + "\n\n \t\n".join(texts) + "\t\n"
    data = content.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    source = input_files.seen(path)
    if packed_files.is_packed(path):
        found = file_ranges.read_packed(source, 5000)
    else:
        found = map(PlainFile(source, 5000).read, range(-(-len(data) // 5000)))
    return [DocumentChunk(0, i, *documents.parse(piece)) for i, piece in enumerate(found)]


def settings(folder, split, **options):
    return Settings(Segments(**options), None, folder, 3, split_sentences=split)


def spelled(tokenizer, ids):
    return b"".join(tokenizer.spellings[token] for token in ids)


def runs(tokenizer, ids):
    """The texts between the special tokens of a row."""
    special = set(tokenizer.special_ids)
    groups = itertools.groupby(ids, lambda token: token in special)
    return [spelled(tokenizer, group) for is_special, group in groups if not is_special]


def expected_texts(tokenizer, texts):
    return [f"{' ' * tokenizer.add_prefix_space}{text}".encode() for text in texts]


def rows_of(piece, how):
    records, _ = examples.process_chunk(piece, how)
    return parsing.parse(tf.constant(records), ["token_ids"])["token_ids"].to_list()


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.jsonl", "a.jsonl.gz"])
@pytest.mark.parametrize("split", [False, True])
def test_a_document_has_the_tokens_of_its_text(tmp_path, folder, name, split):
    texts, tokenizer = corpus(json_lines="jsonl" in name), tokenizers.load(folder)
    actual, count = [], 0
    for piece in written(tmp_path / name, texts):
        tokens, _ = examples.tokenize_chunk(piece, settings(folder, split))
        ends = tokens.sentences[tokens.documents]
        actual += [tokens.ids[a:b].tolist() for a, b in itertools.pairwise(ends)]
        count += len(tokens.sentences) - 1
    assert actual == [ids.tolist() for ids in tokenizer.encode(texts)]
    assert [spelled(tokenizer, ids) for ids in actual] == expected_texts(tokenizer, texts)
    lines = sum(bool(line.strip(documents.WHITE_SPACE)) for t in texts for line in t.split("\n"))
    assert count == lines if not split else count > 1.2 * lines


FORMATS = {
    "pairs": {"format": "pairs"},
    "sentence order": {"format": "pairs", "relation": "sentence_order"},
    "sentence_pairs": {"format": "sentence_pairs", "relation": "none"},
    "full_sentences": {"format": "full_sentences"},
    "doc_sentences": {"format": "doc_sentences"},
    "blocks": {"format": "blocks"},
}


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("format", FORMATS)
def test_rows_are_slices_of_the_text(tmp_path, folder, split, format):
    texts, tokenizer = corpus(), tokenizers.load(folder)
    expected = expected_texts(tokenizer, texts)
    how = settings(folder, split, max_length=40, **FORMATS[format])
    actual = []
    for piece in written(tmp_path / "a.jsonl", texts):
        for row in rows_of(piece, how):
            actual += runs(tokenizer, row)
    everything = b"\n\n\n\n\n".join(expected)
    assert len(actual) > 100 and all(run in everything for run in actual)
    assert format == "blocks" or any(run.startswith(b"\n") for run in actual)
    if format in ("full_sentences", "doc_sentences", "blocks"):
        assert b"".join(actual) == b"".join(expected)


def test_blocks_end_a_document_where_it_ends(tmp_path, folder):
    """At the limit of 128 tokens: no separator and no target of one stands anywhere else."""
    texts, tokenizer = corpus(count=150), tokenizers.load(folder)
    how = settings(folder, True, format="blocks", max_length=128)
    separators = asked = rows = 0
    whole = []
    for piece in written(tmp_path / "a.jsonl", texts):
        records, counts = examples.process_chunk(piece, how)
        parsed = parsing.parse(tf.constant(records), ["token_ids", "next_id"])
        ids, after = parsed["token_ids"].to_list(), parsed["next_id"].numpy().tolist()
        assert {len(row) for row in ids[:-1]} == {128} and after[:-1] == [row[0] for row in ids[1:]]
        text = [*itertools.chain(*ids), after[-1]]
        whole += text
        separators += text.count(tokenizer.sep_id)
        targets = [
            token for row, last in zip(ids, after, strict=True) for token in [*row[1:], last]
        ]
        assert targets == text[1:]
        asked += targets.count(tokenizer.sep_id)
        rows += len(ids)
        assert not {tokenizer.cls_id, tokenizer.pad_id} & set(text)
        assert counts.totals["documents"] == len(piece.documents)
    assert separators == asked == len(texts) and rows > 40
    groups = itertools.groupby(whole, lambda token: token == tokenizer.sep_id)
    actual = [spelled(tokenizer, group) for is_end, group in groups if not is_end]
    assert actual == expected_texts(tokenizer, texts)


@pytest.mark.parametrize("reuse", [0, 10])
def test_streams_are_the_text(tmp_path, folder, reuse):
    texts, tokenizer = corpus(), tokenizers.load(folder)
    how = settings(folder, True, format="stream", rows=2, reuse_length=reuse, max_length=40)
    written(tmp_path / "a.jsonl", texts)
    builder.build(how, f"{tmp_path}/a.jsonl", tmp_path / "out", num_shards=1)
    paths = [str(path) for path in (tmp_path / "out").glob("*.tfrecord")]
    records = list(tf.data.TFRecordDataset(paths))
    rows = parsing.parse(tf.stack(records), ["token_ids"])["token_ids"].to_list()
    everything = b"\n\n\n\n\n".join(expected_texts(tokenizer, texts))
    for b in range(2):
        text = [token for row in rows[b::2] for token in row[: reuse or 40]]
        actual = runs(tokenizer, text)
        assert all(run in everything for run in actual)
        assert len(b"".join(actual)) > 0.4 * len(everything)


def test_slices_of_any_kind_have_the_tokens_of_the_whole(folder):
    """Cut in the middle of words and of signs, where a token reaches from one slice to the next."""
    tokenizer, rng = tokenizers.load(folder), np.random.default_rng(5)
    texts = corpus()
    cuts = [np.sort(rng.integers(0, len(text) + 1, rng.integers(0, 30))) for text in texts]
    slices = [
        [text[a:b] for a, b in itertools.pairwise([0, *cut, len(text)])]
        for text, cut in zip(texts, cuts, strict=True)
    ]
    ids, splits = tokenizer.encode_slices(slices)
    rows = tokenizer.encode(texts)
    assert ids.tolist() == np.concatenate(rows).tolist()
    assert len(splits) == sum(map(len, slices)) + 1 and splits[-1] == len(ids)
    sizes = np.array([len(tokenizer.spellings[token]) for token in ids])
    starts = np.cumsum([0, *map(len, rows)])
    for text, row, start in zip(texts, rows, starts, strict=False):
        spelled = b"".join(tokenizer.spellings[token] for token in row)
        sizes[start : start + 1] -= len(spelled) - len(text.encode())  # the blank before a text
    begins = np.append(np.cumsum(sizes) - sizes, sizes.sum())
    flat = [part for text in slices for part in text]
    place = 0
    for number, part in enumerate(flat):
        first = splits[number]
        assert begins[first] >= place and (first == 0 or begins[first - 1] < place)
        place += len(part.encode())


def test_a_slice_that_goes_on_has_no_blank_before_it(folder):
    tokenizer = tokenizers.load(folder)
    whole = tokenizer.encode(["Word one.\n\n word two"])[0].tolist()
    first, second = (tokenizer.encode_slices([[part]])[0].tolist() for part in
                     ("Word one.", "\n\n word two"))  # fmt: skip
    assert first + second == whole
    assert tokenizer.encode_slices([[], [""]])[1].tolist() == [0, 0]


def test_sentences_of_a_document_begin_with_their_blanks(folder):
    tokenizer = tokenizers.load(folder)
    text = "He left.  Then\the came back! 好。好"
    ids, splits = tokenizer.encode_slices([sentences.split(text)])
    actual = [spelled(tokenizer, ids[a:b]).decode() for a, b in itertools.pairwise(splits)]
    blank = " " * tokenizer.add_prefix_space
    assert actual == [f"{blank}He left.", "  Then\the came back!", " 好。", "好"]
