"""Tasks read by characters: shards, and the same texts packed in a graph."""

import numpy as np
import pytest
import tensorflow as tf

from official import data, tasks, tokenizers
from official.data.fields import Examples, Sentences, WordCharacters
from official.modeling.objectives import base
from official.tasks import embeddings
from official.tokenizers import pair_packing
from tests import sentences, small
from tests.official.tokenizers.test_word_characters import WORDS, ids_by_hand, odd_texts
from tfrecords_tools.tasks import builder as task_builder

PAIRS = [("né w1 x", "w2"), ("w3 " * 20, "東京 w4 " + "z" * 300), ("</S> w1", "a b")]


def by_hand(pair, max_length):
    """The ids and the characters of a pair, of which the longer text is cut."""
    words = [text.split() for text in pair]
    while sum(map(len, words)) + 3 > max_length:
        max(words[::-1], key=len).pop()
    marks = {0: [259, 257, 260] + [261] * 47, 1: [259, 258, 260] + [261] * 47}
    ids, characters = [0], [marks[0]]
    for text in words:
        ids += [*(sentences.number(word) for word in text), 1]
        characters += [*(ids_by_hand(word.encode()) for word in text), marks[1]]
    return ids, characters


def test_words_of_texts_that_are_sequences_of_their_own(tmp_path):
    """Vectors of texts by an encoder of characters: each text of an example is packed alone."""
    tokenizer = tokenizers.Characters(sentences.VOCABULARY)
    texts = [("né w1 x", "w2 " * 20), ("東京 w4", "a"), ("w1", "w2 w3 " + "z" * 300)]
    rows = "".join(f"{a}\t{b}\n" for a, b in texts)
    (tmp_path / "train.tsv").write_text(f"one\tother\n{rows}")
    task_builder.build(
        embeddings.of_columns(tasks.Columns("one", "other")), {"train": tmp_path / "train.tsv"},
        tokenizer, tmp_path / "out", max_length=7, report=lambda line: None,
    )  # fmt: skip
    config = small.config(
        segments=None, corruption=None, objectives=[{"type": "sentence_embedding"}]
    )
    (batch,) = data.ShardDataset(tmp_path / "out", config).dataset(3)
    assert batch["character_ids"].shape == (3, 2, 7, 50)
    apart = base.sequences_apart(batch)
    for i, row in enumerate(batch["row"].numpy()):
        for c in range(2):
            ids, characters = by_hand([" ".join(texts[row][c].split()[:5])], 8)
            for ours, place in ((batch["character_ids"][i, c], None), (None, 2 * i + c)):
                ours = apart["character_ids"][place] if ours is None else ours
                ours = ours.numpy()
                assert ours[: len(ids)].tolist() == characters and not ours[len(ids) :].any()
            assert batch["token_ids"][i, c].numpy()[: len(ids)].tolist() == ids


@pytest.mark.slow
def test_shards_and_graph_have_the_words_of_pairs(tmp_path):
    tokenizer = tokenizers.Characters(sentences.VOCABULARY)
    rows = "".join(f"{a}\t{b}\tx\n" for a, b in PAIRS) + "w1\tw2\ty\n"
    (tmp_path / "train.tsv").write_text(f"text\ttext_pair\tlabel\n{rows}")
    task = tasks.generic("classification", "text", "text_pair", "label")
    built = task_builder.build(
        task, {"train": tmp_path / "train.tsv"}, tokenizer, tmp_path / "out", max_length=12,
        report=lambda line: None,
    )  # fmt: skip
    assert set(built.features) == {
        "token_ids", "segment_lengths", "row", "word_lengths", "word_bytes", "label"
    }  # fmt: skip
    config = small.config(segments=None, corruption=None, objectives=[{"type": "classification"}])
    source = data.ShardDataset(tmp_path / "out", config)
    assert "character_ids" in source.fields
    (batch,) = source.dataset(4)
    places = np.argsort(batch["row"])  # of the rows of the file
    packed = tf.function(
        lambda a, b: pair_packing.pack_texts([a, b], tokenizer, 12)
    )(*(tf.constant([pair[i] for pair in PAIRS]) for i in (0, 1)))  # fmt: skip
    assert packed["character_ids"].shape == (3, 12, 50)
    for i, pair in enumerate(PAIRS):
        ids, characters = by_hand(pair, 12)
        for fields, at in ((batch, places[i]), (packed, i)):
            assert fields["token_ids"][at].numpy()[: len(ids)].tolist() == ids
            ours = fields["character_ids"][at].numpy()
            assert ours[: len(ids)].tolist() == characters and (ours[len(ids) :] == 0).all()
            assert fields["padding_mask"][at].numpy().tolist() == [j < len(ids) for j in range(12)]


def test_single_texts_in_a_graph_are_sentences():
    tokenizer = tokenizers.Characters(WORDS)
    texts = [text for text in odd_texts(60) if "\ud800" not in text]
    packed = pair_packing.pack_texts([tf.constant(texts)], tokenizer, 64)
    whole = tokenizer.character_ids(tf.constant(texts)).to_tensor().numpy()
    np.testing.assert_array_equal(packed["character_ids"].numpy(), whole)
    assert (packed["character_ids"].numpy()[..., 0] > 0).tolist() == packed[
        "padding_mask"
    ].numpy().tolist()
    # A tokenizer of pieces has no characters.
    pieces = tokenizers.WordPiece([*small.SPECIALS, "a"])
    assert "character_ids" not in pair_packing.pack_texts([tf.constant(["a"])], pieces, 8)
    assert pair_packing.split_words(["a"], pieces) is None and not pair_packing.word_features(
        pieces
    )


@pytest.mark.parametrize("max_length", [5, 7, 30])
def test_words_of_one_text(max_length):
    packed = pair_packing.pack_word_arrays([[b"a", b"\0" * 2, b"x" * 60, b"d"]], max_length)
    lengths, data = {
        5: ([0, 1, 2, 48, 0], b"a\0\0" + b"x" * 48),
    }.get(max_length, ([0, 1, 2, 48, 1, 0], b"a\0\0" + b"x" * 48 + b"d"))
    assert packed["word_lengths"].tolist() == lengths and packed["word_bytes"] == data


def test_characters_do_not_depend_on_the_lines_of_the_marks():
    """Targets are the same words, under their other numbers."""
    usual = ["<S>", "</S>", "<UNK>", "a", "b"]
    other = ["b", "</S>", "a", "<UNK>", "<S>"]
    forward, following = ["<S>", "a", "b", "<S>", "<UNK>"], "b"
    backward, before = ["</S>", "b", "a", "</S>", "a"], "<UNK>"
    found = {}
    for pieces in (usual, other):
        number = pieces.index
        parsed = {}
        for prefix, row, last in (("", forward, following), ("backward_", backward, before)):
            lengths = [0 if word in usual[:2] else 1 for word in row]
            parsed |= {
                f"{prefix}token_ids": tf.ragged.constant([[*map(number, row)]], tf.int32),
                f"{prefix}next_id": tf.constant([number(last)]),
                f"{prefix}word_lengths": tf.ragged.constant([lengths], tf.int32),
                f"{prefix}word_bytes": tf.constant([b"x" * sum(lengths)]),
            }
        tokenizer = tokenizers.Characters(pieces)
        examples = Examples(parsed, 1, len(forward), index=tf.zeros([1]), seeds=tf.zeros([1]))
        fields = Sentences(tokenizer).make(examples, {})
        found[pieces[0]] = {
            name: value.numpy() if "characters" in name or "character_ids" in name
            else np.array(pieces)[value.numpy()]
            for name, value in fields.items()
        }  # fmt: skip
        task = WordCharacters(tokenizer).make(examples, {})
        found[pieces[0]]["task"] = task["character_ids"].numpy()
    assert found["<S>"]["target_ids"].tolist() == [["a", "b", "</S>", "<UNK>", "b"]]
    assert found["<S>"]["backward_target_ids"].tolist() == [["b", "a", "<S>", "a", "<UNK>"]]
    for name, values in found["<S>"].items():
        np.testing.assert_array_equal(values, found["b"][name], err_msg=name)
