"""The number types of an export, and the metrics that a model has with them.

`float32` leaves a model as it is. `bfloat16` stores the encoder's weights in bfloat16 and computes
its products there; norms, softmax and heads stay float32 (and the logits of a vocabulary are a
product as all others). `int8` stores the encoder's matrices as integers with a float32 scale for
each output channel (for each row of a table) and computes products with integers, rows rounded when
they come, and looks up integers (`official.serving.compute.int8`). What is used for anything else
becomes float32 again: tables and matrices of other layers when the model is loaded. All else is
float32.
"""

import contextlib
import os
from collections.abc import Iterator

import keras
import numpy as np
import tensorflow as tf

from official import config as configs
from official.data import ShardDataset
from official.data.checks import check_labels
from official.evaluation.evaluator import Evaluator
from official.modeling.layers.embeddings import Table
from official.modeling.model import Model
from official.saving.model_folder import ModelFolder, config_of
from official.saving.served_model import with_one_head
from official.serving.compute import int8
from official.utils import checksums, keras_private, paths
from official.utils.paths import AnyPath

# Last parts of the paths of variables that become integers, and the axis of their scales.
_AXES = {"kernel": -1, "table": 0}


class Restored(tf.saved_model.experimental.TrackableResource):
    """A float32 matrix that is made of its integers when a SavedModel is loaded."""

    def __init__(self, integers: tf.Variable, scale: tf.Variable):
        super().__init__()
        self.integers = integers
        self.scale = scale
        # Matrices with the same name are the same, in whichever models of a process.
        content = repr(integers.shape).encode() + b"".join(
            variable.numpy().tobytes() for variable in (integers, scale)
        )
        self._name = f"int8_{checksums.hash_bytes(content)}"
        self._initialize()

    def _create_resource(self) -> tf.Tensor:
        shape = self.integers.shape
        return tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=shape, shared_name=self._name)

    def _initialize(self) -> None:
        value = tf.cast(self.integers, tf.float32) * self.scale
        tf.raw_ops.AssignVariableOp(resource=self.resource_handle, value=value)

    def read(self) -> tf.Tensor:
        """The matrix."""
        value = tf.raw_ops.ReadVariableOp(resource=self.resource_handle, dtype=tf.float32)
        return tf.ensure_shape(value, self.integers.shape)


class Weights:
    """The weights of a model as an export stores them.

    Attributes:
      module: what is stored.
    """

    def __init__(self, layers: list[keras.Layer], precision: str = "float32"):
        """Takes the variables of the first layer, which may become integers, and of others.

        Raises:
          UserError: `precision` is not for this TensorFlow.
        """
        self._encoder = layers[0]
        self._quantized: dict[keras.Layer, int8.Int8Linear | int8.Int8Table] = {}
        self._restored: list[tuple[keras.Variable, Restored]] = []
        replaced: set[int] = set()
        if precision == "int8":
            int8.check()
            self._quantized = _int8_linears(self._encoder) | {
                table: int8.Int8Table(table, self._whole) for table in _tables(self._encoder)
            }
            replaced |= {
                id(variable) for layer in self._quantized for variable, _ in _matrices(layer)
            }
            for variable, axis in _matrices(self._encoder):
                if id(variable) not in replaced:
                    values = int8.quantized(variable.numpy(), axis)
                    variables = (tf.Variable(value, trainable=False) for value in values)
                    self._restored.append((variable, Restored(*variables)))
            replaced |= {id(variable) for variable, _ in self._restored}
        self.module = tf.Module()
        # The bare variables rather than the Keras object: each is stored once and nothing but
        # TensorFlow is needed to read them.
        self.module.plain = [
            variable.value
            for layer in layers
            for variable in layer.variables
            if id(variable) not in replaced
        ]
        self.module.restored = [matrix for _, matrix in self._restored]
        stored = [matrix for _, matrix in self._restored] + list(self._quantized.values())
        self.module.integers = [matrix.integers for matrix in stored]
        self.module.scales = [matrix.scale for matrix in stored]

    def _whole(self, integers: tf.Variable, scale: tf.Variable) -> tf.Tensor:
        """Returns a whole table in float32, and stores that a loaded model makes it."""
        for matrix in self.module.restored:
            if matrix.integers is integers:
                return matrix.read()
        with tf.init_scope():
            matrix = Restored(integers, scale)
        self.module.restored.append(matrix)
        return matrix.read()

    @contextlib.contextmanager
    def read(self) -> Iterator[None]:
        """Makes the layers compute with these weights inside the block."""
        if not self._quantized and not self._restored:
            yield
            return
        matrices = [(variable, matrix.read()) for variable, matrix in self._restored]
        with keras.StatelessScope(matrices), int8.swapped(self._encoder, self._quantized):
            yield


def _int8_linears(encoder: keras.Layer) -> dict[keras.Layer, int8.Int8Linear]:
    """Returns the integer form of each `Linear` layer of an encoder, by the layer."""
    return {layer: int8.Int8Linear.from_layer(layer) for layer in int8.linear_layers(encoder)}


def _tables(encoder: keras.Layer) -> list[Table]:
    """Returns the tables of an encoder."""
    return [layer for layer in keras_private.sublayers(encoder) if isinstance(layer, Table)]


def _matrices(layer: keras.Layer) -> list[tuple[keras.Variable, int]]:
    """Returns the variables of a layer that `int8` stores as integers, and their `axis_of`."""
    axes = [(variable, axis_of(variable)) for variable in layer.variables]
    return [(variable, axis) for variable, axis in axes if axis is not None]


def axis_of(variable: keras.Variable) -> int | None:
    """Returns the axis of the scales of a variable that `int8` stores as integers, or None."""
    return _AXES.get(variable.path.rsplit("/", 1)[-1]) if len(variable.shape) == 2 else None


def round_weights(model: Model) -> None:
    """Gives a model the weights and products that it would have after an export as `int8`."""
    int8.swap(model.encoder, _int8_linears(model.encoder))
    for variable, axis in _matrices(model.encoder):
        integers, scale = int8.quantized(np.asarray(variable), axis)
        variable.assign(integers.astype(np.float32) * scale)


def compare_metrics(
    model_dir: str | os.PathLike,
    data: str | os.PathLike,
    precision: str,
    checkpoint: str = "best",
    task: str | None = None,
) -> dict[str, dict[str, float]]:
    """Evaluates a model in `float32` and in another precision.

    Args:
      model_dir: the model folder.
      data: shards of the model's task with a validation split.
      precision: one of `official.serving.PRECISIONS`.
      checkpoint: as in `official.saving.model_folder.ModelFolder`.
      task: the name of the head, for a model of several tasks.

    Returns:
      {precision: {metric: value}}, with the metrics of `--mode=eval`.

    Raises:
      UserError: there is no such model, or the data belongs to another task.
    """
    results = {}
    for name in dict.fromkeys(("float32", precision)):
        folder = ModelFolder.open(model_dir, checkpoint)
        model = folder.model(name, finished=True)
        config = with_one_head(folder.config, model, task)
        if name == "int8":
            round_weights(model)
        results[name] = _metrics(config, model, paths.path(model_dir), str(data))
    return results


def check_data(
    model_dir: str | os.PathLike, data: str | os.PathLike, task: str | None = None
) -> None:
    """Checks what `compare` needs of the data, before an export.

    Raises:
      UserError: the data does not suit the model.
    """
    config = config_of(model_dir)
    if task is None:
        _source(config, paths.path(model_dir), str(data))
    else:
        ShardDataset(data, config, "validation")


def _source(config: configs.ResolvedConfig, model_dir: AnyPath, data: str) -> ShardDataset:
    source = ShardDataset(data, config, "validation")
    source.check(config)
    check_labels(config, source.manifest, data)
    source.check_tokenizer(model_dir / "tokenizer")
    return source


def _metrics(
    config: configs.ResolvedConfig, model: Model, model_dir: AnyPath, data: str
) -> dict[str, float]:
    source = _source(config, model_dir, data)
    return Evaluator(config, model, tf.distribute.get_strategy()).run(source)


def report_table(results: dict[str, dict[str, float]]) -> str:
    """Returns the result of `compare` as a table with a line for each metric."""
    lines = ["".join([f"{'validation':24}", *(f"{name:>12}" for name in results)])]
    for name in next(iter(results.values())):
        values = (metrics[name] for metrics in results.values())
        lines.append("".join([f"{name:24}", *(f"{value:12.6f}" for value in values)]))
    return "\n".join(lines)
