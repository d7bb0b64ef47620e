"""Which weights of a model learn: `recipe.freeze_encoder` and `recipe.trainable`."""

import itertools
from collections.abc import Iterable

import keras

from official.config import Recipe
from official.config.trainable import Trainable
from official.modeling.encoders.base import Encoder
from official.modeling.layers.block import Adapter
from official.modeling.layers.low_rank import LowRank
from official.modeling.layers.norm import NORMS
from official.modeling.model import Model
from official.modeling.weight_counts import size
from official.utils import keras_private
from official.utils.errors import UserError


def freeze(model: Model, recipe: Recipe) -> None:
    """Keeps weights of the encoder from training, and those that heads share with it.

    They then have neither gradients nor moments, and take no part in the norm of the gradient. What
    all layers share (relative position biases) learns with the first layer.

    Args:
      model: the model, before its optimizer is made.
      recipe: the recipe, which suits the encoder.

    Raises:
      UserError: nothing learns, because the objectives have no weights of their own.
    """
    if recipe.freeze_encoder:
        model.freeze_encoder()
    if recipe.trainable is not None:
        for variable in _frozen(model.encoder, recipe.trainable):
            variable.trainable = False
    if not model.trainable_variables:
        names = ", ".join(objective.name for objective in model.objectives)
        key = "freeze_encoder: true" if recipe.freeze_encoder else "trainable"
        raise UserError(
            f"recipe.{key}, and the objectives ({names}) have no weights of their own: no weight "
            "would learn; remove it"
        )


def _frozen(encoder: Encoder, trainable: Trainable) -> list[keras.Variable]:
    """Returns the variables of an encoder that do not learn."""
    if trainable.lora is not None or trainable.adapters is not None:
        kinds = (LowRank,) if trainable.lora else (Adapter, *NORMS.values())
        added = [v for v in keras_private.sublayers(encoder) if isinstance(v, kinds)]
        learning = _variables([*added, encoder.pooler])
        return [v for v in encoder.variables if not any(v is other for other in learning)]
    below, embeddings = _below(encoder, trainable), encoder.by_depth()[0]
    frozen = [] if trainable.learns_embeddings else embeddings
    if trainable.unfreeze_every is None:
        frozen = [*frozen, *itertools.chain(*below)]
    return _variables(frozen)


def _below(encoder: Encoder, trainable: Trainable) -> list[list[keras.Layer]]:
    """Returns the layers below those that learn from the start, from the last one down."""
    _, *layers = encoder.by_depth()
    count = len(layers) if trainable.layers is None else trainable.layers
    return layers[: len(layers) - count][::-1]


def first_steps(model: Model, recipe: Recipe) -> dict[str, int]:
    """Returns the number of steps after which a variable learns, by its path.

    Other variables learn from the start, and the embeddings begin last.
    """
    trainable, encoder = recipe.trainable, model.encoder
    if trainable is None or trainable.unfreeze_every is None:
        return {}
    stages = [*_below(encoder, trainable), encoder.by_depth()[0]]
    return {
        variable.path: number * trainable.unfreeze_every
        for number, layers in enumerate(stages, start=1)
        for variable in _variables(layers)
        if variable.trainable
    }


def _variables(layers: Iterable[keras.Layer | None]) -> list[keras.Variable]:
    return [v for layer in layers if layer is not None for v in layer.variables]


def described(model: Model, recipe: Recipe) -> str:
    """Returns the number of weights of a model and the share that learns, in words."""
    total, learning = size(model.variables), model.trainable_variables
    share = _share(learning, total)
    if steps := first_steps(model, recipe):
        first = _share((v for v in learning if v.path not in steps), total)
        share = f"{first}; from step {max(steps.values()):,} {share}"
    return f"{total:,} weights ({share})"


def _share(variables: Iterable[keras.Variable], total: int) -> str:
    count = size(variables)
    return "all learn" if count == total else f"{count:,} learn: {100 * count / total:.3g}%"
