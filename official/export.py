"""Writes a SavedModel that takes raw text: `python -m official.export --model_dir= --output=`.

A server needs tensorflow and the ops of tensorflow_text, nothing of this project. Signatures:

  single           text string [B]
  pair             text string [B], text_b string [B]
  serving_default  one of the two, whichever the model was trained on (`--inputs` decides otherwise)
  tokens           input_word_ids, input_mask, input_type_ids int32 [B, T]

A ranking has, in place of the first two and as serving_default,

  rank             query string [1] or [B], documents string [B]: the documents of one query, or a
                   query for each

and gives `scores` [B] in the order of the documents; so does tokens.

These give the same outputs: a classifier `probabilities` [B, C] and `label` string [B]; a
regression `score` [B]; any other model `sequence_output` [B, T, D], where there is a pooler
`pooled_output` [B, D], and for text `input_mask` [B, T], which tells tokens from padding. Text of
any length is taken: longer than the model's, it is cut as in training. It is laid out as the
encoder reads it (see `official.tokenizers.packing`); `tokens` takes what is laid out so already.

A model that answers questions (span_answer) has others in place of all these:

  answer           question string [B], context string [B]; `serving_default` is the same
  tokens           as above, where starts and ends are scored apart (form: independent)

The first gives `answer` string [B], its `start` and `end` int32 [B] in characters of the context,
`score` [B] and, where questions may have no answer, `null_odds` [B]; a long context is read in
windows (see `official.answering`). The second gives `start_logits` and `end_logits` [B, T].

A causal LM has two more, which write (see `official.generation`):

  generate         text string [B]: always the likeliest token
  sample           text string [B], temperature float32 [], top_k int32 [], top_p float32 [] and
                   seed int64 []: a token drawn; temperature 0, top_k 0 and top_p 1 as there

Both give `text` string [B], the text and what was written to it, and `token_ids` int32 [B, N], the
new tokens in the order in which they were written, padded after the one that ends a sequence.
Of a text that is too long to leave room for N new tokens, the end that is written to is read.

A model of the objective multiple_choice has signatures of its own:

  choose  context string [B], question string [B] and choices string [B, K]; serving_default too
  tokens  as above, but [B, K, T]

with `probabilities` float32 [B, K], `index` int32 [B] (the likeliest, from 0) and, for text,
`choice` string [B], its text. Any number K of choices is taken, whatever it was in training.
A context that is too long is cut, as in training; a question and a choice only where the context
is gone already.

Shapes: B batch, T tokens of the longest text in the batch, C classes, D hidden, N new tokens,
K choices.
"""

import dataclasses
import os
from collections.abc import Callable

import tensorflow as tf
from absl import flags

from official import answering, atomic, chooser, errors, generation, inference, seeding, tokenizers
from official import config as configs
from official.errors import UserError
from official.model import Model
from official.objectives.base import Objective
from official.sequences import text_mask
from official.tokenizers.packing import pack

INPUTS = ("single", "pair")
RANK = "rank"
CHOOSE = "choose"

# The ecosystem's names at the serving door, and ours.
_TOKENS = {
    "input_word_ids": "token_ids",
    "input_mask": "padding_mask",
    "input_type_ids": "segment_ids",
}

# What is given of an encoder's outputs: texts do not go on, so nobody needs its memory.
_VECTORS = ("sequence_output", "pooled_output")

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The flags of this command."""
    flags.DEFINE_string("model_dir", None, "The model folder.")
    flags.DEFINE_string("output", None, "Folder of the SavedModel; must not be there.")
    flags.DEFINE_string("checkpoint", "best", "best, last, a step or a path.")
    flags.DEFINE_integer(
        "max_length", None, "Cut texts to this many tokens. Default: the length of training."
    )
    flags.DEFINE_enum(
        "inputs", None, INPUTS, "What serving_default takes. Default: what it was trained on."
    )
    flags.DEFINE_string("task", None, "Which head, of a model of several tasks.")
    flags.DEFINE_integer(
        "max_new_tokens",
        None,
        "The most tokens that a causal LM writes to a text. Default: 64, or half of its length.",
    )


def export(
    model_dir: str | os.PathLike,
    output: str | os.PathLike,
    checkpoint: str = "best",
    max_length: int | None = None,
    inputs: str | None = None,
    max_new_tokens: int | None = None,
    task: str | None = None,
) -> tuple[str, int]:
    """Writes a SavedModel (see above).

    Returns:
      What `serving_default` takes (`INPUTS`, `RANK` or `CHOOSE`) and the longest input in tokens.

    Raises:
      UserError: `model_dir` is no model folder, its labels have no names, `max_length` does not
        fit the model, or `max_new_tokens` that, `inputs` are given for a ranking; `task` names no
        head, or none is named where there are several; or `output` is there already.
    """
    config, tokenizer, model = inference.restore(model_dir, checkpoint)
    config = _with_one_head(config, model, task)
    ranks = _ranker(config, model) is not None
    answers = any(configs.type_of(o) == "span_answer" for o in config.objectives)
    chooses = any(configs.type_of(o) == "multiple_choice" for o in config.objectives)
    if ranks and inputs is not None:
        raise UserError(f"--inputs={inputs}: a ranking takes a query and documents: leave it out")
    if answers and inputs is not None:
        raise UserError(f"--inputs={inputs}: a model of span_answer takes a question and a context")
    if chooses and inputs is not None:
        raise UserError(
            f"--inputs={inputs}: multiple choice takes context, question and choices: leave it out"
        )
    if ranks:
        inputs = RANK
    elif chooses:
        inputs = CHOOSE
    elif inputs is None:
        about = inference.task(model_dir)
        about = about.get("tasks", {}).get(task, about)
        inputs = "pair" if about.get("pair") else "single"
    if max_length is None:
        max_length = inference.max_length(model_dir, config)
    most = config.encoder.max_positions
    if not 4 <= max_length <= most:
        raise UserError(
            f"--max_length={max_length}: must be from 4 to {most}, the positions of this encoder"
        )
    reason = generation.why_not(model)
    if max_new_tokens is not None and reason:
        raise UserError(f"--max_new_tokens: {reason}")
    count = min(64, max_length // 2) if max_new_tokens is None else max_new_tokens
    if not 1 <= count < max_length:
        raise UserError(
            f"--max_new_tokens={count}: must be from 1 to {max_length - 1}, less than --max_length"
        )
    with atomic.folder(output) as temporary:
        if answers:
            task = inference.task(model_dir)
            answerer = answering.Answerer(config, tokenizer, model, max_length, task)
            server = make_answer_server(config, tokenizer, model, answerer)
            signatures = {"answer": server.answer, "serving_default": server.answer}
            if hasattr(server, "tokens"):
                signatures["tokens"] = server.tokens
            tf.saved_model.save(server, str(temporary), signatures=signatures)
            return "question and context", max_length
        if chooses:
            blank = inference.task(model_dir).get("blank", False)
            server = chooser.make(config, tokenizer, model, max_length, blank, _TOKENS)
        else:
            server = make_server(config, tokenizer, model, max_length)
        names = (inputs,) if ranks or chooses else INPUTS
        signatures = {name: getattr(server, name) for name in (*names, "tokens")}
        signatures["serving_default"] = signatures[inputs]
        if reason is None:
            signatures |= _writers(config, tokenizer, model, max_length - count, count)
        tf.saved_model.save(server, str(temporary), signatures=signatures)
    return inputs, max_length


def make_server(
    config: configs.Config, tokenizer: tokenizers.Tokenizer, model: Model, max_length: int
) -> tf.Module:
    """An object with `single`, `pair` (or `rank`) and `tokens`, and all that they need."""
    server = tf.Module()
    server.tokenizer = tokenizer.module()
    layers, answer = _answer(config, model, tokenizer)
    # The bare variables rather than the Keras object: each is stored once and nothing but
    # TensorFlow is needed to read them. The heads of pretraining, a generator, stay behind.
    server.weights = [variable.value for layer in layers for variable in layer.variables]
    text = tf.TensorSpec([None], tf.string, "text")
    text_b = tf.TensorSpec([None], tf.string, "text_b")
    ids = {name: tf.TensorSpec([None, None], tf.int32, name) for name in _TOKENS}

    def of_texts(*texts: tf.Tensor) -> dict[str, tf.Tensor]:
        # Bytes that are not UTF-8 become U+FFFD, as `bytes.decode(errors="replace")` has it.
        texts = [tf.strings.unicode_transcode(t, "UTF-8", "UTF-8") for t in texts]
        ids = [tokenizer.tokenize(t) for t in texts]
        batch = pack(ids, tokenizer, max_length, config.encoder.layout)
        # Where there is no text at all, rows still have the first position that a pooler reads.
        none = tf.cast(tf.equal(tf.size(texts[0]), 0), tf.int32)
        batch = {name: tf.pad(rows, [[0, 0], [0, none]]) for name, rows in batch.items()}
        outputs = answer(batch)
        if "sequence_output" in outputs:
            outputs["input_mask"] = tf.cast(batch["padding_mask"], tf.int32)
        return outputs

    def single(text):
        return of_texts(text)

    def pair(text, text_b):
        with tf.control_dependencies(
            [
                tf.debugging.assert_equal(
                    tf.size(text),
                    tf.size(text_b),
                    "text and text_b have different numbers of texts",
                )
            ]
        ):
            return of_texts(tf.identity(text), text_b)

    def rank(query, documents):
        given, wanted = tf.size(query), tf.size(documents)
        with tf.control_dependencies(
            [
                tf.debugging.assert_equal(
                    tf.logical_or(tf.equal(given, 1), tf.equal(given, wanted)),
                    True,
                    "give one query, or as many queries as documents",
                )
            ]
        ):
            queries = tf.broadcast_to(query, tf.shape(documents))
            return of_texts(queries, documents)

    def tokens(input_word_ids, input_mask, input_type_ids):
        with tf.control_dependencies([_check_positions(config, input_word_ids)]):
            batch = dict(
                zip(
                    _TOKENS.values(),
                    (tf.identity(input_word_ids), input_mask, input_type_ids),
                    strict=True,
                )
            )
            return answer(batch)

    if _ranker(config, model) is not None:
        both = [tf.TensorSpec([None], tf.string, name) for name in ("query", "documents")]
        server.rank = tf.function(rank, input_signature=both, autograph=False)
    else:
        server.single = tf.function(single, input_signature=[text], autograph=False)
        server.pair = tf.function(pair, input_signature=[text, text_b], autograph=False)
    server.tokens = tf.function(tokens, input_signature=list(ids.values()), autograph=False)
    return server


def make_answer_server(
    config: configs.Config,
    tokenizer: tokenizers.Tokenizer,
    model: Model,
    answerer: answering.Answerer,
) -> tf.Module:
    """An object with the functions `answer` and, where the model has them, `tokens`."""
    server = tf.Module()
    server.tokenizer = tokenizer.module()
    layers = [model.encoder, answerer.objective]
    server.weights = [variable.value for layer in layers for variable in layer.variables]

    def answer(question, context):
        same = tf.debugging.assert_equal(
            tf.size(question),
            tf.size(context),
            "question and context have different numbers of texts",
        )
        with tf.control_dependencies([same]):
            return answerer.answer(tf.identity(question), context)

    texts = [tf.TensorSpec([None], tf.string, name) for name in ("question", "context")]
    server.answer = tf.function(answer, input_signature=texts, autograph=False)
    if answerer.objective.config.form == "conditional":
        return server

    def tokens(input_word_ids, input_mask, input_type_ids):
        with tf.control_dependencies([_check_positions(config, input_word_ids)]):
            given = (tf.identity(input_word_ids), input_mask, input_type_ids)
            states = model.encode(dict(zip(_TOKENS.values(), given, strict=True)))
            logits = answerer.objective.boundary_logits(states["sequence_output"])
            return dict(zip(("start_logits", "end_logits"), logits, strict=True))

    ids = [tf.TensorSpec([None, None], tf.int32, name) for name in _TOKENS]
    server.tokens = tf.function(tokens, input_signature=ids, autograph=False)
    return server


def _check_positions(config: configs.Config, token_ids: tf.Tensor) -> tf.Operation:
    most = config.encoder.max_positions
    return tf.debugging.assert_less_equal(
        tf.shape(token_ids)[1], most, f"this encoder takes at most {most} tokens"
    )


def _with_one_head(config: configs.Config, model: Model, task: str | None) -> configs.Config:
    """Leaves a model of several tasks the head of one; returns the config of what it is now."""
    names = [getattr(objective, "task", "") for objective in config.objectives]
    if task is None and not any(names):
        return config
    if task is None or task not in names:
        known = ", ".join(filter(None, names)) or "none"
        given = "missing" if task is None else f"{task!r} is not known"
        raise UserError(f"--task: {given}: the tasks that this model has heads for are {known}")
    place = names.index(task)
    head = dataclasses.replace(config.objectives[place], task="")
    model.objectives = [model.objectives[place]]
    model.objectives[0].config = head
    return dataclasses.replace(config, objectives=(head,))


def _writers(
    config: configs.Config,
    tokenizer: tokenizers.Tokenizer,
    model: Model,
    length: int,
    count: int,
) -> dict[str, tf.types.experimental.PolymorphicFunction]:
    """The signatures `generate` and `sample`: `length` slots for a text and `count` new tokens."""
    generator = generation.Generator(config, tokenizer, model)

    def go_on(text: tf.Tensor, **how: tf.Tensor) -> dict[str, tf.Tensor]:
        text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")
        read = tokenizer.tokenize(text)  # [B, None]
        # From the end that is written to, backwards.
        nearest = read if generator.backward else tf.reverse(read, axis=[1])
        starts = tf.fill([read.nrows(), 1], generator.start_id)
        rows = tf.concat([nearest[:, : length - 1], starts], axis=1)
        ids = rows.to_tensor(tokenizer.pad_id, shape=[None, length])
        mask = tf.sequence_mask(rows.row_lengths(), length)
        ids, mask = (tf.reverse(values, axis=[1]) for values in (ids, mask))
        new = generator.write(ids, mask, count, **how)
        before_end = tf.cumsum(tf.cast(new == generator.end_id, tf.int32), axis=1) == 0
        said = tf.ragged.boolean_mask(new, before_end)
        parts = [tf.reverse(said, axis=[1]), read] if generator.backward else [read, said]
        return {"text": tokenizer.join(tf.concat(parts, axis=1)), "token_ids": new}

    def generate(text):
        return go_on(text)

    def sample(text, temperature, top_k, top_p, seed):
        numbers = tf.range(tf.size(text, tf.int64))
        seeds = seeding.row_seeds(seed, 0, numbers)
        return go_on(text, seeds=seeds, temperature=temperature, top_k=top_k, top_p=top_p)

    types = {"temperature": tf.float32, "top_k": tf.int32, "top_p": tf.float32, "seed": tf.int64}
    text = tf.TensorSpec([None], tf.string, "text")
    scalars = [tf.TensorSpec([], kind, name) for name, kind in types.items()]
    return {
        "generate": tf.function(generate, input_signature=[text], autograph=False),
        "sample": tf.function(sample, input_signature=[text, *scalars], autograph=False),
    }


def _ranker(config: configs.Config, model: Model) -> Objective | None:
    """The objective that scores documents, if there is one."""
    kinds = [configs.type_of(objective) for objective in config.objectives]
    for kind in ("ranking", "kernel_ranking"):
        if kind in kinds:
            return model.objectives[kinds.index(kind)]
    return None


def _answer(
    config: configs.Config, model: Model, tokenizer: tokenizers.Tokenizer
) -> tuple[list, Callable[[dict], dict[str, tf.Tensor]]]:
    """What the model says of a batch, by the names of the outputs, and the layers that takes."""
    kinds = [configs.type_of(objective) for objective in config.objectives]
    layers = [model.encoder]
    for task in ("classification", "regression"):
        if task in kinds:
            layers.append(model.objectives[kinds.index(task)])
    if (ranker := _ranker(config, model)) is not None:
        layers.append(ranker)

        def answer(batch: dict) -> dict[str, tf.Tensor]:
            text = text_mask(batch["token_ids"], batch["padding_mask"], tokenizer.special_ids)
            ready = ranker.prepare({**batch, "text_mask": text})
            return {"scores": ranker.scores(ready, model.encode(ready))}

    elif "classification" in kinds:
        labels = config.objectives[kinds.index("classification")].labels
        if not labels:
            raise UserError(
                "objectives: the classification has no `labels` in config.yaml: write the names "
                "there, in the order of their numbers"
            )

        def answer(batch: dict) -> dict[str, tf.Tensor]:
            probabilities = model.predictions(batch)["probabilities"]
            label = tf.gather(tf.constant(labels), tf.argmax(probabilities, axis=-1))
            return {"probabilities": probabilities, "label": label}

    elif "regression" in kinds:

        def answer(batch: dict) -> dict[str, tf.Tensor]:
            return {"score": model.predictions(batch)["score"]}

    else:

        def answer(batch: dict) -> dict[str, tf.Tensor]:
            outputs = model.encode(batch)
            return {name: outputs[name] for name in _VECTORS if name in outputs}

    return layers, answer


def main(argv: list[str]) -> None:
    """Exports what the flags name."""
    del argv
    errors.require(FLAGS, "model_dir", "output")
    inputs, length = export(
        FLAGS.model_dir,
        FLAGS.output,
        FLAGS.checkpoint,
        FLAGS.max_length,
        FLAGS.inputs,
        FLAGS.max_new_tokens,
        FLAGS.task,
    )
    what = {
        "single": "a text",
        "pair": "two texts",
        RANK: "a query and documents",
        CHOOSE: "context, question and choices",
    }
    cut = "cut at" if inputs in what else "read in windows of"
    what = what.get(inputs, inputs)
    print(f"wrote {FLAGS.output}: serving_default takes {what}, {cut} {length} tokens")


if __name__ == "__main__":
    define_flags()
    errors.run(main)
