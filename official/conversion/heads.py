"""Heads in other tools' files: their tensors, and the keys of config.json for them.

A class is a kind of head: its name, its objective, and the keys of config.json that it reads and
writes. An instance is such a head in the files of one system: its tensors and its class of
transformers. `official.conversion.system.System` has a table of instances.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from typing_extensions import override

from official.config.heads import (
    ClassificationConfig,
    MultiLabelConfig,
    MultipleChoiceConfig,
    RankingConfig,
    RegressionConfig,
    SpanAnswerConfig,
    TokenClassificationConfig,
)
from official.config.objectives import (
    CausalLMConfig,
    MaskedLMConfig,
    PermutationLMConfig,
    ReplacedTokensConfig,
    SentencePairConfig,
    Seq2SeqLMConfig,
)
from official.conversion.mapping import Row, linear
from official.utils.errors import UserError

# Problem types of classification in transformers.
_ONE, SEVERAL = "single_label_classification", "multi_label_classification"
_MAX_LABELS = 1_000_000
# The activation of the scores of a ranker, in config.json: sentence-transformers 4 and 5 have
# `RANKER: {"activation_fn": ...}`, versions before 4 the other key.
RANKER, _OLD_RANKER = "sentence_transformers", "sbert_ce_default_activation_function"
# What a ranker gives, and the activations of torch that give it, by the names of their classes.
ACTIVATIONS = {
    "logits": "torch.nn.modules.linear.Identity",
    "sigmoid": "torch.nn.modules.activation.Sigmoid",
}
# Fields of XLNet's objective and their keys in config.json.
_BEAMS = {"start_beam": "start_n_top", "end_beam": "end_n_top"}


@dataclasses.dataclass(frozen=True)
class Head:
    """A head, and the base class of the kinds of heads.

    Attributes:
      rows: the rows of its variables; empty if the head is the token table.
      architecture: the class of transformers with only this head; None = there is none.
      erf_gelu: whether it has the erf form of GELU, whatever the activation of the encoder.
      name: the name of the head, by which messages call it.
      objective_type: the config of its objective.
      settings: fields of that config that distinguish heads with the same objective type.
      poolings: the values of the objective's `pooling` that the head can have.
      transform: whether the head has a hidden layer, as its objective's `transform` says.
      denses: the values of the objective's `dense` that the head can have.
      segments: whether a model with this head comes with `segments` in its config.
      corruption: whether a model with this head comes with `corruption` in its config.
    """

    rows: Sequence[Row] = ()
    architecture: str | None = None
    erf_gelu: bool = False

    name: ClassVar[str] = ""
    objective_type: ClassVar[type]
    settings: ClassVar[Mapping[str, Any]] = {}
    poolings: ClassVar[tuple[str, ...]] = ("pooled",)
    transform: ClassVar[bool] = False
    denses: ClassVar[tuple[str | None, ...]] = (None,)
    segments: ClassVar[bool] = False
    corruption: ClassVar[bool] = False

    @classmethod
    def describes(cls, objective: Any) -> bool:
        """Returns whether an objective has this kind of head."""
        same = (getattr(objective, key, None) == value for key, value in cls.settings.items())
        return isinstance(objective, cls.objective_type) and all(same)

    def rows_of(self, encoder: Any) -> Sequence[Row]:
        """Returns the rows of the head for an encoder; its config may tie the output layer."""
        del encoder
        return self.rows

    def is_in(self, config: Mapping[str, Any], has_tensors: bool) -> bool:
        """Returns whether a file has this head.

        Args:
          config: the parsed config.json.
          has_tensors: whether the file has a tensor of the head.
        """
        return has_tensors or (not self.rows and self._is_named(config))

    def _is_named(self, config: Mapping[str, Any]) -> bool:
        return self.architecture in (config.get("architectures") or ())

    def objective(self, config: Mapping[str, Any], dropout: Any) -> Any:
        """Returns the config of the objective.

        Args:
          config: the parsed config.json.
          dropout: the dropout rate of heads of tasks in `config`.

        Raises:
          ValueError: `config` has a value that the objective cannot have.
        """
        del config, dropout
        return self.objective_type(**self.settings)

    def check(self, objective: Any, encoder: Any, title: str) -> None:
        """Refuses an objective that a class of transformers does not have.

        Args:
          objective: the config of the objective.
          encoder: the config of the encoder.
          title: the name of the system, with its article.

        Raises:
          UserError: transformers pools differently, reads only the last layer, has no BiLSTM or
            activation in this head, or reads in another direction.
        """
        if getattr(objective, "mix", None) is not None:
            raise UserError(
                f"objectives: {objective.type}.mix: {title} of transformers reads only the "
                "last layer"
            )
        if getattr(objective, "bilstm", None) is not None:
            raise UserError(
                f"objectives: {objective.type}.bilstm: {title} of transformers does not have it"
            )
        pooling = getattr(objective, "pooling", "pooled")
        if pooling not in self.poolings or (pooling != "pooled" and encoder.pooler):
            raise UserError(
                f"objectives: {objective.type}.pooling: {title} of "
                f"transformers has 'pooled', not {pooling!r}"
            )
        if getattr(objective, "transform", False) != self.transform:
            raise UserError(
                f"objectives: {objective.type}.transform: {title} of transformers has "
                f"{str(self.transform).lower()}"
            )
        if (dense := getattr(objective, "dense", None)) not in self.denses:
            known = " or ".join(repr(each) for each in self.denses)
            raise UserError(
                f"objectives: {objective.type}.dense: {title} of transformers has {known}, not "
                f"{dense!r}"
            )
        if getattr(objective, "activation", None) is not None:
            raise UserError(
                f"objectives: {objective.type}.activation: {title} of transformers does not have it"
            )
        if getattr(objective, "direction", "forward") != "forward":
            raise UserError(
                f"objectives: {objective.type}.direction: {title} of "
                f"transformers reads from left to right, not {objective.direction!r}"
            )

    def pooler_keys(self, objective: Any, encoder: Any) -> dict[str, Any]:
        """Returns the keys of config.json that say how the head pools."""
        del objective, encoder
        return {}

    def keys(self, objective: Any, dropout_key: str) -> dict[str, Any]:
        """Returns the other keys of config.json that describe the head.

        Args:
          objective: the config of the objective.
          dropout_key: the key of the dropout rate of heads of tasks.
        """
        del objective, dropout_key
        return {}


# Heads of pretraining.


class MaskedLM(Head):
    """Masked LM, of BERT and of ELECTRA's generator."""

    name = "masked_lm"
    objective_type = MaskedLMConfig
    settings: ClassVar = {"enhanced_mask_decoder": False, "form": "tied"}
    segments = True
    corruption = True


class EnhancedMaskedLM(MaskedLM):
    """Masked LM of DeBERTa's pretraining, whose decoder reads absolute positions."""

    name = "enhanced_masked_lm"
    settings: ClassVar = {"enhanced_mask_decoder": True, "form": "tied"}


class LinearMaskedLM(MaskedLM):
    """Masked LM of NeoBERT, one linear layer; no system of other tools here has it."""

    name = "linear_masked_lm"
    settings: ClassVar = {"form": "linear"}


class KernelMaskedLM(MaskedLM):
    """Masked LM of EuroBERT, one kernel without a bias."""

    name = "kernel_masked_lm"
    settings: ClassVar = {"form": "kernel"}


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
    settings: ClassVar = {"form": "electra"}


class NormedReplacedTokens(ReplacedTokens):
    """Replaced-token detection of DeBERTa-v3, with the weight of the loss of its release."""

    name = "normed_replaced_tokens"
    settings: ClassVar = {"form": "deberta"}

    @override
    def objective(self, config: Mapping[str, Any], dropout: Any) -> ReplacedTokensConfig:
        return dataclasses.replace(super().objective(config, dropout), weight=10.0)


class Seq2SeqLM(Head):
    """Sequence-to-sequence LM of T5; its output layer is the token table or a separate one."""

    name = "seq2seq_lm"
    objective_type = Seq2SeqLMConfig

    @override
    def is_in(self, config: Mapping[str, Any], has_tensors: bool) -> bool:
        """See `Head`; a tied output layer has no tensors."""
        return has_tensors or self._is_named(config)

    @override
    def rows_of(self, encoder: Any) -> Sequence[Row]:
        return () if encoder.tied_output else self.rows

    @override
    def objective(self, config: Mapping[str, Any], dropout: Any) -> Seq2SeqLMConfig:
        del dropout
        return Seq2SeqLMConfig(start_id=config.get("decoder_start_token_id", 0))

    @override
    def keys(self, objective: Seq2SeqLMConfig, dropout_key: str) -> dict[str, Any]:
        del dropout_key
        return {"decoder_start_token_id": objective.start_id}


# Heads of tasks.


@dataclasses.dataclass(frozen=True)
class TaskHead(Head):
    """A head of a task; a file has at most one.

    The heads of several tasks have the same tensor names in many files. The class that config.json
    names distinguishes them.

    Attributes:
      pooler: the hidden layer of the head, which becomes the encoder's pooler; None = the head has
        no hidden layer.
      pooler_activation: the activation of the pooler with this head; None = that of the system.
      pools: whether the head reads the pooled output.
    """

    pooler: str | None = None
    pooler_activation: str | None = None

    pools: ClassVar[bool] = True

    @override
    def is_in(self, config: Mapping[str, Any], has_tensors: bool) -> bool:
        return has_tensors and (self._is_named(config) or not config.get("architectures"))

    def pooler_rows(self, shared: list[Row]) -> list[Row]:
        """Returns the rows of the pooler in a file with this head.

        Args:
          shared: the rows of the pooler that the system has with other heads.
        """
        if not self.pools:
            return []
        return linear("encoder/pooler", self.pooler) if self.pooler else shared

    def activation(self, config: Mapping[str, Any]) -> str | None:
        """Returns the pooler's activation with this head; None = that of the system.

        Raises:
          ValueError: `config`, the parsed config.json, has a value that the encoder cannot have.
        """
        del config
        return self.pooler_activation


class Classification(TaskHead):
    """Classification of a text or a pair of texts; it has two labels or more."""

    name = "classification"
    objective_type = ClassificationConfig

    @override
    def is_in(self, config: Mapping[str, Any], has_tensors: bool) -> bool:
        several = config.get("problem_type") == SEVERAL
        return num_labels(config) != 1 and not several and super().is_in(config, has_tensors)

    @override
    def objective(self, config: Mapping[str, Any], dropout: Any) -> ClassificationConfig:
        return ClassificationConfig(labels=_labels(config), dropout=dropout)

    @override
    def keys(self, objective: ClassificationConfig, dropout_key: str) -> dict[str, Any]:
        return {
            **_label_keys(objective),
            dropout_key: objective.dropout,
            "problem_type": _ONE,
        }


class MultiLabel(TaskHead):
    """Multi-label classification: in transformers, a classification with a problem type."""

    name = "multi_label"
    objective_type = MultiLabelConfig

    @override
    def is_in(self, config: Mapping[str, Any], has_tensors: bool) -> bool:
        return config.get("problem_type") == SEVERAL and super().is_in(config, has_tensors)

    @override
    def objective(self, config: Mapping[str, Any], dropout: Any) -> MultiLabelConfig:
        return MultiLabelConfig(labels=_labels(config, SEVERAL), dropout=dropout)

    @override
    def keys(self, objective: MultiLabelConfig, dropout_key: str) -> dict[str, Any]:
        return {
            **_label_keys(objective),
            dropout_key: objective.dropout,
            "problem_type": SEVERAL,
        }


class Ranking(TaskHead):
    """A ranker: in transformers a classification with one label, of which config.json says so."""

    name = "ranking"
    objective_type = RankingConfig

    @override
    def is_in(self, config: Mapping[str, Any], has_tensors: bool) -> bool:
        return _is_ranker(config) and super().is_in(config, has_tensors)

    @override
    def objective(self, config: Mapping[str, Any], dropout: Any) -> RankingConfig:
        path = ranker_activation(config)
        for output, theirs in ACTIVATIONS.items():
            if path in (theirs, f"torch.nn.{theirs.rpartition('.')[2]}"):
                return RankingConfig(output=output, dropout=dropout)
        raise ValueError(
            f"activation_fn: {path!r} is not supported, only {' or '.join(ACTIVATIONS.values())}"
        )

    @override
    def keys(self, objective: RankingConfig, dropout_key: str) -> dict[str, Any]:
        return {
            "id2label": {"0": "LABEL_0"},
            "label2id": {"LABEL_0": 0},
            dropout_key: objective.dropout,
            RANKER: {"activation_fn": ACTIVATIONS[objective.output]},
        }


class Regression(TaskHead):
    """Regression: in transformers, a classification with one label."""

    name = "regression"
    objective_type = RegressionConfig

    @override
    def is_in(self, config: Mapping[str, Any], has_tensors: bool) -> bool:
        if config.get("problem_type") == SEVERAL or _is_ranker(config):
            return False
        return num_labels(config) == 1 and super().is_in(config, has_tensors)

    @override
    def objective(self, config: Mapping[str, Any], dropout: Any) -> RegressionConfig:
        return RegressionConfig(dropout=dropout)

    @override
    def keys(self, objective: RegressionConfig, dropout_key: str) -> dict[str, Any]:
        return {
            "id2label": {"0": "score"},
            "label2id": {"score": 0},
            dropout_key: objective.dropout,
            "problem_type": "regression",
        }


class MultipleChoice(TaskHead):
    """Multiple choice: one score for each choice."""

    name = "multiple_choice"
    objective_type = MultipleChoiceConfig

    @override
    def is_in(self, config: Mapping[str, Any], has_tensors: bool) -> bool:
        """See `Head`; without a class in config.json, the head is read as a classification."""
        return has_tensors and self._is_named(config)

    @override
    def objective(self, config: Mapping[str, Any], dropout: Any) -> MultipleChoiceConfig:
        pooling = "pooled" if config.get("summary_use_proj", True) else "first"
        dropout = config.get("summary_last_dropout", dropout)
        return MultipleChoiceConfig(dropout=dropout, pooling=pooling)

    @override
    def keys(self, objective: MultipleChoiceConfig, dropout_key: str) -> dict[str, Any]:
        return {dropout_key: objective.dropout}


class SpanAnswer(TaskHead):
    """Span answer: the first and the last token are scored independently."""

    name = "span_answer"
    objective_type = SpanAnswerConfig
    settings: ClassVar = {"form": "independent"}
    pools = False


class TokenClassification(TaskHead):
    """Token classification: an affine map of the states of the last layer."""

    name = "token_classification"
    objective_type = TokenClassificationConfig
    pools = False

    @override
    def is_in(self, config: Mapping[str, Any], has_tensors: bool) -> bool:
        """See `Head`; without a class in config.json, the head is read as a classification."""
        return has_tensors and self._is_named(config)

    @override
    def objective(self, config: Mapping[str, Any], dropout: Any) -> TokenClassificationConfig:
        return TokenClassificationConfig(labels=_labels(config), dropout=dropout)

    @override
    def check(self, objective: TokenClassificationConfig, encoder: Any, title: str) -> None:
        """See `Head`; classes of transformers have no CRF."""
        super().check(objective, encoder, title)
        if objective.crf:
            raise UserError(
                f"objectives: {objective.type}.crf: {title} of transformers does not have it"
            )

    @override
    def keys(self, objective: TokenClassificationConfig, dropout_key: str) -> dict[str, Any]:
        return {**_label_keys(objective), dropout_key: objective.dropout}


class ConditionalSpanAnswer(TaskHead):
    """Span answer of XLNet: the last token is scored given the first one."""

    name = "conditional_span_answer"
    objective_type = SpanAnswerConfig
    settings: ClassVar = {"form": "conditional"}
    pools = False

    @override
    def objective(self, config: Mapping[str, Any], dropout: Any) -> SpanAnswerConfig:
        del dropout
        beams = {ours: config[theirs] for ours, theirs in _BEAMS.items() if theirs in config}
        return SpanAnswerConfig(**self.settings, **beams)

    @override
    def keys(self, objective: SpanAnswerConfig, dropout_key: str) -> dict[str, Any]:
        del dropout_key
        return {theirs: getattr(objective, ours) for ours, theirs in _BEAMS.items()}


# The kinds of heads by their names.
KINDS: dict[str, type[Head]] = {
    kind.name: kind
    for kind in (
        MaskedLM,
        EnhancedMaskedLM,
        LinearMaskedLM,
        KernelMaskedLM,
        NextSentence,
        SentenceOrder,
        CausalLM,
        PermutationLM,
        ReplacedTokens,
        NormedReplacedTokens,
        Seq2SeqLM,
        Classification,
        MultiLabel,
        Ranking,
        Regression,
        MultipleChoice,
        SpanAnswer,
        ConditionalSpanAnswer,
        TokenClassification,
    )
}


def table(*heads: Head) -> dict[str, Head]:
    """Returns the heads by their names."""
    return {head.name: head for head in heads}


def kind_of(objective: Any) -> type[Head]:
    """Returns the kind of head of an objective; `Head` if no kind describes it."""
    return next((kind for kind in KINDS.values() if kind.describes(objective)), Head)


def name_of(objective: Any) -> str:
    """Returns the name of the head of an objective."""
    return objective.task or kind_of(objective).name or objective.type


def _label_keys(objective: Any) -> dict[str, Any]:
    """Returns the keys of config.json that name the labels of an objective."""
    labels = objective.labels
    return {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }


def ranker_activation(config: Mapping[str, Any]) -> str | None:
    """Returns the activation of the scores of a ranker in config.json; None = it names none.

    Raises:
      ValueError: a key has another form.
    """
    named = config.get(RANKER) or {}
    if not isinstance(named, Mapping):
        raise ValueError(f"{RANKER}: {named!r}: expected an object")
    path = named.get("activation_fn") or config.get(_OLD_RANKER)
    if not isinstance(path, str | None):
        raise ValueError(f"activation_fn: {path!r}: expected the path of a class")
    return path


def _is_ranker(config: Mapping[str, Any]) -> bool:
    """Returns whether config.json describes a ranker."""
    return num_labels(config) == 1 and ranker_activation(config) is not None


def num_labels(config: Mapping[str, Any]) -> int:
    """Returns the number of labels from `num_labels`, or else from `id2label`, or else 2.

    Raises:
      ValueError: `num_labels` is not a number.
    """
    number = config.get("num_labels")
    if number is None:
        return len(config.get("id2label") or "01")
    if type(number) is not int or not 1 <= number < _MAX_LABELS:
        raise ValueError(f"num_labels: {number!r} is not a number of labels")
    return number


def _labels(config: Mapping[str, Any], expected: str = _ONE) -> tuple[str, ...]:
    """Returns the labels of a classification in config.json.

    Args:
      config: the parsed config.json.
      expected: the only allowed problem type, if config.json names one.

    Raises:
      ValueError: the problem type is another one, or the labels are not valid.
    """
    problem = config.get("problem_type") or expected
    if problem != expected:
        raise ValueError(
            f"problem_type: {problem!r} with {num_labels(config)} labels is not supported"
        )
    labels, number = config.get("id2label"), num_labels(config)
    if not labels or len(labels) != number:  # as in transformers
        return tuple(f"LABEL_{i}" for i in range(number))
    try:
        labels = {int(key): str(label) for key, label in labels.items()}
        labels = tuple(labels[i] for i in range(len(labels)))
    except (ValueError, KeyError, AttributeError):
        raise ValueError(
            "id2label: the keys of the label names must be 0, 1, 2, ..., not "
            f"{config['id2label']!r}"
        ) from None
    if len(set(labels)) != len(labels):
        raise ValueError(f"id2label: a label name occurs twice: {', '.join(labels)}")
    return labels
