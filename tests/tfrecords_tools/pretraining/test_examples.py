"""Tests of tfrecords_tools.pretraining.examples."""

import dataclasses
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from official import tokenizers
from official.config import Segments
from official.config.corruptions import TokenMasksConfig
from official.corruption import token_masks
from official.corruption.vocabulary import Vocabulary
from official.shards import parsing
from official.utils import host_seeding, seeding
from tests import small
from tfrecords_tools.pretraining import examples, full_sentences, pairs, segments
from tfrecords_tools.pretraining.settings import Settings


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(small.tokenizer_folder(tmp_path_factory.mktemp("made") / "tokenizer"))


def settings(folder, format="examples", split_sentences=False, **options):
    changes = {f"segments__{name}": value for name, value in options.items()}
    model_config = small.config(corruption__unit="word", **changes)
    static = model_config.segments.static_masks or format != "examples"
    corruption = model_config.corruption if static else None
    return Settings(model_config.segments, corruption, folder, 7, format, split_sentences)


def text_chunk(number=0, documents=30):
    return small.chunk(small.documents(documents), number)


def parsed(records, *names):
    return {name: v.numpy() for name, v in parsing.parse(tf.constant(records), names).items()}


def lists(values):
    return [row.tolist() for row in values]


def rebuilt(chunk, how, cutter=pairs.cut):
    """The examples of a chunk in the order of `process_chunk`, put together one by one."""
    tokenizer = tokenizers.load(how.tokenizer)
    texts = [document.text.split("\n") for document in chunk.documents]
    ids, splits = tokenizer.encode_ragged([s for text in texts for s in text])
    tokens = segments.TokenizedDocuments.from_sentences(
        ids, splits, list(map(len, texts)), chunk.documents
    )
    result, labels, duplicates = [], [], []
    for i in range(how.segments.duplicates):
        cut = cutter(tokens, how.segments, host_seeding.numpy_rng(7, chunk.group, 0, i))
        for first, stop, label in zip(cut.splits, cut.splits[1:], cut.labels, strict=False):
            ids, lengths = [2], []
            for (start, end), opens in zip(
                cut.runs[first:stop], cut.opens[first:stop], strict=True
            ):
                ids += [*tokens.ids[start:end].tolist(), 3]
                if opens:
                    lengths.append(0)
                lengths[-1] = len(ids) - sum(lengths[:-1])
            result.append((ids, lengths))
            labels.append(label)
            duplicates.append(i)
    numbers = host_seeding.sort_keys(7, chunk.group, 0, np.arange(len(result)))
    return result, labels, [(7, *each) for each in zip(duplicates, numbers, strict=True)]


def test_examples(folder):
    chunk, how = text_chunk(number=3), settings(folder, duplicates=2)
    records, counts = examples.process_chunk(chunk, how)
    expected, labels, _ = rebuilt(chunk, how)
    got = parsed(records, "token_ids", "segment_lengths", "next_sentence_label")
    assert lists(got["token_ids"]) == [ids for ids, _ in expected]
    assert lists(got["segment_lengths"]) == [lengths for _, lengths in expected]
    assert got["next_sentence_label"].tolist() == labels
    texts = small.documents(30)
    assert counts.totals["documents"] == counts.read == 30
    assert counts.totals["sentences"] == sum(map(len, texts))
    lengths = np.bincount([len(ids) for ids, _ in expected], minlength=33)
    assert counts.lengths.tolist() == lengths.tolist()
    words = [word for text in texts for s in text for word in s.split()]
    assert counts.totals["tokens"] == sum(len(word) // 2 for word in words)  # two letters a piece


@pytest.mark.parametrize(
    ("options", "cutter", "label"),
    [
        ({"relation": "sentence_order"}, pairs.cut, "sentence_order_label"),
        ({"format": "sentence_pairs"}, pairs.cut, "next_sentence_label"),
        ({"relation": "none"}, pairs.cut, None),
        ({"format": "full_sentences"}, full_sentences.cut, None),
        ({"format": "doc_sentences"}, full_sentences.cut, None),
    ],
)
def test_formats(folder, options, cutter, label):
    how = Settings(Segments(max_length=32, duplicates=2, **options), None, folder, 7)
    chunk = small.chunk([*small.documents(30), ["ba"]], 3)
    records, counts = examples.process_chunk(chunk, how)
    expected, labels, _ = rebuilt(chunk, how, cutter)
    names = ["token_ids", "segment_lengths", *filter(None, [label])]
    assert set(tf.train.Example.FromString(records[0]).features.feature) == set(names)
    got = parsed(records, *names)
    assert lists(got["token_ids"]) == [ids for ids, _ in expected]
    assert lists(got["segment_lengths"]) == [lengths for _, lengths in expected]
    if label:
        assert got[label].tolist() == labels and 0 < sum(labels) < len(labels)
    dropped = {"documents of one sentence": 1} if label == "sentence_order_label" else {}
    assert counts.skipped == dropped


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"relation": "none"}, {"format": "full_sentences"}])
@pytest.mark.parametrize("static", [False, True])
def test_rows_of_several_parts_hold_the_same_examples(folder, options, static):
    plain = settings(folder).segments
    options = {"relation": None, "short_seq_prob": 0.5, "duplicates": 2, **options}
    plain = dataclasses.replace(plain, **options)
    how = Settings(plain, TokenMasksConfig(max_predictions=6) if static else None, folder, 7)
    shared = dataclasses.replace(plain, packing=3, row_length=50)
    packed = dataclasses.replace(how, segments=shared)
    names = ["token_ids", "segment_lengths", *filter(None, [plain.label])]
    names += ["masked_positions", "masked_ids"] if static else []
    alone = parsed(examples.process_chunk(text_chunk(), how)[0], *names)
    records, counts = examples.process_chunk(text_chunk(), packed)
    assert records == examples.process_chunk(text_chunk(), packed)[0]
    got = parsed(records, "part_lengths", *names)

    def marked(got, i):
        """The tokens as the encoder sees them, each with what is to be predicted there."""
        targets = [-1] * len(got["token_ids"][i])
        if static:
            for place, was in zip(got["masked_positions"][i], got["masked_ids"][i], strict=True):
                targets[place] = int(was)
        return list(zip(got["token_ids"][i].tolist(), targets, strict=True))

    labels = alone[plain.label] if plain.label else None
    expected = [
        (marked(alone, i), lengths.tolist(), *([] if labels is None else [labels[i]]))
        for i, lengths in enumerate(alone["segment_lengths"])
    ]
    actual = []
    for i, part_lengths in enumerate(got["part_lengths"]):
        ids, lengths = marked(got, i), got["segment_lengths"][i].tolist()
        assert len(part_lengths) <= 3 and sum(part_lengths) == len(ids) == sum(lengths) <= 50
        for part, length in enumerate(part_lengths):
            own, left = [], length
            while left:
                own.append(lengths.pop(0))
                left -= own[-1]
            label = [got[plain.label][i][part]] if plain.label else []
            actual.append((ids[:length], own, *label))
            ids = ids[length:]
        assert not ids and not lengths
    assert sorted(actual) == sorted(expected)
    assert len(got["part_lengths"]) < len(expected)
    assert max(map(len, got["token_ids"])) > 32
    assert counts.lengths.sum() == len(records)


def test_random_segments_are_of_other_documents_than_a_long_one(folder):
    """Two parts of a document, which are in one chunk, lend nothing to one another."""
    rng = np.random.default_rng(1)
    long = [[" ".join(rng.choice(small.WORDS[:40], 5)) for _ in range(100)] for _ in range(2)]
    others = [[" ".join(rng.choice(small.WORDS[40:], 4))] * 5, [small.WORDS[50]]]
    how, tokens = settings(folder), tokenizers.load(folder)
    chunk = small.chunk([*long, *others], 4)
    for part in range(2):
        chunk.documents[part] = chunk.documents[part]._replace(
            identity=(0, 3, -1), part=part + 1, unfinished=not part
        )
    records, counts = examples.process_chunk(chunk, how)
    alone, _ = examples.process_chunk(chunk._replace(documents=chunk.documents[:2]), how)
    other = set(tokens.encode_ragged(sum(others, []))[0].tolist())
    names = ["token_ids", "segment_lengths", "next_sentence_label"]
    drawn = 0
    for ids, (first, _), label in zip(*map(parsed(records, *names).get, names), strict=True):
        a, b = set(ids[1 : first - 1].tolist()), set(ids[first:-1].tolist())
        if not a & other:
            assert b <= other if label else not b & other
            drawn += label
    assert drawn > 20
    # The parts begin no document. If there is no other one, B is of the same.
    assert counts.totals["documents"] == 2 and counts.totals["sentences"] == 206
    labels = parsed(alone, *names)["next_sentence_label"]
    assert 5 < labels.sum() < len(labels) - 5


@pytest.mark.slow
def test_pure(folder):
    how = settings(folder, static_masks=True, duplicates=2)
    first, _ = examples.process_chunk(text_chunk(5), how)
    examples.process_chunk(text_chunk(6), settings(folder))
    again, _ = examples.process_chunk(text_chunk(5), how)
    assert first == again
    other, _ = examples.process_chunk(text_chunk(6), how)
    assert set(first).isdisjoint(other)
    assert len(set(first)) == len(first)


def test_batches_leave_no_trace(folder, monkeypatch):
    how = settings(folder, static_masks=True)
    whole, _ = examples.process_chunk(text_chunk(), how)
    monkeypatch.setattr(examples, "EXAMPLES_AT_ONCE", 7)
    assert examples.process_chunk(text_chunk(), how)[0] == whole


@pytest.mark.slow
def test_static_masks_are_those_of_the_corruption(folder):
    chunk, how = text_chunk(number=2), settings(folder, static_masks=True, duplicates=2)
    names = ["token_ids", "segment_lengths", "masked_positions", "masked_ids"]
    got = parsed(examples.process_chunk(chunk, how)[0], *names)
    expected, _, seeds = rebuilt(chunk, how)
    vocabulary = Vocabulary.from_tokenizer(tokenizers.load(folder))
    some_hidden = 0
    for i, ((ids, lengths), (seed, duplicate, index)) in enumerate(
        zip(expected, seeds, strict=True)
    ):
        row = {
            "token_ids": tf.constant([ids], tf.int32),
            "padding_mask": tf.ones([1, len(ids)], tf.bool),
        }
        row_seed = seeding.row_seeds(seed, duplicate, tf.constant([index], tf.uint64))
        masked = token_masks.corrupt(how.corruption, vocabulary, row, row_seed)
        count = int(tf.reduce_sum(masked["masked_weights"]))
        some_hidden += masked["token_ids"].numpy()[0].tolist() != ids
        assert got["token_ids"][i].tolist() == masked["token_ids"].numpy()[0].tolist()
        assert got["segment_lengths"][i].tolist() == lengths
        for name in names[2:]:
            assert got[name][i].tolist() == masked[name].numpy()[0, :count].tolist()
    assert some_hidden > 0.9 * len(expected)


@pytest.mark.parametrize(
    ("format_", "ids_name", "segments_name"),
    [
        ("tf_models", "input_ids", "segment_ids"),
        ("tf_models_v2", "input_word_ids", "input_type_ids"),
    ],
)
def test_tf_models_features(folder, format_, ids_name, segments_name):
    """The same examples and masks as ours, padded, under the other names."""
    names = ["token_ids", "segment_lengths", "masked_positions", "masked_ids"]
    ours, _ = examples.process_chunk(text_chunk(), settings(folder, static_masks=True))
    got = parsed(ours, *names, "next_sentence_label")
    theirs, _ = examples.process_chunk(text_chunk(), settings(folder, format=format_))
    kinds = {name: tf.io.FixedLenFeature([32], tf.int64) for name in (ids_name, "input_mask")}
    kinds[segments_name] = kinds[ids_name]
    for name in ("masked_lm_positions", "masked_lm_ids"):
        kinds[name] = tf.io.FixedLenFeature([5], tf.int64)
    kinds["masked_lm_weights"] = tf.io.FixedLenFeature([5], tf.float32)
    kinds["next_sentence_labels"] = tf.io.FixedLenFeature([1], tf.int64)
    read = tf.io.parse_example(tf.constant(theirs), kinds)
    read = {name: value.numpy() for name, value in read.items()}
    assert len(theirs) == len(ours)
    for i, ids in enumerate(got["token_ids"]):
        a, b = got["segment_lengths"][i]
        count = len(got["masked_ids"][i])
        padded = {
            ids_name: [*ids, *[0] * (32 - len(ids))],
            "input_mask": [1] * len(ids) + [0] * (32 - len(ids)),
            segments_name: [0] * a + [1] * b + [0] * (32 - a - b),
            "masked_lm_positions": [*got["masked_positions"][i], *[0] * (5 - count)],
            "masked_lm_ids": [*got["masked_ids"][i], *[0] * (5 - count)],
            "masked_lm_weights": [1.0] * count + [0.0] * (5 - count),
            "next_sentence_labels": [got["next_sentence_label"][i]],
        }
        for name, values in padded.items():
            assert read[name][i].tolist() == values


def test_paragraphs_are_split(folder):
    chunk = small.chunk([["Ba be. Bi bo. Bu."], ["Da de.", "Di do. Du."]])
    _, counts = examples.process_chunk(chunk, settings(folder, split_sentences=True))
    assert counts.totals == Counter(
        documents=2, sentences=6, tokens=10 + 6, examples=2, cut_tokens=0
    )
    _, counts = examples.process_chunk(chunk, settings(folder))
    assert counts.totals["sentences"] == 3


def test_documents_without_a_token(folder):
    texts = [["\u200b"], ["ba be"], ["\ufeff", "\u200b"]]
    records, counts = examples.process_chunk(small.chunk(texts), settings(folder))
    assert (counts.totals["documents"], counts.totals["sentences"], len(records)) == (1, 1, 1)
    records, counts = examples.process_chunk(small.chunk(texts[:1]), settings(folder))
    assert records == [] and counts.totals["documents"] == 0
    records, counts = examples.process_chunk(small.chunk([]), settings(folder))
    assert records == [] and counts.totals["tokens"] == 0
