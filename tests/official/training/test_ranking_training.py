"""Rankings in the loop: the same weights on one device and on two; several folders at once."""

import pytest
import tensorflow as tf

from official import config as configs
from official import tasks, tokenizers
from official.data import ShardDataset
from official.data.mixture import Mixture
from official.distribution import numerics, strategies
from official.saving import named_arrays
from official.tasks import trec
from official.training.trainer import Trainer
from official.utils.errors import UserError
from tests import small
from tests.official.training.test_systems import assert_close
from tfrecords_tools.tasks import builder as task_builder

ENCODER = {
    "type": "transformer", "vocab_size": 125, "hidden_size": 16, "num_layers": 2, "num_heads": 2,
    "intermediate_size": 32, "max_positions": 24, "dropout": 0.1, "attention_dropout": 0.1,
}  # fmt: skip
OBJECTIVES = {
    "pairwise": {"type": "ranking", "dropout": 0.1},
    "pointwise": {"type": "ranking", "dropout": 0.1, "loss": "pointwise"},
    "kernels": {"type": "kernel_ranking"},
    "lambda": {"type": "ranking", "dropout": 0.1, "loss": "lambda"},
    "lambda_at_2": {"type": "ranking", "dropout": 0.1, "loss": "lambda", "k": 2},
    "margins": {"type": "kernel_ranking", "loss": "margin_mse"},
}
OF_LISTS = ("lambda", "lambda_at_2", "margins")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Shards of 12 queries, each with a document of its own words and others."""
    parent = tmp_path_factory.mktemp("ranking")
    words = small.WORDS
    queries = {f"q{i}": " ".join(words[3 * i : 3 * i + 2]) for i in range(12)}
    documents = {
        f"d{i}": " ".join(words[3 * i : 3 * i + 3] * (1 + i % 4) + [words[-i - 1]])
        for i in range(12)
    }
    for name, texts in {"queries": queries, "documents": documents}.items():
        lines = [f"{key}\t{text}\n" for key, text in texts.items()]
        (parent / f"{name}.tsv").write_text("id\ttext\n" + "".join(lines))
    with open(parent / "qrels", "w") as stream:
        trec.write_qrels(stream, {f"q{i}": {f"d{i}": 1} for i in range(12)})
    run = {query: {d: float(i) for i, d in enumerate(documents)} for query in queries}
    with open(parent / "all.run", "w") as stream:
        trec.write_run(stream, run, "x")
    names = {"queries": "queries.tsv", "documents": "documents.tsv", "qrels": "qrels"}
    tokenizer = tokenizers.load(small.tokenizer_folder(parent / "tokenizer"))
    splits = {"train": parent / "all.run", "validation": parent / "all.run"}
    for name in ("one", "two"):
        task_builder.build(
            tasks.ranking(), splits, tokenizer, parent / name, max_length=20, input=parent, **names,
            report=lambda line: None,
        )  # fmt: skip
    # Lists of 2 to 4 documents, so that parts of a batch have other numbers of pairs.
    graded = {f"q{i}": {f"d{j}": 2 - j + i for j in range(i, min(i + 2, 12))} for i in range(12)}
    with open(parent / "graded", "w") as stream:
        trec.write_qrels(stream, graded)
    few = {q: dict(list(found.items())[: 1 + i % 4]) for i, (q, found) in enumerate(run.items())}
    with open(parent / "few.run", "w") as stream:
        trec.write_run(stream, few, "x")
    task_builder.build(
        tasks.ranking(), {"train": parent / "few.run"}, tokenizer, parent / "lists", max_length=20,
        input=parent, **names | {"qrels": "graded"}, list_size=4, report=lambda line: None,
    )  # fmt: skip
    return parent


def config(objective, **recipe):
    recipe = {"steps": 12, "batch_size": 4, "optimizer": {"learning_rate": 1e-2}, **recipe}
    recipe = {"bucket_lengths": [12, 16, 20], **recipe}
    raw = {"name": "x", "encoder": ENCODER, "objectives": [objective], "recipe": recipe}
    return configs.from_dict(raw)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", OBJECTIVES)
def test_two_replicas_and_accumulation_change_nothing(folder, tmp_path, mirrored, name):
    result = {}
    numerics.set_precision("float64")
    try:
        for place, strategy, accumulation in (
            ("one", tf.distribute.get_strategy(), 1),
            ("parts", mirrored(2), 1 if name == "lambda_at_2" else 2),
        ):
            lists = {"bucket_lengths": []} if name in OF_LISTS else {}
            lists |= {"accumulation": accumulation, "precision": "float64"}
            read = config(OBJECTIVES[name], **lists)
            shards = folder / ("lists" if name in OF_LISTS else "one")
            source = ShardDataset(shards, read, "train", training=True)
            model = strategies.build_model(read, strategy)
            trainer = Trainer(read, model, source, strategy, tmp_path / place)
            start = named_arrays.values(trainer.variables)
            trainer.train()
            result[place] = named_arrays.values(trainer.variables)
    finally:
        numerics.set_precision("float32")
    moved = [path for path, value in result["one"].items() if abs(value - start[path]).max() > 1e-4]
    kernels = OBJECTIVES[name]["type"] == "kernel_ranking"
    learned = "kernel_ranking/" if kernels else "encoder/layer_0/"
    assert any(path.startswith(learned) for path in moved)
    if name in OF_LISTS:  # losses of differences: the bias moves by rounding alone
        bias = f"{OBJECTIVES[name]['type']}/output/bias"
        for path in [path for path in result["one"] if bias in path]:
            assert all(abs(arrays.pop(path)).max() < 1e-9 for arrays in result.values())
    assert_close(result["parts"], result["one"])


def test_pairs_that_scores_choose_are_not_those_of_parts():
    message = "k: 2 counts the pairs of all rows of a batch by their scores, but recipe.accumu"
    with pytest.raises(UserError, match=message):
        config(OBJECTIVES["lambda_at_2"], accumulation=2)


def test_several_rankings_at_once(folder):
    read = config(OBJECTIVES["pairwise"])
    both = [folder / "one", folder / "two"]
    count = ShardDataset(folder / "one", read, "train", training=True).num_examples
    assert count > 0
    assert ShardDataset(both, read, "train", training=True).num_examples == 2 * count
    message = "one, .*two: each folder has its own candidates: evaluate and predict"
    with pytest.raises(UserError, match=message):
        ShardDataset(both, read, "validation")
    sources = [ShardDataset(path, read, "train", training=True) for path in both]
    with pytest.raises(UserError, match="one: a task of the kind ranking is trained and scored by"):
        Mixture(sources, read)
