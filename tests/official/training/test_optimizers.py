"""AdamW, StableAdamW and LAMB against written-out updates; faults of Keras' optimizers to avoid.

LAMB is also compared with trajectories of tensorflow-addons.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from official import config
from official.distribution import numerics
from official.modeling.model import Model
from official.saving import model_folder
from official.training import optimizers
from official.training.optimizers import base, moments
from official.utils import keras_private
from tests import GOLDEN, small
from tests.official.training import optimizer_variables
from tests.systems import SYSTEMS

RNG = np.random.default_rng(0)


def variables(dtype="float64"):
    shapes = {
        "kernel": (3, 4),
        "bias": (4,),
        "norm/scale": (4,),
        "table": (5, 2),
        "deep": (2, 2, 2),
    }
    result = []
    for name, shape in shapes.items():
        result.append(optimizer_variables.named(name, RNG.normal(size=shape).astype(dtype), dtype))
    return result


@pytest.fixture(params=["one_device", "mirrored"])
def strategy(request, mirrored):
    return tf.distribute.get_strategy() if request.param == "one_device" else mirrored(2)


@pytest.fixture(params=[0, moments.COMPILED_SIZE], ids=["compiled", "plain"])
def compiled_size(request, monkeypatch):
    monkeypatch.setattr(moments, "COMPILED_SIZE", request.param)


def numpy_adamw(values, gradients, rate, *, clip, decays, b1=0.9, b2=0.999, eps=1e-6, wd=0.01):
    """The release's update, written out."""
    values = [value.copy() for value in values]
    first = [np.zeros_like(value) for value in values]
    second = [np.zeros_like(value) for value in values]
    for step, grads in enumerate(gradients):
        norm = np.sqrt(sum((g**2).sum() for g in grads))
        factor = clip / max(norm, clip)
        for i, g in enumerate(grads):
            g = g * factor
            first[i] = b1 * first[i] + (1 - b1) * g
            second[i] = b2 * second[i] + (1 - b2) * g * g
            update = first[i] / (np.sqrt(second[i]) + eps)
            if decays[i]:
                update = update + wd * values[i]
            values[i] = values[i] - rate(step) * update
    return values


DECAYS = [True, False, False, True, True]  # of `variables`


def assert_follows(strategy, make, draw, steps, written_out):
    """Compares float64 updates with written-out ones; returns the optimizer.

    `make` returns an optimizer, `draw(shape, step)` a gradient, and `written_out(values,
    gradients)` the values that the variables should have.
    """
    keras.config.set_floatx("float64")
    try:
        with strategy.scope():
            ours = variables()
            optimizer = make()
            optimizer.build(ours)
        start = [np.array(v.numpy()) for v in ours]
        gradients = [[draw(v.shape, t) for v in start] for t in range(steps)]
        replicas = strategy.num_replicas_in_sync

        @tf.function
        def step(grads):
            # Each replica hands in its share of the sum.
            strategy.run(lambda: optimizer.apply([g / replicas for g in grads], ours))

        for grads in gradients:
            step([tf.constant(g) for g in grads])
        for variable, value in zip(ours, written_out(start, gradients), strict=True):
            np.testing.assert_allclose(variable.numpy(), value, rtol=1e-9, atol=1e-12)
        return optimizer
    finally:
        keras.config.set_floatx("float32")


class Falling(keras.optimizers.schedules.LearningRateSchedule):
    """1e-2 / (1 + fall * step)."""

    def __init__(self, fall):
        self.fall = fall

    def __call__(self, step):
        return 1e-2 / (1 + self.fall * keras.ops.cast(step, "float64"))


@pytest.mark.usefixtures("compiled_size")
def test_adamw_follows_the_closed_form_for_200_steps(strategy):
    optimizer = assert_follows(
        strategy,
        lambda: optimizers.AdamW(Falling(1), clip_norm=1.0),
        lambda shape, _: RNG.normal(size=shape) * 0.3,
        200,
        lambda start, gradients: numpy_adamw(
            start, gradients, lambda t: 1e-2 / (1 + t), clip=1.0, decays=DECAYS
        ),
    )
    assert int(optimizer.iterations.numpy()) == 200


def numpy_stable_adamw(values, gradients, rate, *, peak, decays, b1=0.9, b2=0.98, eps=1e-3, wd):
    """ModernBERT's release, written out."""
    values = [value.copy() for value in values]
    first = [np.zeros_like(value) for value in values]
    second = [np.zeros_like(value) for value in values]
    limited = 0
    for step, grads in enumerate(gradients):
        t = step + 1
        hat_1, hat_2 = ((b**t - b) / (b**t - 1) for b in (b1, b2))
        for i, g in enumerate(grads):
            first[i] = hat_1 * first[i] + (1 - hat_1) * g
            second[i] = hat_2 * second[i] + (1 - hat_2) * g * g
            r = np.sqrt(np.mean(g * g / np.maximum(second[i], eps**2)))
            eta = rate(step) / max(1.0, r)
            limited += r > 1
            if decays[i]:
                values[i] = values[i] * (1 - eta / peak * wd)
            values[i] = values[i] - eta * first[i] / (np.sqrt(second[i]) + eps)
    return values, limited


def test_stable_adamw_follows_the_written_out_release(strategy):
    peak = 1e-2
    settings = {"beta_1": 0.9, "beta_2": 0.98, "epsilon": 1e-3, "weight_decay": 0.02}

    def written_out(start, gradients):
        wanted, limited = numpy_stable_adamw(
            start, gradients, lambda t: peak / (1 + 0.1 * t), peak=peak, decays=DECAYS, wd=0.02
        )
        assert 30 < limited < 270
        return wanted

    assert_follows(
        strategy,
        lambda: optimizers.StableAdamW(Falling(0.1), peak=peak, clip_norm=0.0, **settings),
        # Of growing size; some are below epsilon at first.
        lambda shape, t: RNG.normal(size=shape) * 1e-4 * 1.2**t,
        60,
        written_out,
    )


def test_the_recipe_of_stable_adamw_has_no_clipping_and_its_own_decay():
    recipe = config.Recipe(
        steps=9, optimizer=config.Optimizer(type="stable_adamw", learning_rate=8e-4, beta_2=0.98)
    )
    settings = recipe.optimizer
    assert (settings.clip_norm, settings.weight_decay) == (0.0, 1e-5)
    with pytest.raises(ValueError, match="bias_correction: True: not supported for the type stab"):
        config.Optimizer(type="stable_adamw", bias_correction=True)
    model = Model(small.config())
    made = optimizers.make(recipe, 9, model)
    assert isinstance(made, optimizers.StableAdamW)
    assert (made.peak, made.beta_2, made.decay, made.clip_norm) == (8e-4, 0.98, 1e-5, 0.0)


@pytest.mark.usefixtures("compiled_size")
def test_bias_correction_is_that_of_adam():
    variable = keras.Variable(np.float32([1.0, -2.0]), name="kernel")
    optimizer = optimizers.AdamW(0.1, weight_decay=0.0, clip_norm=0.0, bias_correction=True)
    reference = keras.Variable(np.float32([1.0, -2.0]), name="kernel")
    adam = keras.optimizers.Adam(0.1, epsilon=1e-12)
    optimizer.epsilon = 1e-12
    optimizer.build([variable])
    for gradient in np.float32([[0.5, 1.0], [-1.0, 3.0], [0.1, 0.1]]):
        optimizer.apply([tf.constant(gradient)], [variable])
        adam.apply([tf.constant(gradient)], [reference])
    np.testing.assert_allclose(variable.numpy(), reference.numpy(), rtol=1e-5)


def lookup_gradient(table):
    """The gradient of a lookup of rows 1, 3, 1: slices, row 1 twice."""
    with tf.GradientTape() as tape:
        rows = tf.gather(table.value, [1, 3, 1])
        loss = tf.reduce_sum(rows * tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    gradient = tape.gradient(loss, table.value)
    assert isinstance(gradient, tf.IndexedSlices)
    return gradient


@pytest.mark.usefixtures("compiled_size")
def test_repeated_rows_are_summed_before_they_are_squared_and_clipped():
    dense = np.float32([[0, 0], [6, 8], [0, 0], [3, 4]])
    results = []
    for gradient in (lookup_gradient, lambda table: tf.constant(dense)):
        table = keras.Variable(np.ones((4, 2), "float32"), name="table")
        optimizer = optimizers.AdamW(0.1, clip_norm=1.0)
        optimizer.build([table])
        optimizer.apply([gradient(table)], [table])
        results.append((table.numpy(), optimizer.gradient_norm.numpy()))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    # 6² + 8² + 3² + 4²; Keras takes 1² + 2² + ... of the slices.
    assert results[0][1] == pytest.approx(np.sqrt(125.0), rel=1e-6)


@pytest.mark.usefixtures("compiled_size")
def test_clipping_comes_after_the_sum_over_replicas(mirrored):
    strategy = mirrored(2)
    with strategy.scope():
        variable = keras.Variable(np.zeros(2, "float32"), name="kernel")
        optimizer = optimizers.AdamW(1.0, weight_decay=0.0, clip_norm=1.0)
        optimizer.build([variable])
        shares = tf.constant([[30.0, 40.0], [-30.0, -36.0]])

    @tf.function
    def step():
        def replica():
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            optimizer.apply([shares[number]], [variable])

        strategy.run(replica)

    step()
    # The sum is (0, 4), clipped to (0, 1). Clipping the shares first would give (0, 0.03).
    assert optimizer.gradient_norm.numpy() == pytest.approx(4.0)
    moment = optimizer.slots()[f"{variable.path}/m"].numpy()
    np.testing.assert_allclose(moment, [0.0, 0.1], rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_one_bad_replica_stops_the_update_of_all(bad, mirrored):
    strategy = mirrored(2)
    with strategy.scope():
        kernel = keras.Variable(np.ones(2, "float32"), name="kernel")
        bias = keras.Variable(np.ones(1, "float32"), name="bias")
        optimizer = optimizers.AdamW(1.0)
        optimizer.build([kernel, bias])

    @tf.function
    def step(value):
        def replica():
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            share = tf.where(number == 1, value, 1.0)  # replica 1 alone is bad
            optimizer.apply([tf.ones(2), tf.reshape(share, [1])], [kernel, bias])

        strategy.run(replica)

    step(tf.constant(bad, tf.float32))
    before = {path: v.numpy() for path, v in optimizer.slots().items()}
    for copy in (*kernel.value.values, *bias.value.values):
        np.testing.assert_array_equal(copy.numpy(), np.ones(copy.shape))
    assert all((value == 0).all() for value in before.values())
    assert not np.isfinite(optimizer.gradient_norm.numpy())
    assert optimizer.bad_variable.numpy() == 1
    assert optimizer.iterations.numpy() == 1
    step(tf.constant(1.0))
    assert optimizer.bad_variable.numpy() == -1
    assert (kernel.numpy() != 1).all() and (bias.numpy() != 1).all()


def test_paths_name_every_variable():
    result = variables("float32")
    optimizer = optimizers.AdamW(0.1)
    optimizer.build(result)
    named = optimizer.variables_by_path()
    assert {id(v) for v in named.values()} == {id(v) for v in optimizer.variables}
    assert {"kernel/m", "kernel/v", "norm/scale/m", "iteration"} <= set(named)


def test_weight_decay_leaves_norms_and_biases_alone():
    result = variables("float32")
    optimizer = optimizers.AdamW(0.1)
    optimizer.build(result)
    before = [variable.numpy() for variable in result]
    optimizer.apply([tf.zeros(variable.shape) for variable in result], result)
    decayed = [v.path for v, old in zip(result, before, strict=True) if (v.numpy() != old).any()]
    assert decayed == ["kernel", "table", "deep"]


@pytest.mark.parametrize("make", [optimizers.AdamW, optimizers.LAMB])
@pytest.mark.parametrize("bias_correction", [False, True])
def test_a_head_without_examples_is_as_if_there_had_been_no_step(make, bias_correction, strategy):
    """Its weights go the way of a run that has its own steps alone."""
    gradients = RNG.normal(size=(6, 4)).astype("float32")
    asked = [True, False, False, True, False, True]

    def run(steps, heads):
        with strategy.scope():
            ones = np.ones(4, "float32")
            result = {
                name: optimizer_variables.named(f"{name}/kernel", ones, "float32") for name in "ab"
            }
            optimizer = make(
                0.1, weight_decay=0.5, clip_norm=0.0, bias_correction=bias_correction, heads=heads
            )
            optimizer.build(list(result.values()))

        @tf.function
        def step(gradient, is_asked):
            share = gradient / strategy.num_replicas_in_sync
            told = {"b": is_asked} if heads else {}
            strategy.run(lambda: optimizer.apply([share, share], list(result.values()), told))

        for number in steps:
            step(tf.constant(gradients[number]), tf.constant(asked[number]))
        named = {**optimizer.slots(), **{v.path: v for v in result.values()}}
        return {path: v.numpy() for path, v in named.items()}

    actual = run(range(6), {"b/kernel": "b"})
    whole, alone = run(range(6), {}), run([0, 3, 5], {})
    for path, value in actual.items():
        expected = (alone if path.startswith("b/") else whole)[path]
        np.testing.assert_array_equal(value, expected, err_msg=path)
    assert (whole["b/kernel"] != alone["b/kernel"]).all()


NAMES = ["kernel", "bias", "norm/offset", "table", "deep"]
# As in make_lamb_golden.py.
SETTINGS = {
    "albert": dict(weight_decay=0.01, no_decay=["bias", "norm"]),
    "no_decay": dict(weight_decay=0.0, no_decay=[]),
    "apart": dict(
        beta_1=0.8,
        beta_2=0.98,
        epsilon=1e-3,
        weight_decay=0.1,
        no_decay=["bias"],
        no_adaptation=["deep", "^norm"],
    ),
}


@pytest.fixture
def float64():
    numerics.set_precision("float64")
    yield
    numerics.set_precision("float32")


@pytest.fixture(scope="module")
def golden():
    return dict(np.load(GOLDEN / "lamb.npz"))


def named(name, value):
    return optimizer_variables.named(name, value, "float64")


def trajectory(strategy, golden, **settings):
    """The tensors after each update, [200, ...] by name, one array for each replica's copy."""
    with strategy.scope():
        variables = [named(name, golden[f"start/{name}"]) for name in NAMES]
        optimizer = optimizers.LAMB(
            optimizer_variables.Listed(golden["rates"]), clip_norm=0.0, **settings
        )
        optimizer.build(variables)
    replicas = strategy.num_replicas_in_sync

    @tf.function
    def step(gradients):
        # Each replica hands in its share of the sum.
        strategy.run(lambda: optimizer.apply([g / replicas for g in gradients], variables))

    actual = {name: [] for name in NAMES}
    for number in range(len(golden["rates"])):
        step([tf.constant(golden[f"gradients/{name}"][number]) for name in NAMES])
        for name, variable in zip(NAMES, variables, strict=True):
            copies = strategy.experimental_local_results(variable.value)
            actual[name].append([copy.numpy() for copy in copies])
    return {name: np.moveaxis(np.array(values), 1, 0) for name, values in actual.items()}


def assert_near(ours, theirs, rtol):
    """Against the largest entry: the smallest are differences of larger ones."""
    np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol * np.abs(theirs).max())


@pytest.mark.parametrize("setting", SETTINGS)
def test_follows_tensorflow_addons_for_200_steps(golden, float64, setting):
    one_device = tf.distribute.get_strategy()
    ours = trajectory(one_device, golden, bias_correction=True, **SETTINGS[setting])
    for name in NAMES:
        theirs = golden[f"{setting}/{name}"]
        assert theirs.shape[0] == 200
        assert_near(ours[name][0], theirs, 1e-10)
        assert np.abs(theirs[-1] - golden[f"start/{name}"]).max() > 0.005  # It went somewhere.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "changes", "settings"),
    [
        # Biases have ratios, too.
        ("bert", {}, {"weight_decay": 0.01, "no_decay": []}),
        ("albert", {"layer_groups": 1, "embedding_size": 4}, SETTINGS["albert"]),
    ],
    ids=["bert", "albert"],
)
def test_whole_blocks_move_as_with_the_variables_of_the_release(float64, model, changes, settings):
    stored = np.load(GOLDEN / "lamb_blocks.npz")
    start, patterns = (
        {n.removeprefix(head): stored[n].astype(float) for n in stored if n.startswith(head)}
        for head in (f"{model}/start/", f"{model}/patterns/")
    )
    sizes, rates = stored["sizes"], optimizer_variables.Listed(stored["rates"])
    variables = optimizer_variables.bert_block(**changes).trainable_variables
    optimizer = optimizers.LAMB(rates, clip_norm=0.0, bias_correction=True, **settings)
    ours = optimizer_variables.train(
        optimizer, variables, start, lambda name, i: sizes[i] * patterns[name][i % 5], len(sizes)
    )
    for step, actual in enumerate(ours, start=1):
        assert actual.keys() == start.keys()
        for name in start if step in (20, 200) else ():
            assert_near(actual[name], stored[f"{model}/{step}/{name}"], 1e-10)


@pytest.mark.parametrize("name", ["bert", *SYSTEMS])
def test_every_system_declares_the_matrices_that_it_joins(name):
    config = small.config(**SYSTEMS.get(name, {}))
    with keras_private.uninitialized_variables():
        variables = model_folder.build(config).trainable_variables
    for variable in variables:
        layer = variable.path.split("/")[-2]
        parts = optimizer_variables.JOINED.get(layer, (layer,))
        assert base.count_blocks(variable) == len(parts), variable.path


def test_two_replicas_are_one_device(golden, float64, mirrored):
    both = trajectory(mirrored(2), golden, bias_correction=True, **SETTINGS["apart"])
    for name in NAMES:
        first, second = both[name]
        np.testing.assert_array_equal(first, second)
        assert_near(first, golden[f"apart/{name}"], 1e-10)


def by_hand(golden, name, *, decay, adapted, b1=0.9, b2=0.999, eps=1e-6):
    """One tensor under the release's update, which corrects no bias."""
    weights, actual = golden[f"start/{name}"].copy(), []
    first, second = np.zeros_like(weights), np.zeros_like(weights)
    for gradient, rate in zip(golden[f"gradients/{name}"], golden["rates"], strict=True):
        first = b1 * first + (1 - b1) * gradient
        second = b2 * second + (1 - b2) * gradient**2
        update = first / (np.sqrt(second) + eps) + decay * weights
        lengths = np.sqrt((weights**2).sum()), np.sqrt((update**2).sum())
        ratio = lengths[0] / lengths[1] if adapted and min(lengths) > 0 else 1.0
        weights = weights - rate * ratio * update
        actual.append(weights)
    return np.array(actual)


def test_without_bias_correction_it_is_the_update_of_alberts_release(golden, float64):
    ours = trajectory(tf.distribute.get_strategy(), golden, **SETTINGS["albert"])
    for name in NAMES:
        excluded = name in ("bias", "norm/offset")
        decay = 0.0 if excluded else 0.01
        assert_near(ours[name][0], by_hand(golden, name, decay=decay, adapted=not excluded), 1e-10)
        assert np.abs(ours[name][0] - golden[f"albert/{name}"]).max() > 1e-3  # Not the other.


def test_where_a_norm_is_zero_the_ratio_is_one():
    for start, gradient, moved in (([0.0, 0.0], [3.0, -4.0], 1.0), ([3.0, 4.0], [0.0, 0.0], 0.0)):
        weights = keras.Variable(np.float32(start), name="kernel")
        optimizer = optimizers.LAMB(0.1, weight_decay=0.0, clip_norm=0.0, bias_correction=True)
        optimizer.build([weights])
        optimizer.apply([tf.constant(gradient)], [weights])
        # The first corrected step of Adam is the sign of the gradient.
        wanted = np.float32(start) - 0.1 * moved * np.sign(gradient)
        np.testing.assert_allclose(weights.numpy(), wanted, rtol=1e-5)


def test_the_length_of_an_update_goes_by_that_of_the_weights():
    weights = keras.Variable(np.float32([3.0, 4.0]), name="kernel")
    optimizer = optimizers.LAMB(0.1, weight_decay=0.0, clip_norm=0.0)
    optimizer.build([weights])
    for gradient in ([1.0, 2.0], [-30.0, 0.1], [0.0, 1e-3]):
        before = weights.numpy()
        optimizer.apply([tf.constant(gradient)], [weights])
        moved = np.linalg.norm(weights.numpy() - before)
        assert moved == pytest.approx(0.1 * np.linalg.norm(before), rel=1e-5)


def test_a_gradient_that_is_not_finite_changes_nothing():
    weights = keras.Variable(np.float32([3.0, 4.0]), name="kernel")
    optimizer = optimizers.LAMB(0.1)
    optimizer.build([weights])
    optimizer.apply([tf.constant([np.nan, 1.0])], [weights])
    np.testing.assert_array_equal(weights.numpy(), [3.0, 4.0])
    assert all((slot.numpy() == 0).all() for slot in optimizer.slots().values())
    assert set(optimizer.slots()) == {f"{weights.path}/m", f"{weights.path}/v"}
