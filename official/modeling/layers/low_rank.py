"""Low-rank updates of the kernels of transformer layers: LoRA (Hu et al., 2021, section 4.1).

In training, a kernel W is replaced by W + alpha / r A B, of which only A and B are trained. (The
paper writes B A, for column vectors as inputs.) A is random and B is 0 at the start, so the first
step uses W. After training, `merged` replaces the kernels by their sums, so that readers of a model
see ordinary kernels.

Shapes: I input size, O output size of a target, r rank.
"""

import re
from collections.abc import Iterator, Mapping

import numpy as np
from keras import ops
from typing_extensions import override

from official.config.trainable import TARGETS, LoRA
from official.modeling.layers.base import Layer
from official.modeling.layers.block import Block, RelativeBlock
from official.modeling.layers.linear import Linear, block_names
from official.modeling.layers.random import Draws, RandomWeights
from official.modeling.types import DType, Initializer, Tensor
from official.utils import keras_private
from official.utils.errors import UserError

_PREFIX = "lora_"
_PATH = re.compile(rf"(.*/([^/]+))/{_PREFIX}([^/]+)/[ab]")


class LowRank(Layer):
    """The update of a kernel, or of one of its column blocks: `a` [I, r] and `b` [r, O]."""

    def __init__(
        self,
        input_size: int,
        output_size: int,
        rank: int,
        *,
        factor: float,
        initializer: Initializer,
        name: str | None = None,
        dtype: DType | None = None,
    ):
        """Describes the update.

        Args:
            input_size: I.
            output_size: O.
            rank: r.
            factor: alpha / r.
            initializer: initializer of `a`.
            name: last part of the variables' paths.
            dtype: Keras dtype policy; None = the global one.
        """
        super().__init__(name=name, dtype=dtype)
        self.shapes = (input_size, rank), (rank, output_size)
        self.factor = factor
        self.initializer = initializer

    @override
    def build(self, input_shape=None):
        self.a = self.add_weight(self.shapes[0], self.initializer, name="a")
        self.b = self.add_weight(self.shapes[1], "zeros", name="b")

    def product(self) -> Tensor:
        """Returns alpha / r A B: [I, O]."""
        return ops.matmul(self.a, self.b) * self.factor


def attach(encoder: Layer, lora: LoRA, seed: int) -> None:
    """Adds updates to kernels of all transformer layers of an encoder, before it is built.

    A is drawn as in the release: uniform in [-1 / sqrt(I), 1 / sqrt(I)].

    Args:
        encoder: the encoder.
        lora: the rank, the factor, and the names of the targets.
        seed: the initial values of A are a function of it.

    Raises:
        UserError: a target names no kernel of the encoder.
    """
    draws, missing = Draws.of_name(seed, "lora"), set(lora.targets)
    for layer in _linear_layers(encoder):
        names = block_names(layer.name, layer.column_blocks)
        layer.updates = {
            number: LowRank(
                layer.input_size,
                layer.output_size // len(names),
                lora.rank,
                factor=lora.factor,
                initializer=RandomWeights("uniform", layer.input_size**-0.5, draws),
                name=f"{_PREFIX}{name}",
                dtype=layer.dtype_policy,
            )
            for number, name in enumerate(names)
            if name in lora.targets
        }
        missing -= set(names)
    if missing:
        raise UserError(
            f"recipe.trainable.lora.targets: {', '.join(sorted(missing))}: the encoder has no such "
            "kernel; remove it"
        )


def _linear_layers(encoder: Layer) -> list[Linear]:
    """Returns the linear layers of attention and feed-forward networks."""
    parts: list[Layer] = []
    for block in keras_private.sublayers(encoder):
        if isinstance(block, Block | RelativeBlock):
            parts += [block.attention, block.feed_forward]
        if isinstance(block, Block) and block.cross_attention is not None:
            parts.append(block.cross_attention)
    inside = [layer for part in parts for layer in keras_private.sublayers(part)]
    return [layer for layer in inside if isinstance(layer, Linear)]


def is_update(path: str) -> bool:
    """Returns whether a path belongs to a variable of a `LowRank`."""
    return _PATH.fullmatch(path) is not None


def target(path: str) -> str:
    """Returns the target of the variable of a `LowRank`, such as `query`."""
    match = _PATH.fullmatch(path)
    assert match is not None, path
    return match[3]


def update_layers(kernel: str) -> list[str]:
    """Returns the paths of the updates that a kernel may have, in the order of its columns.

    Args:
        kernel: the path of a variable; only kernels of an encoder that targets name have updates.
    """
    layer, _, variable = kernel.rpartition("/")
    names = layer.rpartition("/")[2].split("_")
    if variable != "kernel" or not kernel.startswith("encoder/") or not {*names} <= {*TARGETS}:
        return []
    return [f"{layer}/{_PREFIX}{name}" for name in names]


def merged(arrays: Mapping[str, np.ndarray], factor: float) -> dict[str, np.ndarray]:
    """Adds the updates to their kernels.

    Args:
        arrays: the variables of a model by path.
        factor: alpha / r.

    Returns:
        The variables with merged kernels, without the updates.
    """
    result = {path: array for path, array in arrays.items() if not is_update(path)}
    for path, first, a, b in updates(arrays):
        kernel = np.array(result[path])
        kernel[:, first : first + b.shape[1]] += factor * (a.astype(np.float64) @ b)
        result[path] = kernel
    return result


def updates(
    arrays: Mapping[str, np.ndarray],
) -> Iterator[tuple[str, int, np.ndarray, np.ndarray]]:
    """Yields the path of a kernel, the first column that is updated, A [I, r] and B [r, O].

    Args:
        arrays: the variables of a model by path, with kernels and updates.
    """
    for path, a in arrays.items():
        match = _PATH.fullmatch(path)
        if match is None or not path.endswith("/a"):
            continue
        layer, name, target = match.groups()
        b, kernel = arrays[f"{path[:-1]}b"], f"{layer}/kernel"
        size = b.shape[1]
        names = block_names(name, arrays[kernel].shape[1] // size)
        yield kernel, size * names.index(target), a, b
