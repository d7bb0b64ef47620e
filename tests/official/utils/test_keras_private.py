import re

import keras
import numpy as np
import pytest

from official.utils import keras_private
from tests import ROOT


def changed(name, what):
    """Says what to do where a release of Keras differs."""
    return (
        f"Keras {keras.__version__}: {what}. `keras_private.{name}` relies on this: find another "
        "solution in official/utils/keras_private.py, or keep the version in requirements.txt"
    )


class Pair(keras.Layer):
    def __init__(self):
        super().__init__(name="pair")
        self.inner = keras.layers.Dense(2, name="inner")
        self.listed = [self.inner, Single()]


class Single(keras.Layer):
    def __init__(self):
        super().__init__(name="single")
        self.deep = keras.layers.Dense(2, name="deep")


def names(layers):
    return [layer.name for layer in layers]


def test_sublayers_are_each_listed_once():
    assert hasattr(keras.Layer, "_flatten_layers"), changed(
        "sublayers", "`Layer._flatten_layers` is missing"
    )
    try:
        actual = keras_private.sublayers(Pair())
        inside = keras_private.sublayers(Pair(), include_self=False)
        direct = keras_private.sublayers(Pair(), include_self=False, recursive=False)
    except TypeError as error:
        pytest.fail(changed("sublayers", f"`Layer._flatten_layers` has other arguments ({error})"))
    what = "`Layer._flatten_layers` lists other layers, or in another order"
    assert names(actual) == ["pair", "inner", "single", "deep"], changed("sublayers", what)
    assert names(inside) == ["inner", "single", "deep"], changed("sublayers", what)
    assert names(direct) == ["inner", "single"], changed("sublayers", what)


def test_a_mask_is_kept_with_a_tensor_for_the_layers_that_read_it():
    ids = keras.ops.convert_to_tensor([[3, 1, 0]])
    found = keras_private.mask_of(keras.layers.Embedding(4, 2, mask_zero=True)(ids))
    what = "layers keep masks elsewhere than `backend.get_keras_mask` looks"
    assert found is not None and found.numpy().tolist() == [[True, True, False]], changed(
        "mask_of", what
    )
    states = keras.ops.convert_to_tensor([[[1.0], [3.0], [8.0]]])
    assert keras_private.mask_of(states) is None
    keras_private.set_mask(states, found)
    mean = keras.layers.GlobalAveragePooling1D()(states)
    assert mean.numpy().tolist() == [[2.0]], changed("set_mask", what)


@pytest.mark.slow
def test_variables_stay_uninitialized_after_the_block():
    name = "uninitialized_variables"
    drawn = []

    def initializer(shape, dtype=None):
        drawn.append(shape)
        return np.zeros(shape, dtype)

    with keras_private.uninitialized_variables():
        variable = keras.Variable(initializer, shape=(2, 3), dtype="float32")
    assert tuple(variable.shape) == (2, 3) and not drawn, changed(
        name, "`StatelessScope(initialize_variables=False)` initializes variables"
    )
    with keras.StatelessScope():
        keras.Variable(initializer, shape=(1,), dtype="float32")
    assert (2, 3) not in drawn, changed(
        name, "uninitialized variables are no longer kept in the list that is restored"
    )
    assert (1,) in drawn, changed(name, "variables of other scopes are no longer initialized")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_value_becomes_the_first_one_of_an_uninitialized_variable(dtype):
    with keras_private.uninitialized_variables():
        variable = keras.Variable(np.zeros, shape=(2,), dtype=dtype)
    name = "initialize"
    try:
        keras_private.initialize(variable, np.array([1.5, 2], np.float32))
        variable.assign_add([1, 1])
    except (AttributeError, ValueError) as error:
        pytest.fail(changed(name, f"`Variable._initialize` does not set the value ({error})"))
    assert variable.dtype == dtype and keras.ops.cast(variable, "float32").numpy().tolist() == [
        2.5,
        3,
    ], changed(name, "`Variable._initialize` sets another value")


def test_an_optimizer_gets_all_gradients_at_once():
    calls = []

    class Optimizer(keras_private.JointUpdateOptimizer):
        def update_all(self, grads, variables, learning_rate):
            calls.append((len(grads), [v.name for v in variables], float(learning_rate)))

    optimizer = Optimizer(learning_rate=0.5)
    variables = [keras.Variable(np.zeros(2, "float32"), name=name) for name in "ab"]
    optimizer.build(variables)
    optimizer.apply([keras.ops.ones(2)] * 2)
    assert calls == [(2, ["a", "b"], 0.5)], changed(
        "JointUpdateOptimizer", "`Optimizer.apply` does not call `_backend_update_step` once"
    )
    assert int(optimizer.iterations) == 1


def test_requirements_name_the_version():
    (version,) = re.findall(r"^keras==(.*)$", (ROOT / "requirements.txt").read_text(), re.M)
    assert version.startswith("3.15."), changed("*", "requirements.txt names another version")


PRIVATE = re.compile(
    r"keras\.src|\._(flatten_layers|layers|lock|tracker|trainable_variables|non_trainable_variables"
    r"|trainable_variables_indices|get_variable_index|var_key|iterations|learning_rate)\b"
    r"|\b_(backend_update_step|backend_apply_gradients|setattr_hook|lock_state)\b"
)


def test_no_other_module_uses_the_private_api():
    actual = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((ROOT / "official").rglob("*.py"))
        if path.name != "keras_private.py"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if PRIVATE.search(line)
    ]
    assert not actual, "private API of Keras outside keras_private.py:\n" + "\n".join(actual)
