"""Trajectories of tensorflow-addons' LAMB: 200 updates of five tensors, and of whole blocks.

Run with the Python of the environment of tests/parity/requirements-tfa.txt:
    .parity/tfa/bin/python tests/golden/make_lamb_golden.py [FILE]

Writes tests/golden/lamb.npz, or FILE: `start/NAME`, `gradients/NAME` [200, ...], `rates` [200] and
`SETTING/NAME` [200, ...], the tensor after each update, all float64. Gradients are of different
sizes, and some are 0. `norm/offset` starts at 0 and `table` gets no gradient for the first ten
updates: the trust ratio is not defined there.

Writes also lamb_blocks.npz beside it: the variables of a BERT and of an ALBERT of one block, which
has a matrix and a bias each for queries, keys and values, as the releases have. `MODEL/start/NAME`,
`MODEL/patterns/NAME` [5, ...], `sizes` [200] (the gradient of step i is `sizes[i]` times pattern
`i % 5`), `rates` [200], and for the steps of AFTER `MODEL/STEP/NAME`.
"""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf
import tensorflow_addons as tfa

STEPS = 200
SHAPES = {
    "kernel": (3, 4),
    "bias": (4,),
    "norm/offset": (4,),
    "table": (5, 2),
    "deep": (2, 2, 2),
}
# beta_1, beta_2, epsilon, weight decay, no decay, no adaptation (None = as no decay)
SETTINGS = {
    "albert": (0.9, 0.999, 1e-6, 0.01, ["bias", "norm"], None),
    "no_decay": (0.9, 0.999, 1e-6, 0.0, None, None),
    "apart": (0.8, 0.98, 1e-3, 0.1, ["bias"], ["deep", "^norm"]),
}
# The variables of the releases, under the names of our layers.
HIDDEN, INNER, VOCABULARY, POSITIONS, NARROW = 8, 16, 20, 6, 4
AFTER = (20, 200)
BLOCKS = {
    "bert": ("layer_0", HIDDEN, (0.9, 0.999, 1e-6, 0.01, None, None)),
    "albert": ("group_0_layer_0", NARROW, SETTINGS["albert"]),
}


class Listed(tf.keras.optimizers.schedules.LearningRateSchedule):
    """The rates of a list, in float64."""

    def __init__(self, rates):
        self.rates = tf.constant(rates)

    def __call__(self, step):
        """The rate of an update."""
        return tf.gather(self.rates, tf.cast(step, tf.int32))


def trajectory(setting, start, gradients, rates):
    """The tensors after each update, by name."""
    *numbers, no_decay, no_adaptation = setting
    # As tensors: numbers would be rounded to float32.
    beta_1, beta_2, epsilon, weight_decay = (tf.constant(x, tf.float64) for x in numbers)
    variables = {name: tf.Variable(value, name=name) for name, value in start.items()}
    optimizer = tfa.optimizers.LAMB(
        Listed(rates),
        beta_1,
        beta_2,
        epsilon,
        weight_decay,
        exclude_from_weight_decay=no_decay,
        exclude_from_layer_adaptation=no_adaptation,
    )
    actual = {name: [] for name in variables}
    for step in range(STEPS):
        pairs = [(tf.constant(gradients[name][step]), v) for name, v in variables.items()]
        optimizer.apply_gradients(pairs)
        for name, variable in variables.items():
            actual[name].append(variable.numpy())
    return {name: np.stack(values) for name, values in actual.items()}


def block_shapes(layer, embedding_size):
    """The shapes of an encoder with one block, by name."""
    shapes = {
        "embeddings/token_embedding/table": (VOCABULARY, embedding_size),
        "embeddings/position_embedding/table": (POSITIONS, embedding_size),
        "embeddings/segment_embedding/table": (2, embedding_size),
        "embeddings/norm/scale": (embedding_size,),
        "embeddings/norm/offset": (embedding_size,),
    }
    maps = {
        f"{layer}/attention/{name}": (HIDDEN, HIDDEN)
        for name in ("query", "key", "value", "output")
    }
    maps[f"{layer}/feed_forward/inner"] = (HIDDEN, INNER)
    maps[f"{layer}/feed_forward/outer"] = (INNER, HIDDEN)
    maps["pooler"] = (HIDDEN, HIDDEN)
    if embedding_size != HIDDEN:
        maps["embeddings/projection"] = (embedding_size, HIDDEN)
    for name, shape in maps.items():
        shapes |= {f"{name}/kernel": shape, f"{name}/bias": shape[1:]}
    for name in (f"{layer}/attention_norm", f"{layer}/feed_forward_norm"):
        shapes |= {f"{name}/scale": (HIDDEN,), f"{name}/offset": (HIDDEN,)}
    return {f"encoder/{name}": shape for name, shape in shapes.items()}


def write_blocks(path):
    """Writes the trajectories of whole blocks."""
    rng = np.random.default_rng(6)
    sizes, rates = np.exp(rng.standard_normal(STEPS)), np.linspace(1e-2, 1e-4, STEPS)
    arrays = {"sizes": sizes, "rates": rates}
    for model, (layer, embedding_size, setting) in BLOCKS.items():
        shapes = block_shapes(layer, embedding_size)
        start, patterns = {}, {}
        for name, shape in shapes.items():
            # float32, to be half as large in the file.
            scale = np.exp(rng.standard_normal() - 2)
            start[name] = np.float32(scale * rng.standard_normal(shape))
            patterns[name] = np.float32(rng.standard_normal((5, *shape)))
        for kind, values in (("start", start), ("patterns", patterns)):
            arrays |= {f"{model}/{kind}/{name}": value for name, value in values.items()}
        start = {name: value.astype(np.float64) for name, value in start.items()}
        gradients = {
            name: [size * value[step % 5].astype(np.float64) for step, size in enumerate(sizes)]
            for name, value in patterns.items()
        }
        actual = trajectory(setting, start, gradients, rates)
        for step in AFTER:
            arrays |= {f"{model}/{step}/{name}": each[step - 1] for name, each in actual.items()}
    np.savez_compressed(path, **arrays)


def main(path):
    """Writes the files."""
    rng = np.random.default_rng(5)
    start = {name: rng.normal(size=shape) for name, shape in SHAPES.items()}
    start["norm/offset"][:] = 0
    gradients = {}
    for name, shape in SHAPES.items():
        sizes = 10.0 ** rng.integers(-5, 2, shape)
        gradients[name] = rng.normal(size=(STEPS, *shape)) * sizes
        gradients[name][rng.random((STEPS, *shape)) < 0.1] = 0
    gradients["table"][:10] = 0
    rates = np.linspace(1e-2, 1e-4, STEPS)
    arrays = {f"start/{name}": value for name, value in start.items()}
    arrays |= {f"gradients/{name}": value for name, value in gradients.items()}
    for name, setting in SETTINGS.items():
        actual = trajectory(setting, start, gradients, rates)
        arrays |= {f"{name}/{tensor}": values for tensor, values in actual.items()}
    np.savez_compressed(path, rates=rates, **arrays)
    write_blocks(Path(path).with_name("lamb_blocks.npz"))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name("lamb.npz"))
