"""What a published system is called in other tools' files: one table for each system.

`System` turns such a table into configs and lists of `Row`s, and back. The tables are in the
modules beside this one: `bert`, `roberta`, `albert`, `electra`, `distilbert`, `gpt2`, `xlnet`,
`transfo_xl`, `t5`. The heads in a table are those of `official.convert.heads`.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from official import config as configs
from official.convert import heads as head_kinds
from official.convert.encoder_keys import ACTIVATIONS, EncoderKeys, naming
from official.convert.heads import Head, TaskHead
from official.convert.mapping import Row, linear
from official.utils.errors import UserError

# What names begin with in a file of the bare encoder.
BARE = ("embeddings.", "embeddings_project.", "encoder.", "transformer.", "pooler.")
# `bounds` of most systems.
BOUNDS = {"bos_token_id": "cls_id", "eos_token_id": "sep_id"}


@dataclasses.dataclass(frozen=True)
class System:
    """The names of one system, and the table of its heads.

    Attributes:
      model_type: `model_type` of config.json.
      encoder: the keys of config.json that describe the encoder.
      prefix: the prefix of the encoder's tensors; files of the bare encoder lack it.
      encoder_rows: makes the rows of the encoder, without those of the pooler, from its config.
      heads: the heads by their names; those of tasks come last.
      pooler: the name of the pooler's layer; None = only heads of tasks have one.
      pooler_activation: the activation of the pooler where no head of a task sets it; None = tanh.
      architectures: the class of transformers by the names of its heads, where it has none or
        several. A head that can be alone names the class itself.
      present: fields of our encoder that are true where a file has the tensor of this name.
      dropout: the key of the dropout rate of heads of tasks.
      bounds: keys of config.json of the tokens that open and end a sequence, and their attributes
        of the tokenizer.
      aliases: tensors that repeat another one, such as a tied output layer, and that other one.
      tied_aliases: the same where config.json does not say that the output layer is not tied.
      bare: prefixes of the tensors in a file of the bare encoder.
      tensors: maps the tensors of a file to those that the rows name; None = they are the same.
      buffers: patterns of constants that old files keep among the weights.
      vocabulary: the file of the vocabulary.
      tokenizer_class: the class of transformers for a SentencePiece model; None = the file of the
        vocabulary tells.
      segments: `segments` in the config of a model with heads of pretraining.
      max_length: the longest `segments.max_length`.
      corruption: settings of its token masks that differ from the defaults.
      tf1_row: renames a row to the names of the TF1 release; None = there is no release.
      release_gelu: the form of GELU that the release calls `gelu`.
      release: whether the names are those of the TF1 release; see `of_release`.
    """

    model_type: str
    encoder: EncoderKeys
    prefix: str
    encoder_rows: Callable[[Any], list[Row]]
    heads: Mapping[str, Head]
    pooler: str | None = None
    pooler_activation: str | None = None
    architectures: Mapping[frozenset[str], str] = dataclasses.field(default_factory=dict)
    present: Mapping[str, str] = dataclasses.field(default_factory=dict)
    dropout: str = "classifier_dropout"
    bounds: Mapping[str, str] = dataclasses.field(default_factory=dict)
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tied_aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
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
        """Returns the system with the names of the TF1 release."""
        encoder = dataclasses.replace(self.encoder, gelu=self.release_gelu)
        return dataclasses.replace(self, encoder=encoder, release=True)

    @property
    def title(self) -> str:
        """The name of the system for messages, with its article."""
        return self.encoder.title

    def rows(self, encoder: Any, heads: Collection[str]) -> list[Row]:
        """Returns the rows of the encoder with these heads; all names have the prefix.

        Args:
          encoder: the config of the encoder.
          heads: the names of the heads.
        """
        rows = list(self.encoder_rows(encoder))
        if encoder.pooler:
            rows += self._pooler_rows(heads)
        for head in heads:
            rows += self.heads[head].rows_of(encoder)
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
        """Returns the names of the heads in a file: those of pretraining and one of a task.

        Args:
          names: the names of the tensors.
          config: the parsed config.json.
        """
        found = [
            head for head in self.heads.values() if head.is_in(config, self._any(head.rows, names))
        ]
        task = next((head for head in found if isinstance(head, TaskHead)), None)
        return tuple(head.name for head in found if head is task or not isinstance(head, TaskHead))

    def heads_named(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """Returns the names of the heads that the class in config.json may have; of none, all.

        Args:
          config: the parsed config.json.
        """
        named = set(config.get("architectures") or ())
        several = [heads for heads, name in self.architectures.items() if name in named]
        alone = [head.name for head in self.heads.values() if head.architecture in named]
        if not (several or alone):
            return tuple(self.heads)
        return tuple(dict.fromkeys([*(name for heads in several for name in heads), *alone]))

    def has_room_for(self, objective: Any) -> bool:
        """Returns whether a head of the system can have an objective of ours."""
        head = self.heads.get(head_kinds.kind_of(objective).name)
        pooling = getattr(objective, "pooling", "pooled")
        return head is not None and pooling in head.poolings

    def fields_of(self, names: Collection[str], heads: Collection[str]) -> dict[str, bool]:
        """Returns the fields of our encoder that depend on which tensors a file has.

        Args:
          names: the names of the tensors.
          heads: the names of the heads.
        """
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
        """Returns the config of the encoder that config.json describes.

        Args:
          config: the parsed file.
          source: the name of the file for messages.
          heads: the names of the heads in the weights.
          told: fields that the weights tell (see `fields_of`). Without them the encoder has a
            pooler and all that is `present`.

        Raises:
          UserError: a key is missing or has a value that this encoder does not have.
        """
        fields = self.encoder.fields(config, source)
        with naming(source):
            if activation := self._pooler_activation(heads, config):
                fields["pooler_activation"] = activation
        fields |= dict.fromkeys(("pooler", *self.present), True) | told
        return self.encoder.encoder(fields, config, source)

    def objectives(
        self, heads: Sequence[str], config: Mapping[str, Any], source: str
    ) -> tuple[Any, ...]:
        """Returns the objectives of the heads; labels and dropout are those of config.json.

        Args:
          heads: the names of the heads.
          config: the parsed config.json.
          source: the name of the file for messages.

        Raises:
          UserError: an objective cannot have these labels or values, or a head has another
            activation than the encoder.
        """
        fixed = [head for head in sorted(heads) if self._head(head).erf_gelu]
        activation = self.encoder.activation
        if fixed and (found := config.get(activation)) not in ACTIVATIONS["gelu"]:
            raise UserError(
                f"{source}: {activation}: {found!r} is not supported with the head of "
                f"the {fixed[0]}, which has 'gelu' in any case"
            )
        dropout = config.get(self.dropout)
        dropout = config.get("hidden_dropout_prob", 0.1) if dropout is None else dropout
        with naming(source):
            return tuple(self._head(head).objective(config, dropout) for head in heads)

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
        self.encoder.check(encoder, pad_id)
        architecture = self._architecture(encoder, heads)
        asked = [(self._head(head_kinds.kind_of(o).name), o) for o in config.objectives]
        result = {
            "architectures": [architecture],
            "model_type": self.model_type,
            **self.encoder.keys(encoder),
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
                f"no {name} class of transformers has the heads {', '.join(sorted(heads))}. Write "
                "the encoder alone from a copy of the model folder without `objectives` in its "
                "config.yaml"
            )
        for head in sorted(heads):
            if self._head(head).erf_gelu and encoder.activation != "gelu":
                raise UserError(
                    f"encoder.activation: the {head} head of {self.title} has 'gelu' in any case, "
                    f"not {encoder.activation!r}"
                )
        return found

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
