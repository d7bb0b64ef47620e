"""How an encoder is run on a batch: one place, for the model and for a generator beside it.

Shapes: B batch, T length, S key length, N heads, K parts of a row, P predictions, L layers,
M memory, D hidden.
"""

from keras import ops

from official.modeling import masks
from official.utils.errors import UserError

# What only some encoders take from a batch: their `batch_fields` name it.
FIELDS = ("memory", "memory_mask", "permutation_mask", "backward")


def encode(encoder, batch, rng=None, output_all=False, first_only=False):
    """Runs an encoder on `token_ids`, `segment_ids` and `padding_mask` [B, T] of a batch.

    The latter two may be missing; a field `attention_mask` [B, 1 or N, T, S] and `positions` are
    handed through. With `part_ids` [B, T] each part of a row is read as if it were alone, and with
    `part_starts` [B, K], which come with it, each has its pooled output. With `block_ids` [B, T]
    no token sees a block behind its own. An encoder with a memory
    takes `memory` [B, L, M, D] and `memory_mask` [B, M]; one that reads in many orders takes
    `permutation_mask` [B, T, T] and with it `masked_positions` [B, P], for which it has a query
    stream, and `backward` [B] for rows whose text is reversed.

    With `first_only` an encoder that can (`can_stop_at_first`) computes of its last layer no more
    than the first position of each row, which saves most of that layer.

    Returns:
        The encoder's dict, and `padding_mask` in it where the batch has one.

    Raises:
        UserError: the batch has a field that this encoder has no use for.
    """
    padding_mask = batch.get("padding_mask")
    padding = None if padding_mask is None else masks.padding(padding_mask)
    part_ids = batch.get("part_ids")
    apart = None if part_ids is None else masks.parts(part_ids)
    block_ids = batch.get("block_ids")
    before = None if block_ids is None else masks.blocks(block_ids)
    given = {name: batch[name] for name in FIELDS if name in batch}
    for name in given:
        if name not in getattr(encoder, "batch_fields", ()):
            raise UserError(
                f"{name}: the batch has this field, and the encoder cannot take it: use "
                "encoder.type transformer_xl, or segments and corruption that do not give it"
            )
    if "permutation_mask" in given and "masked_positions" in batch:
        given["query_positions"] = batch["masked_positions"]
    if first_only and getattr(encoder, "can_stop_at_first", False) and part_ids is None:
        given["first_only"] = True
    encoded = encoder(
        batch["token_ids"],
        batch.get("segment_ids"),
        masks.combine(padding, apart, before, batch.get("attention_mask")),
        positions=batch.get("positions"),
        rng=rng,
        output_all=output_all,
        pooled_positions=_pooled_positions(encoder, batch),
        **given,
    )
    return encoded if padding_mask is None else {**encoded, "padding_mask": padding_mask}


def check_ranks(token_ids, attention_mask, mask_shape):
    """Raises UserError where token ids are not [B, T], or a mask has not four axes.

    `mask_shape` is what the message says that a mask broadcasts to.
    """
    if len(token_ids.shape) != 2:
        raise UserError(f"token_ids: expected [B, T], got shape {tuple(token_ids.shape)}")
    if attention_mask is not None and len(attention_mask.shape) != 4:
        raise UserError(
            f"attention_mask: expected a shape that broadcasts to {mask_shape}, got "
            f"{tuple(attention_mask.shape)}; masks.padding makes one from a padding mask"
        )


def _pooled_positions(encoder, batch):
    """The first position of each part, or the last one if the encoder pools that: [B, K], or None.

    It is 0 where there is no part.
    """
    starts = batch.get("part_starts")
    if starts is None or getattr(encoder.config, "pooled_position", "first") == "first":
        return starts
    parts = ops.arange(ops.shape(starts)[1], dtype=batch["part_ids"].dtype)
    own = ops.equal(batch["part_ids"][:, :, None], parts)  # [B, T, K]
    return starts + ops.maximum(ops.sum(ops.cast(own, starts.dtype), axis=1) - 1, 0)
