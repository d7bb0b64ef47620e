"""From pairs to vectors: shards, training, best checkpoint, measures, predictions, `encode`."""

import json

import numpy as np
import pytest
import safetensors.numpy

import official
from official import config as configs
from official.evaluation import embeddings, rankings
from official.saving import checkpoints, metrics_log, model_folder, task_file
from official.serving.vectors import search
from official.tasks import beir, trec
from official.utils.errors import UserError
from tests import commands, embedding_tasks, small

RECIPE = {
    "recipe__steps": 30,
    "recipe__batch_size": 16,
    "recipe__eval_every": 10,
    "recipe__distinct_texts": True,
    "recipe__optimizer": {"learning_rate": 0.02},
    "recipe__init_weights": "none",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    parent = tmp_path_factory.mktemp("run")
    embedding_tasks.shards(parent / "triples", embedding_tasks.TRIPLES, train=200, validation=24)
    embedding_tasks.shards(parent / "scores", embedding_tasks.SCORES, validation=24)
    return parent


def train(folder, name, data, silent=lambda line: None, **changes):
    config = embedding_tasks.config(**{**RECIPE, **changes})
    official.train(config, folder / data[0], folder / name, report=silent, **data[1])
    return folder / name


@pytest.mark.slow
@pytest.mark.long
def test_triples_are_learned_and_measured_by_scores(folder):
    """A run on triples, whose best checkpoint is that of another task's measure."""
    model = train(folder, "model", ("triples", {"validation_data": folder / "scores"}))
    measured = [each for each in metrics_log.read(model) if each.split == "validation"]
    spearman = [each.metrics["spearman"] for each in measured]
    assert len(spearman) == 3 and max(spearman) > 0.5
    best = checkpoints.load_state(checkpoints.find(model, "best"))
    assert best["step"] == measured[int(np.argmax(spearman))].step
    assert task_file.description(model).metrics == ("spearman", "pearson")

    (figures,) = official.evaluate(model, folder / "scores").values()
    assert figures["spearman"] == pytest.approx(max(spearman), abs=1e-6)
    (figures,) = official.evaluate(model, folder / "triples").values()
    assert figures["accuracy"] > 0.3 and figures["mrr"] > figures["accuracy"]

    output = folder / "cosines.tsv"
    official.predict(model, folder / "triples", output, split="validation")
    header, *lines = (line.split("\t") for line in output.read_text().splitlines())
    table = embedding_tasks.rows(24, 1)
    texts = [text for row in table for text in row]
    vectors = official.load(model).encode(texts).reshape(24, 3, -1)
    assert header == ["row", "cosine", "cosine_2"]
    np.testing.assert_allclose(
        np.array(lines, np.float64)[:, 1:], embeddings.similarities(vectors), atol=1e-5
    )
    with pytest.raises(UserError, match="--submission has classes and scores, and the model of st"):
        official.predict(
            model, folder / "scores", folder / "s", submission=True, split="validation"
        )


@pytest.mark.slow
@pytest.mark.long
def test_the_best_checkpoint_is_that_of_a_search(folder):
    """Where the texts that suit a query are those that it goes away from; and after a stop."""
    found = embedding_tasks.collection(folder / "beir", same=False)
    data = "triples", {"validation_data": found}
    changes = {"recipe__save_every": 10, "recipe__keep_checkpoints": 3}
    model = train(folder, "searched", data, **changes)
    measured = {e.step: e.metrics for e in metrics_log.read(model) if e.split == "validation"}
    judged, output = beir.read(found, "dev"), folder / "found.run"
    for step, metrics in measured.items():
        embedder = official.load(model, checkpoint=str(step)).embedder
        search.write(embedder, judged.queries, judged.documents, output, 100, "x", own=False)
        again = rankings.compute(beir.METRICS, judged.qrels, trec.read_run(output))
        assert metrics == pytest.approx(again, abs=1e-6)
    best = max(measured, key=lambda step: measured[step]["ndcg_10"])
    assert list(measured) == [10, 20, 30] and best < 30
    assert checkpoints.best(model)["step"] == best
    assert task_file.description(model).metrics == beir.METRICS

    class Stop(Exception):
        pass

    def stop(line):
        if line.startswith("step 20  validation"):
            raise Stop

    with pytest.raises(Stop):
        train(folder, "stopped", data, silent=stop, **changes)
    stopped = train(folder, "stopped", data, **changes)
    assert checkpoints.best(stopped) == checkpoints.best(model)
    assert [e.metrics for e in metrics_log.read(stopped) if e.split == "validation"] == list(
        measured.values()
    )


@pytest.mark.slow
@pytest.mark.long
def test_texts_alone_are_learned(folder):
    """SimCSE without labels; a run cannot be measured by texts alone."""
    embedding_tasks.shards(folder / "alone", embedding_tasks.ALONE, train=90)
    data = "alone", {"validation_data": folder / "scores"}
    model = train(folder, "simcse", data, recipe__steps=4, recipe__eval_every=2)
    measured = [each.metrics for each in metrics_log.read(model) if each.split == "validation"]
    assert len(measured) == 2 and all(-1 <= each["spearman"] <= 1 for each in measured)
    with pytest.raises(UserError, match="alone has no examples of a validation split"):
        train(folder, "bare", ("alone", {}), recipe__steps=2, recipe__eval_every=0)


@pytest.mark.slow
@pytest.mark.long
def test_labels_and_margins_are_learned(folder):
    """The classifier is in no other model that is made of the run."""
    data = "labels", {"validation_data": folder / "scores"}
    embedding_tasks.shards(folder / "labels", embedding_tasks.LABELS, train=90, validation=24)
    few = {"recipe__steps": 4, "recipe__eval_every": 4}
    softmax = {"type": "sentence_embedding", "loss": "softmax", "normalize": False}
    model = train(folder, "softmax", data, objectives=[softmax], **few)
    assert model_folder.config_of(model).objectives[0].labels == ("0.0", "5.0")
    assert metrics_log.read(model)[-1].metrics["spearman"] <= 1
    (figures,) = official.evaluate(model, folder / "labels").values()
    assert {"average_precision", "sentence_embedding_accuracy"} <= figures.keys()
    weights = checkpoints.load(model, "best").variables
    assert weights["sentence_embedding/classifier/kernel"].shape == (48, 2)
    official.convert(model, folder / "theirs", target="hf")
    tensors = safetensors.numpy.load_file(folder / "theirs" / "model.safetensors")
    assert not [name for name in tensors if "classif" in name]
    official.convert(folder / "theirs", folder / "ours", source="hf")
    texts = ["ba be", "bi"]
    np.testing.assert_allclose(
        official.load(folder / "ours").encode(texts), official.load(model).encode(texts), atol=1e-5
    )

    (folder / "theirs" / "modules.json").unlink()
    official.convert(folder / "theirs", folder / "bare", source="hf")
    with pytest.raises(
        UserError, match="no objective sentence_embedding or .*: its objectives are none"
    ):
        official.evaluate(folder / "bare", folder / "scores")

    embedding_tasks.shards(folder / "margins", embedding_tasks.MARGINS, train=90, validation=24)
    margins = {"type": "sentence_embedding", "loss": "margin_mse", "normalize": False}
    data = "margins", {"init": model}
    changes = few | {"objectives": [margins], "recipe__init_weights": "encoder"}
    again = train(folder, "margin_mse", data, **changes)
    (figures,) = official.evaluate(again, folder / "margins").values()
    assert {"mrr", "accuracy"} <= figures.keys()
    assert "sentence_embedding/classifier/kernel" not in checkpoints.load(again, "best").variables


@pytest.mark.slow
@pytest.mark.long
def test_by_commands(tmp_path):
    """The commands of docs/embeddings.md: pairs with scores, and pairs of two sets by shares."""
    for task, split, count in (
        (embedding_tasks.PAIRS, "train", 60), (embedding_tasks.PAIRS, "dev", 20),
        (embedding_tasks.SCORES, "train", 60), (embedding_tasks.SCORES, "dev", 20),
    ):  # fmt: skip
        inside = tmp_path / task.name
        inside.mkdir(exist_ok=True)
        embedding_tasks.table(inside / f"{split}.tsv", task, count, len(split))
    tokenizer = f"--tokenizer={small.tokenizer_folder(tmp_path / 'tokenizer')}"
    build, pairs = "tfrecords_tools.build_task_shards", f"--input={tmp_path / 'pairs'}"
    columns = "--task=embedding", "--text_column=first", "--text_pair_column=second"
    files = "--train_file=train.tsv", "--validation_file=dev.tsv"
    for name in ("one", "two"):
        commands.run(
            build, *columns, pairs, *files, tokenizer, f"--task_name={name}", "--max_length=12",
            f"--output={tmp_path / name}", status=0,
        )  # fmt: skip
    commands.run(
        build, "--task=stsb", "--embed_as=scores", f"--input={tmp_path / 'stsb'}", tokenizer,
        "--test_file=", "--max_length=12", f"--output={tmp_path / 'scores'}", status=0,
    )  # fmt: skip
    config = embedding_tasks.config(**{**RECIPE, "recipe__steps": 8, "recipe__eval_every": 4})
    configs.save(config, tmp_path / "config.yaml")
    model, shares = (
        f"--model_dir={tmp_path / 'model'}",
        f"{tmp_path / 'one'}=2,{tmp_path / 'two'}=1",
    )
    settings = f"--config={tmp_path / 'config.yaml'}", f"--data={shares}", model
    given = f"--validation_data={tmp_path / 'scores'}"
    commands.run("official.main", "--mode=train_and_eval", *settings, given, status=0)
    done = commands.run(
        "official.main", "--mode=eval", f"--data={tmp_path / 'scores'}", model, status=0
    )
    assert "spearman" in done.stdout and "pearson" in done.stdout
    output = f"--output={tmp_path / 'cosines.jsonl'}"
    commands.run(
        "official.main", "--mode=predict", f"--data={tmp_path / 'scores'}", "--split=validation",
        model, output, status=0,
    )  # fmt: skip
    lines = (tmp_path / "cosines.jsonl").read_text().splitlines()
    assert [json.loads(line)["row"] for line in lines] == list(range(20))
    assert official.load(tmp_path / "model").encode(["ba be"]).shape == (1, 16)
    (figures,) = official.evaluate(
        tmp_path / "model", [tmp_path / "one", tmp_path / "two"]
    ).values()
    assert {"one/mrr", "two/accuracy", "average"} <= figures.keys()
