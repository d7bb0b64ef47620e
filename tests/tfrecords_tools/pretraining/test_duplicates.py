"""Copies of a document differ in cuts, in random segments, and in labels."""

import numpy as np
import pytest
import tensorflow as tf

from official.config import Segments
from official.data import ShardDataset
from official.shards import parsing
from official.utils.errors import UserError
from tests import small, streams
from tfrecords_tools.pretraining import builder, examples
from tfrecords_tools.pretraining.settings import Settings

TEXT = small.documents(60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(small.tokenizer_folder(tmp_path_factory.mktemp("made") / "tokenizer"))


def rows(how, piece):
    """What the shards hold: the tokens of each segment, and the label (0 where there is none)."""
    records, _ = examples.process_chunk(piece, how)
    names = ["token_ids", "segment_lengths", *filter(None, [how.segments.label])]
    actual = parsing.parse(tf.constant(records), names)
    ids, lengths = (actual[name].to_list() for name in names[:2])
    labels = actual[names[2]].numpy().tolist() if names[2:] else [0] * len(ids)
    return [
        (tuple(row[: sizes[0]]), tuple(row[sizes[0] :]), label)
        for row, sizes, label in zip(ids, lengths, labels, strict=True)
    ]


@pytest.mark.parametrize(
    ("options", "least"),
    [
        ({}, 0.6),
        ({"relation": "sentence_order"}, 0.6),
        ({"relation": "none"}, 0.6),
        ({"format": "sentence_pairs"}, 0.6),
        # Whole documents are cut from their beginning on: only short sequences move a cut.
        ({"format": "doc_sentences", "short_seq_prob": 0.2}, 0.2),
        ({"format": "full_sentences", "short_seq_prob": 0.2}, 0.2),
    ],
)
def test_copies_differ(folder, options, least):
    piece = small.chunk(TEXT)
    settings = lambda copies: Settings(  # noqa: E731
        Segments(max_length=32, duplicates=copies, **options), None, folder, 7
    )
    one, two, three = (rows(settings(copies), piece) for copies in (1, 2, 3))
    # What more copies add is as much again, and hardly any of it is there already.
    assert set(one) < set(two) < set(three)
    assert len(two) == pytest.approx(2 * len(one), rel=0.1)
    assert len(three) == pytest.approx(3 * len(one), rel=0.1)
    for first, more in ((one, two), (two, three)):
        added = len(set(more) - set(first))
        assert added > least * len(one), (added, len(one))


def test_neighbors_and_labels_differ(folder):
    """A sentence is followed by its own next one in one copy, by a random one in another."""
    piece = small.chunk(TEXT)
    for relation in ("next_sentence", "sentence_order"):
        how = Settings(
            Segments(format="sentence_pairs", max_length=32, relation=relation, duplicates=3),
            None, folder, 7,
        )  # fmt: skip
        labels, seconds = {}, {}
        for first, second, label in rows(how, piece):
            both = frozenset((first[1:], second))
            key = first if relation == "next_sentence" else both
            labels.setdefault(key, set()).add(label)
            seconds.setdefault(key, set()).add(second)
        assert np.mean([len(actual) == 2 for actual in labels.values()]) > 0.3, relation
        assert np.mean([len(actual) > 1 for actual in seconds.values()]) > 0.3, relation


@pytest.mark.slow
def test_copies_of_a_stream_differ_in_order_cuts_and_second_segments(tmp_path):
    documents, words = streams.marked(streams.LENGTHS * 4)
    result = {}
    for copies in (1, 2):
        settings = streams.config(
            reuse_length=5, max_length=20, relation="next_sentence", rows=1, duplicates=copies
        )
        folder = streams.stream_folder(tmp_path / str(copies), settings, documents, words, 1)
        source = ShardDataset(folder, settings)
        result[copies] = [
            (tuple(batch["token_ids"][0].numpy()), int(batch["next_sentence_label"][0]))
            for batch in source.dataset(1)
        ]
        # An epoch reads all copies.
        recipe = small.replace(settings, steps=0, epochs=1.0, batch_size=1).recipe
        assert recipe.total_steps(source.num_examples) == len(result[copies])
    half = len(result[1])
    assert len(result[2]) == pytest.approx(2 * half, abs=2)
    first, second = result[2][:half], result[2][half:]
    texts = [{row for row, _ in part} for part in (first, second)]
    assert len(texts[0] & texts[1]) < 0.1 * half
    # The same text begins other rows: A ends elsewhere, and B is another one.
    begins = [{row[:1] for row in part} for part in texts]
    assert begins[0] != begins[1]
    labels = [np.mean([label for _, label in part]) for part in (first, second)]
    assert 0.25 < min(labels) and max(labels) < 0.75


def test_the_summary_says_how_many(tmp_path, folder):
    text = "\n\n".join("\n".join(d) for d in small.documents(40))
    (tmp_path / "a.txt").write_text(text + "\n")
    counts = {}
    for copies in (1, 3):
        lines = []
        settings = Settings.from_config(small.config(segments__duplicates=copies), folder)
        built = builder.build(
            settings, str(tmp_path / "a.txt"), tmp_path / f"out{copies}", report=lines.append
        )
        counts[copies] = built.totals.examples
        assert ("3 copies of each document" in "\n".join(lines)) == (copies == 3)
        config = small.replace(small.config(), steps=0, epochs=2.0)
        steps = config.recipe.total_steps(built.totals.examples)
        assert steps == -(-2 * counts[copies] // 8)
    assert counts[3] == pytest.approx(3 * counts[1], rel=0.1)


@pytest.mark.parametrize("format", ["full_sentences", "doc_sentences"])
def test_copies_that_would_be_equal_are_refused(folder, format):
    options = {"format": format, "short_seq_prob": 0.0, "max_length": 32}
    one, two = (
        rows(Settings(Segments(duplicates=n, **options), None, folder, 7), small.chunk(TEXT))
        for n in (1, 2)
    )
    assert set(one) == set(two) and len(two) == 2 * len(one)
    settings = small.config(
        segments={**options, "duplicates": 2}, objectives=[{"type": "masked_lm"}]
    )
    message = f"segments.duplicates: 2 copies of {format} with short_seq_prob: 0 are identical"
    with pytest.raises(UserError, match=message):
        Settings.from_config(settings, folder)
