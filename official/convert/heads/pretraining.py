"""Heads of pretraining."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from official.config.objectives import (
    CausalLMConfig,
    MaskedLMConfig,
    PermutationLMConfig,
    SentencePairConfig,
    Seq2SeqLMConfig,
)
from official.config.replaced_tokens import ReplacedTokensConfig
from official.convert.heads.base import Head
from official.convert.mapping import Row


class MaskedLM(Head):
    """Masked LM, of BERT and of ELECTRA's generator."""

    name = "masked_lm"
    objective_type = MaskedLMConfig
    segments = True
    corruption = True


class NextSentence(Head):
    """Next-sentence prediction of BERT."""

    name = "next_sentence"
    objective_type = SentencePairConfig
    settings: ClassVar = {"relation": "next_sentence"}
    segments = True


class SentenceOrder(Head):
    """Sentence-order prediction of ALBERT."""

    name = "sentence_order"
    objective_type = SentencePairConfig
    settings: ClassVar = {"relation": "sentence_order"}
    segments = True


class CausalLM(Head):
    """Causal LM of GPT-2; its output layer is the token table."""

    name = "causal_lm"
    objective_type = CausalLMConfig
    segments = True


class PermutationLM(Head):
    """Permutation LM of XLNet."""

    name = "permutation_lm"
    objective_type = PermutationLMConfig


class ReplacedTokens(Head):
    """Replaced-token detection of ELECTRA's discriminator."""

    name = "replaced_tokens"
    objective_type = ReplacedTokensConfig


class Seq2SeqLM(Head):
    """Sequence-to-sequence LM of T5; its output layer is the token table, or one of its own."""

    name = "seq2seq_lm"
    objective_type = Seq2SeqLMConfig

    def is_in(self, config: Mapping[str, Any], has_tensors: bool) -> bool:
        """See `Head`; a tied output layer has no tensors."""
        return has_tensors or self._is_named(config)

    def rows_of(self, encoder: Any) -> Sequence[Row]:
        """See `Head`."""
        return () if encoder.tied_output else self.rows

    def objective(self, config: Mapping[str, Any], dropout: Any) -> Seq2SeqLMConfig:
        """See `Head`."""
        del dropout
        return Seq2SeqLMConfig(start_id=config.get("decoder_start_token_id", 0))

    def keys(self, objective: Seq2SeqLMConfig, dropout_key: str) -> dict[str, Any]:
        """See `Head`."""
        del dropout_key
        return {"decoder_start_token_id": objective.start_id}
