"""Maps tensors of other tools to variables of this project, and back.

The table of a system is a list of `Row`s, each of which works in both directions. All conversions
permute elements, so writing a model and reading it again gives the same bits. "Our" variables are
those of this project.
"""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from official.utils.errors import UserError

Shape = tuple[int, ...]


class LazyTensors(Mapping[str, np.ndarray]):
    """Tensors by name, each read when it is accessed.

    A subclass reads a tensor in `__getitem__`, and sets `_index`, whose keys are the names.

    Attributes:
      source: the file for messages.
    """

    source: str | os.PathLike
    _index: Mapping[str, object]

    def __contains__(self, name: object) -> bool:
        """Returns whether there is a tensor, without reading it."""
        return name in self._index

    def __iter__(self) -> Iterator[str]:
        """Yields the names of the tensors."""
        return iter(self._index)

    def __len__(self) -> int:
        """Returns the number of tensors."""
        return len(self._index)


@dataclasses.dataclass(frozen=True)
class Row:
    """One of our variables and its tensors in the other tool.

    Attributes:
      path: the path of our variable.
      names: the names of the tensors, which are concatenated along our last axis.
      transposed: whether the other tool stores matrices as [out, in], like torch's Linear.
      axes: the shape of each tensor if it has more axes than our variable, such as one for heads.
        The axes are merged in their order. None = the number of axes is the same.
      layer: the index of our layer if the other tool has one tensor for all layers, stacked along
        the first axis. Such rows are only read.
      part: (index, count) if several of our variables are parts of one tensor, concatenated along
        the first axis. Their rows are in order.
    """

    path: str
    names: tuple[str, ...]
    transposed: bool = False
    axes: Shape | None = None
    layer: int | None = None
    part: tuple[int, int] | None = None

    def part_shape(self, shape: Shape) -> Shape:
        """Returns the shape of each tensor (or its layer or part) for our variable of `shape`."""
        return self.axes or self._matrix(shape)

    def _matrix(self, shape: Shape) -> Shape:
        part = (*shape[:-1], shape[-1] // len(self.names))
        return part[::-1] if self.transposed else part

    def pick(self, tensor: np.ndarray) -> np.ndarray:
        """Returns the part of a tensor for our variable: all of it, a layer or a part."""
        if self.part is not None:
            number, count = self.part
            even = tensor.ndim > 0 and len(tensor) % count == 0
            return np.split(tensor, count)[number] if even else tensor
        within = self.layer is not None and tensor.ndim and self.layer < len(tensor)
        return tensor[self.layer] if within else tensor

    def join(self, parts: Iterable[np.ndarray], shape: Shape) -> np.ndarray:
        """Makes our variable of `shape` from the tensors."""
        parts = [part.reshape(self._matrix(shape)) for part in parts]
        parts = [part.T if self.transposed else part for part in parts]
        return np.ascontiguousarray(np.concatenate(parts, axis=-1))

    def split(self, variable: np.ndarray) -> dict[str, np.ndarray]:
        """Makes the tensors from our variable."""
        parts = np.split(variable, len(self.names), axis=-1)
        # Contiguous copies, because safetensors ignores strides.
        parts = [np.ascontiguousarray(part.T if self.transposed else part) for part in parts]
        parts = [part.reshape(self.axes or part.shape) for part in parts]
        return dict(zip(self.names, parts, strict=True))


def linear(path: str, *names: str) -> list[Row]:
    """Returns the rows of a linear layer of ours that torch stores as one or several layers."""
    return [
        Row(f"{path}/kernel", tuple(f"{name}.weight" for name in names), transposed=True),
        Row(f"{path}/bias", tuple(f"{name}.bias" for name in names)),
    ]


def norm(path: str, name: str) -> list[Row]:
    """Returns the rows of a norm."""
    return [Row(f"{path}/scale", (f"{name}.weight",)), Row(f"{path}/offset", (f"{name}.bias",))]


def bring_in(
    rows: Iterable[Row],
    tensors: Mapping[str, np.ndarray],
    shapes: Mapping[str, Shape],
    source: str,
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Makes our variables from the tensors of another tool.

    Args:
      rows: the table.
      tensors: the tensors by name. They are read one at a time.
      shapes: the shapes of our variables by path. Each path needs a row.
      source: the name of the file for messages.

    Returns:
      Our variables by path, float32 or float64 as in the source; and the names of tensors that no
      row has.

    Raises:
      UserError: a tensor is missing, its shape differs from the config, or its values are not
        finite floating-point numbers.
    """
    # A set of names, because a lookup in `tensors` may read a tensor.
    rows, present = list(rows), set(tensors)
    missing = [name for row in rows for name in row.names if name not in present]
    if present and missing and len(missing) == sum(len(row.names) for row in rows):
        raise UserError(
            f"{source} has none of the tensors of its config, such as {missing[0]}; it has "
            f"{_listed(sorted(present), 3)}: do they belong to another model, or another class?"
        )
    if missing:
        raise UserError(
            f"{source} lacks {_listed(missing)}: the file is incomplete, or its config describes "
            "another model"
        )
    variables = {}
    for row in rows:
        expected = row.part_shape(shapes[row.path])
        parts = []
        for name in row.names:
            part = row.pick(numbers(tensors[name], name, source))
            if part.shape != expected:
                raise UserError(
                    f"{source}: tensor {name} has the shape {list(part.shape)}, the config "
                    f"expects {list(expected)}: are tensors and config of the same model?"
                )
            parts.append(part)
        variables[row.path] = row.join(parts, shapes[row.path])
    used = {name for row in rows for name in row.names}
    return variables, sorted(present - used)


def numbers(tensor: np.ndarray, name: str, source: str) -> np.ndarray:
    """Returns a tensor as float32, or as float64 if it is float64.

    Raises:
      UserError: it holds no floating-point numbers, NaN or infinity.
    """
    array = np.asarray(tensor)
    # NumPy does not count ml_dtypes' bfloat16 among the floating-point types.
    if not np.issubdtype(array.dtype, np.floating) and array.dtype.name != "bfloat16":
        raise UserError(
            f"{source}: tensor {name} is of type {array.dtype}, but weights must be floating-point "
            "numbers (quantized weights are not supported)"
        )
    array = array if array.dtype == np.float64 else array.astype(np.float32)
    if not np.isfinite(array).all():
        raise UserError(
            f"{source}: tensor {name} contains NaN or infinity: the file is damaged, or the "
            "training that made it has diverged"
        )
    return array


def take_out(rows: Iterable[Row], variables: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Makes the tensors of another tool from our variables."""
    tensors: dict[str, np.ndarray] = {}
    for row in rows:
        for name, tensor in row.split(variables[row.path]).items():
            before = [tensors[name]] if row.part and row.part[0] else []
            tensors[name] = np.concatenate([*before, tensor]) if before else tensor
    return tensors


def _listed(names: list[str], limit: int = 5) -> str:
    more = f" and {len(names) - limit} more tensors" if len(names) > limit else ""
    kind = "the tensor " if len(names) == 1 else "the tensors "
    return kind + ", ".join(names[:limit]) + more


def layer_rows(
    count: int, stem: str, matrices: Mapping[str, Iterable[str]], norms: Mapping[str, str]
) -> list[Row]:
    """Returns the rows of the affine maps and norms of `count` layers.

    Args:
      count: the number of layers.
      stem: the tensors of layer i begin with this and `.i`.
      matrices: the names of the tensors of each affine map of a layer, by our paths in the layer.
      norms: the names of the tensors of each norm of a layer, by our paths in the layer.
    """
    rows = []
    for i in range(count):
        ours, theirs = f"encoder/layer_{i}", f"{stem}.{i}"
        for path, names in matrices.items():
            rows += linear(f"{ours}/{path}", *(f"{theirs}.{name}" for name in names))
        for path, name in norms.items():
            rows += norm(f"{ours}/{path}", f"{theirs}.{name}")
    return rows
