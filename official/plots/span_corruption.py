"""Shows the input and the target that a corruption makes of a text, for an encoder-decoder.

Shapes: n tokens of the text.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from official import config as configs
from official.config.text_to_text import TextToTextConfig
from official.corruption.vocabulary import Vocabulary, check_tokens
from official.tokenizers import Tokenizer
from official.tokenizers.base import sentinels
from official.utils import seeding
from official.utils.errors import UserError

_SPECIALS = ("<pad>", "</s>")


class InputAndTarget(NamedTuple):
    """The pieces of an input and of its target, with their end tokens."""

    inputs: list[str]
    targets: list[str]


def sample(
    text: str, corruption: TextToTextConfig, seed: int, tokenizer: Tokenizer | None = None
) -> InputAndTarget:
    """Corrupts a text.

    Args:
      text: the text.
      corruption: the config of the corruption.
      seed: the seed of the draws.
      tokenizer: a tokenizer with sentinels; None = the tokens are the words between spaces.

    Raises:
      UserError: the text has fewer than two tokens, or the tokenizer has too few sentinels.
    """
    if tokenizer is None:
        words = text.split()
        pieces = [*_SPECIALS, *words, *sentinels(corruption.sentinels)]
        first = len(pieces) - 1
        vocabulary = Vocabulary(
            size=len(pieces),
            mask_id=-1,
            special_ids=(0, 1),
            word_starts=np.ones(len(pieces), bool),
            pad_id=0,
            end_id=1,
            sentinel_ids=tuple(range(first, first - corruption.sentinels, -1)),
        )
        ids = np.arange(2, 2 + len(words), dtype=np.int32)
    else:
        check_tokens(corruption, tokenizer, "--tokenizer")
        pieces, vocabulary = tokenizer.pieces, Vocabulary.from_tokenizer(tokenizer)
        (ids,) = tokenizer.encode([text])
    if len(ids) < 2:
        raise UserError(f"--text={text!r} has {len(ids)} tokens: two or more are corrupted")
    batch = {"token_ids": tf.constant(ids[None]), "padding_mask": tf.ones((1, len(ids)), tf.bool)}
    corrupt = configs.module_of(corruption).corrupt
    out = corrupt(corruption, vocabulary, batch, seeding.row_seeds(seed, 0, tf.range(1)))
    rows = (("token_ids", "padding_mask"), ("target_ids", "target_mask"))
    return InputAndTarget(
        *([pieces[i] for i in out[name][0].numpy()[out[mask][0].numpy()]] for name, mask in rows)
    )


def as_text(sampled: InputAndTarget) -> str:
    """Returns the two lines of an input and its target."""
    return f"input   {' '.join(sampled.inputs)}\ntarget  {' '.join(sampled.targets)}"
