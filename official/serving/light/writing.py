"""Writes what the other modules of this package read, with TensorFlow."""

import json
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from official.saving.embedding_settings import EmbeddingSettings
from official.serving.light import folder as files
from official.serving.light.rows import Rows
from official.tokenizers import Tokenizer, pair_packing, tokenizer_json
from official.tokenizers.pair_forms import LEFT
from official.utils.paths import AnyPath


def rows(tokenizer: Tokenizer, layout: str) -> Rows:
    """Returns the form of the rows that `pair_packing.pack` makes of single texts."""
    marks = [-1, -2]  # stand for two tokens of a text
    texts = tf.ragged.constant([marks, marks[:1]], tf.int32)
    batch = pair_packing.pack([texts], tokenizer, 16, layout)
    ids, segments = batch["token_ids"].numpy().tolist(), batch["segment_ids"].numpy().tolist()
    first = ids[0].index(marks[0])
    after = first + len(marks)
    pads_left = not batch["padding_mask"].numpy()[1, 0]
    return Rows(
        before=tuple(ids[0][:first]),
        after=tuple(ids[0][after:]),
        segments_before=tuple(segments[0][:first]),
        segment=segments[0][first],
        segments_after=tuple(segments[0][after:]),
        pad_segment=segments[1][0 if pads_left else -1],
        pad_id=tokenizer.pad_id,
        pads_left=bool(pads_left),
        cuts_left=tokenizer.pairs.cut_side == LEFT,
    )


def write(
    folder: AnyPath,
    tokenizer: Tokenizer,
    layout: str,
    settings: EmbeddingSettings,
    max_length: int,
    size: int,
    signature: str,
    inputs: Mapping[str, str],
    examples: Sequence[str],
    output: str = "vectors",
) -> str | None:
    """Writes `tokenizer.json` and `texts.json` beside a `model.tflite`.

    Args:
      folder: the folder.
      tokenizer: the tokenizer of the model.
      layout: the layout of single texts.
      settings: the settings of the vectors.
      max_length: the most tokens of a row.
      size: see `folder.Description`.
      signature: see there.
      inputs: see there.
      examples: the texts whose ids are compared when the folder is read.
      output: see there.

    Returns:
      Why nothing was written, in words; None = it was.
    """
    if tokenizer.reads_words:
        return "its tokens are words"
    described = tokenizer_json.described(tokenizer, layout)
    if described is None:
        return f"the tokenizer {type(tokenizer).__name__} has no form in {files.TOKENIZER}"
    if any(settings.prompts.values()) and not settings.include_prompt:
        return "the tokens of its prompts are not pooled"
    content = json.dumps(described, ensure_ascii=False) + "\n"
    (folder / files.TOKENIZER).write_text(content, "utf-8")
    ids = (np.asarray(each).tolist() for each in tokenizer.encode(list(examples)))
    files.write(
        folder,
        files.Description(
            signature=signature,
            inputs=inputs,
            output=output,
            size=size,
            max_length=max_length,
            rows=rows(tokenizer, layout),
            embedding=settings,
            examples=dict(zip(examples, map(tuple, ids), strict=True)),
            sha256={},
        ),
    )
    return None
