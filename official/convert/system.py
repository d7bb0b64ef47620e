"""What a published system is called in other tools' files: one table for each system.

`System` turns such a table into configs and lists of `Row`s, and back. The tables are in the
modules beside this one: `bert`, `roberta`, `albert`, `electra`, `distilbert`, `gpt2`, `xlnet`,
`transfo_xl`. The heads in a table are those of `official.convert.heads`.
"""

import dataclasses
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from official import config as configs
from official.config.encoders import TransformerConfig
from official.convert import heads as head_kinds
from official.convert.heads import Head, TaskHead
from official.convert.mapping import Row, linear
from official.utils.errors import UserError

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
      heads: the heads by their names; those of tasks come last.
      pooler: the name of the pooler's layer, or None.
      pooler_activation: the activation of the pooler where no head of a task tells it; None = tanh.
      architectures: the classes of transformers without a head and with several: by the names of
        the heads. A head alone has its class itself.
      encoder_type: the `Config` of the encoder.
      form: fields of our encoder that the system does not leave open.
      sizes: our fields under the keys of config.json.
      present: fields of our encoder that are true where a file has the tensor of this name.
      more_fields: from config.json, fields of ours that are not one key each; None = none.
      more_keys: the same from our encoder's config: keys of config.json.
      activation: the key of the activation; None where `more_fields` tells it.
      epsilon: the key of what norms add to the variance.
      dropout: the key of a task's dropout.
      only: keys that change what is computed, and the only values we have.
      also: what else config.json says.
      padded_positions: whether the first token has the position after the padding token's id.
      projected: whether a projection follows the embeddings whatever their size.
      bounds: whether config.json names the tokens that open and end a sequence.
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
    heads: Mapping[str, Head]
    pooler: str | None = None
    pooler_activation: str | None = None
    architectures: Mapping[frozenset[str], str] = dataclasses.field(default_factory=dict)
    encoder_type: type = TransformerConfig
    form: Mapping[str, Any] = dataclasses.field(default_factory=lambda: FORM)
    sizes: Mapping[str, str] = dataclasses.field(default_factory=lambda: SIZES)
    present: Mapping[str, str] = dataclasses.field(default_factory=dict)
    more_fields: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    more_keys: Callable[[Any], dict[str, Any]] | None = None
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
            rows += self.heads[head].rows
        return self._named(rows)

    def _pooler_rows(self, heads: Collection[str]) -> list[Row]:
        rows = linear("encoder/pooler", self.prefix + self.pooler) if self.pooler else []
        task = self._task(heads)
        return task.pooler_rows(rows) if task else rows

    def _pooler_activation(self, heads: Collection[str], config: Mapping[str, Any]) -> str | None:
        task = self._task(heads)
        return (task and task.activation(config)) or self.pooler_activation

    def _head(self, name: str) -> Head:
        """The head of a name; one that the system does not have has no tensors."""
        return self.heads.get(name) or head_kinds.KINDS.get(name, Head)()

    def _task(self, heads: Iterable[str]) -> TaskHead | None:
        """The head of a task among these."""
        found = map(self._head, heads)
        return next((head for head in found if isinstance(head, TaskHead)), None)

    def _named(self, rows: Iterable[Row]) -> list[Row]:
        return [self.tf1_row(row) if self.release else row for row in rows]

    def _any(self, rows: Iterable[Row], names: Collection[str]) -> bool:
        return any(name in names for row in self._named(rows) for name in row.names)

    def heads_of(self, names: Collection[str], config: Mapping[str, Any]) -> tuple[str, ...]:
        """The heads of a file: all of pretraining, and the first one of a task.

        Args:
          names: the names of its tensors.
          config: the parsed config.json.
        """
        found = [
            head for head in self.heads.values() if head.is_in(config, self._any(head.rows, names))
        ]
        task = next((head for head in found if isinstance(head, TaskHead)), None)
        return tuple(head.name for head in found if head is task or not isinstance(head, TaskHead))

    def has_room_for(self, objective: Any) -> bool:
        """Returns whether a head of the system can have an objective of ours."""
        head = self.heads.get(head_kinds.kind_of(objective).name)
        pooling = getattr(objective, "pooling", "pooled")
        return head is not None and pooling in head.poolings

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
            if activation := self._pooler_activation(heads, config):
                fields["pooler_activation"] = activation
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
        fixed = [head for head in sorted(heads) if self._head(head).erf_gelu]
        if fixed and (found := config.get(self.activation)) not in ACTIVATIONS["gelu"]:
            raise UserError(
                f"{source}: {self.activation}: {found!r} is not supported with the head of "
                f"the {fixed[0]}, which has 'gelu' in any case"
            )
        dropout = config.get(self.dropout)
        dropout = config.get("hidden_dropout_prob", 0.1) if dropout is None else dropout
        try:
            return tuple(self._head(head).objective(config, dropout) for head in heads)
        except (TypeError, ValueError) as error:
            raise UserError(f"{source}: {error}") from None

    def huggingface_config(
        self, config: configs.Config, heads: Collection[str], pad_id: int = 0
    ) -> dict[str, Any]:
        """Returns what config.json says about a model of ours.

        Args:
          config: of the model.
          heads: the names of its heads.
          pad_id: the id of the padding token.

        Raises:
          UserError: the system lacks something that the encoder has, or no class of transformers
            has exactly these heads.
        """
        encoder = config.encoder
        self.check(encoder, pad_id)
        architecture = self._architecture(encoder, heads)
        asked = [(self._head(head_kinds.kind_of(o).name), o) for o in config.objectives]
        result = {
            "architectures": [architecture],
            "model_type": self.model_type,
            **self._encoder_keys(encoder),
        }
        for head, objective in asked:
            result |= head.pooler_keys(objective, encoder)
        result["pad_token_id"] = pad_id
        if encoder.pooler and self._pooler_rows(heads):
            self._check_pooler_activation(encoder, heads, result)
        for head, objective in asked:
            head.check(objective, encoder, self.title)
            result |= head.keys(objective, self.dropout)
        return result

    def _architecture(self, encoder: Any, heads: Collection[str]) -> str:
        """The class of transformers that has the encoder with these heads.

        Raises:
          UserError: there is none.
        """
        task = self._task(heads)
        if encoder.pooler and not self._pooler_rows(heads) and (task is None or task.pools):
            raise UserError(
                f"encoder.pooler: {self.title} of transformers has none without the head of a task"
            )
        alone = {frozenset({head.name}): head.architecture for head in self.heads.values()}
        found = (alone | dict(self.architectures)).get(frozenset(heads))
        if found is None:
            name = self.title.split()[-1]
            raise UserError(
                f"no {name} class of transformers has the heads {', '.join(sorted(heads))}"
            )
        for head in sorted(heads):
            if self._head(head).erf_gelu and encoder.activation != "gelu":
                raise UserError(
                    f"encoder.activation: the {head} head of {self.title} has 'gelu' in any case, "
                    f"not {encoder.activation!r}"
                )
        return found

    def _encoder_keys(self, encoder: Any) -> dict[str, Any]:
        keys = {theirs: getattr(encoder, ours) for ours, theirs in self.sizes.items()}
        if "embedding_size" in self.sizes:
            keys[self.sizes["embedding_size"]] = encoder.embedding_size or encoder.hidden_size
        if self.padded_positions:
            keys[self.sizes["max_positions"]] += encoder.position_offset
        return {
            **keys,
            self.activation: ACTIVATIONS[encoder.activation][0],
            self.epsilon: encoder.norm_epsilon,
            **self.also,
            **(self.more_keys(encoder) if self.more_keys else {}),
        }

    def _check_pooler_activation(
        self, encoder: Any, heads: Collection[str], written: Mapping[str, Any]
    ) -> None:
        """Refuses an encoder whose pooler has another activation than that in transformers."""
        ours = getattr(encoder, "pooler_activation", "tanh")
        theirs = self._pooler_activation(heads, written) or "tanh"
        if ours != theirs:
            task = self._task(heads)
            raise UserError(
                f"encoder.pooler_activation: {self.title} of transformers has {theirs!r}"
                f"{' with ' + task.name if task else ''}, not {ours!r}"
            )

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
