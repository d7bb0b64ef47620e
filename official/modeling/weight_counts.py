"""Counts the weights of a config without allocating them."""

import dataclasses
import math
from collections.abc import Iterable, Iterator

import keras

from official import config as configs
from official.config import registry
from official.modeling.model import Model
from official.utils import keras_private


@dataclasses.dataclass(frozen=True)
class Counts:
    """The numbers of weights of a config.

    Attributes:
      encoders: the number of weights by network: `encoder`, the networks of objectives
        (`generator/encoder`), and `encoder_alone` (without the decoder) if there is a decoder.
      heads: the number of weights by objective, without these networks.
      total: the number of weights of the model. Shared weights count once.
      multiplied: the number of weights in kernels of all encoders and networks; a shared block
        counts once for each use. Training takes about six floating-point operations for each of
        these weights and each token; embeddings are looked up and do not count (Kaplan et al.,
        2020, section 2.1).
    """

    encoders: dict[str, int]
    heads: dict[str, int]
    total: int
    multiplied: int

    def lines(self) -> Iterator[str]:
        """Yields the lines of a table."""
        sums = {"all": self.total, "multiplied": self.multiplied}
        for part, number in {**self.encoders, **self.heads, **sums}.items():
            yield f"  {part:28} {number:>13,}"


def count(config: configs.ResolvedConfig) -> Counts:
    """Counts the weights of a config whose encoder has a vocabulary size.

    Raises:
      UserError: the config has no vocabulary size, or its encoder and objectives do not match.
    """
    with keras_private.uninitialized_variables():
        model = Model(config)
    kinds = tuple(registry.module_of(part()).Encoder for part in registry.ENCODERS.values())
    encoders = {"encoder": model.encoder}
    alone = None
    if model.encoder.decoder is not None:
        alone = size(model.encoder.variables) - size(model.encoder.decoder.variables)
    heads = {}
    for objective in model.objectives:
        inside = [
            layer
            for layer in keras_private.sublayers(objective, include_self=False)
            if isinstance(layer, kinds) and layer is not model.encoder
        ]
        encoders |= {f"{objective.name}/{layer.name}": layer for layer in inside}
        counted = {id(v) for layer in [model.encoder, *inside] for v in layer.variables}
        heads[objective.name] = size(v for v in objective.variables if id(v) not in counted)
    numbers = {name: size(layer.variables) for name, layer in encoders.items()}
    return Counts(
        numbers if alone is None else {**numbers, "encoder_alone": alone},
        heads,
        size(model.variables),
        sum(_multiplied(layer) for layer in encoders.values()),
    )


def _multiplied(encoder: keras.Layer) -> int:
    """Returns the size of the kernels of an encoder; blocks are multiplied by their uses."""
    kernels = {id(v): v for v in encoder.variables if v.path.endswith("/kernel")}
    total = size(kernels.values())
    for number, block in enumerate(getattr(encoder, "blocks", ())):
        again = list(getattr(encoder, "depths", ())).count(number) - 1
        total += max(0, again) * size(v for v in block.variables if id(v) in kernels)
    return total


def size(variables: Iterable[keras.Variable]) -> int:
    """Returns the number of weights in some variables."""
    return sum(math.prod(variable.shape) for variable in variables)
