"""Batches of texts whose vectors are compared: their fields, distinct texts, several data sets."""

import dataclasses

import numpy as np
import pytest

from official import config as configs
from official import tasks, tokenizers
from official.data import ShardDataset, each_batch, mixture
from official.utils.errors import UserError
from tests import choices, embedding_tasks, small
from tfrecords_tools.tasks import builder

PAD, CLS, SEP = 0, 2, 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The parent of a shard folder for each task."""
    parent = tmp_path_factory.mktemp("embedding")
    embedding_tasks.shards(parent / "pairs", embedding_tasks.PAIRS, train=60, validation=7)
    more = dataclasses.replace(embedding_tasks.PAIRS, name="more")
    embedding_tasks.shards(parent / "more", more, seed=9, train=30, validation=7)
    embedding_tasks.shards(parent / "triples", embedding_tasks.TRIPLES, train=20, validation=5)
    embedding_tasks.shards(parent / "scores", embedding_tasks.SCORES, train=20, validation=5)
    return parent


def arrays(batches):
    return [{name: value.numpy() for name, value in batch.items()} for batch in batches]


@pytest.mark.parametrize("name, texts", [("pairs", 2), ("triples", 3), ("scores", 2)])
def test_the_fields_of_a_batch(folder, name, texts):
    config = embedding_tasks.config()
    source = ShardDataset(folder / name, config, "validation")
    count = source.num_examples
    task = getattr(embedding_tasks, name.upper())
    table = embedding_tasks.table(folder / "again.tsv", task, count, 1).read_text().splitlines()
    (batch,) = arrays(source.dataset(8))
    tokenizer = tokenizers.load(folder / "tokenizer")
    hashes = {}
    for i, line in enumerate(table[1:]):
        for c, text in enumerate(line.split("\t")[:texts]):
            (ids,) = tokenizer.encode([text])
            ids = [CLS, *ids, SEP]
            fill = 12 - len(ids)
            assert batch["token_ids"][i, c].tolist() == ids + [PAD] * fill
            assert batch["padding_mask"][i, c].tolist() == [True] * len(ids) + [False] * fill
            words = [False] + [True] * (len(ids) - 2) + [False] * (fill + 1)
            assert batch["text_mask"][i, c].tolist() == words
            assert hashes.setdefault(text, batch["text_hashes"][i, c]) == batch["text_hashes"][i, c]
        if name == "scores":
            assert batch["score"][i] == float(line.split("\t")[2]) / 5
    assert len(set(hashes.values())) == len(hashes) and not batch["segment_ids"].any()
    assert batch["token_ids"].shape == (8, texts, 12)
    assert batch["example_weights"].tolist() == [1] * count + [0] * (8 - count)
    assert ("score" in batch) == (name == "scores")


@pytest.mark.slow
@pytest.mark.long
def test_no_text_stands_twice_in_the_batch_of_all_replicas(folder):
    config = embedding_tasks.config(recipe__distinct_texts=True, recipe__bucket_lengths=[6, 8])
    source = ShardDataset(folder / "pairs", config, training=True)

    def read(steps, **how):
        return arrays(source.dataset(8, end_step=15, **how).take(steps))

    whole = read(15)
    times = np.zeros(60, int)
    for batch in whole:
        real = batch["example_weights"] > 0
        hashes = batch["text_hashes"][real]
        assert len(np.unique(hashes)) == hashes.size
        times[batch["row"][real]] += 1
        assert batch["token_ids"].shape[2] in (6, 8, 12)
        longest = batch["padding_mask"].sum(-1).max()
        assert batch["token_ids"].shape[2] >= longest
    # Two epochs. 12 first texts are in 60 rows, and 7 batches of 8 have room for nearly all.
    assert 100 < times.sum() <= 120 and times.max() == 2
    plain = ShardDataset(folder / "pairs", embedding_tasks.config(), training=True).dataset(8)
    assert any(len(np.unique(b["text_hashes"])) < 16 for b in plain.take(3).as_numpy_iterator())

    later = read(6, start_step=9)
    for batch, expected in zip(later, whole[9:], strict=True):
        for name, value in batch.items():
            np.testing.assert_array_equal(value, expected[name])
    parts = [read(6, workers=2, worker=worker, replicas_per_worker=2) for worker in (0, 1)]
    for step in range(3):
        rows = [part[2 * step + i]["row"] for part in parts for i in (0, 1)]
        np.testing.assert_array_equal(np.concatenate(rows), whole[step]["row"])


def test_distinct_texts_need_their_hashes(folder, tmp_path):
    choice = choices.shards(tmp_path / "choice", train=choices.rows(4))
    config = choices.config(recipe__distinct_texts=True)
    message = "has no text_hashes, which recipe.distinct_texts needs: name shards of a task of the"
    with pytest.raises(UserError, match=message):
        ShardDataset(choice, config, training=True)


def mixed(folder, names, config=None, training=True, shares=()):
    paths = [folder / name for name in names]
    data = dict(zip(paths, shares, strict=True)) if shares else paths
    opened = mixture.open_shards(data, "train" if training else "validation")
    return opened.read(config or embedding_tasks.config(recipe__steps=60), training)


@pytest.mark.slow
@pytest.mark.parametrize("shares", [(), pytest.param((1, 3), marks=pytest.mark.long)])
def test_each_batch_is_of_one_data_set(folder, shares):
    """By size `pairs` is drawn twice as often as `more`, and by these shares a third as often."""
    source = mixed(folder, ("pairs", "more"), shares=shares)
    source.check(embedding_tasks.config())
    sets = [
        {tuple(row) for batch in arrays(each.dataset(8).take(20)) for row in batch["text_hashes"]}
        for each in source.sources
    ]
    batches = arrays(source.dataset(8))
    of_sets = []
    for batch in batches:
        inside = [{tuple(row) for row in batch["text_hashes"]} <= each for each in sets]
        assert inside in ([True, False], [False, True])
        of_sets.append(inside[1])
    assert len(batches) == 60
    assert abs(np.mean(of_sets) - (0.75 if shares else 1 / 3)) < 0.15
    for batch, expected in zip(arrays(source.dataset(8, start_step=57)), batches[57:], strict=True):
        np.testing.assert_array_equal(batch["row"], expected["row"])
    others = mixed(folder, ("pairs", "more"), shares=(2, 3) if shares else (1, 1))
    assert others.fingerprint != source.fingerprint


def test_data_sets_that_do_not_go_together(folder, tmp_path):
    for names, message in (
        (("pairs", "triples"), "examples of 2 texts, and .*triples of 3: make all of one number"),
        (("pairs", "scores"), "only one has scores, and one loss does not take both"),
        (("pairs", "pairs"), "of the task pairs again: .* build_task_shards --task_name"),
    ):
        with pytest.raises(UserError, match=message):
            mixed(folder, names)
    table = tmp_path / "t.tsv"
    table.write_text("a\tb\nba\t0\nbe\t1\n")
    tokenizer = tokenizers.load(small.tokenizer_folder(tmp_path / "tokenizer"))
    task = tasks.generic("classification", "a", label="b")
    builder.build(task, {"train": table}, tokenizer, folder / "labels", 12, report=lambda _: None)
    with pytest.raises(UserError, match="labels is of the kind classification, and other folders"):
        mixed(folder, ("pairs", "labels"))


def test_texts_have_the_layout_of_served_ones(tmp_path):
    """Of T5: no [CLS] before the text."""
    embedding_tasks.shards(tmp_path / "pairs", embedding_tasks.PAIRS, validation=4)
    raw = configs.to_dict(embedding_tasks.config())
    raw["encoder"] = {
        "type": "encoder_decoder", "hidden_size": 16, "num_layers": 1, "num_heads": 2,
        "intermediate_size": 16, "vocab_size": raw["encoder"]["vocab_size"],
    }  # fmt: skip
    config = configs.ResolvedConfig.of(configs.from_dict(raw))
    source = ShardDataset(tmp_path / "pairs", config, "validation")
    (batch,) = each_batch(source, 4)
    texts = [row[:2] for row in embedding_tasks.rows(4)]
    for row, text in enumerate(texts):
        for column, ids in enumerate(source.tokenizer.encode(text)):
            real = batch["padding_mask"][row, column]
            kept = batch["token_ids"][row, column].numpy()[real]
            assert kept.tolist() == [*ids.tolist(), source.tokenizer.sep_id]
