"""Label, score or vectors of each text or pair of texts, and the vectors of ELMo's words.

A model that has learned from texts in windows reads those of `single` in the same windows, and the
outputs are of the joined outputs of the head. `pair` cuts its texts, and ids are those of a window.

`single`, `pair` and `tokens` have the outputs of the head, or of an encoder without one the states.
A text that may have several labels has `probabilities` [B, C] and `has_label`, bool [B, C]. An
encoder of characters has no `tokens` of ids. An encoder without a head, or with the objective
`sentence_embedding`, also has `embed` and `embed_tokens`: one vector for each text, as
`official.saving.text_vectors` makes it. With the objective `sparse_embedding` it has those of
`sparse` in their place. One with the objective `late_interaction` has instead
`embed_query` and `embed_document`: the `token_vectors` of each text, float32 [B, T, V], where zeros
are no tokens. The score of a query and a document is the sum over the vectors of the query of the
largest product with one of the document.

An ELMo without a head, or with a layer mix, has the signatures of its module of TensorFlow Hub:

  default  text string [B], split into words by the tokenizer
  tokens   tokens string [B, T], words; sequence_len int32 [B], their numbers
  carry    text string [B]; state float32 [B, 2 L, C + P], 0 at first

Outputs, without the marks of the sentence, 0 after the last word of a text:

  word_emb                   the vector of each word before the LSTMs: float32 [B, T, P]
  lstm_outputs1 .. L         the layers, forward and backward state: float32 [B, T, 2 P]
  elmo                       the layer mix of the head, or without a head the mean of word_emb,
                             twice, and the layers: float32 [B, T, 2 P]
  default                    the mean of `elmo` over the words of a text, 0 without words:
                             float32 [B, 2 P]

In the Hub the weights of `elmo` are trained with the user's model, and begin with the mean. Each
text begins with a fresh state. With `carry`, text b goes on from the state of its row: `carry` has
one more output, the `state` for the next call. ELMo's release keeps this state in the graph.

Shapes: B batch, T tokens or words of the longest text in the batch, C classes or cells, D hidden,
P projection, L layers, V size of the vector of a token.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from official.config.heads import MultiLabelConfig
from official.config.late_interaction import LateInteractionConfig
from official.modeling.layers.kernels import accurate
from official.modeling.objectives import late_interaction
from official.saving import text_vectors
from official.serving.compute.sparse_reader import is_sparse
from official.serving.signatures import inputs, sparse
from official.tokenizers import pair_packing, windows
from official.tokenizers.pair_packing import pack_texts, pack_words

Outputs = dict[str, tf.Tensor]
# The outputs of an encoder without a head. Its memory is not among them.
_VECTORS = ("sequence_output", "pooled_output")
EMBED_TOKENS = "embed_tokens"
DEFAULT = {"single": "a text", "pair": "two texts"}
LONG = "cut at"


def signatures(context: inputs.ServingContext) -> dict[str, inputs.Signature]:
    """Returns the signatures of a classification, a regression, or an encoder without a head.

    Raises:
      UserError: the labels of a classifier have no names.
    """
    score, finish = _head(context)
    scored = context.scorer(score)
    reading = _windows(context)

    def read(*texts: tf.Tensor) -> Outputs:
        if reading is not None and len(texts) == 1:
            return _joined(context, scored, texts[0], reading)
        return scored(_packed(context, texts))

    def of_texts(*texts: tf.Tensor) -> Outputs:
        if context.head is not None:
            return finish(read(*texts))
        batch = _packed(context, texts)
        outputs = scored(batch)
        if "sequence_output" in outputs:
            outputs["input_mask"] = tf.cast(batch["padding_mask"], tf.int32)
        return outputs

    def bare(scores):
        (outputs,) = scores.values()
        return {"outputs": outputs if outputs.shape.rank == 2 else outputs[:, None]}

    by_name = {
        "single": inputs.signature(of_texts, *inputs.texts("text")),
        "pair": inputs.signature(of_texts, *inputs.texts("text", "text_b")),
    }
    late = context.model.objective(LateInteractionConfig.type)
    learned = text_vectors.head_of_texts(context.model)
    if context.head is None and late is not None:
        by_name |= _token_vectors(context, late)
    # An ELMo that has learned no vectors of texts has the output `default`.
    elif context.head is None and (learned or not context.config.encoder.mixes_layers):
        weighs = is_sparse(context.model)
        by_name |= sparse.signatures(context) if weighs else _embedding(context)
    # No ids stand for the characters of a word.
    if context.tokenizer.reads_words:
        by_name.pop(EMBED_TOKENS, None)
        return by_name
    by_name["tokens"] = inputs.of_ids(context, lambda batch: finish(scored(batch)))
    if context.head is None:
        return by_name
    return by_name | inputs.garden_signatures(
        context, lambda batch: bare(scored(batch)), lambda *texts: bare(read(*texts))
    )


def pair_logits(context: inputs.ServingContext) -> inputs.Signature:
    """Returns the `logits` [B, C] of a classifier for pairs, which no export has."""
    score, _ = _head(context)
    scored = context.scorer(score)

    def of_texts(*texts: tf.Tensor) -> Outputs:
        return scored(_packed(context, texts))

    return inputs.signature(of_texts, *inputs.texts("text", "text_b"))


def _packed(context: inputs.ServingContext, texts: Sequence[tf.Tensor]) -> Outputs:
    """Returns the rows of texts, or of pairs of texts."""
    encoder = context.config.encoder
    layout = encoder.text_layout if context.head is None else encoder.layout
    if len(texts) == 2:
        texts = inputs.same_number(text=texts[0], text_b=texts[1])
    return pack_texts(texts, context.tokenizer, context.max_length, layout)


def _windows(context: inputs.ServingContext) -> windows.TextWindows | None:
    """Returns how the model reads long texts; None = they are cut.

    Raises:
      UserError: `max_length` has no room for the windows that it was trained with.
    """
    count, overlap = (context.task.get(name) for name in ("windows", "window_overlap"))
    if context.head is None or not count:
        return None
    reading = windows.TextWindows(count, overlap or 0, context.max_length)
    reading.check(context.tokenizer)
    return reading


def _joined(
    context: inputs.ServingContext,
    scored: Callable[[Outputs], Outputs],
    text: tf.Tensor,
    reading: windows.TextWindows,
) -> Outputs:
    """Returns the outputs of texts [B], joined from those of their windows."""
    ids, rows = reading.pack(context.tokenizer.tokenize(text), context.tokenizer)
    token_ids = ids.to_tensor(context.tokenizer.pad_id)
    batch = {
        "token_ids": token_ids,
        "segment_ids": tf.zeros_like(token_ids),
        "padding_mask": tf.sequence_mask(ids.row_lengths(), tf.shape(token_ids)[1]),
    }
    layout = context.config.encoder.layout
    outputs = scored(pair_packing.arrange(batch, context.tokenizer, layout))
    largest = context.task_head.config.join == "max"
    join = tf.math.segment_max if largest else tf.math.segment_mean
    return {name: join(value, rows) for name, value in outputs.items()}


def _embedding(context: inputs.ServingContext) -> dict[str, inputs.Signature]:
    """Returns the signatures of one vector [B, D] for each text."""
    settings = context.embedding
    encoder, before = context.config.encoder, settings.prompt(None)
    skipped = text_vectors.skipped(before, settings, encoder, context.tokenizer)
    head = text_vectors.head_of_texts(context.model)
    text_vectors.size(encoder, settings, head)  # is checked
    mixes = encoder.mixes_layers

    def vectors(batch, skipped):
        with context.weights.read():
            encoded = context.model.encode(batch, output_all=mixes)
        real = batch["padding_mask"]
        pooled = text_vectors.pooled(
            text_vectors.mixed(encoded, head) if mixes else encoded["sequence_output"],
            real,
            settings,
            text_vectors.counted(encoder, real, skipped),
            encoded.get("pooled_output"),
            head,
        )
        return {"vectors": pooled}

    of_ids = context.scorer(functools.partial(vectors, skipped=0))
    scored = context.scorer(functools.partial(vectors, skipped=skipped)) if skipped else of_ids

    def embed(text):
        texts = before + text if before else text
        length = settings.max_length or context.max_length
        return scored(pack_texts([texts], context.tokenizer, length, encoder.text_layout))

    return {
        "embed": inputs.signature(embed, *inputs.texts("text")),
        EMBED_TOKENS: inputs.of_ids(context, of_ids),
    }


def _token_vectors(
    context: inputs.ServingContext, head: late_interaction.Objective
) -> dict[str, inputs.Signature]:
    """Returns the signatures of the vectors of tokens of queries and of documents."""
    layout = context.config.encoder.text_layout

    def of_kind(kind: str) -> inputs.Signature:
        before = head.config.text_before(kind, context.tokenizer)
        prefixed = before is None
        longest = head.config.lengths[kind] or context.max_length

        def embed(text):
            texts = before + text if before else text
            length = min(longest, context.max_length) - prefixed
            batch = pack_texts([texts], context.tokenizer, length, layout)
            rows = head.rows(batch, tf.fill(tf.shape(text), kind == "query"), prefixed)
            with context.weights.read():
                states = context.model.encode(rows)["sequence_output"]
                vectors = tf.cast(head.unit_vectors(states), tf.float32)
            return {"token_vectors": vectors * tf.cast(rows["scored"], tf.float32)[..., None]}

        return inputs.signature(embed, *inputs.texts("text"))

    return {f"embed_{kind}": of_kind(kind) for kind in head.config.prefixes}


def _head(
    context: inputs.ServingContext,
) -> tuple[Callable[[Outputs], Outputs], Callable[[Outputs], Outputs]]:
    """Returns a function that scores a batch, and one that makes outputs from the scores."""
    head: Any = context.head
    if head is None:
        return lambda batch: {
            name: tf.cast(value, accurate(value.dtype.name))
            for name, value in context.encode(batch).items()
            if name in _VECTORS
        }, dict
    if head.config.type == "regression":
        return lambda batch: {"score": head.scores(context.encode(batch))}, dict
    labels = context.labels
    if isinstance(head.config, MultiLabelConfig):
        limits = head.config.limits(len(labels))

        def several(outputs: Outputs) -> Outputs:
            probabilities = tf.sigmoid(outputs["logits"])
            # A tensor from outside of the graph would be one more input of an ONNX file.
            has = tf.cast(probabilities, tf.float32) >= tf.constant(limits, tf.float32)
            return {"probabilities": probabilities, "has_label": has}

        return lambda batch: {"logits": head.logits(context.encode(batch))}, several

    def named(outputs: Outputs) -> Outputs:
        probabilities = tf.nn.softmax(outputs["logits"])
        label = tf.gather(tf.constant(labels), tf.argmax(probabilities, axis=-1))
        return {"probabilities": probabilities, "label": label}

    return lambda batch: {"logits": head.logits(context.encode(batch))}, named


def word_signatures(context: inputs.ServingContext) -> dict[str, inputs.Signature]:
    """Returns the signatures of an ELMo without a head or with a layer mix; {} of other models."""
    encoder, tokenizer = context.config.encoder, context.tokenizer
    if not (encoder.mixes_layers and tokenizer.reads_words):
        return {}
    head = context.head or text_vectors.head_of_texts(context.model)
    if head is not None and not text_vectors.has_mix(head):
        return {}

    def of_words(words: tf.RaggedTensor, state: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        batch = pack_words([words], tokenizer, context.max_length)
        if state is not None:
            batch["memory"] = state[:, :, None]
        with context.weights.read():
            encoded = context.model.encode(batch, output_all=True)
            mixed = text_vectors.mixed(encoded, head)
        states = [tf.cast(layer[:, 1:-1], tf.float32) for layer in encoded["hidden_states"]]
        # The last mark of a shorter text is among the words, and padding follows it.
        real = tf.cast(batch["padding_mask"][:, 2:], tf.float32)[:, :, None]  # [B, T, 1]
        states, mixed = [layer * real for layer in states], mixed[:, 1:-1] * real
        count = tf.maximum(tf.reduce_sum(real, axis=1), 1)
        layers = {f"lstm_outputs{i}": layer for i, layer in enumerate(states[1:], 1)}
        carried = {} if state is None else {"state": encoded["memory"][:, :, 0]}
        return {
            "word_emb": tf.split(states[0], 2, axis=-1)[0],
            **layers,
            "elmo": mixed,
            "default": tf.reduce_sum(mixed, axis=1) / count,
            **carried,
        }

    def of_texts(text):
        return of_words(tokenizer.words(text))

    def of_next_texts(text, state):
        return of_words(tokenizer.words(text), state)

    def of_tokens(tokens, sequence_len):
        return of_words(tf.RaggedTensor.from_tensor(tokens, lengths=sequence_len))

    specs = (
        tf.TensorSpec([None, None], tf.string, "tokens"),
        tf.TensorSpec([None], tf.int32, "sequence_len"),
    )
    count, _, size = encoder.memory_shape  # 2 L, C + P
    next_texts = *inputs.texts("text"), tf.TensorSpec([None, count, size], tf.float32, "state")
    return {
        "default": inputs.signature(of_texts, *inputs.texts("text")),
        "tokens": inputs.signature(of_tokens, *specs),
        "carry": inputs.signature(of_next_texts, *next_texts),
    }
