"""From a masked LM and pairs to sparse vectors: shards, training, a search of a collection."""

import numpy as np
import pytest

import official
from official import config as configs
from official import tokenizers
from official.modeling.model import Model
from official.saving import checkpoints, metrics_log, model_folder
from official.utils.errors import UserError
from tests import embedding_tasks

RECIPE = {
    "recipe__steps": 24,
    "recipe__batch_size": 16,
    "recipe__eval_every": 8,
    "recipe__distinct_texts": True,
    "recipe__optimizer": {"learning_rate": 0.01},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    parent = tmp_path_factory.mktemp("sparse")
    embedding_tasks.shards(parent / "triples", embedding_tasks.TRIPLES, train=200, validation=24)
    embedding_tasks.collection(parent / "beir")
    tokenizer = tokenizers.load(parent / "tokenizer")
    for name, kinds in (("masked", [{"type": "masked_lm"}]), ("bare", [])):
        config = embedding_tasks.config(objectives=kinds)
        config = official_config(config, tokenizer)
        variables = {
            path: np.asarray(variable)
            for path, variable in Model(config).variables_by_path().items()
        }
        model_folder.write_new(config, tokenizer, variables, parent / name)
    return parent


def official_config(config, tokenizer):
    from official.training import resolve

    return resolve.fill_in(resolve.inherit(config), tokenizer.vocab_size)


def train(folder, name, init, **objective):
    flops = {"document_flops": 1e-3, "query_flops": 1e-3}
    kind = {"type": "sparse_embedding", **flops, **objective}
    changes = {**RECIPE, "objectives": [kind], "encoder": None}
    config = embedding_tasks.config(**changes)
    official.train(
        config, folder / "triples", folder / name, init=folder / init,
        validation_data=folder / "beir", report=lambda line: None,
    )  # fmt: skip
    return folder / name


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("queries", ["encoder", "table"])
def test_sparse_vectors_are_learned_from_a_masked_lm(folder, queries):
    model = train(folder, f"model-{queries}", "masked", queries=queries, cached_rows=8)
    records = metrics_log.read(model)
    scores = [each.metrics["ndcg_10"] for each in records if each.split == "validation"]
    assert len(scores) == 3 and max(scores) > scores[0] + 0.15
    trained = [each.metrics for each in records if each.split == "train"]
    assert {"sparse_embedding_document_flops", "sparse_embedding_query_words"} <= set(trained[-1])
    loaded = official.load(model)
    assert loaded.config.objectives[0].queries == queries
    judged = loaded.search(["x"], ["y"], top_k=1)[0]
    assert judged.shape == (1, 1)


def test_the_head_has_the_weights_of_the_masked_lm(folder):
    from official.saving import warm_start

    config = official_config(
        embedding_tasks.config(objectives=[{"type": "sparse_embedding", "queries": "table"}]),
        tokenizers.load(folder / "tokenizer"),
    )
    initial = checkpoints.load_variables(folder / "masked", "best")
    for weights in ("encoder", "all"):
        model = Model(config)
        for variable in model.variables:
            variable.assign(variable + 1)
        _, fresh = warm_start.start_from(model, folder / "masked", "best", weights)
        assert fresh == ["sparse_embedding/query_weights"]
        for path, variable in model.variables_by_path().items():
            theirs = path.replace("sparse_embedding", "masked_lm")
            if theirs in initial:
                np.testing.assert_array_equal(variable, initial[theirs], err_msg=path)
        assert np.all(np.asarray(model.objectives[0].query_weights) == 2)


def test_a_model_without_a_masked_lm_is_refused(folder):
    with pytest.raises(UserError, match=r"sparse_embedding: its head is that of a masked LM, and"):
        train(folder, "refused", "bare")
    assert isinstance(configs.load(folder / "masked" / "config.yaml"), configs.Config)
