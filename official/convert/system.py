"""What a published system is called in other tools' files: one table a system.

`System` turns such a table into configs and lists of `Row`s, both ways. The tables are in the
modules beside this one: `bert`, `roberta`, `albert`, `electra`, `distilbert`, `gpt2`, `xlnet`,
`transfo_xl`.
"""

import dataclasses
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from official import config as configs
from official.config.encoders import TransformerConfig
from official.config.heads import (
    ClassificationConfig,
    MultipleChoiceConfig,
    RegressionConfig,
    SpanAnswerConfig,
)
from official.config.objectives import (
    LABELS,
    CausalLMConfig,
    MaskedLMConfig,
    PermutationLMConfig,
    ReplacedTokensConfig,
    SentencePairConfig,
)
from official.convert.mapping import Row, linear
from official.utils.errors import UserError

# Heads of spans, which read no pooled output, by the form of the objective.
SPANS = {"independent": "span_answer", "conditional": "conditional_span_answer"}
# Heads of tasks. A classification, a regression and multiple choice have the same names in many
# files, and the class that config.json names tells which it is.
TASKS = ("classification", "regression", "multiple_choice", *SPANS.values())

# `gelu` is the erf form; the first name of each is the one that is written.
ACTIVATIONS = {
    "gelu": ("gelu", "gelu_python"),
    "gelu_tanh": ("gelu_new", "gelu_pytorch_tanh"),
    "relu": ("relu",),
}

# Our encoder's fields under the keys that most of these systems have in config.json.
SIZES = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "max_positions": "max_position_embeddings",
    "segment_types": "type_vocab_size",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "initializer_range": "initializer_range",
}

# The same of the beam of a conditional span.
BEAMS = {"start_beam": "start_n_top", "end_beam": "end_n_top"}

# Keys of config.json that change what the network computes, and the only values we have.
ONLY = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}

# What names begin with in a file of the bare encoder.
BARE = ("embeddings.", "embeddings_project.", "encoder.", "transformer.", "pooler.")

# What most of these systems are, as fields of our transformer.
FORM = {
    "norm": "post",
    "causal": False,
    "pooled_position": "first",
    "position_offset": 0,
    "layer_groups": None,
    "inner_layers": 1,
    "embedding_size": None,
}


@dataclasses.dataclass(frozen=True)
class System:
    """The names of one system.

    Attributes:
      model_type: of config.json.
      title: for messages, with its article.
      prefix: what the encoder's names begin with, save in a file of the bare encoder.
      encoder_rows: from the encoder's config, its rows but for the pooler's.
      head_rows: the rows of each head.
      pooler: the name of the pooler's layer, or None.
      task_poolers: the name under which a task's head keeps that layer as its own.
      pooler_activation: from a task's head (or "") and config.json, the pooler's activation there;
        None = tanh in any case.
      architectures: which class of transformers holds which heads.
      encoder_type: the `Config` of the encoder.
      form: fields of our encoder that the system does not leave open.
      sizes: our fields under the keys of config.json.
      present: fields of our encoder that are true where a file has the tensor of this name.
      more_fields: from config.json, fields of ours that are not one key each; None = none.
      more_keys: the same from our encoder's config and the objectives': keys of config.json.
      activation: the key of the activation; None where `more_fields` tells it.
      epsilon: the key of what norms add to the variance.
      dropout: the key of a task's dropout.
      only: keys that change what is computed, and the only values we have.
      also: what else config.json says.
      padded_positions: whether the first token has the position after the padding token's id.
      projected: whether a projection follows the embeddings whatever their size.
      bounds: whether config.json names the tokens that open and end a sequence.
      gelu_heads: heads that have the erf form of GELU whatever the config says.
      unpooled_heads: heads of tasks that can do without a pooler, and read the first position.
      aliases: tensors that repeat another one, such as a tied output layer.
      bare: what names begin with in a file of the bare encoder.
      tensors: from the tensors of a file, those that the rows name; None = they are the same.
      buffers: constants that old files keep among the weights; `*` stands for anything.
      vocabulary: the file of the vocabulary.
      tokenizer_class: of transformers, for a SentencePiece model; None = the vocabulary tells.
      segments: of a model that comes with heads of pretraining; as in a config.
      max_length: of its segments, where it has so many positions.
      corruption: the same; what differs from the defaults of token masks.
      tf1_row: from a row, the same with the names of the TF1 release; None = there is no release.
      release_gelu: which form of GELU the release calls `gelu`.
      release: whether these are the names of the TF1 release: see `of_release`.
    """

    model_type: str
    title: str
    prefix: str
    encoder_rows: Callable[[Any], list[Row]]
    head_rows: Mapping[str, Sequence[Row]]
    pooler: str | None = None
    task_poolers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pooler_activation: Callable[[str, Mapping[str, Any]], str] | None = None
    architectures: Mapping[frozenset[str], str] = dataclasses.field(default_factory=dict)
    encoder_type: type = TransformerConfig
    form: Mapping[str, Any] = dataclasses.field(default_factory=lambda: FORM)
    sizes: Mapping[str, str] = dataclasses.field(default_factory=lambda: SIZES)
    present: Mapping[str, str] = dataclasses.field(default_factory=dict)
    more_fields: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    more_keys: Callable[[Any, Sequence[Any]], dict[str, Any]] | None = None
    activation: str | None = "hidden_act"
    epsilon: str = "layer_norm_eps"
    dropout: str = "classifier_dropout"
    only: Mapping[str, Any] = dataclasses.field(default_factory=lambda: ONLY)
    also: Mapping[str, Any] = dataclasses.field(
        default_factory=lambda: {"position_embedding_type": "absolute"}
    )
    padded_positions: bool = False
    projected: bool = False
    bounds: bool = False
    gelu_heads: frozenset[str] = frozenset()
    unpooled_heads: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    bare: tuple[str, ...] = BARE
    tensors: Callable[[Mapping[str, Any], Any], Mapping[str, Any]] | None = None
    buffers: Sequence[str] = ()
    vocabulary: str = "vocab.txt"
    tokenizer_class: str | None = None
    segments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    max_length: int = 512
    corruption: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    tf1_row: Callable[[Row], Row] | None = None
    release_gelu: str = "gelu_tanh"
    release: bool = False

    def of_release(self) -> "System":
        """The same table with the names of the TF1 release."""
        return dataclasses.replace(self, release=True)

    def rows(self, encoder: Any, heads: Collection[str]) -> list[Row]:
        """The whole table; the names of a bare encoder too begin with the prefix here."""
        rows = list(self.encoder_rows(encoder))
        if encoder.pooler:
            rows += self._pooler_rows(heads)
        for head in heads:
            rows += self.head_rows[head]
        return self._named(rows)

    def _pooler_rows(self, heads: Collection[str]) -> list[Row]:
        task = _task(heads)
        if task in SPANS.values():
            return []
        if task in self.task_poolers:
            return linear("encoder/pooler", self.task_poolers[task])
        return [] if self.pooler is None else linear("encoder/pooler", self.prefix + self.pooler)

    def _named(self, rows: Iterable[Row]) -> list[Row]:
        return [self.tf1_row(row) if self.release else row for row in rows]

    def _any(self, rows: Iterable[Row], names: Collection[str]) -> bool:
        return any(name in names for row in self._named(rows) for name in row.names)

    def heads_of(self, names: Collection[str], config: Mapping[str, Any]) -> tuple[str, ...]:
        """Which heads a file with these names holds."""
        found = [
            head
            for head, rows in self.head_rows.items()
            if head not in TASKS and (self._any(rows, names) or self._classed(head, config))
        ]
        texts = "regression" if _num_labels(config) == 1 else "classification"
        for head in (texts, "multiple_choice", *SPANS.values()):
            if not self._any(self.head_rows.get(head, ()), names):
                continue
            # Classes that are not here (one label a token) name their head `classifier` as well.
            named, ours = config.get("architectures"), self.architectures.get(frozenset({head}))
            if ours in named if named else head != "multiple_choice":
                return (*found, head)
        return tuple(found)

    def _classed(self, head: str, config: Mapping[str, Any]) -> bool:
        """Whether a head has no tensors, and config.json names its class."""
        name = self.architectures.get(frozenset({head}))
        return not self.head_rows[head] and name in (config.get("architectures") or ())

    def fields_of(self, names: Collection[str], heads: Collection[str]) -> dict[str, bool]:
        """Fields of our encoder that a file with these names and heads tells."""
        return {
            "pooler": self._any(self._pooler_rows(heads), names),
            **{
                field: self._any([Row(field, (name,))], names)
                for field, name in self.present.items()
            },
        }

    def encoder_config(
        self,
        config: Mapping[str, Any],
        source: str,
        heads: Collection[str] = (),
        **told: bool,
    ) -> Any:
        """The encoder that a config.json describes.

        Args:
          config: the parsed file.
          source: the file's name for messages.
          heads: those of the file.
          told: what the weights tell (see `fields_of`): that they have a pooler, and all that is
            `present`, unless this says otherwise.

        Raises:
          UserError: a key is missing or has a value that this encoder does not have.
        """
        for key, only in self.only.items():
            if config.get(key, only) != only:
                raise UserError(f"{source}: {key}: {config[key]!r} is not supported, only {only!r}")
        if lacking := [key for key in self.sizes.values() if config.get(key) is None]:
            raise UserError(
                f"{source}: {lacking[0]} is missing: is this the config of {self.title} model?"
            )
        hints = typing.get_type_hints(self.encoder_type)
        fields = dict(self.form)
        for ours, theirs in self.sizes.items():
            fields[ours] = configs.typed(hints[ours], config[theirs], theirs, source)
        if self.activation:
            fields["activation"] = self._activation(config, source)
        try:
            if self.more_fields:
                fields |= self.more_fields(config)
            if fields.get("embedding_size") == fields["hidden_size"]:
                self._check_projection(fields["hidden_size"], f"{source}: ")
                fields["embedding_size"] = None
            if self.padded_positions:
                fields["position_offset"] = config.get("pad_token_id", 1) + 1
                fields["max_positions"] -= fields["position_offset"]
            if self.pooler_activation:
                fields["pooler_activation"] = self.pooler_activation(_task(heads), config)
            epsilon = configs.typed(float, config.get(self.epsilon, 1e-12), self.epsilon, source)
            fields |= dict.fromkeys(("pooler", *self.present), True) | told
            fields = {k: configs.typed(hints[k], value, k, source) for k, value in fields.items()}
            return self.encoder_type(**fields, norm_epsilon=epsilon)
        except UserError:
            raise
        except (TypeError, ValueError) as error:
            raise UserError(f"{source}: {error}") from None

    def _activation(self, config: Mapping[str, Any], source: str) -> str:
        names = {name: ours for ours, theirs in ACTIVATIONS.items() for name in theirs}
        if self.release:
            names["gelu"] = self.release_gelu
        if config.get(self.activation) not in names:
            raise UserError(
                f"{source}: {self.activation}: {config.get(self.activation)!r} is not supported "
                f"(known: {', '.join(names)})"
            )
        return names[config[self.activation]]

    def objectives(
        self, heads: Sequence[str], config: Mapping[str, Any], source: str
    ) -> tuple[Any, ...]:
        """Our objectives for the heads; labels and dropout come from the config.

        Raises:
          UserError: the labels or another value cannot be, or a head has an activation of its own.
        """
        try:
            return self._objectives(heads, config, source)
        except UserError:
            raise
        except (TypeError, ValueError) as error:
            raise UserError(f"{source}: {error}") from None

    def _objectives(
        self, heads: Sequence[str], config: Mapping[str, Any], source: str
    ) -> tuple[Any, ...]:
        for head in sorted(self.gelu_heads & set(heads)):
            if (found := config.get(self.activation)) not in ACTIVATIONS["gelu"]:
                raise UserError(
                    f"{source}: {self.activation}: {found!r} is not supported with the head of "
                    f"the {head}, which has 'gelu' in any case"
                )
        dropout = config.get(self.dropout)
        dropout = config.get("hidden_dropout_prob", 0.1) if dropout is None else dropout
        made: list[Any] = []
        for head in heads:
            if head == "masked_lm":
                made.append(MaskedLMConfig())
            elif head == "causal_lm":
                made.append(CausalLMConfig())
            elif head in LABELS:
                made.append(SentencePairConfig(relation=head))
            elif head == "permutation_lm":
                made.append(PermutationLMConfig())
            elif head == "replaced_tokens":
                made.append(ReplacedTokensConfig())
            elif head == "regression":
                made.append(RegressionConfig(dropout=dropout))
            elif head == "multiple_choice":
                pooling = "pooled" if config.get("summary_use_proj", True) else "first"
                rate = config.get("summary_last_dropout", dropout)
                made.append(MultipleChoiceConfig(dropout=rate, pooling=pooling))
            elif head == "span_answer":
                made.append(SpanAnswerConfig())
            elif head == "conditional_span_answer":
                beams = {ours: config[theirs] for ours, theirs in BEAMS.items() if theirs in config}
                made.append(SpanAnswerConfig(form="conditional", **beams))
            else:
                labels = _labels(config, source)
                made.append(ClassificationConfig(labels=labels, dropout=dropout))
        return tuple(made)

    def huggingface_config(
        self, config: configs.Config, heads: Collection[str], pad_id: int = 0
    ) -> dict[str, Any]:
        """What `config.json` says of our model.

        Raises:
          UserError: the encoder has something that the system has not, or no class of
            transformers has just these heads.
        """
        encoder = config.encoder
        self.check(encoder, pad_id)
        task = _task(heads)
        if encoder.pooler and not self._pooler_rows(heads) and task not in SPANS.values():
            raise UserError(
                f"encoder.pooler: {self.title} of transformers has none without the head of a task"
            )
        if frozenset(heads) not in self.architectures:
            name = self.title.split()[-1]
            raise UserError(
                f"no {name} class of transformers has the heads {', '.join(sorted(heads))}"
            )
        for head in sorted(self.gelu_heads & set(heads)):
            if encoder.activation != "gelu":
                raise UserError(
                    f"encoder.activation: the {head} head of {self.title} has 'gelu' in any case, "
                    f"not {encoder.activation!r}"
                )
        result = {
            "architectures": [self.architectures[frozenset(heads)]],
            "model_type": self.model_type,
            **{theirs: getattr(encoder, ours) for ours, theirs in self.sizes.items()},
            self.activation: ACTIVATIONS[encoder.activation][0],
            self.epsilon: encoder.norm_epsilon,
            **self.also,
            **(self.more_keys(encoder, config.objectives) if self.more_keys else {}),
            "pad_token_id": pad_id,
        }
        if "embedding_size" in self.sizes:
            result["embedding_size"] = encoder.embedding_size or encoder.hidden_size
        if self.padded_positions:
            result[self.sizes["max_positions"]] += encoder.position_offset
        if encoder.pooler and self._pooler_rows(heads):
            ours, theirs = getattr(encoder, "pooler_activation", "tanh"), "tanh"
            if self.pooler_activation:
                theirs = self.pooler_activation(task, result)
            if ours != theirs:
                raise UserError(
                    f"encoder.pooler_activation: {self.title} of transformers has {theirs!r}"
                    f"{' with ' + task if task else ''}, not {ours!r}"
                )
        for objective in config.objectives:
            pooling = getattr(objective, "pooling", "pooled")
            unpooled = objective.type in self.unpooled_heads and not encoder.pooler
            if pooling != "pooled" and not (unpooled and pooling == "first"):
                raise UserError(
                    f"objectives: {objective.type}.pooling: {self.title} of "
                    f"transformers has 'pooled', not {objective.pooling!r}"
                )
            if getattr(objective, "direction", "forward") != "forward":
                raise UserError(
                    f"objectives: {objective.type}.direction: {self.title} of "
                    f"transformers reads from left to right, not {objective.direction!r}"
                )
            if objective.type == "classification":
                labels = dict(enumerate(objective.labels))
                result["id2label"] = {str(i): label for i, label in labels.items()}
                result["label2id"] = {label: i for i, label in labels.items()}
                result[self.dropout] = objective.dropout
                result["problem_type"] = "single_label_classification"
            elif objective.type == "regression":
                result["id2label"], result["label2id"] = {"0": "score"}, {"score": 0}
                result[self.dropout] = objective.dropout
                result["problem_type"] = "regression"
            elif objective.type == "multiple_choice":
                result[self.dropout] = objective.dropout
            elif "conditional_span_answer" in heads:
                result |= {theirs: getattr(objective, ours) for ours, theirs in BEAMS.items()}
        return result

    def check(self, encoder: Any, pad_id: int) -> None:
        """Refuses an encoder of ours that the system's config cannot describe."""
        if not isinstance(encoder, self.encoder_type):
            raise UserError(f"encoder.type: {encoder.type} cannot be written as {self.title}")
        form = {name: only for name, only in self.form.items() if name not in self.sizes}
        if self.padded_positions:
            form["position_offset"] = pad_id + 1
        for field, only in form.items():
            value = getattr(encoder, field)
            if value != only and (field, value) != ("embedding_size", encoder.hidden_size):
                raise UserError(f"encoder.{field}: {self.title} has {only!r}, not {value!r}")
        if (encoder.embedding_size or encoder.hidden_size) == encoder.hidden_size:
            self._check_projection(encoder.hidden_size, "encoder.")
        if "segment_types" in self.sizes and not encoder.segment_types:
            raise UserError(f"encoder.segment_types: {self.title} has 1 or more, not 0")

    def _check_projection(self, size: int, place: str) -> None:
        if self.projected:
            raise UserError(
                f"{place}embedding_size: {size} is the hidden size: {self.title} of transformers "
                "has a projection after the embeddings even then, and this encoder has none"
            )


def _task(heads: Collection[str]) -> str:
    """The head of a task among these; empty = there is none."""
    return next((head for head in heads if head in TASKS), "")


def _num_labels(config: Mapping[str, Any]) -> int:
    # transformers leaves the default, two labels, out of the file.
    return len(config.get("id2label") or "01")


def _labels(config: Mapping[str, Any], source: str) -> tuple[str, ...]:
    problem = config.get("problem_type") or "single_label_classification"
    if problem != "single_label_classification":
        raise UserError(
            f"{source}: problem_type: {problem!r} with {_num_labels(config)} labels is not "
            "supported"
        )
    labels = config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    try:
        labels = {int(key): str(label) for key, label in labels.items()}
        labels = tuple(labels[i] for i in range(len(labels)))
    except (ValueError, KeyError, AttributeError):
        raise UserError(
            f"{source}: id2label: the label names must stand under 0, 1, 2, ...; "
            f"found {config['id2label']!r}"
        ) from None
    if len(set(labels)) != len(labels):
        raise UserError(f"{source}: id2label: a label name is there twice: {', '.join(labels)}")
    return labels
