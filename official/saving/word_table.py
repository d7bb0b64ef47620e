"""An ELMo whose character network is replaced by a table of the vectors of a vocabulary.

The network reads a word without its context, so its vector can be computed once (as the token
embeddings of ELMo's release). A word that the vocabulary lacks has the vector of `<UNK>`.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from official import config as configs
from official.modeling.model import Model
from official.tokenizers import Characters, word_characters
from official.utils.errors import UserError

_NETWORK = "encoder/words/"
_AT_ONCE = 1024  # words


def replace(
    config: configs.Config, tokenizer: Characters, model: Model, source: str
) -> tuple[configs.Config, dict[str, np.ndarray]]:
    """Returns the config and the variables of the model with a table.

    Args:
      config: the config of the model.
      tokenizer: its tokenizer.
      model: the model with its weights.
      source: its folder, for messages.

    Raises:
      UserError: the encoder reads no characters.
    """
    encoder = config.encoder
    if getattr(encoder, "tokens", None) != "characters":
        raise UserError(
            f"--word_table: {source}: encoder.type: {encoder.type}: this encoder does not read the "
            "characters of words: take an ELMo (encoder.type: bilm, tokens: characters)"
        )
    rows = []
    ids = _characters(tokenizer)
    for start in range(0, len(ids), _AT_ONCE):
        rows.append(model.encoder.words(ids[start : start + _AT_ONCE][:, None])[:, 0].numpy())
    variables = model.variables_by_path()
    arrays = {p: v.numpy() for p, v in variables.items() if not p.startswith(_NETWORK)}
    # The vocabulary of the language model may have more entries than the tokenizer.
    table = np.zeros((encoder.vocab_size or len(ids), encoder.projection_size), np.float32)
    table[: len(ids)] = np.concatenate(rows)
    arrays[f"{_NETWORK}table"] = table
    encoder = dataclasses.replace(encoder, tokens="words", vocab_size=len(table))
    return dataclasses.replace(config, name=f"{config.name}_words", encoder=encoder), arrays


def _characters(tokenizer: Characters) -> np.ndarray:
    """Returns the characters of the vocabulary, with the marks of a sentence: int32 [V, C]."""
    ids = word_characters.of_words(tf.constant(tokenizer.pieces)).numpy()
    ids[tokenizer.cls_id] = word_characters.mark(word_characters.SENTENCE_BEGIN)
    ids[tokenizer.sep_id] = word_characters.mark(word_characters.SENTENCE_END)
    return ids
