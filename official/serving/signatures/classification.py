"""`single`, `pair` and `tokens`: label, score or vectors of each text or pair of texts.

A text that may have several labels has `probabilities` [B, C] and `has_label`, bool [B, C].

An encoder of characters has no `tokens` of ids. An encoder without a head also has `embed` and
`embed_tokens`: one vector for each text, as `official.serving.text_vectors` makes it.

Shapes: B batch, T tokens of the longest text in the batch, C classes, D hidden.
"""

import functools
from collections.abc import Callable

import tensorflow as tf

from official.modeling.layers.kernels import accurate
from official.serving import text_vectors
from official.serving.signatures import inputs, model_garden
from official.tokenizers.pair_packing import pack_texts
from official.tokenizers.word_characters import Characters
from official.utils.errors import UserError

Outputs = dict[str, tf.Tensor]

# The outputs of an encoder without a head. Its memory is not among them.
_VECTORS = ("sequence_output", "pooled_output")

EMBED_TOKENS = "embed_tokens"
DEFAULT = {"single": "a text", "pair": "two texts"}
LONG = "cut at"


def signatures(parts: inputs.ServingContext) -> dict[str, inputs.Signature]:
    """Returns the signatures of a classification, a regression, or an encoder without a head.

    Raises:
      UserError: the labels of a classifier have no names.
    """
    encoder = parts.config.encoder
    layout = encoder.text_layout if parts.head is None else encoder.layout
    score, finish = _head(parts)
    scored = parts.scorer(score)

    def packed(*texts: tf.Tensor) -> Outputs:
        if len(texts) == 2:
            texts = inputs.same_number(**dict(zip(("text", "text_b"), texts, strict=True)))
        return pack_texts(texts, parts.tokenizer, parts.max_length, layout)

    def of_texts(*texts: tf.Tensor) -> Outputs:
        batch = packed(*texts)
        outputs = finish(scored(batch))
        if "sequence_output" in outputs:
            outputs["input_mask"] = tf.cast(batch["padding_mask"], tf.int32)
        return outputs

    def tokens(*ids):
        return finish(scored(inputs.batch_of_ids(parts, *ids)))

    def bare(batch):
        (outputs,) = scored(batch).values()
        return {"outputs": outputs if outputs.shape.rank == 2 else outputs[:, None]}

    by_name = {
        "single": inputs.signature(of_texts, *inputs.texts("text")),
        "pair": inputs.signature(of_texts, *inputs.texts("text", "text_b")),
    }
    if isinstance(parts.tokenizer, Characters):  # no ids stand for the characters of a word
        return by_name
    by_name["tokens"] = inputs.signature(tokens, *inputs.ids())
    if parts.head is None:
        # An ELMo has the output `default`.
        return by_name if encoder.type == "bilm" else by_name | _embedding(parts)
    return by_name | model_garden.signatures(parts, bare, lambda *texts: bare(packed(*texts)))


def _embedding(parts: inputs.ServingContext) -> dict[str, inputs.Signature]:
    """Returns the signatures of one vector [B, D] for each text."""
    settings = parts.source.embedding
    before = settings.prompt(None)
    skipped = 0
    if before and not settings.include_prompt:
        layout = parts.config.encoder.text_layout
        skipped = (layout == "cls_first") + len(parts.tokenizer.encode([before])[0])

    def vectors(batch, skipped):
        encoded, real = parts.encode(batch), batch["padding_mask"]
        found = text_vectors.pooled(
            encoded["sequence_output"],
            real,
            settings.pooling,
            text_vectors.counted(real, skipped),
            encoded.get("pooled_output"),
        )
        return {"vectors": text_vectors.normalized(found) if settings.normalize else found}

    of_ids = parts.scorer(functools.partial(vectors, skipped=0))
    scored = parts.scorer(functools.partial(vectors, skipped=skipped)) if skipped else of_ids

    def embed(text):
        layout = parts.config.encoder.text_layout
        texts = before + text if before else text
        return scored(pack_texts([texts], parts.tokenizer, parts.max_length, layout))

    def embed_tokens(*ids):
        return of_ids(inputs.batch_of_ids(parts, *ids))

    return {
        "embed": inputs.signature(embed, *inputs.texts("text")),
        EMBED_TOKENS: inputs.signature(embed_tokens, *inputs.ids()),
    }


def _head(
    parts: inputs.ServingContext,
) -> tuple[Callable[[Outputs], Outputs], Callable[[Outputs], Outputs]]:
    """Returns a function that scores a batch, and one that makes outputs from the scores."""
    head = parts.head
    if head is None:
        return lambda batch: {
            name: tf.cast(value, accurate(value.dtype.name))
            for name, value in parts.encode(batch).items()
            if name in _VECTORS
        }, dict
    if head.config.type == "regression":
        return lambda batch: {"score": head.scores(parts.encode(batch))}, dict
    labels = head.config.labels
    if not labels:
        raise UserError(
            f"objectives: the {head.config.type} has no `labels` in config.yaml: write the names "
            "there, in the order of their numbers, and remove its first line, the checksum"
        )

    if head.config.type == "multi_label":
        thresholds = tf.constant(head.config.thresholds or [0.5] * len(labels), tf.float32)

        def several(outputs: Outputs) -> Outputs:
            probabilities = tf.sigmoid(outputs["logits"])
            has = tf.cast(probabilities, tf.float32) >= thresholds
            return {"probabilities": probabilities, "has_label": has}

        return lambda batch: {"logits": head.logits(parts.encode(batch))}, several

    def named(outputs: Outputs) -> Outputs:
        probabilities = tf.nn.softmax(outputs["logits"])
        label = tf.gather(tf.constant(labels), tf.argmax(probabilities, axis=-1))
        return {"probabilities": probabilities, "label": label}

    return lambda batch: {"logits": head.logits(parts.encode(batch))}, named
