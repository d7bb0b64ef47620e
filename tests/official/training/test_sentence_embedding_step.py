"""Steps of vectors of texts: two devices, and cached vectors, change nothing."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.config.encoders import TransformerConfig
from official.config.late_interaction import Expansion, LateInteractionConfig, TokenIds
from official.config.sentence_embedding import Projection, SentenceEmbeddingConfig
from official.config.sparse_embedding import SparseEmbeddingConfig
from official.data import ShardDataset
from official.distribution import numerics, strategies
from official.saving import checkpoints, named_arrays
from official.training import optimizers, train_step
from official.training.train_step import TrainStep
from official.training.trainer import Trainer
from official.utils.errors import UserError
from tests import embedding_tasks

ENCODER = TransformerConfig(
    vocab_size=30, hidden_size=8, num_layers=1, num_heads=2, intermediate_size=16,
    max_positions=8, dropout=0.2, attention_dropout=0.2, initializer_range=0.5, pooler=False,
)  # fmt: skip
ROWS, LENGTH, STEPS = 8, 7, 2
RECIPE = configs.Recipe(
    steps=10, batch_size=ROWS, optimizer=configs.Optimizer(learning_rate=0.1, clip_norm=1.0)
)
SPARSE = {"type": SparseEmbeddingConfig, "document_flops": 0.3, "query_flops": 0.2, "ramp_steps": 2}
# The options of the objective, and the number of texts of an example.
CASES = {
    "hard_negatives": ({"symmetric": True, "hard_negative_weight": 0.3}, 3),
    "text_alone": ({"pooling": "first", "projection": Projection(keep=False)}, 1),
    "ordered": ({"loss": "cosent", "sizes": (4, 8), "scale": 5.0}, 2),
    "tokens": ({"size": 3, "ids": TokenIds((2,), (3,), 4, (6, 7)), "expansion": Expansion(8)}, 3),
    "sparse": (SPARSE, 3),
}


@pytest.fixture
def float64():
    numerics.set_precision("float64")
    yield
    numerics.set_precision("float32")


def batches(count):
    rng = np.random.default_rng(3)
    for _ in range(STEPS):
        real = np.arange(LENGTH) < rng.integers(3, LENGTH + 1, (ROWS, count, 1))
        weights = np.ones(ROWS, "float32")
        weights[5] = 0
        yield {
            "token_ids": (rng.integers(5, 30, (ROWS, count, LENGTH)) * real).astype("int32"),
            "segment_ids": np.zeros((ROWS, count, LENGTH), "int32"),
            "padding_mask": real,
            "score": rng.random(ROWS).astype("float32"),
            "example_weights": weights,
        }


def objective_of(options):
    options = dict(options)
    kind = LateInteractionConfig if "ids" in options else SentenceEmbeddingConfig
    return options.pop("type", kind)(**options)


def train(strategy, options, count, jit_compile=False):
    """The variables after some steps, and the statistics and norms of the steps."""
    objective = objective_of(options)
    config = configs.Config("x", encoder=ENCODER, objectives=(objective,), recipe=RECIPE)
    resolved = configs.ResolvedConfig.of(config)
    model = strategies.build_model(resolved, strategy)
    with strategy.scope():
        optimizer = optimizers.make(RECIPE, 10, model)
    step = TrainStep(model, optimizer, strategy, seed=1, jit_compile=jit_compile)
    replicas = strategy.num_replicas_in_sync
    share = ROWS // replicas
    run = tf.function(lambda batch: strategy.run(step.replica_step, (batch,)), autograph=False)
    rows = []
    for batch in batches(count):
        value = strategy.experimental_distribute_values_from_function(
            lambda context, batch=batch: {
                name: tf.constant(each[context.replica_id_in_sync_group * share :][:share])
                for name, each in batch.items()
            }
        )
        rows.append(strategy.experimental_local_results(run(value))[0].numpy())
    state = {path: variable.numpy() for path, variable in model.variables_by_path().items()}
    return state, np.array(rows), step


def assert_same(result, expected):
    np.testing.assert_allclose(result[1], expected[1], rtol=1e-9)
    for path, value in expected[0].items():
        np.testing.assert_allclose(result[0][path], value, rtol=1e-7, atol=1e-9, err_msg=path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hard_negatives", pytest.param("tokens", marks=pytest.mark.long)])
def test_cached_vectors_have_the_plain_gradient(float64, name):
    one = tf.distribute.get_strategy()
    options, count = CASES[name]
    plain = train(one, options, count)
    start = strategies.build_model(
        configs.ResolvedConfig.of(
            configs.Config("x", encoder=ENCODER, objectives=(objective_of(options),))
        ),
        one,
    )
    moved = plain[0]["encoder/layer_0/attention/query_key_value/kernel"]
    before = start.variables_by_path()["encoder/layer_0/attention/query_key_value/kernel"]
    assert np.abs(moved - before.numpy()).max() > 0.01
    assert plain[2].statistics.names[0] == f"loss/{objective_of(options).type}"
    assert_same(train(one, {**options, "cached_rows": 2}, count), plain)


@pytest.mark.slow
@pytest.mark.long
def test_regularizers_of_sparse_vectors_rise_with_the_steps(float64):
    one = tf.distribute.get_strategy()
    plain = {**SPARSE, "document_flops": 0.0, "query_flops": 0.0}
    risen = train(one, SPARSE, 3)
    cached = train(one, {**SPARSE, "cached_rows": 4}, 3)
    assert_same(cached, risen)
    names = risen[2].statistics.names
    norms = [train(one, each, 3)[1][:, -2] for each in (plain, {**SPARSE, "ramp": "none"})]
    assert risen[1][0, -2] == norms[0][0] != norms[1][0]  # the first update has none
    assert risen[1][1, -2] not in (norms[0][1], norms[1][1])
    assert "loss/sparse_embedding_document_flops" in names


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_two_devices_and_cached_vectors_change_nothing(float64, mirrored, name):
    one, two = tf.distribute.get_strategy(), mirrored(2)
    options, count = CASES[name]
    plain = train(one, options, count)
    assert_same(train(two, options, count), plain)
    if name != "hard_negatives":
        assert_same(train(one, {**options, "cached_rows": 2}, count), plain)
    assert_same(train(two, {**options, "cached_rows": 2}, count), plain)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.xla
def test_passes_of_cached_vectors_are_compiled(float64, mirrored):
    options, count = CASES["hard_negatives"]
    plain = train(tf.distribute.get_strategy(), options, count)
    compiled = train(mirrored(2), {**options, "cached_rows": 4}, count, jit_compile=True)
    assert_same(compiled, plain)
    assert compiled[2]._compute != compiled[2]._gradients
    # Without cached vectors, what the replicas exchange is in the middle of the step.
    plain_step = train(mirrored(2), options, count, jit_compile=True)[2]
    assert plain_step._compute == plain_step._gradients


@pytest.mark.slow
@pytest.mark.long
def test_cached_rows_are_the_most_that_divide_the_examples(float64):
    """Of 8 examples, 4 at a time for at most 5, and all of them at once for more than 8."""
    one = tf.distribute.get_strategy()
    options, count = CASES["hard_negatives"]
    plain = train(one, options, count)
    assert_same(train(one, {**options, "cached_rows": 5}, count), plain)
    at_once = train(one, {**options, "cached_rows": 32}, count)
    assert_same(at_once, plain)


@pytest.mark.parametrize(
    ("rows", "most", "share"),
    [(128, 32, 32), (48, 32, 24), (34, 32, 17), (20, 32, 20), (47, 32, None), (3, 1, 1)],
)
def test_rows_that_are_computed_at_once(rows, most, share):
    assert train_step.share_of(rows, most) == share


def test_cached_rows_that_do_not_divide_the_examples(monkeypatch):
    monkeypatch.setattr(train_step, "share_of", lambda rows, most: None)
    with pytest.raises(UserError, match="cached_rows: 3: neither this nor .* the 8 examples of a"):
        train(tf.distribute.get_strategy(), {"cached_rows": 3}, 2)


@pytest.mark.slow
@pytest.mark.long
def test_a_run_of_two_devices_with_cached_rows_goes_on(float64, mirrored, tmp_path):
    """Of shards: the weights of one device, and again those of a run that was stopped."""
    embedding_tasks.shards(tmp_path / "triples", embedding_tasks.TRIPLES, train=60)

    def trainer(name, strategy, **options):
        raw = {"type": "sentence_embedding", "symmetric": True, **options}
        recipe = {"steps": 6, "batch_size": 8, "save_every": 3, "precision": "float64"}
        read = embedding_tasks.config(**{f"recipe__{k}": v for k, v in recipe.items()})
        plain = configs.to_dict(read)
        encoder = {**plain["encoder"], "vocab_size": 125, "dropout": 0.1}
        read = configs.from_dict({**plain, "objectives": [raw], "encoder": encoder})
        read = configs.ResolvedConfig.of(read)
        source = ShardDataset(tmp_path / "triples", read, "train", training=True)
        model = strategies.build_model(read, strategy)
        return Trainer(read, model, source, strategy, tmp_path / name, report=lambda line: None)

    results = {}
    for name, strategy, options in (
        ("one", tf.distribute.get_strategy(), {}),
        ("two", mirrored(2), {"cached_rows": 2}),
        ("two", mirrored(2), {"cached_rows": 2}),
    ):
        run = trainer(name, strategy, **options)
        start = named_arrays.values(run.variables)
        run.train()
        result = named_arrays.values(run.variables)
        if results.get(name):  # went on from the checkpoint of step 3
            for path, value in results[name].items():
                np.testing.assert_array_equal(result[path], value, err_msg=path)
        results[name] = result
        last = checkpoints.find(tmp_path / name, "last")
        assert checkpoints.load_state(last)["total_steps"] == 6
        shutil.rmtree(last)
    for path, value in results["one"].items():
        np.testing.assert_allclose(results["two"][path], value, rtol=1e-7, atol=1e-9, err_msg=path)
    moved = [path for path, value in start.items() if abs(value - result[path]).max() > 1e-4]
    assert any(path.startswith("encoder/layer_0/") for path in moved)
