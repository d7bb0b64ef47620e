"""The TF Model Garden's pretraining features (v1), which its `BertPretrainDataLoader` reads.

Masks are static there, and every list is padded: token lists to the longest example, predictions to
the most that there may be.

Shapes: B examples of a batch, T tokens with padding, P predictions with padding.
"""

from collections.abc import Mapping

import numpy as np

from tfrecords_tools.writing import example_bytes

FEATURES = (
    "input_ids",
    "input_mask",
    "segment_ids",
    "masked_lm_positions",
    "masked_lm_ids",
    "masked_lm_weights",
    "next_sentence_labels",
)


def columns(batch: Mapping[str, np.ndarray]) -> dict[str, example_bytes.Column]:
    """Returns the features of a batch.

    Args:
      batch: token_ids int32 [B, T] after masking, padding_mask bool [B, T], segment_lengths
        [B, 2], masked_positions and masked_ids int32 [B, P], masked_weights float32 [B, P],
        next_sentence_label [B].
    """
    places = np.arange(batch["token_ids"].shape[1])
    in_b = (places >= batch["segment_lengths"][:, :1]) & batch["padding_mask"]
    made = {
        "input_ids": batch["token_ids"],
        "input_mask": batch["padding_mask"].view(np.uint8),
        "segment_ids": in_b.view(np.uint8),
        "masked_lm_positions": batch["masked_positions"],
        "masked_lm_ids": batch["masked_ids"],
        "masked_lm_weights": batch["masked_weights"],
        "next_sentence_labels": batch["next_sentence_label"][:, None],
    }
    return {name: example_bytes.rows(made[name]) for name in FEATURES}
