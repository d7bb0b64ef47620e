"""Rows that go on, as the reader gives them: for any replicas and workers, and after a stop."""

import dataclasses
import json

import numpy as np
import pytest

from official import config as configs
from official import data
from official.config.encoders import TransformerXLConfig
from official.corruption import units
from official.corruption.vocabulary import Vocabulary
from official.utils.errors import UserError
from tests import small
from tests.streams import LENGTHS, SEP, Walk, config, marked, stream_folder

REUSE = 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made(tmp_path_factory.mktemp("stream") / "shards", backward=True)


def made(path, **settings):
    documents, words = marked(LENGTHS)
    return stream_folder(path, config(reuse_length=REUSE, **settings), documents, words)


def batches(source, count, **options):
    """Batches of all replicas of all workers put together again."""
    workers, replicas = options.pop("workers", 1), options.pop("replicas_per_worker", 1)
    parts = [
        source.dataset(
            4, workers=workers, worker=worker, replicas_per_worker=replicas, **options
        ).take(count * replicas)
        for worker in range(workers)
    ]
    arrays = [[{k: v.numpy() for k, v in b.items()} for b in part] for part in parts]
    return [
        {
            name: np.concatenate(
                [a[i * replicas + r][name] for a in arrays for r in range(replicas)]
            )
            for name in arrays[0][0]
        }
        for i in range(count)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "replicas"), [(1, 1), (2, 2), (4, 1)])
def test_each_row_goes_on_for_any_replicas_and_workers(folder, workers, replicas):
    source = data.ShardDataset(folder, config(reuse_length=REUSE, backward=True), training=True)
    steps = source.num_examples // 4
    assert source.rows == 4 and source.fields >= {"continues", "backward"}
    walked = batches(source, 2 * steps + 3, workers=workers, replicas_per_worker=replicas)
    for b in range(4):
        row = [batch["token_ids"][b] for batch in walked]
        masked = [dict(zip(batch["masked_positions"][b], batch["masked_ids"][b], strict=True))
                  for batch in walked]  # fmt: skip
        text = [
            [hidden.get(i, token) if i else token for i, token in enumerate(tokens[:REUSE])]
            for tokens, hidden in zip(row, masked, strict=True)
        ]
        # Position 0 may be predicted too; padded predictions stand at position 0.
        for t, batch in enumerate(walked):
            real = batch["masked_weights"][b] > 0
            if (batch["masked_positions"][b][real] == 0).any():
                text[t][0] = batch["masked_ids"][b][batch["masked_positions"][b] == 0][0]
        goes_on = [int(batch["continues"][b]) for batch in walked]
        assert goes_on[:steps] == [0] + [1] * (steps - 1)
        # The next epoch begins elsewhere in the text of the row, and goes on at its beginning.
        turn = next(t for t in range(steps) if text[t] == text[steps])
        wrapped = 2 * steps - turn
        assert text[steps : 2 * steps] == text[turn:steps] + text[:turn]
        expected = [int(t not in (steps, wrapped)) for t in range(steps, 2 * steps)]
        assert goes_on[steps : 2 * steps] == expected and not goes_on[2 * steps]
        for begin, end in ((0, steps), (steps, wrapped), (wrapped, 2 * steps), (2 * steps, None)):
            Walk(LENGTHS, b >= 2).check(sum(text[begin:end], []))
        assert all(batch["backward"][b] == (b >= 2) for batch in walked)
        assert walked[0]["backward"].dtype == bool
    # The masks of the next epoch are others.
    assert (walked[0]["token_ids"] != walked[steps]["token_ids"]).any()


@pytest.mark.slow
@pytest.mark.long
def test_a_resumed_reader_goes_on(folder):
    source = data.ShardDataset(folder, config(reuse_length=REUSE, backward=True), training=True)
    steps = source.num_examples // 4
    whole = batches(source, 2 * steps + 3)
    for start in (1, steps - 1, steps + 2):
        rest = batches(source, 3, start_step=start, workers=2)
        for actual, expected in zip(rest, whole[start:], strict=False):
            for name, value in expected.items():
                np.testing.assert_array_equal(actual[name], value, err_msg=f"{start} {name}")


def test_segments_and_an_evaluation_in_order(folder):
    settings = config(reuse_length=REUSE, backward=True)
    plain = dataclasses.replace(settings, corruption=None)
    source = data.ShardDataset(folder, plain)
    actual = list(source.dataset(4))
    assert len(actual) == source.num_examples // 4
    for batch in actual:
        for tokens, ids in zip(batch["token_ids"].numpy(), batch["segment_ids"].numpy(),
                               strict=True):  # fmt: skip
            assert tokens[-2] == SEP and ids[-1] == 2 and ids[-2] == 1 and ids[0] == 0
            assert (np.diff(ids) >= 0).all()
            assert tokens[np.flatnonzero(ids == 0)[-1]] == SEP
        assert batch["padding_mask"].numpy().all()
        assert (batch["example_weights"].numpy() == 1).all()


def test_plain_rows_know_the_next_token(tmp_path):
    documents, words = marked(LENGTHS)
    settings = config(backward=True)
    source = data.ShardDataset(
        stream_folder(tmp_path / "shards", settings, documents, words),
        dataclasses.replace(settings, corruption=None),
    )
    actual = list(source.dataset(4))
    assert "next_id" in source.fields
    for now, then in zip(actual, actual[1:], strict=False):
        np.testing.assert_array_equal(now["next_id"], then["token_ids"][:, 0])
        assert (now["segment_ids"].numpy() == 0).all()


def test_words_of_reversed_rows():
    """Pieces 5 to 7 begin a word, 8 and 9 go on with one."""
    starts = np.array([False] * 5 + [True] * 3 + [False] * 2)
    vocabulary = Vocabulary(10, 4, (0, 1, 2, 3, 4), starts)
    forward = np.array([5, 8, 9, 6, 3, 7, 8, 2], np.int32)
    batch = {
        "token_ids": np.stack([forward, forward[::-1]]),
        "padding_mask": np.ones((2, 8), bool),
        "backward": np.array([False, True]),
    }
    actual = units.words(vocabulary, batch).numpy()
    assert actual[0].tolist() == [0, 0, 0, 1, -1, 2, 2, -1]
    assert actual[1].tolist() == [-1, 0, 0, -1, 1, 2, 2, 2]


def remembers(length):
    return TransformerXLConfig(vocab_size=8, memory_length=length, reuse_length=REUSE)


@pytest.mark.slow
def test_what_does_not_fit_a_stream_is_refused(folder, tmp_path):
    same = config(reuse_length=REUSE, backward=True)
    other = configs.to_dict(same)
    other["segments"]["backward"] = False
    for settings, message in (
        (config(reuse_length=4, backward=True),
         "from batch to batch, with segments.reuse_length: 5, and the config says 4: make"),
        (configs.from_dict(other), "with segments.backward: True, and the config says False"),
        (small.config(), "from batch to batch, with segments.format: stream, .* says pairs"),
        (dataclasses.replace(same, recipe=configs.Recipe(steps=1, bucket_lengths=(8, 16))),
         "is a stream, whose rows all have one length: remove recipe.bucket_lengths"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=message):
            data.ShardDataset(folder, settings, training=True)
    pairs = small.shard_folder(tmp_path / "pairs", small.config())
    with pytest.raises(UserError, match="has shards of single rows, with segments.format: pairs, "
                                        "and the config says stream"):  # fmt: skip
        data.ShardDataset(pairs, same, training=True)
    source = data.ShardDataset(folder, same, training=True)
    message = (
        "is a stream of 4 rows, and the batch has 8: .* give --override=recipe.batch_size=4, or"
    )
    with pytest.raises(UserError, match=message):
        source.dataset(8)
    with pytest.raises(UserError, match="recipe.eval_batch_size=4, or .*segments.rows=2"):
        data.ShardDataset(folder, same).check(small.replace(same, eval_batch_size=2))
    longest = source.manifest.totals.longest_memory
    assert longest == (source.num_examples // 4 - 1) * REUSE
    source.check(dataclasses.replace(same, encoder=remembers(longest)))
    message = f"_length: {longest + 1}, and the longest text that a row continues has {longest}"
    with pytest.raises(UserError, match=message):
        source.check(dataclasses.replace(same, encoder=remembers(longest + 1)))
    with pytest.raises(UserError, match="is a stream, .* so folders cannot have shares of a batch"):
        data.ShardDataset([folder, folder], same, training=True, shares=(1, 1))
    two = made(tmp_path / "two", backward=True, rows=2)
    with pytest.raises(UserError, match="are streams of 2 and 4 rows, which cannot be read one"):
        data.ShardDataset([folder, two], same)
    both = data.ShardDataset([folder, folder], same, training=True)
    assert both.num_examples == 2 * source.num_examples
    walked = batches(both, source.num_examples // 4 + 1)
    assert walked[-1]["continues"].tolist() == [0] * 4
    assert json.loads((folder / "manifest.json").read_text())["config"]["segments"]["rows"] == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rows": 0}, "segments.rows: missing: give the batch size, which the format stream is"),
        ({"rows": 3, "backward": True}, "segments.rows: half of 3 rows cannot run backward: take"),
        ({"relation": "sentence_order", "reuse_length": 2},
         "segments.relation: sentence_order is not supported for a stream: take none or"),
        ({"relation": "next_sentence"},
         "relation: next_sentence needs two segments, .* or a stream's reuse_length"),
        ({"reuse_length": 12}, "reuse_length: 12 of 16 tokens leave no room for .*: at most 11"),
        ({"reuse_length": -1}, "reuse_length: -1 is negative"),
        ({"packing": 2}, "packing: 2 is not supported for the format stream, whose rows are full"),
        ({"static_masks": True}, "static_masks: True is not supported .* when it is read: take"),
        ({"short_documents": "keep"}, "short_documents: 'keep' is not one of join, drop"),
        ({"format": "pairs"}, "rows: not supported for the format pairs, only for stream"),
        ({"format": "pairs", "rows": 0, "backward": True}, "backward: not supported for the"),
        ({"format": "doc_sentences", "rows": 0, "short_documents": "drop"},
         "short_documents: not supported for the format doc_sentences, only for stream"),
    ],
)  # fmt: skip
def test_settings_that_make_no_stream_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        config(**settings)


def test_memory_wants_rows_that_go_on():
    raw = configs.to_dict(config(reuse_length=REUSE))
    raw["encoder"] = {
        "type": "transformer_xl", "memory_length": 7, "reuse_length": REUSE, "attention": "uni",
    }  # fmt: skip
    assert configs.from_dict(raw).encoder.memory_length == 7
    raw["encoder"]["reuse_length"] = 0
    with pytest.raises(UserError, match="encoder.reuse_length: 0, but segments.reuse_length: 5: t"):
        configs.from_dict(raw)
    raw["segments"] = {"max_length": 16, "format": "doc_sentences"}
    message = "encoder.memory_length: 7, but rows of segments.format: doc_sentences do not continue"
    with pytest.raises(UserError, match=message):
        configs.from_dict(raw)
