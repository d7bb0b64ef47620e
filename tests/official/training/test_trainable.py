"""Which weights learn: `recipe.trainable`."""

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.modeling import weight_counts
from official.modeling.model import Model
from official.saving import named_arrays
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
T5 = {
    "type": "encoder_decoder", "vocab_size": 20, "hidden_size": 8, "num_layers": 2, "num_heads": 2,
    "intermediate_size": 8, "decoder_layers": 3,
}  # fmt: skip
ELMO = {
    "type": "bilm", "vocab_size": 20, "tokens": "words", "cell_size": 6, "projection_size": 4,
    "num_layers": 3,
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


def learn(settings, count, make=Model):
    """Makes steps on one batch; returns the model, its first weights, the optimizer, the norms."""
    model = make(settings)
    trainable.freeze(model, settings.recipe)
    optimizer = optimizers.make(settings.recipe, 100, model)
    step = TrainStep(model, optimizer, tf.distribute.get_strategy(), seed=0)
    before = named_arrays.values(model.variables_by_path())
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
    after = named_arrays.values(model.variables_by_path())
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
        (
            {"layers": 1},
            {"encoder__disentangled": {}, "encoder__convolution": {}},
            "embeddings layer_0 layer_1 distance_table convolution",
        ),
        # The last layer of Transformer-XL reads biases that the first one reads too.
        ({"layers": 1}, {"encoder": XL}, "biases embeddings layer_0 layer_1"),
        ({"layers": 3}, {"encoder": XL}, "embeddings"),
        ({"layers": 1}, {"encoder": ELMO}, "words forward_0 backward_0 forward_1 backward_1"),
    ],
)
def test_what_learns(settings, changes, frozen):
    if "encoder" in changes:
        changes = {**changes, "objectives": [HEAD | {"pooling": "mean"}]}
    settings = config(settings, **changes)
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
    assert trainable.described(model, config().recipe) == f"{total:,} weights (all learn)"
    gradual = config({"layers": 1, "unfreeze_every": 5}).recipe
    share = f"{learning:,} learn: {100 * learning / total:.3g}%"
    expected = f"{total:,} weights ({share}; from step 15 all learn)"
    assert trainable.described(model, gradual) == expected
    trainable.freeze(model, settings.recipe)
    assert trainable.described(model, settings.recipe) == f"{total:,} weights ({share})"


@pytest.mark.parametrize(
    ("settings", "encoder", "message"),
    [
        ({"layer": 1}, {}, r"recipe.trainable.layer: unknown key \(did you mean 'layers'"),
        ({"layers": -1}, {}, "recipe.trainable.layers: -1 is negative"),
        ({"layers": 4}, {}, "recipe.trainable.layers: 4, but the encoder has 3 layers"),
        (
            {"layers": 1},
            {"encoder__layer_groups": 1},
            "recipe.trainable.layers: not supported for encoder.type: transformer with "
            "encoder.layer_groups: 1; remove it",
        ),
        (
            {"lora": {}},
            {"encoder": ELMO, "objectives": [HEAD | {"pooling": "mean"}]},
            "recipe.trainable.lora: not supported for encoder.type: bilm; remove it",
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


# Of three layers and their embeddings, which learn at each step: one from the start, one more
# every two steps.
TABLE = [
    "layer_2", "layer_2",
    "layer_1 layer_2", "layer_1 layer_2",
    "layer_0 layer_1 layer_2", "layer_0 layer_1 layer_2",
    "embeddings layer_0 layer_1 layer_2",
]  # fmt: skip


def test_gradual_unfreezing_follows_the_table():
    settings = config(
        {"layers": 1, "unfreeze_every": 2},
        recipe__optimizer={
            "learning_rate": 1e-3, "bias_correction": True, "weight_decay": 0.0, "clip_norm": 0.0,
            "epsilon": 1e-12,
        },
        recipe__schedule={"type": "constant"},
    )  # fmt: skip
    model = Model(settings)
    trainable.freeze(model, settings.recipe)
    optimizer = optimizers.make(settings.recipe, 100, model)
    variables = model.variables_by_path()
    assert set(optimizer.slots()) == {f"model/{path}/{m}" for path in variables for m in "mv"}
    step = TrainStep(model, optimizer, tf.distribute.get_strategy(), seed=0)
    batches = iter(tf.data.Dataset.from_tensors(BATCH).repeat())
    seen = set()
    for number, layers in enumerate(TABLE):
        before = named_arrays.values(variables)
        norm = step.run(batches, 1).gradient_norms[0]
        after, moments = named_arrays.values(variables), named_arrays.values(optimizer.slots())
        expected = {f"encoder/{name}" for name in (*layers.split(), "pooler")} | {"head"}
        moved = {path for path in after if (after[path] != before[path]).any()}
        assert parts(moved) == expected, number
        for path in after:
            still = parts([path]).isdisjoint(expected)
            slots = [moments[f"model/{path}/{m}"] for m in "mv"]
            assert not still or not np.any(slots), path
            if not still and path not in seen:
                # Adam's first update is the rate times the sign of the gradient.
                seen.add(path)
                size = np.abs(after[path] - before[path]).max()
                assert size == pytest.approx(1e-3, rel=1e-3), path
        if number in (0, 2):
            learning = [path for path in after if parts([path]) <= expected]
            found = gradients(settings, before, learning).values()
            total = np.sqrt(sum(np.sum(np.square(x, dtype=np.float64)) for x in found))
            assert norm == pytest.approx(total, rel=1e-4), number
    assert seen == set(variables)


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        (
            {"layers": 0, "unfreeze_every": 10},
            {"layer_2": 10, "layer_1": 20, "layer_0": 30, "e": 40},
        ),
        ({"layers": 2, "unfreeze_every": 3, "embeddings": False}, {"layer_0": 3}),
        ({"layers": 3, "unfreeze_every": 7}, {"e": 7}),
    ],
)
@pytest.mark.parametrize("changes", [{"encoder__relative_buckets": 8}, {"encoder": XL}])
def test_when_layers_begin(settings, steps, changes):
    """Biases that all layers share begin with the first one."""
    settings = config(settings, **changes)
    model = Model(settings)
    trainable.freeze(model, settings.recipe)
    expected = {f"encoder/{'embeddings' if name == 'e' else name}": n for name, n in steps.items()}
    if "layer_0" in steps:
        shared = "biases" if "encoder" in changes else "relative_bias"
        expected[f"encoder/{shared}"] = steps["layer_0"]
    found = trainable.first_steps(model, settings.recipe)
    actual = {parts([path.removeprefix("model/")]).pop(): n for path, n in found.items()}
    assert actual == expected


def test_gradual_unfreezing_needs_a_first_number():
    with pytest.raises(UserError, match="trainable.unfreeze_every: needs layers, the number"):
        config({"unfreeze_every": 100})


@pytest.mark.parametrize(
    ("settings", "frozen"),
    [
        (
            {"layers": 1},
            "token_embedding encoder/layer_0 decoder/layer_0 decoder/layer_1 "
            "encoder/relative_bias decoder/relative_bias",
        ),
        ({"layers": 2}, "token_embedding decoder/layer_0 decoder/relative_bias"),
        ({"layers": 3}, "token_embedding"),
        ({"embeddings": False}, "token_embedding"),
    ],
)
def test_the_last_layers_of_both_stacks_learn(settings, frozen):
    """Two layers of the encoder and three of the decoder, and the biases of each stack."""
    settings = config(settings, encoder=T5, objectives=[{"type": "seq2seq_lm"}])
    model = Model(settings)
    trainable.freeze(model, settings.recipe)
    paths = [path for path, v in model.variables_by_path().items() if not v.trainable]
    names = {"/".join(path.split("/")[1:3]).removesuffix("/table") for path in paths}
    assert names == set(frozen.split())
