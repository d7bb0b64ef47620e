"""What corruption has to know of a vocabulary.

Shapes: V pieces of the vocabulary.
"""

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from official.errors import UserError

if TYPE_CHECKING:
    from official.tokenizers.base import Tokenizer


@dataclasses.dataclass(frozen=True, eq=False)
class Vocabulary:
    """A vocabulary without its text.

    Attributes:
      size: V.
      mask_id: what stands for a token that is hidden; -1 = there is nothing for it.
      special_ids: ids that are never hidden.
      word_starts: bool [V], true where a piece begins a word.
      counts: how often each piece stands in the corpus, int64 [V]; None = not known.
    """

    size: int
    mask_id: int
    special_ids: tuple[int, ...]
    word_starts: np.ndarray
    counts: np.ndarray | None = None

    @classmethod
    def of(cls, tokenizer: "Tokenizer", counts: np.ndarray | None = None) -> "Vocabulary":
        """Returns that of a tokenizer."""
        return cls(
            size=tokenizer.vocab_size,
            mask_id=-1 if tokenizer.mask_id is None else tokenizer.mask_id,
            special_ids=tuple(tokenizer.special_ids),
            word_starts=np.asarray(tokenizer.word_starts, bool),
            counts=counts,
        )

    @functools.cached_property
    def counted(self) -> np.ndarray:
        """Int64 [V], how often the pieces up to each one stand in the corpus.

        Raises:
          UserError: not known.
        """
        if self.counts is None:
            raise UserError(
                "corruption.random_tokens: unigram draws tokens as often as the corpus has them, "
                "and these shards do not say: make them again with build_shards"
            )
        return np.cumsum(self.counts)

    @functools.cached_property
    def maskable(self) -> np.ndarray:
        """Bool [V], false for the special ids."""
        table = np.ones(self.size, bool)
        table[list(self.special_ids)] = False
        return table


def check_mask_token(corruption: Any, tokenizer: "Tokenizer", where: str) -> None:
    """Refuses a corruption that puts mask tokens into the text of a vocabulary that has none.

    Args:
      corruption: its `Config`, or None.
      tokenizer: of the text.
      where: what messages call the tokenizer.

    Raises:
      UserError: there is no mask token.
    """
    share = getattr(corruption, "mask_prob", 0)
    if share > 0 and tokenizer.mask_id is None:
        raise UserError(
            f"{where} has no mask token, and corruption.mask_prob is {share}: add one to the "
            "vocabulary (<mask>, [MASK], or another that mask_token names in "
            "tokenizer_config.json), or take objectives that need no masks"
        )
