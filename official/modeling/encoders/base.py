"""The base class of encoders, and the states that a pooler reads.

Shapes: B batch, T length, D hidden, K pooled positions.
"""

import keras
from keras import ops

from official.modeling import masks
from official.modeling.layers import gather
from official.modeling.layers.base import Layer
from official.utils import keras_private


class Encoder(Layer):
    """An encoder; see the modules of this package for its arguments and outputs.

    Attributes:
        batch_fields: the arguments that only some encoders have and `inputs.encode` gives.
        reads_positions: whether a call computes only the positions that are read; see
            `official.modeling.encoders.inputs`.
    """

    batch_fields = ()
    reads_positions = False

    def compute_output_spec(self, *args, **kwargs):
        """Returns the shapes and dtypes of the outputs, with None for lengths that are not known.

        But for TensorFlow, two lengths are tried: backends put numbers in the place of None that
        may exceed the positions of the encoder, or symbols that cannot be compared with them.
        """
        if keras.backend.backend() == "tensorflow":
            return super().compute_output_spec(*args, **kwargs)
        longest = min(self.config.max_positions, _LONGEST)
        outputs, others = (
            super(Encoder, self).compute_output_spec(*_of_length(args, n), **_of_length(kwargs, n))
            for n in (longest, longest - 1)
        )
        return keras.tree.map_structure(_alike, outputs, others)

    def compute_mask(self, inputs, previous_mask):
        """Returns None: `with_mask` gives each output its mask."""
        del inputs, previous_mask

    def padding_of(self, token_ids, padding_mask):
        """Returns the padding mask [B, T] that is given, or that Keras keeps with the tokens."""
        return keras_private.mask_of(token_ids) if padding_mask is None else padding_mask

    def masked(self, attention_mask, padding_mask):
        """Returns a mask of attention without padding: bool, broadcastable to [B, N, T, S].

        `attention_mask` or `padding_mask` [B, T] or both may be None.
        """
        if padding_mask is None:
            return attention_mask
        return masks.combine(attention_mask, masks.padding(padding_mask))

    def with_mask(self, outputs, padding_mask):
        """Returns the outputs of a call, whose states have a padding mask [B, T] for Keras layers.

        None = they have none.
        """
        if padding_mask is not None:
            for states in (outputs["sequence_output"], *outputs.get("hidden_states", ())):
                keras_private.set_mask(states, padding_mask)
        return outputs


def pooled_states(x, position, real=None, given=None):
    """Returns the states of the pooled positions.

    Args:
        x: [B, T, D].
        position: 'first', or 'last' for the last position of each row that is not padding.
        real: bool [B, T], False for padding; None = there is no padding.
        given: int [B, K], positions to use instead; None = `position`.

    Returns:
        [B, D], or [B, K, D] with `given`.
    """
    if given is not None:
        return gather.each(x, given)
    if position == "first":
        return x[:, 0]
    return gather.positions(x, pooled_positions(x, position, real))


def pooled_positions(x, position, real=None, given=None):
    """Returns the pooled positions: int [B, K], or [B, 1]; the arguments are those of `states`."""
    if given is not None:
        return given
    batch, length, _ = ops.shape(x)
    if position == "first":
        return ops.zeros((batch, 1), "int32")
    if real is None:
        return ops.full((batch, 1), length - 1, "int32")
    last = ops.where(real, ops.arange(length, dtype="int32"), 0)
    return ops.max(last, axis=1, keepdims=True)


_LONGEST = 16  # of the lengths that are tried


def _of_length(tensors, length):
    """Returns symbolic tensors with a length in the place of None, but for the number of rows."""

    def known(x):
        if not isinstance(x, keras.KerasTensor):
            return x
        sizes = [length if size is None else size for size in x.shape[1:]]
        return keras.KerasTensor((*x.shape[:1], *sizes), x.dtype)

    return keras.tree.map_structure(known, tensors)


def _alike(one, other):
    """Returns a symbolic tensor with None in the place of sizes that differ."""
    if one is None:
        return None
    sizes = [a if a == b else None for a, b in zip(one.shape, other.shape, strict=True)]
    return keras.KerasTensor(sizes, one.dtype)
