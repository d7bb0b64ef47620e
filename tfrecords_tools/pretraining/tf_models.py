"""The pretraining features of the TF Model Garden, which its `BertPretrainDataLoader` reads.

The token ids and the segments have two pairs of names: those of BERT's release, and those of the
Keras model, which the loader takes with `use_v2_feature_names`.

Masks are static, and every list is padded: token lists to the maximum length, predictions to the
maximum number of predictions.

Shapes: B examples of a batch, T tokens with padding, P predictions with padding.
"""

from collections.abc import Mapping

import numpy as np

from official.config import Segments
from official.config.parts import CorruptionConfig
from official.shards import example_bytes
from official.tokenizers.pair_forms import PairForm
from official.utils.errors import UserError

FEATURES = (
    "input_ids",
    "input_mask",
    "segment_ids",
    "masked_lm_positions",
    "masked_lm_ids",
    "masked_lm_weights",
    "next_sentence_labels",
)
V2_NAMES = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}
# {value of --format: its features}.
FORMATS = {
    "tf_models": FEATURES,
    "tf_models_v2": tuple(V2_NAMES.get(name, name) for name in FEATURES),
}


def check(name: str, segments: Segments, corruption: CorruptionConfig | None) -> None:
    """Checks that the format can represent the examples of a config.

    Args:
      name: the name of the config, for messages.
      segments: its segments.
      corruption: its corruption.

    Raises:
      UserError: the format cannot represent them; the message names the setting.
    """
    if corruption is None:
        raise UserError(f"config {name!r} has no `corruption`, but --format=tf_models needs masks")
    if not corruption.static:
        raise UserError(
            f"corruption.type: {corruption.type} is drawn whenever an example is read, but "
            "--format=tf_models stores masks that are drawn once: use token_masks"
        )
    if segments.relation != "next_sentence":
        raise UserError(
            "--format=tf_models stores pairs with next-sentence labels, but the config has "
            f"segments.format: {segments.format}, relation: {segments.relation}"
        )
    if segments.packing > 1:
        raise UserError(
            "--format=tf_models stores one example a row, but the config has segments.packing: "
            f"{segments.packing}"
        )
    if segments.format == "stream":
        raise UserError(
            "--format=tf_models stores pairs, but the config has segments.format: stream"
        )


def columns(
    batch: Mapping[str, np.ndarray], format: str, pairs: PairForm
) -> dict[str, example_bytes.Column]:
    """Returns the features of a batch.

    Args:
      batch: token_ids int32 [B, T] after masking, padding_mask bool [B, T], segment_lengths
        [B, 2], masked_positions and masked_ids int32 [B, P], masked_weights float32 [B, P],
        next_sentence_label [B].
      format: one of `FORMATS`.
      pairs: the form of a pair of the tokenizer.
    """
    positions = np.arange(batch["token_ids"].shape[1])
    in_second = (positions >= batch["segment_lengths"][:, :1]) & batch["padding_mask"]
    features = {
        "input_ids": batch["token_ids"],
        "input_mask": batch["padding_mask"].view(np.uint8),
        "segment_ids": in_second.view(np.uint8) * np.uint8(pairs.type_of(1)),
        "masked_lm_positions": batch["masked_positions"],
        "masked_lm_ids": batch["masked_ids"],
        "masked_lm_weights": batch["masked_weights"],
        "next_sentence_labels": batch["next_sentence_label"][:, None],
    }
    names = zip(FEATURES, FORMATS[format], strict=True)
    return {named: example_bytes.rows(features[name]) for name, named in names}
