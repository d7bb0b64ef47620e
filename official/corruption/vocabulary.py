"""What corruption has to know of a vocabulary.

Shapes: V pieces of the vocabulary.
"""

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from official.tokenizers.word_starts import RULES
from official.utils.errors import UserError

if TYPE_CHECKING:
    from official.tokenizers.base import Tokenizer


@dataclasses.dataclass(frozen=True, eq=False)
class Vocabulary:
    """A vocabulary without its text.

    Attributes:
      size: V.
      mask_id: what stands for a token that is hidden; -1 = there is nothing for it.
      special_ids: of special tokens, which are never hidden but for `unk_id`.
      word_starts: bool [V], true where a piece begins a word.
      counts: how often each piece stands in the corpus, int64 [V]; None = not known.
      word_ends: bool [V], true where the piece after this one begins a word, whatever it is; None =
        nowhere.
      unk_id: of the special token for text that the vocabulary cannot spell. It stands for a token
        of the text, so it may be hidden and predicted, as in all the releases (BERT, RoBERTa,
        SpanBERT, ERNIE, ALBERT, ELECTRA, XLNet). -1 = there is none.
    """

    size: int
    mask_id: int
    special_ids: tuple[int, ...]
    word_starts: np.ndarray
    counts: np.ndarray | None = None
    word_ends: np.ndarray | None = None
    unk_id: int = -1

    @classmethod
    def from_tokenizer(
        cls, tokenizer: "Tokenizer", counts: np.ndarray | None = None, corruption: Any = None
    ) -> "Vocabulary":
        """Returns that of a tokenizer.

        Args:
          tokenizer: of the text.
          counts: how often each piece stands in the corpus; None = not known.
          corruption: a `Config` that names the rule by which pieces begin a word; None = the first
            of `RULES`.
        """
        rule = getattr(corruption, "word_starts", RULES[0])
        # A vocabulary may have one token for several purposes, as GPT-2's has.
        others = (tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id)
        return cls(
            size=tokenizer.vocab_size,
            mask_id=-1 if tokenizer.mask_id is None else tokenizer.mask_id,
            special_ids=tuple(tokenizer.special_ids),
            word_starts=tokenizer.word_starts_by(rule),
            counts=counts,
            word_ends=tokenizer.word_ends,
            unk_id=-1 if tokenizer.unk_id in others else tokenizer.unk_id,
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
    def text_ids(self) -> np.ndarray:
        """Int32, the ids that are no special tokens."""
        return np.setdiff1d(np.arange(self.size, dtype=np.int32), self.special_ids)

    @functools.cached_property
    def maskable(self) -> np.ndarray:
        """Bool [V], true for the ids that may be hidden."""
        table = np.ones(self.size, bool)
        table[[i for i in self.special_ids if i != self.unk_id]] = False
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
