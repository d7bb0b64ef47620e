"""`generate` and `sample`: texts that a model continues, or generates from others.

`generate` is greedy, or a search with the beams of the context. With `num_return_sequences` above 1
it returns so many texts for each text: `text` [B, S] and `token_ids` [B, S, N].

Shapes: B batch, S texts for each text, N new tokens.
"""

from collections.abc import Callable, Mapping

import tensorflow as tf

from official.saving import generation_settings
from official.saving.generation_settings import Settings
from official.serving.generation import token_choice
from official.serving.generation.generator import Generator, PromptReader, Reader, beam_options
from official.serving.signatures import inputs
from official.tokenizers.pair_forms import LEFT
from official.utils import seeding

DEFAULT = {"generate": "a text"}
LONG = "cut at"


def signatures(context: inputs.ServingContext) -> dict[str, inputs.Signature]:
    """Returns the signatures of a causal LM or an encoder-decoder."""
    tokenizer, settings = context.tokenizer, context.settings
    count, rules = settings.max_new_tokens, token_choice.options(settings)
    generator = Generator(context)
    reader = generator.reader
    if isinstance(reader, PromptReader):
        rows, joined = _of_prompts(context, reader)
    else:
        rows, joined = _of_inputs(context, reader)

    def generate(text: tf.Tensor, **draws: tf.Tensor) -> dict[str, tf.Tensor]:
        read = tokenizer.tokenize(context.with_prefix(text))  # [B, None]
        searches = settings.num_beams > 1 and not draws
        with context.weights.read():
            if searches:
                new = _best(generator, *rows(read), settings)
                copies = tf.repeat(tf.range(read.nrows()), settings.num_return_sequences)
                read = tf.gather(read, copies)
            else:
                new = generator.write(*rows(read), count, rules, **draws)
        before_end = tf.cumsum(tf.cast(new == generator.end_id, tf.int32), axis=1) == 0
        kept = tf.ragged.boolean_mask(new, before_end)
        answer = {
            "text": tokenizer.join(joined(read, kept)),
            "token_ids": tf.ensure_shape(new, [None, count]),
        }
        return _by_text(answer, settings) if searches else answer

    def sample(text, temperature, top_k, top_p, seed):
        temperature, top_k, top_p = generation_settings.checked(temperature, top_k, top_p)
        seeds = seeding.row_seeds(seed, 0, tf.range(tf.size(text, tf.int64)))
        return generate(text, seeds=seeds, temperature=temperature, top_k=top_k, top_p=top_p)

    types = {"temperature": tf.float32, "top_k": tf.int32, "top_p": tf.float32, "seed": tf.int64}
    scalars = [tf.TensorSpec([], kind, name) for name, kind in types.items()]
    return {
        "generate": inputs.signature(generate, *inputs.texts("text")),
        "sample": inputs.signature(sample, *inputs.texts("text"), *scalars),
    }


# The ids and the mask of rows [B, P] from the tokens of texts [B, None].
_Rows = Callable[[tf.RaggedTensor], tuple[tf.Tensor, tf.Tensor]]
# The tokens of an answer from those of a text and the new ones.
_Joined = Callable[[tf.RaggedTensor, tf.RaggedTensor], tf.RaggedTensor]


def _of_prompts(context: inputs.ServingContext, reader: PromptReader) -> tuple[_Rows, _Joined]:
    """Returns how prompts become rows, and how they are joined with the new tokens."""
    length = context.max_length - context.settings.max_new_tokens  # of padded prompts
    backward = reader.backward

    def rows(read):
        # The tokens next to the new ones come first, because they are kept if the text is cut.
        nearest = read if backward else tf.reverse(read, axis=[1])
        starts = tf.fill([read.nrows(), 1], reader.start_id)
        both = tf.concat([nearest[:, : length - 1], starts], axis=1)
        ids = both.to_tensor(context.tokenizer.pad_id, shape=[None, length])
        mask = tf.sequence_mask(both.row_lengths(), length)
        return tf.reverse(ids, axis=[1]), tf.reverse(mask, axis=[1])

    def joined(read, kept):
        return tf.concat([tf.reverse(kept, axis=[1]), read] if backward else [read, kept], axis=1)

    return rows, joined


def _of_inputs(context: inputs.ServingContext, reader: Reader) -> tuple[_Rows, _Joined]:
    """Returns how the inputs of an encoder-decoder become rows, and what is left of new tokens."""
    tokenizer = context.tokenizer

    def rows(read):
        room = context.max_length - 1
        cut = read[:, -room:] if tokenizer.pairs.cut_side == LEFT else read[:, :room]
        both = tf.concat([cut, tf.fill([cut.nrows(), 1], reader.end_id)], axis=1)
        # A batch without texts has a column too.
        length = tf.maximum(tf.reduce_max(both.row_lengths()), 1)
        ids = both.to_tensor(tokenizer.pad_id, shape=tf.stack([both.nrows(), length]))
        return ids, tf.sequence_mask(both.row_lengths(), length)

    def joined(read, kept):
        del read
        real = kept.with_values(kept.values != tokenizer.pad_id)
        kept = tf.ragged.boolean_mask(kept, real)
        known = kept.values < tokenizer.vocab_size
        return kept.with_values(tf.where(known, kept.values, tokenizer.unk_id))

    return rows, joined


def _best(generator: Generator, ids: tf.Tensor, mask: tf.Tensor, settings: Settings) -> tf.Tensor:
    """Searches with beams; returns the best texts of each row, [B * S, N]."""
    beams, _ = generator.search(ids, mask, **beam_options(settings))
    return tf.reshape(beams[:, : settings.num_return_sequences], [-1, settings.max_new_tokens])


def _by_text(answer: Mapping[str, tf.Tensor], settings: Settings) -> dict[str, tf.Tensor]:
    """Returns outputs [B * S, ...] as [B, S, ...], or as they are if S is 1."""
    copies = settings.num_return_sequences
    if copies == 1:
        return dict(answer)
    return {n: tf.reshape(x, [-1, copies, *x.shape[1:]]) for n, x in answer.items()}
