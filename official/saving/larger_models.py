"""A model that starts from the weights of a smaller one, as ModernBERT-large does from base.

Layers are repeated, and widths are tiled from the middle: the middle of each axis is a copy, and
the edges continue it as if it were a ring (Warner et al., 2024, section 2.2.2, and the release).
Matrices that a layer joins are tiled separately: queries, keys and values, each by whole heads. The
gate and the inner map of a feed-forward network have separate kernels.

Shapes: n old and N new elements of an axis or layers.
"""

import dataclasses
import re
from collections.abc import Mapping

import numpy as np

from official import config as configs
from official.config.encoders import TransformerConfig
from official.saving import model_folder
from official.utils import keras_private
from official.utils.errors import UserError

_SIZES = ("hidden_size", "num_layers", "num_heads", "intermediate_size")
# Settings that the weights do not depend on.
_FREE = (
    "dropout", "attention_dropout", "attention_output_dropout", "rotary_theta", "initializer",
    "initializer_range", "position_initializer_range", "scale_residual_init",
)  # fmt: skip
_OBJECTIVES = ("masked_lm", "causal_lm", "sentence_pair")
_LAYER = re.compile(r"(?<=^encoder/layer_)\d+")
_HEADS = re.compile(r"/attention/(?!output/)|/attention/output/kernel$")
_TAPS = "encoder/convolution/taps/kernel"


def layer_map(old: int, new: int) -> list[int]:
    """Returns the old layer of each new one: i * n / N, rounded, halves to the even number."""
    return [min(round(i * old / new), old - 1) for i in range(new)]


def from_middle(old: int, new: int) -> np.ndarray:
    """Returns the old element of each new one, int [N]: the old ones in the middle, as a ring."""
    return (np.arange(new) - (new - old) // 2) % old


def enlarged(
    small: configs.ResolvedConfig,
    variables: Mapping[str, np.ndarray],
    large: configs.ResolvedConfig,
    source: str = "model",
) -> dict[str, np.ndarray]:
    """Returns the variables of a larger model by path.

    Args:
      small: the config of the model.
      variables: its variables by path.
      large: the config of the larger model.
      source: the folder of the model, for messages.

    Raises:
      UserError: the two differ in more than their sizes, or a size is not larger.
    """
    encoder = check(small, large, source)
    layers = layer_map(small.encoder.num_layers, encoder.num_layers)
    taps = 1 if encoder.convolution is None else encoder.convolution.kernel_size
    with keras_private.uninitialized_variables():
        made = model_folder.build(large).variables_by_path()
    result = {}
    for path, variable in made.items():
        array = variables[_LAYER.sub(lambda found: str(layers[int(found[0])]), path)]
        for axis, new in enumerate(variable.shape):
            last = axis == len(variable.shape) - 1
            blocks = getattr(variable, "column_blocks", 1) if last else 1
            if path == _TAPS and axis == 0:
                blocks = taps
            # The axis of the heads: the last one of all attention kernels, but the first one of the
            # output.
            whole = _HEADS.search(path) and last != path.endswith("/output/kernel")
            unit = encoder.hidden_size // encoder.num_heads if whole else 1
            array = np.take(array, _places(array.shape[axis], new, blocks, unit), axis)
        result[path] = np.ascontiguousarray(array)
    return result


def _places(old: int, new: int, blocks: int, unit: int) -> np.ndarray:
    """Returns the old element of each new one of an axis: int [N].

    Args:
      old: n.
      new: N.
      blocks: the number of parts of the axis that are tiled apart.
      unit: the number of elements that stay together.
    """
    units = from_middle(old // blocks // unit, new // blocks // unit)
    block = (units[:, None] * unit + np.arange(unit)).reshape(-1)
    return (np.arange(blocks)[:, None] * (old // blocks) + block).reshape(-1)


def check(
    small: configs.ResolvedConfig, large: configs.ResolvedConfig, source: str
) -> TransformerConfig:
    """Returns the encoder of a model that differs from a smaller one in its sizes alone.

    Args:
      small: the config of the smaller model.
      large: that of the larger one.
      source: the folder of the smaller one, for messages.

    Raises:
      UserError: the models differ in more than their sizes.
    """
    theirs, ours = _encoder(small, source), _encoder(large, large.name)
    same = {key: getattr(theirs, key) for key in (*_SIZES, *_FREE)}
    kept = dataclasses.replace(
        small, encoder=dataclasses.replace(ours, **same), objectives=large.objectives
    )
    for key, new, old in configs.differences(kept, small):
        if not key.endswith(".weight"):
            raise UserError(
                f"{key}: {new} in the config of {large.name} and {old} in {source}: models that "
                "differ in more than their sizes have other weights: make both the same"
            )
    for key in _SIZES:
        if getattr(ours, key) < getattr(theirs, key):
            raise UserError(
                f"encoder.{key}: {getattr(ours, key)} is below that of {source}, "
                f"{getattr(theirs, key)}: a model starts from a smaller one: raise it"
            )
    heads = [encoder.hidden_size // encoder.num_heads for encoder in (ours, theirs)]
    if heads[0] != heads[1]:
        raise UserError(
            f"encoder.num_heads: {ours.num_heads} heads have the size {heads[0]}, and those of "
            f"{source} {heads[1]}: heads are tiled as a whole: take {ours.hidden_size // heads[1]}"
        )
    again = layer_map(theirs.num_layers, ours.num_layers).count(0)
    if not ours.first_norm and again > 1:
        raise UserError(
            f"encoder.num_layers: {ours.num_layers}: layer 1 would be layer 0 of {source}, which "
            f"has no norm (first_norm: false): take less than {2 * theirs.num_layers}"
        )
    return ours


def _encoder(config: configs.ResolvedConfig, name: str) -> TransformerConfig:
    """Returns the encoder of a config, of which all weights can be tiled.

    Raises:
      UserError: some cannot.
    """
    encoder = config.encoder
    if not isinstance(encoder, TransformerConfig):
        raise UserError(
            f"{name}: encoder.type: {encoder.type}: not supported here: take transformer"
        )
    for key in ("layer_groups", "num_key_value_heads", "adapter_size"):
        if getattr(encoder, key) is not None:
            raise UserError(f"{name}: encoder.{key}: not supported here: take a model without")
    for objective in config.objectives:
        if objective.type not in _OBJECTIVES:
            raise UserError(
                f"{name}: objectives: {objective.type} is not one of {', '.join(_OBJECTIVES)}, "
                "whose weights can be tiled: remove it"
            )
    return encoder
