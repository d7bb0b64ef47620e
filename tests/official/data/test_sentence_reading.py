"""Rows of sentences, put together again: the whole text in both directions."""

import numpy as np
import pytest

from official import data
from official.utils.errors import UserError
from tests import sentences
from tests.official.tokenizers.test_word_characters import ids_by_hand

PREFIXES = ("", "backward_")


def read(folder, config, rows, **options):
    """The fields of all batches, [steps, rows, ...]."""
    source = data.ShardDataset(folder, config)
    workers, replicas = options.pop("workers", 1), options.pop("replicas_per_worker", 1)
    parts = [
        list(source.dataset(rows, workers=workers, worker=i, replicas_per_worker=replicas))
        for i in range(workers)
    ]
    steps = len(parts[0]) // replicas
    return {
        name: np.stack(
            [
                np.concatenate(
                    [np.array(p[t * replicas + r][name]) for p in parts for r in range(replicas)]
                )
                for t in range(steps)
            ]
        )
        for name in parts[0][0]
    }


@pytest.mark.parametrize("settings", [{}, {"duplicates": 3, "max_length": 9, "rows": 2}])
def test_both_directions_give_the_whole_text(tmp_path, settings):
    config, texts = sentences.config(**settings), sentences.documents()
    folder = sentences.shard_folder(tmp_path / "shards", config, texts)
    rows, length = config.segments.rows, config.segments.max_length
    batch = read(folder, config, rows)
    directions = sentences.by_hand(texts, config.seed, config.segments.duplicates)
    assert len(directions[0]) == len(directions[1])
    steps = len(directions[0]) // length // rows
    assert steps > 3 and batch["continues"].tolist() == [[0] * rows] + [[1] * rows] * (steps - 1)
    for prefix, expected in zip(PREFIXES, directions, strict=True):
        # Row by row, window after window.
        joined = [
            np.swapaxes(batch[prefix + name], 0, 1).reshape(rows * steps * length, -1).tolist()
            for name in ("token_ids", "target_ids", "character_ids")
        ]
        mark = [259, 258 if prefix else 257, 260] + [261] * 47
        for position, (token, word, target) in enumerate(expected[: rows * steps * length]):
            tokens, targets, characters = (values[position] for values in joined)
            assert (tokens, targets) == ([token], [target]), (prefix, position)
            assert characters == (ids_by_hand(word.encode()) if word else mark)
    assert batch["padding_mask"].all() and batch["character_ids"].dtype == np.int32


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "replicas"), [(1, 2), (2, 1), (2, 2)])
def test_any_workers_read_the_same(tmp_path, workers, replicas):
    config = sentences.config()
    folder = sentences.shard_folder(tmp_path / "shards", config, sentences.documents())
    alone = read(folder, config, 4)
    shared = read(folder, config, 4, workers=workers, replicas_per_worker=replicas)
    for name, value in alone.items():
        np.testing.assert_array_equal(value, shared[name], err_msg=name)


@pytest.mark.slow
def test_a_resumed_reader_goes_on(tmp_path):
    config = sentences.config()
    folder = sentences.shard_folder(tmp_path / "shards", config, sentences.documents())
    source = data.ShardDataset(folder, config, training=True)
    steps = source.num_examples // 4
    whole = list(source.dataset(4).take(steps + 3))
    assert source.fields == set(whole[0])
    for start in (1, steps - 1, steps + 1):
        rest = source.dataset(4, start_step=start).take(2)
        for actual, expected in zip(rest, whole[start : start + 2], strict=True):
            for name, value in expected.items():
                np.testing.assert_array_equal(actual[name], value, err_msg=f"{start} {name}")


def test_other_rows_are_refused(tmp_path):
    config = sentences.config()
    folder = sentences.shard_folder(tmp_path / "shards", config, sentences.documents())
    with pytest.raises(UserError, match="is a stream of 4 rows, and the batch has 2"):
        data.ShardDataset(folder, config).dataset(2)
    other = sentences.config(sentences=False)
    with pytest.raises(UserError, match="segments.sentences: True, and the config says False"):
        data.ShardDataset(folder, other)
