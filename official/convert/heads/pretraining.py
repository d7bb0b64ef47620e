"""Heads of pretraining."""

from typing import ClassVar

from official.config.objectives import (
    CausalLMConfig,
    MaskedLMConfig,
    PermutationLMConfig,
    SentencePairConfig,
)
from official.config.replaced_tokens import ReplacedTokensConfig
from official.convert.heads.base import Head


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
