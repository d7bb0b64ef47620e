"""Runs of generator and discriminator: shared out, compiled, evaluated, fine-tuned."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official import tokenizers
from official.data import ShardDataset
from official.distribution import strategies
from official.saving import checkpoints, model_folder, warm_start
from official.training import resolve
from official.utils.errors import UserError
from tests import small
from tests.official.training.test_trainer import losses, precision, trainer, weights

OBJECTIVES = [{"type": "generator", "size": 0.5}, {"type": "replaced_tokens"}]
CORRUPTION = {
    "type": "token_masks", "max_predictions": 5, "mask_prob": 0.85, "random_prob": 0.0,
}  # fmt: skip


def electra(**changes):
    return small.config(
        **{
            "objectives": OBJECTIVES,
            "corruption": CORRUPTION,
            "encoder__pooler": False,
            **changes,
        }
    )


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return small.shard_folder(tmp_path_factory.mktemp("shards") / "train", electra())


@pytest.fixture(scope="module")
def pretrained(shards, tmp_path_factory):
    training = trainer(electra(), shards, tmp_path_factory.mktemp("runs") / "pretrained")
    training.train()
    return training


def test_the_reader_seeds_each_example(shards):
    source = ShardDataset(shards, electra(), training=True)
    assert (
        "row_seeds" in source.fields
        and "row_seeds" not in ShardDataset(shards, small.config()).fields
    )
    batches = [b["row_seeds"].numpy() for b in source.dataset(20).take(6)]  # two epochs of 60
    assert batches[0].shape == (20, 2) and batches[0].dtype == np.int32
    assert len({tuple(seed) for seeds in batches for seed in seeds}) == 120
    halves = source.dataset(20, replicas_per_worker=2).take(2)
    np.testing.assert_array_equal(np.concatenate([b["row_seeds"] for b in halves]), batches[0])


@pytest.mark.slow
@pytest.mark.long
def test_accumulation_changes_nothing(shards, tmp_path):
    """Twenty steps in float64: the draws too belong to the example, not to its place.

    `test_systems` shares the steps out over replicas.
    """
    config = small.replace(electra(recipe__precision="float64"), steps=20, report_every=1)
    with precision("float64"):
        one = trainer(config, shards, tmp_path / "one")
        one.train()
        two = trainer(small.replace(config, accumulation=2), shards, tmp_path / "two")
        two.train()
        expected, actual = weights(one), weights(two)
    assert expected.keys() == actual.keys()
    for path, value in expected.items():
        scale = max(np.abs(value).max(), 1e-300)
        assert np.abs(actual[path] - value).max() <= 1e-9 * scale, path
    curve = losses(tmp_path / "one")
    assert curve[20] < curve[1] - 0.1
    np.testing.assert_allclose(
        list(losses(tmp_path / "two").values()), list(curve.values()), rtol=1e-9
    )


@pytest.mark.slow
@pytest.mark.long
def test_jit_compile_in_the_recipe(shards, tmp_path):
    config = small.replace(electra(), report_every=1, jit_compile=True)
    trainer(config, shards, tmp_path).train()
    curve = losses(tmp_path)
    assert len(curve) == 6 and all(np.isfinite(loss) for loss in curve.values())


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=pytest.mark.long)])
def test_evaluation_measures_the_area_under_the_curve(shards, tmp_path, mirrored, replicas):
    config = small.replace(electra(), eval_batch_size=20)
    source = ShardDataset(shards, config)
    actual = trainer(config, shards, tmp_path / "one").evaluator.run(source)
    assert 0 < actual["replaced_tokens_auc"] < 1 and 0 < actual["replaced_tokens_rate"] < 0.3
    assert actual["loss"] == pytest.approx(actual["generator"] + 50 * actual["replaced_tokens"])
    if replicas > 1:
        again = trainer(config, shards, tmp_path / "two", mirrored(replicas)).evaluator.run(source)
        assert again == pytest.approx(actual, rel=1e-5)


@pytest.mark.slow
def test_fine_tuning_takes_the_discriminator_alone(pretrained):
    tuned = configs.from_dict(
        {
            "name": "tuned",
            "objectives": [{"type": "classification", "num_labels": 2, "pooling": "first"}],
            "recipe": {"epochs": 1},
        }
    )
    tuned = resolve.inherit(tuned, pretrained.config)
    model = strategies.build_model(tuned, pretrained.strategy)
    model_dir = str(pretrained.model_dir)
    count, fresh = warm_start.start_from(model, model_dir, "last", tuned.recipe.init_weights)
    assert fresh == ["classification"]
    assert count == len(model.encoder.weights) == len(pretrained.model.encoder.weights)
    assert not [path for path in model.variables_by_path() if path.startswith("generator/")]
    saved = checkpoints.load_variables(model_dir, "last")
    for path, variable in model.variables_by_path().items():
        if path.startswith("encoder/"):
            np.testing.assert_array_equal(variable, saved[path], err_msg=path)


def written_out(model, batches, decoupled):
    """Trains with two of Keras' optimizers, or with one for the sum of the losses."""
    generator, head = model.objectives
    own = generator.trainable_variables
    rest = [*model.encoder.trainable_variables, *head.trainable_variables]

    def optimizer(rate, variables):
        made = keras.optimizers.AdamW(
            rate, 0.1, beta_1=0.875, beta_2=0.9375, epsilon=1e-6, global_clipnorm=0.5
        )
        made.build(variables)
        return made

    def mean(objective, batch, encoded):
        losses, sums = objective.terms(batch, encoded, None).losses, objective.weight_sums(batch)
        return objective.config.weight * losses[objective.name] / sums[objective.name]

    if decoupled:
        optimizers = optimizer(4e-3, own), optimizer(1e-2, rest)
    else:
        both = optimizer(1e-2, [*own, *rest])
    for batch in batches:
        with tf.GradientTape() as tape:
            drawn = generator.prepare(batch)
            loss = mean(generator, drawn, {})
            if not decoupled:
                loss += mean(head, drawn, model.encode(drawn))
        if not decoupled:
            both.apply(tape.gradient(loss, [*own, *rest]), [*own, *rest])
            continue
        optimizers[0].apply(tape.gradient(loss, own), own)
        with tf.GradientTape() as tape:  # reads the table after its update
            loss = mean(head, drawn, model.encode(drawn))
        optimizers[1].apply(tape.gradient(loss, rest), rest)
    return {path: variable.numpy() for path, variable in model.variables_by_path().items()}


@pytest.mark.slow
@pytest.mark.long
def test_decoupled_updates_are_those_of_two_optimizers(shards, tmp_path):
    """Three steps in float64, in two parts each; then one whose discriminator is not finite."""
    generator = {"type": "generator", "size": 1.0, "sharing": "gdes"}
    decoupled = {**generator, "decoupled": True, "rate_factor": 0.4}
    optimizer = {
        "learning_rate": 1e-2, "beta_1": 0.875, "beta_2": 0.9375, "weight_decay": 0.1,
        "no_decay": [], "clip_norm": 0.5, "bias_correction": True,
    }  # fmt: skip
    changes = {
        "encoder__dropout": 0.0, "encoder__attention_dropout": 0.0,
        "recipe__precision": "float64", "recipe__optimizer": optimizer,
        "recipe__schedule": {"type": "constant"}, "recipe__accumulation": 2,
    }  # fmt: skip
    config = electra(objectives=[decoupled, OBJECTIVES[1]], **changes)
    with precision("float64"):
        training = trainer(config, shards, tmp_path)
        step, model = training.train_step, training.model
        data = training.source.dataset(8)
        one = tf.distribute.get_strategy()
        expected, joint = (
            written_out(strategies.build_model(config, one), data.take(3), decoupled)
            for decoupled in (True, False)
        )
        iterator = iter(data)
        taken = step.run(iterator, 3)
        actual = {path: variable.numpy() for path, variable in model.variables_by_path().items()}
        assert taken.bad_variables.tolist() == [-1] * 3
        assert training.optimizer.iterations.numpy() == 3
        for path, value in expected.items():
            np.testing.assert_allclose(actual[path], value, rtol=0, atol=1e-9, err_msg=path)
            if path.endswith(("kernel", "table", "delta")):
                assert np.abs(joint[path] - value).max() > 1e-5, path
        model.objectives[1].output_projection.bias.assign([np.nan])
        taken = step.run(iterator, 1)
        assert np.isnan(taken.gradient_norms).all()
        bad = step.updated[taken.bad_variables[0]].path
        assert bad.startswith(("model/encoder/", "model/replaced_tokens/"))
        for path, variable in model.variables_by_path().items():
            moved = not np.array_equal(variable, actual[path], equal_nan=True)
            assert moved == path.startswith("generator/") or path.endswith("output/bias"), path


@pytest.mark.slow
@pytest.mark.long
def test_disentangled_sharing_trains_two_tables_and_leaves_one(shards, tmp_path):
    gdes = {"type": "generator", "size": 1.0, "sharing": "gdes", "decoupled": True}
    head = {"type": "replaced_tokens", "form": "deberta"}
    config = electra(objectives=[gdes, head], recipe__save_every=3)
    training = trainer(config, shards, tmp_path / "whole")
    training.train()
    expected = weights(training)
    delta = "encoder/embeddings/token_embedding/delta"
    table = "encoder/embeddings/token_embedding/table"
    base = expected[f"generator/{table}"]
    assert np.abs(expected[delta]).max() > 1e-3 and table not in expected
    assert f"optimizer/model/{delta}/m" in expected
    # A run that is stopped after three steps goes on to the same weights.
    stopped = trainer(config, shards, tmp_path / "stopped")
    stopped.total_steps = 3
    stopped.train()
    trainer(config, shards, tmp_path / "stopped").train()
    saved = checkpoints.load_variables(tmp_path / "stopped", "last", optimizer=True)
    assert saved.keys() == expected.keys()
    for path, value in expected.items():
        np.testing.assert_array_equal(saved[path], value, err_msg=path)
    # Others find the sum.
    tuned = configs.from_dict(
        {
            "name": "tuned",
            "objectives": [{"type": "classification", "num_labels": 2, "pooling": "first"}],
            "recipe": {"epochs": 1},
        }
    )
    model = strategies.build_model(resolve.inherit(tuned, config), training.strategy)
    warm_start.start_from(model, str(tmp_path / "whole"), "last", "encoder")
    np.testing.assert_array_equal(model.variables_by_path()[table], base + expected[delta])
    ids = {"token_ids": np.array([[2, 7, 9, 3]], "int32")}
    np.testing.assert_allclose(
        model.encode(ids)["sequence_output"],
        training.model.encode(ids)["sequence_output"],
        atol=1e-6,
    )
    # What is served has the sum, and the encoder needs nothing of the generator.
    tokenizers.load(shards / "tokenizer").save(tmp_path / "whole" / "tokenizer")
    configs.save(config, tmp_path / "whole" / model_folder.CONFIG)
    restored = model_folder.restore(tmp_path / "whole", "last", finished=True)[2]
    variables = restored.variables_by_path()
    assert delta not in variables
    np.testing.assert_array_equal(variables[table], base + expected[delta])
    np.testing.assert_allclose(
        restored.encode(ids)["sequence_output"], model.encode(ids)["sequence_output"], atol=1e-6
    )


def test_replaced_tokens_without_a_generator_are_refused():
    with pytest.raises(UserError) as caught:
        electra(objectives=OBJECTIVES[1:])
    assert (
        "config: objectives.0: replaced_tokens needs replaced, which neither segments nor "
        "corruption nor another objective provides (they provide masked_ids, masked_positions, "
    ) in str(caught.value)
    assert str(caught.value).endswith("; the objective generator gives replaced")


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    "objectives",
    [
        [
            {"type": "generator", "size": 0.5},
            {"type": "masked_lm"},
            {"type": "all_tokens_lm"},
            {"type": "replaced_tokens", "tokens": "masked"},
        ],
        [
            {"type": "generator", "size": 0.5, "baseline": True, "weight": 0.0},
            {"type": "replaced_tokens", "adversarial_weight": 1.0},
        ],
    ],
    ids=["replace_mlm, all_tokens_mlm and masked_only", "adversarial"],
)
def test_each_variant_learns_the_same_on_two_replicas(objectives, shards, tmp_path, mirrored):
    config = electra(objectives=objectives, recipe__precision="float64")
    config = small.replace(config, steps=3, report_every=1)
    with precision("float64"):
        one = trainer(config, shards, tmp_path / "one")
        start = weights(one)
        one.train()
        two = trainer(config, shards, tmp_path / "two", mirrored(2))
        two.train()
        expected, actual = weights(one), weights(two)
    for path, value in expected.items():
        scale = max(np.abs(value).max(), 1e-300)
        assert np.abs(actual[path] - value).max() <= 1e-9 * scale, path
        if path.endswith("kernel") and not path.startswith("optimizer/"):
            assert (value != start[path]).any(), path


@pytest.mark.slow
@pytest.mark.long
def test_two_stages(shards, tmp_path):
    """The generator alone; then the encoder, from the same weights, against it frozen."""
    first = electra(objectives=[{"type": "masked_lm"}])
    trainer(first, shards, tmp_path / "first").train()
    stage = checkpoints.load_variables(tmp_path / "first", "last")
    frozen = {"type": "generator", "size": 1.0, "sharing": "none", "frozen": True}
    second = electra(
        objectives=[frozen, {"type": "replaced_tokens"}], recipe__init_weights="generator"
    )
    with pytest.raises(UserError, match="--init is missing: a frozen generator is one that was tr"):
        resolve.inherit(second)
    training = trainer(second, shards, tmp_path / "second")
    count, _ = warm_start.start_from(training.model, str(tmp_path / "first"), "last", "generator")
    encoder = {path for path in stage if path.startswith("encoder/")}
    assert count == len(stage) + len(encoder)
    start = weights(training)
    for path, value in stage.items():
        np.testing.assert_array_equal(start[f"generator/{path}"], value, err_msg=path)
        if path in encoder:
            np.testing.assert_array_equal(start[path], value, err_msg=path)
    training.train()
    saved = checkpoints.load_variables(tmp_path / "second", "last", optimizer=True)
    for path, value in stage.items():
        np.testing.assert_array_equal(saved[f"generator/{path}"], value, err_msg=path)
    moved = [path for path in encoder if (saved[path] != stage[path]).any()]
    assert len(moved) > len(encoder) - 3
    assert not [path for path in saved if path.startswith("optimizer/model/generator/")]
