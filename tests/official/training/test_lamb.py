"""LAMB against trajectories of tensorflow-addons, and against the release's update written out."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from official.distribution import numerics
from official.saving import model_folder
from official.training import optimizers
from official.training.optimizers import base
from official.utils import keras_private
from tests import GOLDEN, small
from tests.official.training import optimizer_variables
from tests.systems import SYSTEMS

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
