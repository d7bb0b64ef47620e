"""Corpora with shares of every batch: how many examples of each, and who reads which shards."""

import shutil

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from official import training
from official.data import mixture
from official.data.order import Corpora, Files, Lanes
from official.utils.errors import UserError
from tests import small


def write(folder, sizes):
    """A corpus for each list of the sizes of shards; a record has its number in the corpus."""
    corpora = []
    for i, counts in enumerate(sizes):
        (folder / str(i)).mkdir()
        corpora.append(small.numbered_shards(folder / str(i), counts))
    return corpora


def take(corpora, shares, steps, batch=16, start=0, first=0, count=None, share=None):
    """Rows of some batches, each [steps, count], with their `corpus` and number in it, `own`."""
    count = count or batch
    dataset = Corpora(corpora, shares, 0, batch).dataset(start, first, count, share or count)
    elements = list(dataset.take(steps * count // (share or count)).as_numpy_iterator())
    rows = {name: np.concatenate([e[name] for e in elements]) for name in elements[0]}
    firsts = np.cumsum([0, *(sum(files.counts) for files in corpora)])
    rows["corpus"] = np.searchsorted(firsts, rows["index"], side="right") - 1
    rows["own"] = rows["index"] - firsts[rows["corpus"]]
    assert rows["record"].astype(int).tolist() == rows["own"].tolist()
    return {name: x.reshape(steps, count) for name, x in rows.items()}


@pytest.mark.parametrize("batch", [256, 24, 7])
@pytest.mark.parametrize("shares", [[0.7, 0.3], [1, 1], [0.05, 12.3], [1], [0.001, 0.999]])
def test_shares_are_exact_after_any_number_of_batches(shares, batch):
    order = Corpora([Files(["a"] * 64, [100] * 64)] * len(shares), shares, 0, batch)
    rows = batch // order.lanes
    counts = [
        order.counts(lane, tf.range(0, 5000 * rows, rows, tf.int64)) for lane in range(order.lanes)
    ]
    counts = np.stack(counts)  # [lanes, batches, corpora]
    total = np.arange(5000)[:, None] * batch
    share = np.array(shares) / sum(shares)
    np.testing.assert_array_equal(counts.sum(axis=(0, 2)), total[:, 0])
    assert (np.diff(counts, axis=1) >= 0).all()
    # Shares are rounded to a millionth.
    assert (abs(counts.sum(axis=0) - total * share) <= 1 + total * 1e-6).all()
    assert (abs(counts - total / order.lanes * share) <= 1 + total * 1e-6).all()


@pytest.mark.parametrize(("count", "most"), [(3, 3), (4, 5), (6, 8), (12, 13)])
def test_several_corpora_are_near_their_shares(count, most):
    rng = np.random.default_rng(count)
    for shares in ([1] * count, rng.random(count), rng.random(count) ** 3):
        order = Corpora([Files(["a"] * 64, [100] * 64)] * count, shares, 0, 256)
        numbers = tf.range(0, 8 * 3000, 8, tf.int64)
        counts = np.stack([order.counts(lane, numbers) for lane in range(32)])
        total = np.arange(3000)[:, None] * 256
        share = np.array(shares) / sum(shares)
        assert (abs(counts.sum(axis=0) - total * share) <= most).all()
        assert (abs(counts - total / 32 * share) <= 6).all()


def test_batches_have_the_shares_and_corpora_their_own_epochs(tmp_path):
    corpora = write(tmp_path, [[20] * 20, [10] * 8])  # 400 and 80 examples
    rows = take(corpora, [0.75, 0.25], 100)
    assert set((rows["corpus"] == 1).sum(axis=1)) == {4}
    for corpus, (files, each) in enumerate(zip(corpora, (3, 5), strict=True)):
        mine = rows["corpus"] == corpus
        epochs, numbers = rows["epoch"][mine], rows["own"][mine]
        assert len(numbers) == each * sum(files.counts)
        for epoch in range(each):
            assert sorted(numbers[epochs == epoch]) == list(range(sum(files.counts)))
    # Each corpus is read in the order that it has alone.
    alone = list(Lanes(corpora[0], 0, 16, 16).dataset(0, 0, 16, 16).take(50).as_numpy_iterator())
    for lane in range(16):
        mine = rows["own"][:, lane][rows["corpus"][:, lane] == 0]
        assert mine[:50].tolist() == [batch["index"][lane] for batch in alone]


@pytest.mark.slow
@pytest.mark.parametrize("start", [1, 13, 50, 77])
def test_starting_later_gives_the_same_batches(tmp_path, start):
    corpora = write(tmp_path, [[20] * 6, [10] * 5, [7, 0, 30]])
    whole = take(corpora, [3, 2, 1.5], 90, batch=12)
    rows = take(corpora, [3, 2, 1.5], 8, batch=12, start=start)
    for name, value in rows.items():
        np.testing.assert_array_equal(value, whole[name][start : start + 8])


@pytest.mark.slow
def test_a_worker_reads_the_shards_of_its_own_lanes(tmp_path):
    corpora = write(tmp_path, [[20] * 64, [10] * 32])
    whole = take(corpora, [0.6, 0.4], 40)
    own = take(corpora, [0.6, 0.4], 40, first=12, count=4, share=2)
    for name, value in own.items():
        np.testing.assert_array_equal(value, whole[name][:, 12:])
    # What the worker did not read is not opened.
    for corpus, size in enumerate((20, 10)):
        read = set((own["own"][own["corpus"] == corpus] // size).tolist())
        for shard in set(range(len(corpora[corpus].paths))) - read:
            tf.io.gfile.remove(corpora[corpus].paths[shard])
        assert len(read) <= 0.4 * len(corpora[corpus].paths)
    take(corpora, [0.6, 0.4], 40, first=12, count=4)


def test_a_small_corpus_does_not_lower_the_number_of_lanes(tmp_path):
    corpora = write(tmp_path, [[20] * 16, [5]])
    assert Corpora(corpora, [1, 1], 0, 16).lanes == 16
    rows = take(corpora, [1, 1], 10)
    small = rows["own"][rows["corpus"] == 1]
    np.testing.assert_array_equal(np.bincount(small), [16] * 5)


def test_what_data_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a,b", "c=1"):
        (tmp_path / name).mkdir()
    assert mixture.parse("wiki") == ["wiki"]
    assert mixture.parse("wiki,books") == ["wiki", "books"]
    assert mixture.parse("a,b") == ["a,b"]
    assert mixture.parse("wiki=0.7,books=3") == {"wiki": 0.7, "books": 3.0}
    assert mixture.parse("c=1,wiki") == ["c=1", "wiki"]
    assert mixture.parse("c=1=2,wiki=1e-1") == {"c=1": 2.0, "wiki": 0.1}
    for text, message in (
        ("wiki=0.7,books", "wiki=0.7,books: give every folder a share, as FOLDER=0.7, or none"),
        ("wiki=x", "wiki=x: 'x' is not a number: give shares as FOLDER=0.7"),
        ("wiki=1,wiki=2", "wiki is named twice: give it one share"),
    ):
        with pytest.raises(UserError, match=message):
            mixture.parse(text)


@pytest.mark.slow
@pytest.mark.long
def test_a_run_of_two_corpora_resumes_to_the_same_weights(tmp_path):
    config = small.config(recipe__batch_size=8, recipe__steps=6, recipe__save_every=3)
    data = {
        small.shard_folder(tmp_path / name, config, seed=seed): share
        for seed, (name, share) in enumerate((("a", 0.7), ("b", 0.3)))
    }

    def weights(folder, **changes):
        training.train(
            small.replace(config, **changes), data, folder, evaluate=False, report=lambda line: None
        )
        last = max((folder / "checkpoints").glob("step-*"))
        return safetensors.numpy.load_file(next(last.glob("variables*.safetensors")))

    whole = weights(tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "stopped")
    shutil.rmtree(tmp_path / "stopped/checkpoints/step-00000006")
    for name, value in weights(tmp_path / "stopped").items():
        np.testing.assert_array_equal(value, whole[name], err_msg=name)
    data = dict.fromkeys(data, 1.0)
    shutil.rmtree(tmp_path / "stopped/checkpoints/step-00000006")
    with pytest.raises(UserError, match="--allow_other_data"):
        weights(tmp_path / "stopped")


def test_corpora_without_shares_are_shuffled_together_or_by_their_sizes(tmp_path):
    folders = []
    for name, count in (("large", 90), ("small", 10)):
        folder = small.shard_folder(tmp_path / name, small.config(), count, seed=count)
        folders.append(str(folder))

    def source(**recipe):
        config = small.config(**{f"recipe__{key}": value for key, value in recipe.items()})
        return mixture.open_shards(folders, "train").read(config, training=True)

    sizes = [mixture.open_shards(f, "train").read(small.config()).num_examples for f in folders]
    together = source()
    assert together.num_examples == sum(sizes)
    rows = together.dataset(1).take(sum(sizes)).as_numpy_iterator()
    alone = [mixture.open_shards(f, "train").read(small.config()) for f in folders]
    known = [row for each in alone for row in each.dataset(1).as_numpy_iterator()]
    # Masks are drawn anew in each epoch, and the length of a row and its pair are not.
    marks = ["padding_mask", "segment_ids", "next_sentence_label"]
    described = [sorted(b"".join(r[m].tobytes() for m in marks) for r in s) for s in (rows, known)]
    assert described[0] == described[1]
    roots = np.sqrt(sizes)
    by_size, given = source(task_temperature=2.0), np.round(roots / roots.sum(), 6)
    shares = mixture.open_shards(dict(zip(folders, given, strict=True)), "train")
    assert by_size.fingerprint == shares.read(small.config(), training=True).fingerprint
    assert by_size.fingerprint != together.fingerprint
    limited = source(task_limit=20)
    assert min(sizes) > 20
    twenty = mixture.open_shards(dict.fromkeys(folders, 0.5), "train")
    assert limited.fingerprint == twenty.read(small.config(), training=True).fingerprint
    with pytest.raises(UserError, match="recipe.task_sampling: annealed is for tasks, not for co"):
        source(task_sampling="annealed")
