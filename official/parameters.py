"""Counts the weights of what configs describe, without making them.

  python -m official.parameters configs/pretrain/*.yaml [--vocab_size=N] [--override=a.b=c]...

For each config: the weights of the encoder (pooler included where it has one), which is the number
that papers give, those of each head, and of all together. A network that an objective brings with
it (ELECTRA's generator) is counted whole, with the tables that it shares with the encoder; those
count once in the sum. A model folder will do for a config; `--vocab_size` is for configs that leave
it to the tokenizer. Of several configs, those that leave too much open are passed over in words.
"""

import dataclasses
import math
import sys
from collections.abc import Iterable, Iterator

import keras
from absl import app, flags

from official import config as configs
from official.config import registry
from official.modeling.model import Model
from official.utils import errors, keras_private
from official.utils.errors import UserError


def define_flags() -> None:
    """The flags of this command."""
    flags.DEFINE_integer(
        "vocab_size", None, "of the tokenizer, for configs that leave it open", lower_bound=1
    )
    flags.DEFINE_multi_string("override", [], "key.subkey=value, read as YAML")


@dataclasses.dataclass(frozen=True)
class Counts:
    """Weights of a config.

    Attributes:
      encoders: by name: `encoder`, and whatever networks objectives bring (`generator/encoder`).
      heads: by objective, without the networks above.
      total: of all together, what is shared counted once.
    """

    encoders: dict[str, int]
    heads: dict[str, int]
    total: int


def count(config: configs.Config) -> Counts:
    """Counts the weights of a config whose encoder has a vocabulary size.

    Raises:
      UserError: the config has no encoder or no vocabulary size, or its parts do not fit together.
    """
    if lacking := _left_open(config):
        raise UserError(lacking)
    with keras_private.uninitialized_variables():
        model = Model(config)
    kinds = tuple(registry.module_of(part()).Encoder for part in registry.ENCODERS.values())
    encoders = {"encoder": model.encoder}
    heads = {}
    for objective in model.objectives:
        inside = [
            layer
            for layer in keras_private.sublayers(objective, include_self=False)
            if isinstance(layer, kinds) and layer is not model.encoder
        ]
        encoders |= {f"{objective.name}/{layer.name}": layer for layer in inside}
        counted = _ids(v for layer in [model.encoder, *inside] for v in layer.variables)
        heads[objective.name] = _size(v for v in objective.variables if id(v) not in counted)
    return Counts(
        {name: _size(layer.variables) for name, layer in encoders.items()},
        heads,
        _size(model.variables),
    )


def _ids(variables: Iterable[keras.Variable]) -> set[int]:
    return {id(variable) for variable in variables}


def _size(variables: Iterable[keras.Variable]) -> int:
    return sum(math.prod(variable.shape) for variable in variables)


def table(name: str, counts: Counts) -> Iterator[str]:
    """Yields the lines that are printed for a config."""
    yield name
    for part, number in {**counts.encoders, **counts.heads, "all": counts.total}.items():
        yield f"  {part:28} {number:>13,}"


def main(argv: list[str]) -> None:
    """Prints the counts of every config named."""
    if len(argv) < 2:
        raise UserError("name configs: python -m official.parameters CONFIG...")
    for path in argv[1:]:
        config = configs.load(path, flags.FLAGS.override)
        if config.encoder is not None and flags.FLAGS.vocab_size:
            size = config.encoder.vocab_size or flags.FLAGS.vocab_size
            encoder = dataclasses.replace(config.encoder, vocab_size=size)
            config = dataclasses.replace(config, encoder=encoder)
        if (lacking := _left_open(config)) and len(argv) > 2:
            print(f"{path}\n  not counted: {lacking}")
            continue
        try:
            counts = count(config)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        print("\n".join(table(path, counts)))


def _left_open(config: configs.Config) -> str:
    """Says what a config leaves to others, without which nothing can be counted."""
    if config.encoder is None:
        return (
            "encoder: the config has none (it comes with --init): name a pretraining config or a "
            "model folder"
        )
    if config.encoder.vocab_size is None:
        return "encoder.vocab_size: left to the tokenizer: give --vocab_size=N"
    return ""


def run() -> None:
    """Defines the flags and runs the command line."""
    define_flags()
    app.define_help_flags()
    arguments = app.parse_flags_with_usage(sys.argv)
    sys.argv = sys.argv[:1]
    errors.run(lambda _: main(arguments))


if __name__ == "__main__":
    run()
