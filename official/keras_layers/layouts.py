"""How the weights of encoders are split over devices, on Keras' JAX backend.

Keras splits a variable by the axes that a `keras.distribution.LayoutMap` names for its path, and
the state of the optimizer with it. XLA then splits the computation. `_LAYOUTS` has the axes of all
variables of all encoders: a variable without a row there is an error, so none of a new encoder is
left whole by accident.

The first layer of a sublayer (queries, keys and values, the inner maps) is split by its columns,
and the layer that reads its output by its rows, so that the states between them stay split
(Shoeybi et al., 2019, "Megatron-LM", section 3). With `fsdp`, the other axis of a kernel is split
as well, over the devices that read different rows of a batch (Rajbhandari et al., 2020, "ZeRO",
stage 3).

Shapes: I input size, O output size, V vocabulary, E size of vectors.
"""

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import keras

from official.config import registry
from official.config.parts import EncoderConfig
from official.utils import keras_private
from official.utils.errors import UserError

_BYTES = 4  # of a float32

# A layout names the axis of the mesh over which each dimension is split: `model`, or the axis of
# the data with `fsdp`; None = the dimension is not split.
_MODEL, _DATA = "model", "data"
Layout = tuple[str | None, ...]
# Where several layouts are possible, the one that splits most is taken, the first one of equals.
_COLUMNS: tuple[Layout, ...] = ((_DATA, _MODEL),)  # of a kernel [I, O]
_ROWS: tuple[Layout, ...] = ((_MODEL, _DATA),)
_OF_COLUMNS: tuple[Layout, ...] = ((_MODEL,), (None,))  # a bias [O]
_WIDTH: tuple[Layout, ...] = ((None, _MODEL), (None, _DATA))  # of a table of some hundred rows
# Many vocabularies, such as 30,522, are divided by few numbers: the vectors are split then.
_TABLE: tuple[Layout, ...] = ((_MODEL, _DATA), (_DATA, _MODEL), *_WIDTH)
_WHOLE: tuple[Layout, ...] = ((),)

_SPLIT_BY_COLUMNS = (
    r"(?:cross_)?attention/(?:query_key_value|query|key_value|position_key)",
    r"attention/distance_(?:key|query)",  # DeBERTa v1
    r"feed_forward/(?:inner|gate)",
    r"embeddings/projection",  # ALBERT
    r"convolution/taps",  # DeBERTa v2
    r"pooler",
    r"words/highway_\d+/(?:gate|transform)",  # ELMo
    r"(?:forward|backward)_\d+",
)
_SPLIT_BY_ROWS = (
    r"(?:cross_)?attention/output",
    r"feed_forward/outer",
    r"words/projection",
)
# {the end of a path: the layouts of these variables}.
_LAYOUTS: dict[str, tuple[Layout, ...]] = {
    **{rf"{layer}/kernel": _COLUMNS for layer in _SPLIT_BY_COLUMNS},
    **{rf"{layer}/bias": _OF_COLUMNS for layer in _SPLIT_BY_COLUMNS},
    **{rf"{layer}/kernel": _ROWS for layer in _SPLIT_BY_ROWS},
    **{rf"{layer}/bias": _WHOLE for layer in _SPLIT_BY_ROWS},
    r"(?:forward|backward)_\d+/projection": _ROWS,
    r"token_embedding/(?:table|delta)": _TABLE,
    r"words/table": (*_TABLE, *_WHOLE),  # of words or characters
    r"(?:position_embedding|distance_table)/table": _WIDTH,
    r"\w+_adapter/inner/kernel": (*_COLUMNS, *_WHOLE),
    r"\w+_adapter/outer/kernel": (*_ROWS, *_WHOLE),
    # Norms, biases of scores, and others of at most some 100,000 numbers.
    r"(?:\w+_)?norm/(?:scale|offset)": _WHOLE,
    r"segment_embedding(?:/table)?": _WHOLE,
    r"query_start": _WHOLE,
    r"(?:distance_embedding|relative_bias)/table": _WHOLE,
    r"biases/(?:content|position|segment)_bias": _WHOLE,
    r"words/convolution_\d+/(?:kernel|bias)": _WHOLE,
    r"\w+_adapter/(?:inner|outer)/bias": _WHOLE,
    r"encoder/(?:rows|weights)": _WHOLE,  # the numbers of rows that pieces share
}
# Layers whose outputs [B, T, D] have each row of the batch on its devices: XLA would else split the
# states as it finds the kernels with `fsdp`, and then each device computes all rows.
_STATES = r"(?:token_embedding|words|(?:cross_)?attention/output|feed_forward/outer)/output"


def layout_map(
    mesh: keras.distribution.DeviceMesh,
    *configs: EncoderConfig,
    data: str = "batch",
    model: str | None = "model",
    fsdp: bool = False,
) -> keras.distribution.LayoutMap:
    """Returns how the weights of encoders are split over the devices of a mesh.

    Rows for layers of your own can be added: `layout["head/kernel"] = (None, "model")`.

    Example:
    ```python
    mesh = keras.distribution.DeviceMesh((2, 4), ("batch", "model"))
    layout = layout_map(mesh, config, fsdp=True)
    keras.distribution.set_distribution(
        keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch")
    )
    encoder = TransformerEncoder(config)  # each device has an eighth of it
    ```

    Args:
      mesh: the devices.
      *configs: the configs of all encoders of the model, with a vocabulary size.
      data: the axis of the mesh over which the rows of a batch are split.
      model: the axis over which kernels are split, by heads and inner units; None = none, and
        `fsdp` splits them over the axis of the data alone.
      fsdp: whether kernels and tables are split over the axis of the data as well. Each device then
        fetches the weights of a layer when it computes the layer.

    Raises:
      UserError: the mesh has no axis of that name; or the size of a weight is not divisible by
        that of the axis. Of a token table, the vectors are split where the vocabulary cannot be.
    """
    sizes = _sizes(mesh, data, model, fsdp)
    axes = {_DATA: data, _MODEL: model}
    result = keras.distribution.LayoutMap(mesh)
    for row, layout in _chosen(_shapes(configs), sizes).items():
        if any(layout):
            result[_pattern(row)] = tuple(axis and axes[axis] for axis in layout)
    result[_pattern(_STATES)] = (data,)
    return result


@dataclasses.dataclass(frozen=True)
class DeviceWeights:
    """The weights that each device has.

    Attributes:
      all: the number of weights of the encoders.
      device: the number of weights on each device.
      whole: those of them that every device has.
    """

    all: int
    device: int
    whole: int

    def lines(self) -> Iterator[str]:
        """Yields the lines of a table, in bytes of float32."""
        numbers = {
            "bytes of the encoder": self.all,
            "on a device": self.device,
            "of which every device has": self.whole,
            "with gradients": 2 * self.device,
            "and the moments of AdamW": 4 * self.device,
        }
        for part, number in numbers.items():
            yield f"  {part:27} {number * _BYTES:>14,}"


def device_weights(
    mesh: keras.distribution.DeviceMesh,
    *configs: EncoderConfig,
    data: str = "batch",
    model: str | None = "model",
    fsdp: bool = False,
) -> DeviceWeights:
    """Counts the weights that each device of a mesh has, without making them.

    The arguments and errors are those of `layout_map`. The devices need not be there:
    `DeviceMesh((8, 4), ("batch", "model"), devices=range(32))` is a mesh to plan with, on every
    backend.
    """
    sizes = _sizes(mesh, data, model, fsdp)
    shapes = _shapes(configs)
    layouts = _chosen(shapes, sizes)
    numbers = [0, 0, 0]
    for path, shape in shapes:
        size, parts = math.prod(shape), _parts(layouts[_row(path)], sizes)
        numbers[0] += size
        numbers[1] += size // parts
        numbers[2] += size if parts == 1 else 0
    return DeviceWeights(*numbers)


def _sizes(mesh, data: str, model: str | None, fsdp: bool) -> dict[str, int]:
    """Returns the numbers of devices over which `_MODEL` and `_DATA` split; 1 = not."""
    known = dict(zip(mesh.axis_names, mesh.shape, strict=True))
    for argument, axis in (("data", data), ("model", model)):
        if axis is not None and axis not in known:
            without = " or model=None, with fsdp=True" if argument == "model" else ""
            raise UserError(
                f"{argument}={axis!r}: the mesh has the axes {', '.join(map(repr, known))}: give "
                f"{argument}= one of them{without}"
            )
    if model is None and not fsdp:
        raise UserError("model=None: nothing is split: give fsdp=True, or keras' DataParallel")
    return {_DATA: known[data] if fsdp else 1, _MODEL: 1 if model is None else known[model]}


def _shapes(configs: Iterable[EncoderConfig]) -> list[tuple[str, tuple[int, ...]]]:
    """Returns the paths and shapes of the variables of encoders."""
    variables = []
    for config in configs:
        with keras_private.uninitialized_variables():
            encoder = registry.module_of(config).Encoder(config)
            encoder.build()
        variables += [(each.path, tuple(each.shape)) for each in encoder.weights]
    if not variables:
        raise UserError("layout_map(mesh): give the configs of the encoders, too")
    return variables


def _chosen(
    shapes: Iterable[tuple[str, tuple[int, ...]]], sizes: Mapping[str, int]
) -> dict[str, Layout]:
    """Returns {row of `_LAYOUTS`: the layout of its variables} for the rows that have variables.

    Raises:
      UserError: a variable cannot be split so.
    """
    by_row: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
    for path, shape in shapes:
        by_row.setdefault(_row(path), []).append((path, shape))
    result = {}
    for row, variables in by_row.items():
        possible = [
            layout
            for layout in _LAYOUTS[row]
            if all(_divides(layout, shape, sizes) for _, shape in variables)
        ]
        if not possible:
            raise UserError(_indivisible(variables, _LAYOUTS[row], sizes))
        layout = max(possible, key=lambda each: _parts(each, sizes))
        result[row] = tuple(axis if axis and sizes[axis] > 1 else None for axis in layout)
    return result


def _row(path: str) -> str:
    """Returns the row of `_LAYOUTS` of a variable."""
    rows = [row for row in _LAYOUTS if re.fullmatch(_pattern(row), path)]
    if len(rows) != 1:
        raise ValueError(f"{path}: {len(rows)} rows of official.keras_layers.layouts, not one")
    return rows[0]


def _pattern(row: str) -> str:
    """Returns the expression for a whole path."""
    return f"(?:.*/)?{row}"


def _divides(layout: Layout, shape: Sequence[int], sizes: Mapping[str, int]) -> bool:
    return all(
        axis is None or size % sizes[axis] == 0 for size, axis in zip(shape, layout, strict=False)
    )


def _parts(layout: Layout, sizes: Mapping[str, int]) -> int:
    """Returns the number of parts of a variable."""
    return math.prod(sizes[axis] for axis in layout if axis)


def _indivisible(variables, layouts: Sequence[Layout], sizes: Mapping[str, int]) -> str:
    """Returns the message for variables that no layout divides."""
    path, shape = next(v for v in variables if not _divides(layouts[0], v[1], sizes))
    parts = " x ".join(str(sizes[axis]) if axis else "1" for axis in layouts[0])
    return (
        f"{path} {list(shape)}: cannot be split into {parts} parts: choose a mesh whose axes "
        "divide the sizes of the config, or other sizes"
    )
