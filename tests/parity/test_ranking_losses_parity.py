"""The losses of rankings, with gradients, against those of sentence-transformers' cross-encoders.

Its losses compute in float32, from the scores of a model; here the scores themselves are the model,
and a small BERT in 20 steps of training.

Shapes: B queries, C documents of a query.
"""

import json

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.conversion import converted_model, huggingface
from official.distribution import strategies
from official.saving import warm_start
from official.training import optimizers, train_step
from tests.official.conversion import systems
from tests.official.modeling.objectives.test_ranking_losses import value

B, C = 7, 5
LAMBDA = {"loss": "lambda"}
CASES = {
    "pointwise": {"loss": "pointwise"},
    "list_net": {"loss": "list_net"},
    "list_mle": {"loss": "list_mle"},
    "p_list_mle": {"loss": "p_list_mle"},
    "rank_net": {"loss": "rank_net", "scale": 1.5},
    "rank_net_at_2": {"loss": "rank_net", "k": 2},
    "lambda": LAMBDA,
    "lambda_at_2": LAMBDA | {"k": 2, "scale": 0.7},
    **{name: LAMBDA | {"scheme": name} for name in ("ndcg_loss1", "ndcg_loss2", "lambda_rank")},
    "ndcg_loss1_at_3": LAMBDA | {"scheme": "ndcg_loss1", "k": 3},
    "adr_mse": {"loss": "adr_mse", "scale": 1.3},
    "margin_mse": {"loss": "margin_mse"},
    "mse": {"loss": "mse"},
}
TRAINED = {name: {"loss": name} for name in ("lambda", "list_net", "p_list_mle", "margin_mse")}


@pytest.fixture(scope="module")
def theirs(hf5, tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("losses"), np.random.default_rng(0)
    # Grades in eighths, which float32 has; some are equal. Lists have 1 to C documents.
    given = {
        "scores": rng.standard_normal((B, C)) * 2,
        "grades": rng.integers(-4, 25, (B, C)) / 8,
        "counts": np.array([5, 3, 1, 4, 2, 5, 3]),
    }
    given["grades"][:, 1] = given["grades"][:, 0]
    for name, cases in (("cases", CASES), ("trained", TRAINED)):
        given[name] = json.dumps(cases)
    np.savez(folder / "in.npz", **given)
    hf5.run("st_ranking_losses.py", folder)
    systems.write_vocabulary(folder / "bert", "bert")
    converted_model.write(huggingface.read(folder / "bert"), folder / "model")
    return folder, given, dict(np.load(folder / "out.npz"))


@pytest.mark.parametrize("name", CASES)
def test_losses_are_those_of_sentence_transformers(name, theirs):
    _, given, results = theirs
    options, labels = CASES[name], given["grades"]
    mask = np.arange(C) < given["counts"][:, None]
    if options["loss"] in ("pointwise", "margin_mse"):
        mask = np.ones_like(mask)
    if options["loss"] == "pointwise":
        labels = (labels > 1) * 1.0
    loss, gradient = value(given["scores"], labels, mask, **options)
    assert loss == pytest.approx(float(results[f"loss/{name}"]), rel=1e-6)
    assert np.abs(gradient).max() > 1e-2
    np.testing.assert_allclose(gradient, results[f"gradient/{name}"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", TRAINED)
def test_weights_follow_those_of_sentence_transformers(name, theirs):
    """The same weights and batches, dropout off, 20 steps."""
    folder, _, _ = theirs
    arrays = dict(np.load(folder / f"{name}.npz"))
    expected, ids = arrays["losses"], arrays["input_ids"]
    fields = {
        "token_ids": ids.astype(np.int32),
        "segment_ids": arrays["token_type_ids"].astype(np.int32),
        "padding_mask": arrays["attention_mask"] > 0,
        "text_mask": arrays["attention_mask"] > 0,
        "grades": arrays["grades"].astype(np.float32),
        "documents_mask": np.arange(ids.shape[2]) < arrays["counts"][..., None],
        "example_weights": np.ones(ids.shape[:2], np.float32),
    }
    recipe = {
        "steps": len(expected),
        "batch_size": ids.shape[1],
        "optimizer": {"learning_rate": 1e-2, "epsilon": 1e-2},
        "schedule": {"type": "bert", "warmup_steps": 4},
    }
    encoder = configs.to_dict(configs.load(folder / "model"))["encoder"]
    encoder |= {"dropout": 0.0, "attention_dropout": 0.0}
    objectives = [{"type": "ranking", "dropout": 0.0, **TRAINED[name]}]
    config = configs.from_dict(
        {"name": "x", "encoder": encoder, "objectives": objectives, "recipe": recipe}
    )
    strategy = tf.distribute.get_strategy()
    model = strategies.build_model(config, strategy)
    warm_start.start_from(model, str(folder / "model"), "last", "encoder")
    head = model.objectives[0].output_projection
    head.kernel.assign(arrays["kernel"])
    head.bias.assign(arrays["bias"])
    before = {path: v.numpy() for path, v in model.variables_by_path().items()}
    optimizer = optimizers.make(config.recipe, len(expected), model)
    trained = train_step.TrainStep(model, optimizer, strategy, seed=0)
    sums = trained.run(iter(tf.data.Dataset.from_tensor_slices(fields)), len(expected)).sums
    losses = [trained.statistics.summarize(row[None], model.term_weights)["loss"] for row in sums]
    assert len(expected) == 20
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    systems.write_vocabulary(folder / name, "bert")
    after = huggingface.read(folder / name).variables
    after |= {"ranking/output/kernel": arrays["kernel_after"]}
    after |= {"ranking/output/bias": arrays["bias_after"]}
    moved = []
    for path, variable in model.variables_by_path().items():
        np.testing.assert_allclose(variable, after[path], rtol=0, atol=1e-5, err_msg=path)
        moved.append(np.abs(variable - before[path]).max())
    assert np.max(moved) > 1e-2
