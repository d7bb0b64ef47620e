"""Which of another tool's tensors make up one of our variables, and the moves there and back.

A system's table is a list of `Row`s. The same row is read in both directions and every move is a
permutation of elements, so out and in again gives the same bits.
"""

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np

from official.utils.errors import UserError

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Row:
    """One of our variables and the tensors it is made of.

    Attributes:
      path: the path of our variable.
      names: the other side's tensors, in the order they stand along our last axis.
      transposed: whether the other side keeps matrices as [out, in] (torch's Linear).
      axes: the shape of each named tensor where the other side has more axes than ours (heads
        apart), which are put together in their order; None = it has as many.
      layer: where the other side has one tensor for all layers, one after the other along its
        first axis, the number of ours. Such rows are read only.
    """

    path: str
    names: tuple[str, ...]
    transposed: bool = False
    axes: Shape | None = None
    layer: int | None = None

    def part_shape(self, shape: Shape) -> Shape:
        """The shape of each named tensor, or of its layer, when our variable has `shape`."""
        return self.axes or self._matrix(shape)

    def _matrix(self, shape: Shape) -> Shape:
        part = (*shape[:-1], shape[-1] // len(self.names))
        return part[::-1] if self.transposed else part

    def pick(self, tensor: np.ndarray) -> np.ndarray:
        """The part of a named tensor that is ours: all of it, or one layer."""
        within = self.layer is not None and tensor.ndim and self.layer < len(tensor)
        return tensor[self.layer] if within else tensor

    def join(self, parts: Iterable[np.ndarray], shape: Shape) -> np.ndarray:
        """Theirs to ours, which has `shape`."""
        parts = [part.reshape(self._matrix(shape)) for part in parts]
        parts = [part.T if self.transposed else part for part in parts]
        return np.ascontiguousarray(np.concatenate(parts, axis=-1))

    def split(self, variable: np.ndarray) -> dict[str, np.ndarray]:
        """Ours to theirs."""
        parts = np.split(variable, len(self.names), axis=-1)
        # Contiguous, because safetensors writes memory as it lies and ignores strides.
        parts = [np.ascontiguousarray(part.T if self.transposed else part) for part in parts]
        parts = [part.reshape(self.axes or part.shape) for part in parts]
        return dict(zip(self.names, parts, strict=True))


def linear(path: str, *names: str) -> list[Row]:
    """The rows of an affine map of ours that torch keeps in one layer, or side by side in some."""
    return [
        Row(f"{path}/kernel", tuple(f"{name}.weight" for name in names), transposed=True),
        Row(f"{path}/bias", tuple(f"{name}.bias" for name in names)),
    ]


def norm(path: str, name: str) -> list[Row]:
    """The rows of a norm."""
    return [Row(f"{path}/scale", (f"{name}.weight",)), Row(f"{path}/offset", (f"{name}.bias",))]


def bring_in(
    rows: Iterable[Row],
    tensors: Mapping[str, np.ndarray],
    shapes: Mapping[str, Shape],
    source: str,
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Makes our variables out of another tool's tensors.

    Args:
      rows: the table.
      tensors: the other side's tensors by name; read one at a time.
      shapes: the shape of each of our variables by path; every path needs a row.
      source: what to call the place the tensors come from in messages.

    Returns:
      Our variables by path (float32 unless the source has float64), and the names of the tensors
      that no row asks for.

    Raises:
      UserError: tensors are missing, or one has another shape than the config says, or holds
        something else than finite floating-point numbers.
    """
    rows, present = list(rows), set(tensors)  # a set: to look into `tensors` may be to read them
    missing = [name for row in rows for name in row.names if name not in present]
    if missing:
        raise UserError(
            f"{source} lacks {_listed(missing)}: the file is not whole, or its config "
            "describes another model"
        )
    variables = {}
    for row in rows:
        expected = row.part_shape(shapes[row.path])
        parts = []
        for name in row.names:
            part = row.pick(_numbers(tensors[name], name, source))
            if part.shape != expected:
                raise UserError(
                    f"{source}: tensor {name} has the shape {list(part.shape)}, the config asks "
                    f"for {list(expected)}: are tensors and config of the same model?"
                )
            parts.append(part)
        variables[row.path] = row.join(parts, shapes[row.path])
    used = {name for row in rows for name in row.names}
    return variables, sorted(present - used)


def _numbers(tensor: np.ndarray, name: str, source: str) -> np.ndarray:
    """A tensor as float32, or as float64 where it is that."""
    array = np.asarray(tensor)
    # ml_dtypes' bfloat16 is no kind of NumPy's floating-point types.
    if not np.issubdtype(array.dtype, np.floating) and array.dtype.name != "bfloat16":
        raise UserError(
            f"{source}: tensor {name} is of type {array.dtype}, and weights are floating-point "
            "numbers (quantized weights are not supported)"
        )
    array = array if array.dtype == np.float64 else array.astype(np.float32)
    if not np.isfinite(array).all():
        raise UserError(
            f"{source}: tensor {name} has NaN or infinity in it: the file is damaged, or the "
            "training that made it has failed"
        )
    return array


def take_out(rows: Iterable[Row], variables: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Makes another tool's tensors out of our variables."""
    tensors: dict[str, np.ndarray] = {}
    for row in rows:
        tensors.update(row.split(variables[row.path]))
    return tensors


def _listed(names: list[str], limit: int = 5) -> str:
    more = f" and {len(names) - limit} more tensors" if len(names) > limit else ""
    kind = "the tensor " if len(names) == 1 else "the tensors "
    return kind + ", ".join(names[:limit]) + more
