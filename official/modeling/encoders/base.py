"""The base class of encoders, and the states that a pooler reads.

Shapes: B batch, T length, D hidden, K pooled positions.
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from official.config.parts import EncoderConfig
from official.modeling import masks
from official.modeling.layers.base import Layer
from official.modeling.layers.kernels import flat_positions, take_positions
from official.modeling.types import DType, Size, Tensor
from official.utils import keras_private


class Encoder(Layer):
    """The base class of encoders.

    Each module of `official.modeling.encoders` that a config can name (`encoder.type`) has a
    subclass `Encoder`, with the constructor `(config, *, seed=0, name="encoder", dtype=None)`.

    Call arguments of every encoder, by position or by name:
        token_ids: int [B, T].
        segment_ids: int [B, T]; None = all 0.
        attention_mask: bool, broadcastable to [B, N, T, T], True = may attend; None = all.
            `official.modeling.masks.padding` makes one from a padding mask.
        positions: int [B, T] or [1, T]; None = 0, 1, 2, ...
        rng: `Draws`, or None for inference (no dropout).
        output_all: whether to return the states and attention weights of all layers.
        pooled_positions: int [B, K], positions to pool; None = `config.pooled_position`.
        padding_mask: [B, T], true (or not 0) for tokens, which is combined with `attention_mask`;
            None = the mask that Keras keeps with `token_ids`, or there is no padding.
        training: whether Keras trains; dropout without `rng` is then drawn from the layer's seeds.

    A call returns a dict with
        `sequence_output` [B, T, D];
        `pooled_output` [B, D] if there is a pooler, or [B, K, D] with `pooled_positions`;
        `hidden_states` with `output_all`: a tuple of `config.num_states` tensors [B, T, D], the
            embeddings first and `sequence_output` last;
        `attentions` with `output_all`: a tensor [B, N, T, S] for each layer, if there is attention.

    Attributes:
        config: an `official.config.parts.EncoderConfig`.
        reads_positions: whether a call has the argument `read_positions` int [B, P]. It then
            computes only these positions of the last layer, beside those that are pooled.
        takes_parts: whether a call has the argument `part_ids` int [B, T]: tokens attend only to
            tokens of their own part of a row. Other encoders get this as an attention mask.
        token_table: the `Table` of the tokens, for outputs that are tied to it; None = there is
          none.
        depths: the index in `blocks` of the block that runs at each depth after `embeddings`; () =
            the layers have no single order.
        pooler: the linear layer of the pooled output; None = there is none.
        of_schemes: the names of the layers that its position schemes have made, which all blocks
          read.
        convolution: the `TokenConvolution` beside the first block; None = there is none.
        decoder: the layers of a decoder; None = there is none.
        recompute: whether training keeps only the inputs of blocks, and recomputes values inside a
            block for the gradient. Only the transformer reads it.
    """

    reads_positions = False
    takes_parts = False
    recompute = False
    depths: Sequence[int] = ()
    of_schemes: Sequence[str] = ()
    # Each subclass has its own class of configs, which decides which layers exist.
    config: Any
    embeddings: Any
    blocks: Any
    token_table: Any
    pooler: Any
    decoder: Any

    def __init__(self, config: EncoderConfig, *, name: str, dtype: DType | None = None):
        """Keeps the config; subclasses make the layers, and `build()` creates the variables."""
        super().__init__(name=name, dtype=dtype)
        self.config = config
        # Attributes of the instance, because with PyTorch a class attribute hides a layer of its
        # name.
        absents = {"token_table", "decoder", "pooler", "convolution"}
        for absent in absents - set(dir(type(self))):
            setattr(self, absent, None)

    def by_depth(self) -> list[list[keras.Layer]]:
        """Returns the embeddings, and then the layers at each depth from the first one up.

        Layers that all depths share are at the first one. A layer that runs several times is at
        several depths.
        """
        layers = [[self.blocks[number]] for number in self.depths]
        others = (getattr(self, name) for name in (*self.of_schemes, "convolution"))
        layers[0] += [layer for layer in others if layer is not None]
        return [[self.embeddings], *layers]

    def empty_cache(self, batch: Size, slots: Size) -> Any:
        """Returns an empty cache, which calls fill with the keys and values of tokens in order.

        Args:
            batch: B; for an encoder-decoder, the encoded batch [B, T, D].
            slots: S, the largest number of tokens.
        """
        raise NotImplementedError(f"{self.config.type} has no cache")

    def compute_output_spec(self, *args, **kwargs):
        """Returns the shapes and dtypes of the outputs, with None for unknown lengths.

        Except on TensorFlow, two lengths are tried: other backends replace None by numbers that may
        exceed the positions of the encoder, or by symbols that cannot be compared with them.
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
        """Returns None, because `with_mask` sets the mask of each output."""
        del inputs, previous_mask

    def padding_of(self, token_ids: Tensor, padding_mask: Tensor) -> Tensor | None:
        """Returns `padding_mask` [B, T], or the mask that Keras keeps with the tokens."""
        if padding_mask is None:
            return keras_private.mask_of(token_ids)
        return masks.checked(padding_mask, "padding_mask")

    def masked(self, attention_mask: Tensor, padding_mask: Tensor) -> Tensor | None:
        """Returns a mask of attention without padding: bool, broadcastable to [B, N, T, S].

        `attention_mask` or `padding_mask` [B, T] or both may be None.
        """
        attention_mask = masks.checked(attention_mask, "attention_mask")
        if padding_mask is None:
            return attention_mask
        return masks.combine(attention_mask, masks.padding(padding_mask))

    def with_mask(self, outputs, padding_mask: Tensor):
        """Attaches a padding mask [B, T] to the states among the outputs, for Keras layers.

        None = no mask.
        """
        if padding_mask is not None:
            for states in (outputs["sequence_output"], *outputs.get("hidden_states", ())):
                keras_private.set_mask(states, padding_mask)
        return outputs


def pooled_states(
    x: Tensor, position: str, real: Tensor | None = None, chosen: Tensor | None = None
) -> Tensor:
    """Returns the states of the pooled positions.

    Args:
        x: [B, T, D].
        position: 'first'; or 'first_of_text' or 'last', the first or the last position of each row
            that is not padding.
        real: bool [B, T], False for padding; None = there is no padding.
        chosen: int [B, K], positions to use instead; None = `position`.

    Returns:
        [B, D], or [B, K, D] with `chosen`.
    """
    if chosen is not None:
        return take_positions(x, chosen)
    if position == "first":
        return x[:, 0]
    return flat_positions(x, pooled_positions(x, position, real))


def pooled_positions(
    x: Tensor, position: str, real: Tensor | None = None, chosen: Tensor | None = None
) -> Tensor:
    """Returns the pooled positions: int [B, K], or [B, 1]; the arguments are those of `states`."""
    if chosen is not None:
        return chosen
    batch, length, _ = ops.shape(x)
    if position == "first" or (position == "first_of_text" and real is None):
        return ops.zeros((batch, 1), "int32")
    if real is None:
        return ops.full((batch, 1), length - 1, "int32")
    if position == "first_of_text":
        first = ops.where(real, ops.arange(length, dtype="int32"), length - 1)
        return ops.min(first, axis=1, keepdims=True)
    last = ops.where(real, ops.arange(length, dtype="int32"), 0)
    return ops.max(last, axis=1, keepdims=True)


_LONGEST = 16  # the largest length that is tried


def _of_length(tensors, length: Size):
    """Returns symbolic tensors with a length in place of None, except in the first axis."""

    def known(x):
        if not isinstance(x, keras.KerasTensor):
            return x
        sizes = [length if size is None else size for size in x.shape[1:]]
        return keras.KerasTensor((*x.shape[:1], *sizes), x.dtype)

    return keras.tree.map_structure(known, tensors)


def _alike(one, other):
    """Returns a symbolic tensor with None in place of sizes that differ."""
    if one is None:
        return None
    sizes = [a if a == b else None for a, b in zip(one.shape, other.shape, strict=True)]
    return keras.KerasTensor(sizes, one.dtype)
