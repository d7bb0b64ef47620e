"""From a run to a reranked run: figures, TREC's files, and a SavedModel that scores alike."""

import json
import random

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official import tasks, tokenizers
from official.config.encoders import TransformerConfig, TransformerXLConfig
from official.config.heads import KernelRankingConfig, RankingConfig
from official.data import ShardDataset
from official.evaluation import rankings
from official.evaluation.evaluator import Evaluator
from official.evaluation.run import write_predictions
from official.saving import checkpoints, model_folder, named_arrays
from official.serving.export import saved_model
from official.tasks import trec
from official.utils.errors import UserError
from tests import ROOT, commands
from tests.official.commands.test_export import GOLDEN, ask
from tfrecords_tools.tasks import builder as task_builder

WORDS = "the a cat dog sat ran on under mat tree and quickly , . ! ? cafe".split()
ODD = ["\u00ad\u200b", "dog " * 90, "ünïcødé 猫 😀", "[MASK] [SEP]", "a\u00ad\u200bb", "İSTANBUL ß"]
SIZES = {"hidden_size": 12, "num_layers": 2, "num_heads": 3, "intermediate_size": 20}
ENCODERS = {
    "transformer": TransformerConfig(max_positions=24, initializer_range=0.5, **SIZES),
    "transformer_xl": TransformerXLConfig(initializer_range=0.5, **SIZES),
}
HEADS = {"ranking": RankingConfig(), "kernels": KernelRankingConfig()}


def texts(count, seed, name):
    draw = random.Random(seed)
    result = {}
    for i in range(count):
        words = " ".join(draw.choices(WORDS, k=draw.randrange(1, 15)))
        result[f"{name}{i}"] = draw.choice(ODD) if draw.random() < 0.2 else words
    return result


def data_folder(folder):
    """Queries, documents, qrels and runs; some candidates are tied in text, and so in score."""
    queries, documents = texts(8, 1, "q"), texts(30, 2, "d")
    documents["d7"] = documents["d3"]
    draw = random.Random(3)
    run = {
        query: {name: draw.random() for name in {"d3", "d7", *draw.sample(list(documents), 9)}}
        for query in queries
    }
    qrels = {
        query: {name: draw.randrange(-1, 4) for name in [*list(scores)[:6], "d29"]}
        for query, scores in run.items()
    }
    del qrels["q5"]
    folder.mkdir()
    for name, result in {"queries": queries, "documents": documents}.items():
        lines = [json.dumps({"id": key, "text": text}) + "\n" for key, text in result.items()]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    with open(folder / "qrels", "w") as stream:
        trec.write_qrels(stream, qrels)
    with open(folder / "bm25.run", "w") as stream:
        trec.write_run(stream, run, "first")
    return queries, documents, qrels, run


def random_model(folder, encoder, head):
    """Random weights; the heads' are large, so that scores differ."""
    tokenizer = tokenizers.load(GOLDEN)
    encoder = configs.to_dict(ENCODERS[encoder]) | {"vocab_size": tokenizer.vocab_size}
    settings = configs.from_dict(
        {
            "name": "my ranker",
            "encoder": encoder,
            "objectives": [configs.to_dict(HEADS[head])],
            "recipe": {"steps": 1, "batch_size": 16},
        }
    )
    configs.save(settings, folder / "config.yaml")
    tokenizer.save(folder / "tokenizer")
    variables = named_arrays.values(model_folder.build(settings).variables_by_path())
    draw = np.random.default_rng(0)
    for path, value in variables.items():
        if "ranking/" in path:
            variables[path] = draw.normal(0, 3, value.shape).astype(value.dtype)
    checkpoints.save(folder, 1, variables, {})
    (folder / "task.json").write_text(json.dumps({"pair": True, "max_length": 20}))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    "encoder, head", [("transformer", "ranking"), ("transformer_xl", "kernels")]
)
def test_reranks_evaluates_and_serves_the_same_scores(tmp_path, encoder, head):
    """Each head and each encoder, whose layouts of a pair differ, once."""
    queries, documents, qrels, run = data_folder(tmp_path / "in")
    random_model(tmp_path / "model", encoder, head)
    task_builder.build(
        tasks.ranking(),
        {split: tmp_path / "in" / "bm25.run" for split in ("train", "validation")},
        tokenizers.load(GOLDEN), tmp_path / "shards", max_length=20, report=lambda line: None,
        input=tmp_path / "in", queries="queries.jsonl", documents="documents.jsonl", qrels="qrels",
    )  # fmt: skip
    config, _, model = model_folder.restore(tmp_path / "model")
    evaluator = Evaluator(config, model, tf.distribute.get_strategy())
    source = ShardDataset(tmp_path / "shards", config, "validation")
    source.check(config)

    count = write_predictions(evaluator, source, tmp_path / "new.run")
    assert count == sum(map(len, run.values()))
    new = trec.read_run(tmp_path / "new.run", queries, documents)
    assert {q: set(scores) for q, scores in new.items()} == {q: set(s) for q, s in run.items()}
    assert list(new) == list(run)
    lines = [line.split() for line in (tmp_path / "new.run").read_text().splitlines()]
    assert {line[5] for line in lines} == {"my_ranker"}
    for query, scores in new.items():
        own = [line for line in lines if line[0] == query]
        assert [line[2] for line in own] == [d for d, _ in trec.ordered(scores)]
        assert [int(line[3]) for line in own] == list(range(1, len(own) + 1))
        # Documents of the same text: the greater id first.
        assert scores["d3"] == scores["d7"]
        places = {line[2]: int(line[3]) for line in own}
        assert places["d3"] > places["d7"]
    assert np.std([score for scores in new.values() for score in scores.values()]) > 0.01

    figures = evaluator.run(source)
    judged = {query: new[query] for query in qrels}
    expected = rankings.compute(tasks.METRICS["ranking"], qrels, judged)
    assert figures == pytest.approx(expected, abs=1e-9)
    assert list(figures) == list(tasks.METRICS["ranking"])
    assert 0.05 < figures["map"] < 0.95

    done = saved_model.export(tmp_path / "model", tmp_path / "saved")
    assert done == ("rank", 20)
    pairs = [(query, document) for query, scores in new.items() for document in scores]
    many = {
        "query": [queries[q] for q, _ in pairs],
        "documents": [documents[d] for _, d in pairs],
    }
    one_each = [
        {"query": [queries[q]], "documents": [documents[d] for d in scores]}
        for q, scores in new.items()
    ]
    bad = b"\xff\xfe cat \xc3"
    answers = ask(
        tmp_path / "saved",
        [
            ("serving_default", many),
            *(("rank", request) for request in one_each),
            ("rank", {"query": [bad], "documents": ["cat", bad, ""]}),
            ("rank", {"query": ["cat"], "documents": []}),
        ],
        tmp_path,
    )
    expected = [new[q][d] for q, d in pairs]
    np.testing.assert_allclose(answers[0]["scores"], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        np.concatenate([answer["scores"] for answer in answers[1:-2]]),
        expected,
        rtol=1e-5,
        atol=1e-5,
    )
    assert np.isfinite(answers[-2]["scores"]).all() and answers[-2]["scores"].shape == (3,)
    assert answers[-1]["scores"].shape == (0,)

    loaded = tf.saved_model.load(str(tmp_path / "saved")).signatures
    assert set(loaded) == {"serving_default", "rank", "tokens"}
    with pytest.raises(tf.errors.InvalidArgumentError, match="one query, or as many queries as"):
        loaded["rank"](query=tf.constant(["a", "b"]), documents=tf.constant(["a", "b", "c"]))
    if head != "ranking":
        return
    write_predictions(evaluator, source, tmp_path / "top.run", top=3)
    three = trec.read_run(tmp_path / "top.run")
    assert three == {query: dict(trec.ordered(scores)[:3]) for query, scores in new.items()}
    with pytest.raises(
        UserError,
        match="--inputs=pair: not supported for this model, whose signature `rank`",
    ):
        saved_model.export(tmp_path / "model", tmp_path / "other", inputs="pair")
    with pytest.raises(UserError, match="other.tsv: TREC runs are written as .run: name such"):
        write_predictions(evaluator, source, tmp_path / "other.tsv")
    train = ShardDataset(tmp_path / "shards", config, "train")
    with pytest.raises(UserError, match="the train split has no candidates to rank: name --split"):
        write_predictions(evaluator, train, tmp_path / "other.run")
    with pytest.raises(UserError, match="the train split has no candidates to rank"):
        evaluator.run(train)


def run_command(module, *arguments):
    return commands.run(module, *map(str, arguments), status=0).stdout


@pytest.mark.slow
@pytest.mark.long
def test_learns_which_documents_share_a_word_with_the_query(tmp_path):
    """By the command lines; a run in which nothing is in order is put right."""
    draw = random.Random(0)
    (tmp_path / "in").mkdir()
    nouns = ["cat", "dog", "mat", "tree"]
    queries = {f"q{i}": draw.choice(nouns) for i in range(60)}
    documents = {
        f"d{i}": f"the {noun} {draw.choice(['sat', 'ran'])} {draw.choice(['on', 'under'])} a mat"
        if (noun := nouns[i % 4]) != "mat"
        else "on the mat"
        for i in range(24)
    }
    for name, result in {"queries": queries, "documents": documents}.items():
        lines = [f"{key}\t{text}\n" for key, text in result.items()]
        (tmp_path / "in" / f"{name}.tsv").write_text("id\ttext\n" + "".join(lines))
    parts = {"train": list(queries)[:40], "validation": list(queries)[40:]}
    qrels = {
        query: {d: 1 for i, d in enumerate(documents) if nouns[i % 4] == noun}
        for query, noun in queries.items()
    }
    with open(tmp_path / "in" / "qrels", "w") as stream:
        trec.write_qrels(stream, qrels)
    for split, names in parts.items():
        with open(tmp_path / "in" / f"{split}.run", "w") as stream:
            trec.write_run(stream, {q: {d: draw.random() for d in documents} for q in names}, "x")
    random_model(tmp_path / "start", "transformer", "ranking")
    run_command(
        "tfrecords_tools.build_task_shards",
        "--task=ranking", f"--input={tmp_path / 'in'}", "--queries=queries.tsv",
        "--documents=documents.tsv", "--qrels=qrels", "--train_file=train.run",
        "--validation_file=validation.run", f"--tokenizer={tmp_path / 'start' / 'tokenizer'}",
        f"--output={tmp_path / 'shards'}", "--max_length=20",
    )  # fmt: skip
    said = run_command(
        "official.main",
        "--mode=train_and_eval", f"--config={ROOT / 'configs' / 'finetune' / 'ranking.yaml'}",
        f"--data={tmp_path / 'shards'}", f"--init={tmp_path / 'start'}",
        f"--model_dir={tmp_path / 'model'}", "--override=recipe.epochs=16",
        "--override=recipe.precision=float32", "--override=objectives.ranking.dropout=0",
        "--override=recipe.optimizer.learning_rate=2e-3", "--override=recipe.bucket_lengths=[20]",
    )  # fmt: skip
    assert "best step" in said and "ndcg_20" in said
    assert "validation: ndcg_20" in said  # no loss, which a lone candidate has not
    figures = run_command(
        "official.main",
        "--mode=eval", f"--data={tmp_path / 'shards'}", f"--model_dir={tmp_path / 'model'}",
    )  # fmt: skip
    figures = {line.split()[0]: float(line.split()[1]) for line in figures.splitlines()}
    run_command(
        "official.main",
        "--mode=predict", "--split=validation", f"--data={tmp_path / 'shards'}",
        f"--model_dir={tmp_path / 'model'}", f"--output={tmp_path / 'new.run'}",
    )  # fmt: skip
    new = trec.read_run(tmp_path / "new.run")
    known = {query: qrels[query] for query in new}
    expected = rankings.compute(tasks.METRICS["ranking"], known, new)
    assert figures == pytest.approx(expected, abs=1e-6)
    first = trec.read_run(tmp_path / "in" / "validation.run")
    assert rankings.compute(["map"], known, first)["map"] < 0.5
    assert figures["map"] > 0.7
