"""Heads: how each is found in another tool's files, and how config.json describes it.

A class is a kind of head: its name, its objective and the keys of config.json that it reads and
writes. An instance is that head in the files of one system: its tensors and its class of
transformers. `official.convert.system.System` has a table of them.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from official.config.heads import (
    ClassificationConfig,
    MultipleChoiceConfig,
    RegressionConfig,
    SpanAnswerConfig,
)
from official.config.objectives import (
    CausalLMConfig,
    MaskedLMConfig,
    PermutationLMConfig,
    ReplacedTokensConfig,
    SentencePairConfig,
)
from official.convert.mapping import Row, linear
from official.utils.errors import UserError


@dataclasses.dataclass(frozen=True)
class Head:
    """A head, and the base class of the kinds of heads.

    Attributes:
      rows: its variables and their tensors; none where it is the token table.
      architecture: the class of transformers that has this head alone; None = there is none.
      erf_gelu: whether it has the erf form of GELU whatever the activation of the encoder is.
      name: the name of the head, by which messages call it.
      objective_type: the config of its objective.
      settings: fields of that config that tell heads with the same objective type apart.
      poolings: the values of the objective's `pooling` that the head can have.
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
    segments: ClassVar[bool] = False
    corruption: ClassVar[bool] = False

    @classmethod
    def describes(cls, objective: Any) -> bool:
        """Returns whether an objective has this kind of head."""
        same = (getattr(objective, key, None) == value for key, value in cls.settings.items())
        return isinstance(objective, cls.objective_type) and all(same)

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
          UserError: transformers pools in another way, or reads in another direction.
        """
        pooling = getattr(objective, "pooling", "pooled")
        if pooling not in self.poolings or (pooling != "pooled" and encoder.pooler):
            raise UserError(
                f"objectives: {objective.type}.pooling: {title} of "
                f"transformers has 'pooled', not {pooling!r}"
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


@dataclasses.dataclass(frozen=True)
class TaskHead(Head):
    """A head of a task; a file has at most one.

    The heads of several tasks have the same tensor names in many files. The class that config.json
    names tells which of them it is; classes of other heads (one label for each token) have such
    names as well.

    Attributes:
      pooler: the layer that is the encoder's pooler, where the head has a hidden layer of its own.
      pooler_activation: the activation of the pooler with this head; None = that of the system.
      pools: whether the head reads the pooled output.
    """

    pooler: str | None = None
    pooler_activation: str | None = None

    pools: ClassVar[bool] = True

    def is_in(self, config: Mapping[str, Any], has_tensors: bool) -> bool:
        """See `Head`."""
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
        """Returns the pooler's activation with this head, or None where it is the system's.

        Raises:
          ValueError: `config`, the parsed config.json, has a value that the encoder cannot have.
        """
        del config
        return self.pooler_activation


class Classification(TaskHead):
    """Classification of a text or a pair of texts; it has two labels or more."""

    name = "classification"
    objective_type = ClassificationConfig

    def is_in(self, config: Mapping[str, Any], has_tensors: bool) -> bool:
        """See `Head`."""
        return _num_labels(config) != 1 and super().is_in(config, has_tensors)

    def objective(self, config: Mapping[str, Any], dropout: Any) -> ClassificationConfig:
        """See `Head`."""
        return ClassificationConfig(labels=_labels(config), dropout=dropout)

    def keys(self, objective: ClassificationConfig, dropout_key: str) -> dict[str, Any]:
        """See `Head`."""
        labels = dict(enumerate(objective.labels))
        return {
            "id2label": {str(i): label for i, label in labels.items()},
            "label2id": {label: i for i, label in labels.items()},
            dropout_key: objective.dropout,
            "problem_type": "single_label_classification",
        }


class Regression(TaskHead):
    """Regression: in transformers, a classification with one label."""

    name = "regression"
    objective_type = RegressionConfig

    def is_in(self, config: Mapping[str, Any], has_tensors: bool) -> bool:
        """See `Head`."""
        return _num_labels(config) == 1 and super().is_in(config, has_tensors)

    def objective(self, config: Mapping[str, Any], dropout: Any) -> RegressionConfig:
        """See `Head`."""
        return RegressionConfig(dropout=dropout)

    def keys(self, objective: RegressionConfig, dropout_key: str) -> dict[str, Any]:
        """See `Head`."""
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

    def is_in(self, config: Mapping[str, Any], has_tensors: bool) -> bool:
        """See `Head`; without a class in config.json the head is taken for a classification."""
        return has_tensors and self._is_named(config)

    def objective(self, config: Mapping[str, Any], dropout: Any) -> MultipleChoiceConfig:
        """See `Head`."""
        pooling = "pooled" if config.get("summary_use_proj", True) else "first"
        dropout = config.get("summary_last_dropout", dropout)
        return MultipleChoiceConfig(dropout=dropout, pooling=pooling)

    def keys(self, objective: MultipleChoiceConfig, dropout_key: str) -> dict[str, Any]:
        """See `Head`."""
        return {dropout_key: objective.dropout}


class SpanAnswer(TaskHead):
    """Span answer: first and last token are scored independently."""

    name = "span_answer"
    objective_type = SpanAnswerConfig
    settings: ClassVar = {"form": "independent"}
    pools = False


# Fields of the objective and their keys in config.json.
_BEAMS = {"start_beam": "start_n_top", "end_beam": "end_n_top"}


class ConditionalSpanAnswer(TaskHead):
    """Span answer of XLNet: the last token is scored given the first one."""

    name = "conditional_span_answer"
    objective_type = SpanAnswerConfig
    settings: ClassVar = {"form": "conditional"}
    pools = False

    def objective(self, config: Mapping[str, Any], dropout: Any) -> SpanAnswerConfig:
        """See `Head`."""
        del dropout
        beams = {ours: config[theirs] for ours, theirs in _BEAMS.items() if theirs in config}
        return SpanAnswerConfig(**self.settings, **beams)

    def keys(self, objective: SpanAnswerConfig, dropout_key: str) -> dict[str, Any]:
        """See `Head`."""
        del dropout_key
        return {theirs: getattr(objective, ours) for ours, theirs in _BEAMS.items()}


def table(*heads: Head) -> dict[str, Head]:
    """Returns the heads by their names."""
    return {head.name: head for head in heads}


# The kinds of heads by their names.
KINDS: dict[str, type[Head]] = {
    kind.name: kind
    for kind in (
        MaskedLM,
        NextSentence,
        SentenceOrder,
        CausalLM,
        PermutationLM,
        ReplacedTokens,
        Classification,
        Regression,
        MultipleChoice,
        SpanAnswer,
        ConditionalSpanAnswer,
    )
}


def kind_of(objective: Any) -> type[Head]:
    """Returns the kind of head of an objective; `Head` where no system has one."""
    return next((kind for kind in KINDS.values() if kind.describes(objective)), Head)


def name_of(objective: Any) -> str:
    """Returns the name of the head of an objective: the task's, where there are several."""
    return getattr(objective, "task", "") or kind_of(objective).name or objective.type


def _num_labels(config: Mapping[str, Any]) -> int:
    # transformers leaves the default, two labels, out of the file.
    return len(config.get("id2label") or "01")


def _labels(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the labels of a classification in config.json.

    Raises:
      ValueError: it is of another kind, or the labels are not those of a classification.
    """
    problem = config.get("problem_type") or "single_label_classification"
    if problem != "single_label_classification":
        raise ValueError(
            f"problem_type: {problem!r} with {_num_labels(config)} labels is not supported"
        )
    labels = config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    try:
        labels = {int(key): str(label) for key, label in labels.items()}
        labels = tuple(labels[i] for i in range(len(labels)))
    except (ValueError, KeyError, AttributeError):
        raise ValueError(
            f"id2label: the label names must stand under 0, 1, 2, ...; found {config['id2label']!r}"
        ) from None
    if len(set(labels)) != len(labels):
        raise ValueError(f"id2label: a label name is there twice: {', '.join(labels)}")
    return labels
