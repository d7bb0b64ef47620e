"""Makes an ELMo with a table of words of one that reads characters: the token layer, cached.

The vector of a word before the LSTMs does not depend on its text. For text of a known vocabulary
the convolutions need not run: each word of the vocabulary has its vector in a table, as in
`dump_token_embeddings` of ELMo's release. Other words get the vector of `<UNK>`, of the characters
of this mark.

Shapes: V words of the vocabulary, N of them at a time, P the size of a word's vector.
"""

import dataclasses
import os
from pathlib import Path

import numpy as np
import tensorflow as tf

from official.saving import model_folder
from official.tokenizers import word_characters
from official.tokenizers.characters import BEGIN_ID, END_ID
from official.utils.errors import UserError

_AT_ONCE = 1024
_WORDS = "encoder/words/"


def write(model_dir: str | os.PathLike, output: str | os.PathLike, checkpoint: str) -> None:
    """Writes a model folder whose encoder has `tokens: words`.

    Raises:
      UserError: `model_dir` is no model folder, or its encoder is no `bilm` that reads characters;
        or `output` exists.
    """
    config, tokenizer, model = model_folder.restore(model_dir, checkpoint)
    if getattr(config.encoder, "tokens", None) != "characters":
        raise UserError(
            f"{Path(model_dir) / model_folder.CONFIG}: encoder: --target=word_table takes an "
            "encoder bilm with tokens: characters"
        )
    encoder = dataclasses.replace(config.encoder, tokens="words")
    table = np.zeros((encoder.vocab_size, encoder.projection_size), np.float32)
    ids = word_characters.of_words(tf.constant(tokenizer.pieces)).numpy()
    ids[BEGIN_ID] = word_characters.mark(word_characters.SENTENCE_BEGIN)
    ids[END_ID] = word_characters.mark(word_characters.SENTENCE_END)
    for start in range(0, len(ids), _AT_ONCE):
        some = ids[None, start : start + _AT_ONCE]  # [1, N, 50]
        table[start : start + _AT_ONCE] = np.asarray(model.encoder.words(some))[0]
    variables = {
        path: np.asarray(variable)
        for path, variable in model.variables_by_path().items()
        if not path.startswith(_WORDS)
    }
    variables[f"{_WORDS}table"] = table
    model_folder.write_new(
        dataclasses.replace(config, encoder=encoder), tokenizer, variables, output
    )
