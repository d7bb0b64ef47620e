"""A model in training is measured by a search as `--mode=search` measures its folder."""

import dataclasses

import pytest
import tensorflow as tf

from official import tokenizers
from official.config import ResolvedConfig
from official.data import collection as collections
from official.data.collection import Collection, Texts
from official.distribution import strategies
from official.evaluation import rankings
from official.evaluation.evaluator import Evaluator
from official.saving.embedding_settings import EmbeddingSettings
from official.saving.served_model import ServedModel
from official.serving.vectors import search
from official.serving.vectors.embedder import Embedder
from official.tasks import beir, trec
from official.utils.errors import UserError
from tests import embedding_tasks, small

TEXTS = ["ba be bi", "", "do", "da di du bo bu", "be", "ba do ba", "bu"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return embedding_tasks.collection(tmp_path_factory.mktemp("searched") / "set")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return tokenizers.load(small.tokenizer_folder(tmp_path_factory.mktemp("t") / "tokenizer"))


def resolved(**changes):
    return ResolvedConfig.of(embedding_tasks.config(encoder__initializer_range=0.5, **changes))


def rows(texts):
    """The number and the tokens of each row, and its weight."""
    return [
        (number, ids[0][mask[0]].tolist(), weight)
        for batch in texts.dataset(4).as_numpy_iterator()
        for number, ids, mask, weight in zip(
            batch["number"], batch["token_ids"], batch["padding_mask"], batch["example_weights"],
            strict=True,
        )
    ]  # fmt: skip


def test_batches_have_each_text_once(tokenizer):
    texts = Texts("", "texts", TEXTS, tokenizer, 6, "cls_first")
    made = rows(texts)
    encoded = [ids.tolist()[:4] for ids in tokenizer.encode(TEXTS)]
    whole = [[tokenizer.cls_id, *ids, tokenizer.sep_id] for ids in encoded]
    assert sorted(number for number, _, _ in made) == [-1, *range(len(TEXTS))]
    assert all(ids == whole[number] and weight for number, ids, weight in made if number >= 0)
    assert [weight for number, _, weight in made if number < 0] == [0]
    # Batches of long and of short texts have a few lengths.
    longer = dataclasses.replace(texts, texts=[*TEXTS, "ba " * 40, "be " * 20], max_length=30)
    assert [tuple(batch["token_ids"].shape) for batch in longer.dataset(4)] == [
        (4, 1, 16),
        (4, 1, 16),
        (4, 1, 30),
    ]
    (batch,) = longer.dataset(10, one_length=True)
    assert batch["token_ids"].shape == (10, 1, 30)
    # Two workers with two replicas each read the same batches.
    parts = [
        texts.dataset(4, workers=2, worker=worker, replicas_per_worker=2) for worker in range(2)
    ]
    numbers = [[row["number"].tolist() for row in part.as_numpy_iterator()] for part in parts]
    batches = [sum(numbers[0][i : i + 2] + numbers[1][i : i + 2], []) for i in (0, 2)]
    assert sum(batches, []) == [number for number, _, _ in made]
    later = texts.dataset(4, start_step=1).as_numpy_iterator()
    assert [batch["number"].tolist() for batch in later] == batches[1:]


@pytest.mark.parametrize(
    ("replicas", "objective"),
    [
        (1, {}),
        (2, {"normalize": False, "projection": {"size": 6}, "pooling": "first,max"}),
    ],
)
def test_measures_are_those_of_a_search_of_the_folder(
    folder, tokenizer, tmp_path, mirrored, monkeypatch, replicas, objective
):
    monkeypatch.setattr(collections, "BLOCK", 25)  # so several blocks
    objective = {"type": "sentence_embedding", **objective}
    config = resolved(objectives=[objective], recipe__eval_batch_size=8)
    strategy = mirrored(replicas) if replicas > 1 else tf.distribute.get_strategy()
    model = strategies.build_model(config, strategy)
    collection = Collection(folder, config, tokenizer, 12)
    collection.check(config, replicas)
    measured = Evaluator(config, model, strategy).run(collection)

    settings = EmbeddingSettings(pooling=config.objectives[0].poolings, normalize=True)
    embedder = Embedder(ServedModel(config, tokenizer, model, 12, embedding=settings))
    judged, output = beir.read(folder, "dev"), tmp_path / "found.run"
    search.write(embedder, judged.queries, judged.documents, output, 100, "x", own=False)
    expected = rankings.compute(beir.METRICS, judged.qrels, trec.read_run(output))
    assert measured == pytest.approx(expected, abs=1e-9)
    assert list(measured) == list(beir.METRICS) and 0 < measured["ndcg_10"] < 1


def test_what_a_search_cannot_measure_is_refused(folder, tokenizer):
    collection = Collection(folder, resolved(), tokenizer, 12)
    for changes, message in (
        ({"objectives": [{"type": "masked_lm"}]}, "add the objective sentence_embedding"),
        ({"recipe__best_metric": "loss"}, "'loss' is not measured by a search of .*: choose one"),
        ({"recipe__eval_batches": 2}, "eval_batches: 2: not supported with"),
        ({"recipe__eval_batch_size": 7}, "7"),
    ):
        with pytest.raises(UserError, match=message):
            collection.check(resolved(**changes), 2)
    other = Collection(folder, resolved(), tokenizer, 12)
    assert other.fingerprint == collection.fingerprint
    with pytest.raises(UserError, match="train.tsv is missing: the splits of .* are 'dev'"):
        Collection(folder, resolved(), tokenizer, 12, split="train")


def test_other_texts_have_another_fingerprint(folder, tokenizer, tmp_path):
    made = embedding_tasks.collection(tmp_path / "set")
    prints = [Collection(x, resolved(), tokenizer, 12).fingerprint for x in (folder, made)]
    assert prints[0] == prints[1]
    lines = (made / "corpus.jsonl").read_text().splitlines()
    (made / "corpus.jsonl").write_text("\n".join([*lines[1:], lines[0]]) + "\n")
    assert Collection(made, resolved(), tokenizer, 12).fingerprint != prints[0]
    (made / "corpus.jsonl").write_text("\n".join([*lines, lines[0]]) + "\n")
    with pytest.raises(UserError, match="corpus.jsonl: the id 'd0' occurs twice"):
        Collection(made, resolved(), tokenizer, 12)
