"""The properties of a vocabulary that corruption needs.

Shapes: V pieces of the vocabulary.
"""

import dataclasses
import functools
from typing import TYPE_CHECKING

import numpy as np

from official.tokenizers.word_starts import RULES
from official.utils.errors import UserError

if TYPE_CHECKING:
    from official.config.parts import CorruptionConfig
    from official.tokenizers.base import Tokenizer


@dataclasses.dataclass(frozen=True, eq=False)
class Vocabulary:
    """A vocabulary without its text.

    Attributes:
      size: V.
      mask_id: id of the mask token; -1 = there is none.
      special_ids: ids of special tokens and of added tokens that mark something. They are never
        hidden, except `unk_id`.
      word_starts: bool [V], true for pieces that begin a word.
      counts: number of occurrences of each piece in the corpus, int64 [V]; None = unknown.
      word_ends: bool [V], true for pieces after which every piece begins a word; None = no piece.
      unk_id: id of the token for text that the vocabulary cannot spell; -1 = there is none. It is
        a token of the text, so it may be hidden and predicted, as in all releases (BERT, RoBERTa,
        SpanBERT, ERNIE, ALBERT, ELECTRA, XLNet).
      pad_id: id of the padding token.
      end_id: id of the token that ends a text.
      sentinel_ids: ids of the sentinels `<extra_id_0>`, `<extra_id_1>`, ...
    """

    size: int
    mask_id: int
    special_ids: tuple[int, ...]
    word_starts: np.ndarray
    counts: np.ndarray | None = None
    word_ends: np.ndarray | None = None
    unk_id: int = -1
    pad_id: int = 0
    end_id: int = 0
    sentinel_ids: tuple[int, ...] = ()

    @classmethod
    def from_tokenizer(
        cls,
        tokenizer: "Tokenizer",
        counts: np.ndarray | None = None,
        corruption: "CorruptionConfig | None" = None,
    ) -> "Vocabulary":
        """Returns the vocabulary of a tokenizer.

        Args:
          tokenizer: the tokenizer of the text.
          counts: number of occurrences of each piece in the corpus; None = unknown.
          corruption: a config with the rule for pieces that begin a word; None = the first of
            `RULES`.
        """
        rule = corruption.word_starts if corruption is not None else RULES[0]
        # A vocabulary may have one token for several purposes, as GPT-2's has.
        markers = (i for i, token in tokenizer.added.items() if token.special)
        others = (tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id)
        return cls(
            size=tokenizer.vocab_size,
            mask_id=-1 if tokenizer.mask_id is None else tokenizer.mask_id,
            special_ids=(*tokenizer.special_ids, *markers),
            word_starts=tokenizer.word_starts_by(rule),
            counts=counts,
            word_ends=tokenizer.word_ends,
            unk_id=-1 if tokenizer.unk_id in others else tokenizer.unk_id,
            pad_id=tokenizer.pad_id,
            end_id=tokenizer.sep_id,
            sentinel_ids=tokenizer.sentinel_ids,
        )

    @functools.cached_property
    def counted(self) -> np.ndarray:
        """The cumulative number of occurrences in the corpus, int64 [V].

        Raises:
          UserError: the counts are unknown.
        """
        if self.counts is None:
            raise UserError(
                "corruption.random_tokens: unigram draws tokens as often as the corpus has them, "
                "and these shards have no counts: make them again with build_shards"
            )
        return np.cumsum(self.counts)

    @functools.cached_property
    def text_ids(self) -> np.ndarray:
        """The ids that are neither special tokens nor sentinels, int32."""
        others = (*self.special_ids, *self.sentinel_ids)
        return np.setdiff1d(np.arange(self.size, dtype=np.int32), others)

    @functools.cached_property
    def never_masked(self) -> tuple[int, ...]:
        """The ids that are never hidden."""
        return tuple(i for i in self.special_ids if i != self.unk_id)

    @functools.cached_property
    def maskable(self) -> np.ndarray:
        """Bool [V], true for the ids that may be hidden."""
        return ~np.isin(np.arange(self.size), self.never_masked)


def check_tokens(corruption: "CorruptionConfig | None", tokenizer: "Tokenizer", where: str) -> None:
    """Checks that a vocabulary has the mask token or the sentinels that a corruption needs.

    Args:
      corruption: the config of the corruption, or None.
      tokenizer: the tokenizer of the text.
      where: the name of the tokenizer in messages.

    Raises:
      UserError: there is no mask token, or there are too few sentinels.
    """
    if corruption is None:
        return
    needed, there = corruption.sentinels, len(tokenizer.sentinel_ids)
    if needed > there:
        raise UserError(
            f"{where} has {there} sentinels (<extra_id_0>, ...), and corruption.type: "
            f"{corruption.type} needs {needed}: build the vocabulary with --sentinels={needed}, or "
            "lower corruption.sentinels"
        )
    share = corruption.mask_prob
    if share > 0 and tokenizer.mask_id is None:
        raise UserError(
            f"{where} has no mask token, and corruption.mask_prob is {share}: name another with "
            "--tokenizer (build_vocab makes one with a mask, but not with --sentinels), add one to "
            "the vocabulary (<mask>, [MASK], or another that mask_token names in "
            "tokenizer_config.json), or take objectives that need no masks"
        )
