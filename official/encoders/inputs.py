"""How an encoder is run on a batch: one place, for the model and for a generator beside it.

Shapes: B batch, T length, S key length, N heads, K parts of a row.
"""

from official import masks


def encode(encoder, batch, rng=None, output_all=False):
    """Runs an encoder on `token_ids`, `segment_ids` and `padding_mask` [B, T] of a batch.

    The latter two may be missing; a field `attention_mask` [B, 1 or N, T, S] and `positions` are
    handed through. With `part_ids` [B, T] each part of a row is read as if it were alone, and with
    `part_starts` [B, K] each has its pooled output.

    Returns:
        The encoder's dict.
    """
    padding_mask = batch.get("padding_mask")
    padding = None if padding_mask is None else masks.padding(padding_mask)
    part_ids = batch.get("part_ids")
    apart = None if part_ids is None else masks.parts(part_ids)
    return encoder(
        batch["token_ids"],
        batch.get("segment_ids"),
        masks.combine(padding, apart, batch.get("attention_mask")),
        positions=batch.get("positions"),
        rng=rng,
        output_all=output_all,
        pooled_positions=batch.get("part_starts"),
    )
