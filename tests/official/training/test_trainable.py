"""Which weights learn: `recipe.trainable`."""

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.modeling import weight_counts
from official.modeling.model import Model
from official.training import optimizers, trainable
from official.training.train_step import TrainStep
from official.utils.errors import UserError
from tests import small

HEAD = {"type": "classification", "num_labels": 3, "dropout": 0.0}
XL = {
    "type": "transformer_xl", "vocab_size": 20, "hidden_size": 8, "num_layers": 3, "num_heads": 2,
    "intermediate_size": 8, "dropout": 0.0, "attention_dropout": 0.0, "untie_biases": False,
    "pooler": True,
}  # fmt: skip
IDS = np.array([[2, 7, 9, 3, 0, 0], [2, 5, 6, 11, 12, 3], [2, 8, 3, 0, 0, 0]], np.int32)
BATCH = {
    "token_ids": IDS,
    "padding_mask": IDS > 0,
    "label": np.array([0, 2, 1], np.int32),
    "example_weights": np.ones(3, np.float32),
}


def config(settings=None, **changes):
    """A task on an encoder of three layers without dropout, with `recipe.trainable`."""
    defaults = {
        "segments": None,
        "corruption": None,
        "objectives": [HEAD],
        "encoder__num_layers": 3,
        "encoder__dropout": 0.0,
        "encoder__attention_dropout": 0.0,
        "recipe__optimizer__weight_decay": 0.1,
    }
    if settings is not None:
        defaults["recipe__trainable"] = settings
    return small.config(**defaults | changes)


def values(variables):
    return {path: np.array(variable) for path, variable in variables.items()}


def learn(settings, count, make=Model):
    """Makes steps on one batch; returns the model, its first weights, the optimizer, the norms."""
    model = make(settings)
    trainable.freeze(model, settings.recipe)
    optimizer = optimizers.make(settings.recipe, 100, model)
    step = TrainStep(model, optimizer, tf.distribute.get_strategy(), seed=0)
    before = values(model.variables_by_path())
    batches = tf.data.Dataset.from_tensors(BATCH).repeat()
    return model, before, optimizer, step.run(iter(batches), count).gradient_norms


def gradients(settings, weights, paths):
    """The gradients of the mean loss of the batch with given weights, by path."""
    model = Model(settings)
    for path, variable in model.variables_by_path().items():
        variable.assign(weights[path])
    variables = [model.variables_by_path()[path] for path in paths]
    with tf.GradientTape() as tape:
        losses, _ = model.terms(BATCH)
        loss = losses["classification"] / 3
    found = tape.gradient(loss, [variable.value for variable in variables])
    return dict(zip(paths, map(tf.convert_to_tensor, found), strict=True))


def parts(paths):
    """The first two names of paths: `encoder/layer_0`, `classification`."""
    return {"/".join(p.split("/")[:2]) if p.startswith("encoder") else "head" for p in paths}


def test_lower_layers_stay_bit_for_bit_and_have_no_moments():
    settings = config({"layers": 1})
    model, before, optimizer, norms = learn(settings, 3)
    after = values(model.variables_by_path())
    changed = {path for path, value in after.items() if (value != before[path]).any()}
    assert parts(changed) == {"encoder/layer_2", "encoder/pooler", "head"}
    learning = [p for p in after if parts([p]) <= {"encoder/layer_2", "encoder/pooler", "head"}]
    assert changed == set(learning)
    assert set(optimizer.slots()) == {f"model/{p}/{name}" for p in learning for name in "mv"}
    found = gradients(settings, before, learning)
    expected = np.sqrt(sum(np.sum(np.square(x, dtype=np.float64)) for x in found.values()))
    np.testing.assert_allclose(norms[0], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("settings", "changes", "frozen"),
    [
        ({"layers": 0}, {}, "embeddings layer_0 layer_1 layer_2"),
        ({"layers": 2}, {}, "embeddings layer_0"),
        ({"layers": 2, "embeddings": True}, {}, "layer_0"),
        ({"layers": 3}, {}, "embeddings"),
        ({"embeddings": False}, {}, "embeddings"),
        ({"embeddings": True}, {}, ""),
        # The layers of ALBERT share weights, and all those of MPNet a bias of distances.
        ({"embeddings": False}, {"encoder__layer_groups": 1}, "embeddings"),
        ({"layers": 2}, {"encoder__relative_buckets": 8}, "embeddings layer_0 relative_bias"),
        ({"layers": 3}, {"encoder__relative_buckets": 8}, "embeddings"),
        ({"layers": 2}, {"encoder__norm": "pre"}, "embeddings layer_0"),
        # The last layer of Transformer-XL reads biases that the first one reads too.
        ({"layers": 1}, {"encoder": XL}, "biases embeddings layer_0 layer_1"),
        ({"layers": 3}, {"encoder": XL}, "embeddings"),
    ],
)
def test_what_learns(settings, changes, frozen):
    settings = config(settings, **{"encoder": XL, **changes} if "encoder" in changes else changes)
    model = Model(settings)
    trainable.freeze(model, settings.recipe)
    paths = {path for path, v in model.variables_by_path().items() if not v.trainable}
    assert parts(paths) == {f"encoder/{name}" for name in frozen.split()}
    assert len(paths) + len(model.trainable_variables) == len(model.variables)


def test_the_share_of_weights_that_learn():
    """The head has 16 · 3 + 3 weights, the pooler 16 · 16 + 16, a layer 2,224."""
    settings = config({"layers": 1})
    layer = 4 * (16 * 16 + 16) + 2 * 32 + (16 * 32 + 32) + (32 * 16 + 16)
    learning = layer + 16 * 16 + 16 + 16 * 3 + 3
    total = weight_counts.count(settings).total
    model = Model(settings)
    assert trainable.described(model) == f"{total:,} weights, which all learn"
    trainable.freeze(model, settings.recipe)
    expected = f"{total:,} weights, of which {learning:,} learn ({learning / total:.2%})"
    assert trainable.described(model) == expected


@pytest.mark.parametrize(
    ("settings", "encoder", "message"),
    [
        ({"layer": 1}, {}, "recipe.trainable.layer: unknown key; did you mean 'layers'"),
        ({"layers": -1}, {}, "recipe.trainable.layers: -1 is negative"),
        ({"layers": 4}, {}, "recipe.trainable.layers: 4, and the encoder has 3 layers"),
        (
            {"layers": 1},
            {"encoder__layer_groups": 1},
            "recipe.trainable.layers: not supported for encoder.type: transformer with "
            "encoder.layer_groups: 1; remove it",
        ),
        (
            {"embeddings": False},
            {"encoder": {"type": "bilm", "vocab_size": 9}, "objectives": [{"type": "bilm"}]},
            "recipe.trainable.embeddings: not supported for encoder.type: bilm; remove it",
        ),
    ],
)
def test_settings_that_do_not_suit_are_refused(settings, encoder, message):
    with pytest.raises(UserError, match=message.replace(".", r"\.")):
        config(settings, **encoder)


def test_something_must_learn():
    settings = config(
        {"layers": 0},
        encoder__causal=True,
        encoder__pooler=False,
        objectives=[{"type": "causal_lm"}],
        segments={"max_length": 32},
    )
    model = Model(configs.ResolvedConfig.of(settings))
    with pytest.raises(UserError, match=r"recipe.trainable, and the objectives \(causal_lm\) have"):
        trainable.freeze(model, settings.recipe)
