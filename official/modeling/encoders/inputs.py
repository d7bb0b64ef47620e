"""Runs encoders on batches, for the model and for a generator beside it.

Shapes: B batch, T length, S key length, N heads, K parts of a row, P predictions, L layers,
M memory, D hidden, U targets.
"""

from typing import Any

from keras import ops

from official.config.registry import ENCODER_FIELDS
from official.modeling import masks
from official.modeling.encoders.base import Encoder
from official.modeling.layers.random import Draws
from official.modeling.types import Batch, Tensor
from official.utils.errors import UserError


def encode(
    encoder: Encoder,
    batch: Batch,
    rng: Draws | None = None,
    output_all: bool = False,
    read_positions: Tensor | None = None,
    read_offsets: Tensor | None = None,
) -> dict[str, Any]:
    """Runs an encoder on a batch.

    The batch has `token_ids` [B, T], and may have

    * `segment_ids` and `padding_mask` [B, T];
    * `attention_mask` [B, 1 or N, T, S] and `positions`, which the encoder gets unchanged;
    * `part_ids` [B, T]: tokens attend only to tokens of their own part of a row. `part_starts`
      [B, K] come with them, and each part has a pooled output;
    * `block_ids` [B, T]: tokens do not attend to later blocks;
    * `memory` [B, L, M, D] and `memory_mask` [B, M], for encoders with a memory;
    * `permutation_mask` [B, T, T], for encoders with a query stream, which they compute for
      `masked_positions` [B, P];
    * `backward` [B], for rows of reversed text;
    * `decoder_ids` [B, U], for encoders with a decoder, and `target_part_ids` [B, U];
    * `character_ids` [B, T, K], for encoders of words by their characters, and
      `backward_character_ids` or `backward_token_ids` for the rows of its other direction.

    With `read_positions` int [B, P], an encoder with `reads_positions` computes only these
    positions of the last layer, and those that it pools. Then `sequence_output` is [B, P, D].
    `read_offsets` [B, P, D] are only for the transformer (see `encoders.transformer`).

    Returns:
        The dict of the encoder, with the `padding_mask` of the batch if there is one.

    Raises:
        UserError: the batch has a field that the encoder cannot use.
    """
    padding_mask = batch.get("padding_mask")
    padding = None if padding_mask is None else masks.padding(padding_mask)
    part_ids = batch.get("part_ids")
    parts = None if part_ids is None or encoder.takes_parts else masks.parts(part_ids)
    block_ids = batch.get("block_ids")
    blocks = None if block_ids is None else masks.blocks(block_ids)
    options = {name: batch[name] for name in ENCODER_FIELDS if name in batch}
    for name in options:
        if name not in encoder.config.batch_fields:
            raise UserError(
                f"{name}: the batch has this field, but the encoder cannot use it: use "
                f"encoder.type {ENCODER_FIELDS[name]}, or segments and corruption without this "
                "field"
            )
    if "decoder_ids" in options:
        own = batch.get("target_part_ids")
        between = None if own is None else masks.between_parts(own, part_ids)
        options["cross_mask"] = masks.combine(padding, between)
        options["decoder_mask"] = None if own is None else masks.parts(own)
        options["decoder_positions"] = batch.get("target_positions")
    if "permutation_mask" in options and "masked_positions" in batch:
        options["query_positions"] = batch["masked_positions"]
    if encoder.takes_parts:
        options["part_ids"] = part_ids
    if read_positions is not None:
        options["read_positions"] = read_positions
    if read_offsets is not None:
        options["read_offsets"] = read_offsets
    encoded = encoder(
        batch["token_ids"],
        batch.get("segment_ids"),
        masks.combine(padding, parts, blocks, batch.get("attention_mask")),
        positions=batch.get("positions"),
        rng=rng,
        output_all=output_all,
        pooled_positions=_pooled_positions(encoder, batch),
        **options,
    )
    return encoded if padding_mask is None else {**encoded, "padding_mask": padding_mask}


def encode_read(
    encoder: Encoder, objectives, batch: Batch, rng: Draws | None = None
) -> dict[str, Any]:
    """Runs an encoder, and computes only the positions of the last layer that objectives read.

    Args:
        encoder: the encoder.
        objectives: `official.modeling.objectives.base.Objective`s. If each of them names the
            positions that it reads, and these are fewer than all, only these are computed.
        batch: the batch after `prepare`; see `encode`.
        rng: `Draws`, or None for inference (no dropout).

    Returns:
        The result of `encode`, or the same with `states_read` instead of `sequence_output`: the
        states [B, P, D] of each tensor of positions, by the name of the objective.
    """
    if any(objective.uses_all_layers for objective in objectives):
        return encode(encoder, batch, rng, output_all=True)
    for objective in objectives:
        # The config allows only one such objective.
        if (offsets := objective.read_offsets(batch)) is not None:
            (positions,) = objective.positions_read(batch)
            encoded = encode(encoder, batch, rng, read_positions=positions, read_offsets=offsets)
            encoded["states_read"] = {objective.name: (encoded.pop("sequence_output"),)}
            return encoded
    read = {objective.name: objective.positions_read(batch) for objective in objectives}
    if not read or any(positions is None for positions in read.values()):
        return encode(encoder, batch, rng)
    widths = {name: [p.shape[1] for p in positions] for name, positions in read.items()}
    if any(None in each for each in widths.values()):
        return encode(encoder, batch, rng)
    total = sum(sum(each) for each in widths.values())
    length = batch["token_ids"].shape[1]
    able = encoder.reads_positions and (total or encoder.config.pooler)
    if not able or (length is not None and total + 1 >= length):
        return encode(encoder, batch, rng)
    rows = ops.shape(batch["token_ids"])[0]
    every = [ops.cast(p, "int32") for positions in read.values() for p in positions]
    joined = ops.concatenate([ops.zeros((rows, 0), "int32"), *every], axis=1)
    encoded = encode(encoder, batch, rng, read_positions=joined)
    states, start = encoded.pop("sequence_output"), 0
    encoded["states_read"] = dict.fromkeys(widths, ())
    for name, own in widths.items():
        for width in own:
            encoded["states_read"][name] += (states[:, start : start + width],)
            start += width
    return encoded


def check_ranks(token_ids: Tensor, attention_mask: Tensor, mask_shape) -> None:
    """Raises UserError if token ids are not [B, T], or if a mask does not have four axes.

    `mask_shape` is the shape that the message gives for a mask.
    """
    if len(token_ids.shape) != 2:
        raise UserError(f"token_ids: expected [B, T], got shape {tuple(token_ids.shape)}")
    if attention_mask is not None and len(attention_mask.shape) != 4:
        raise UserError(
            f"attention_mask: expected a shape that broadcasts to {mask_shape}, got "
            f"{tuple(attention_mask.shape)}; masks.padding makes one from a padding mask"
        )


def _pooled_positions(encoder: Encoder, batch: Batch) -> Tensor | None:
    """Returns the first position of each part, or the last if the encoder pools the last.

    Returns:
        [B, K], 0 for parts that do not exist; or None if the batch has no parts.
    """
    starts = batch.get("part_starts")
    if starts is None or encoder.config.pooled_position != "last":
        return starts
    parts = ops.arange(ops.shape(starts)[1], dtype=batch["part_ids"].dtype)
    own = ops.equal(batch["part_ids"][:, :, None], parts)  # [B, T, K]
    return starts + ops.maximum(ops.sum(ops.cast(own, starts.dtype), axis=1) - 1, 0)
