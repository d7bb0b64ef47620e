"""From pairs to vectors of tokens: shards, training, measures, predictions, search."""

import json

import numpy as np
import pytest

import official
from official.saving import metrics_log, model_folder
from official.tasks import Columns, beir
from official.tasks import embeddings as tasks
from official.utils.errors import UserError
from tests import commands, embedding_tasks, small
from tfrecords_tools.tasks import builder

OBJECTIVE = {
    "type": "late_interaction",
    "size": 8,
    "scale": 2.0,
    "query_prefix": "ba ",
    "document_prefix": "be bi ",
    "expansion": {"length": 8},
    "skipped_words": ["bo"],
    "cached_rows": 8,
}


def train(folder, name, data, **changes):
    config = embedding_tasks.config(
        recipe__steps=30,
        recipe__batch_size=16,
        recipe__eval_every=15,
        recipe__distinct_texts=True,
        recipe__optimizer={"learning_rate": 0.005},
        recipe__init_weights="none",
        recipe__bucket_lengths=[6, 12],
        **changes,
    )
    official.train(config, folder / data, folder / name, report=lambda line: None)
    return folder / name


@pytest.mark.slow
@pytest.mark.long
def test_triples_are_learned_and_searched(tmp_path):
    shards = embedding_tasks.shards(
        tmp_path / "triples", embedding_tasks.TRIPLES, train=200, validation=24
    )
    model = train(tmp_path, "model", "triples", objectives=[OBJECTIVE])
    measured = [each for each in metrics_log.read(model) if each.split == "validation"]
    assert [each.step for each in measured] == [15, 30]
    assert measured[-1].metrics["accuracy"] > 0.3
    (objective,) = model_folder.config_of(model).objectives
    assert len(objective.ids.query_prefix) == 1 and len(objective.ids.document_prefix) == 2
    (figures,) = official.evaluate(model, shards).values()
    best = max(each.metrics["accuracy"] for each in measured)
    assert figures["accuracy"] == pytest.approx(best, abs=1e-6)
    # Predictions are the scores of the model that is loaded.
    official.predict(model, shards, tmp_path / "scores.tsv", split="validation")
    header, *lines = ((tmp_path / "scores.tsv").read_text()).splitlines()
    assert header.split("\t") == ["row", "score", "score_2"]
    found = np.array([line.split("\t") for line in lines], np.float64)[:, 1:]
    loaded, table = official.load(model), embedding_tasks.rows(24, 1)
    for row, (query, *documents) in zip(found, table, strict=True):
        np.testing.assert_allclose(loaded.rank(query, documents), row, rtol=1e-4)
    # A search by a command, with all vectors and with fewer.
    collection = embedding_tasks.collection(tmp_path / "beir")
    judged = beir.read(collection, "dev")
    assert judged.queries
    given = [f"--model_dir={model}", f"--beir={collection}", "--split=dev"]
    scores = []
    for factor in (1, 2):
        output = tmp_path / f"{factor}.run"
        more = [f"--output={output}", *([f"--pool_factor={factor}"] if factor > 1 else [])]
        printed = commands.run("official.main", "--mode=search", *given, *more).stdout
        scores.append(float(printed.split("ndcg_10")[1].split()[0]))
    assert scores[0] > 0.5 and 0 < scores[1] != scores[0]


@pytest.mark.slow
@pytest.mark.long
def test_the_scores_of_a_teacher_are_learned(tmp_path):
    """KL and margins; an evaluation of texts alone has the measures of ranks."""
    draw = np.random.default_rng(0)
    columns = Columns("q", "p", "s")
    task = tasks.of_columns(columns, ["n"], name="taught", taught=True)
    path = tmp_path / "t.jsonl"
    rows = [
        {"q": q, "p": p, "n": [n, " ".join(draw.choice(small.WORDS, 3))], "s": [3.0, -1.0, -2.5]}
        for q, p, n in embedding_tasks.rows(60)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = {"train": path, "validation": path}
    tokenizer = official.tokenizers.load(small.tokenizer_folder(tmp_path / "tokenizer"))
    builder.build(task, files, tokenizer, tmp_path / "taught", 12, report=lambda line: None)
    for loss in ("distillation", "margin_mse"):
        objective = {"type": "late_interaction", "size": 8, "loss": loss}
        model = train(tmp_path, loss, "taught", objectives=[objective])
        losses = [each.metrics["loss"] for each in metrics_log.read(model) if each.split == "train"]
        assert losses[-1] < 0.7 * losses[0]
    embedding_tasks.shards(tmp_path / "triples", embedding_tasks.TRIPLES, train=40, validation=24)
    (figures,) = official.evaluate(model, tmp_path / "triples").values()
    assert 0 <= figures["accuracy"] <= figures["mrr"] <= 1
    with pytest.raises(UserError, match="not give teacher_scores, which late_interaction needs"):
        train(tmp_path, "none", "triples", objectives=[objective])
