"""The names of published systems in other tools' files: one table for each system.

`System` turns such a table into configs and lists of `Row`s, and back. Its `EncoderKeys` say how
config.json describes the encoder. The tables are in the modules beside this one: `bert` (with
RoBERTa, MPNet, DistilBERT and ERNIE), `albert`, `electra`, `deberta`, `modernbert`,
`eurobert`, `gpt2`, `xlnet`, `transfo_xl`, `t5`. The heads in a table are those of
`official.conversion.heads`.
"""

import contextlib
import dataclasses
import os
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from official import config as configs
from official.config.encoders import TransformerConfig
from official.config.parts import EncoderConfig
from official.conversion import heads as head_kinds
from official.conversion.heads import Head, TaskHead
from official.conversion.mapping import LazyTensors, Row, linear, take_out
from official.tokenizers import Tokenizer
from official.utils import strict
from official.utils.errors import UserError
from official.utils.paths import AnyPath

if typing.TYPE_CHECKING:
    from official.conversion.converted_model import Converted

# `gelu` is the erf form; the first name of each is the one that is written.
ACTIVATIONS = {
    "gelu": ("gelu", "gelu_python"),
    "gelu_tanh": ("gelu_new", "gelu_pytorch_tanh"),
    "relu": ("relu",),
    "silu": ("silu", "swish"),
}

# Fields of our encoder and their keys in config.json, in most of these systems.
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

# The epsilon of the norms if config.json does not contain it.
EPSILON = 1e-12

# Keys of config.json that change what the network computes, and the only supported values.
ONLY = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}

# Fields of our transformer with the values of most of these systems.
FORM = {
    "norm": "post",
    "causal": False,
    "pooled_position": "first",
    "position_offset": 0,
    "layer_groups": None,
    "inner_layers": 1,
    "embedding_size": None,
    "scale_embeddings": False,
    "relative_buckets": None,
    "disentangled": None,
    "convolution": None,
    "local_attention": None,
    "gated": False,
    "use_bias": True,
    "norm_type": "layer",
    "norm_bias": True,
    "norm_embeddings": None,
    "first_norm": True,
    "attention_output_dropout": None,
}

# Prefixes of tensor names in a file of the bare encoder.
BARE = ("embeddings.", "embeddings_project.", "encoder.", "transformer.", "pooler.")
# The usual value of `bounds` and `ends`.
BOUNDS = {"bos_token_id": "cls_id", "eos_token_id": "sep_id"}
ENDS = {"bos_token": "cls_id", "eos_token": "sep_id"}

# (content of config.json, tensors) of a network in files of a system.
Network = tuple[dict[str, Any], dict[str, np.ndarray]]


@contextlib.contextmanager
def naming(source: str | os.PathLike) -> Iterator[None]:
    """Converts a ValueError of a config to a UserError that names the file `source`."""
    try:
        yield
    except UserError:
        raise
    except (TypeError, ValueError) as error:
        raise UserError(f"{source}: {error}") from None


@dataclasses.dataclass(frozen=True)
class EncoderKeys:
    """The keys of config.json that describe the encoder of one system.

    Attributes:
      title: the name of the system for messages, with its article.
      encoder_type: the config class of the encoder.
      form: fields of our encoder with a fixed value in this system.
      sizes: fields of our encoder and their keys.
      more_fields: computes further fields from config.json; None = there are none.
      more_keys: computes further keys from the config of our encoder; None = there are none.
      activation: the key of the activation; None = `more_fields` sets it.
      gelu: the form of GELU that is called `gelu`.
      epsilon: the key of the epsilon of the norms; None = always `EPSILON`.
      only: keys that change what the network computes, and the only supported values.
      also: further keys that are written, with fixed values.
      padded_positions: whether the first position is the padding token's id plus one.
      padding_id: the id that transformers counts as padding, whatever config.json says; None = the
        id in config.json.
      projected: whether a projection follows the embeddings even if they have the hidden size.
    """

    title: str
    encoder_type: type[EncoderConfig] = TransformerConfig
    form: Mapping[str, Any] = dataclasses.field(default_factory=lambda: FORM)
    sizes: Mapping[str, str] = dataclasses.field(default_factory=lambda: SIZES)
    more_fields: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    more_keys: Callable[[Any], dict[str, Any]] | None = None
    activation: str | None = "hidden_act"
    gelu: str = "gelu"
    epsilon: str | None = "layer_norm_eps"
    only: Mapping[str, Any] = dataclasses.field(default_factory=lambda: ONLY)
    also: Mapping[str, Any] = dataclasses.field(
        default_factory=lambda: {"position_embedding_type": "absolute"}
    )
    padded_positions: bool = False
    padding_id: int | None = None
    projected: bool = False

    def fields(self, config: Mapping[str, Any], source: str) -> dict[str, Any]:
        """Reads the fields of our encoder from config.json.

        Args:
          config: the parsed file.
          source: the name of the file for messages.

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
            fields[ours] = strict.typed(hints[ours], config[theirs], theirs, source)
        if self.activation:
            fields["activation"] = self._activation(config, self.activation, source)
        with naming(source):
            if self.more_fields:
                fields |= self.more_fields(config)
            if fields.get("embedding_size") == fields["hidden_size"]:
                self._check_projection(fields["hidden_size"], f"{source}: ")
                fields["embedding_size"] = None
            if self.padded_positions:
                pad_id = config.get("pad_token_id", 1)
                self._check_padding(pad_id, f"{source}: pad_token_id")
                fields["position_offset"] = pad_id + 1
                fields["max_positions"] -= fields["position_offset"]
        return fields

    def _activation(self, config: Mapping[str, Any], key: str, source: str) -> str:
        names = {name: ours for ours, theirs in ACTIVATIONS.items() for name in theirs}
        names["gelu"] = self.gelu
        if config.get(key) not in names:
            raise UserError(
                f"{source}: {key}: {config.get(key)!r} is not supported (known: {', '.join(names)})"
            )
        return names[config[key]]

    def encoder(self, fields: Mapping[str, Any], config: Mapping[str, Any], source: str) -> Any:
        """Makes the config of our encoder.

        Args:
          fields: all fields except the epsilon of the norms.
          config: the parsed config.json.
          source: the name of the file for messages.

        Raises:
          UserError: a field has a value that this encoder does not have.
        """
        hints = typing.get_type_hints(self.encoder_type)
        with naming(source):
            epsilon = EPSILON
            if self.epsilon:
                epsilon = strict.typed(
                    float, config.get(self.epsilon, EPSILON), self.epsilon, source
                )
            # Fields such as the pooler exist only for some encoders.
            fields = {
                field.name: strict.typed(hints[field.name], fields[field.name], field.name, source)
                for field in dataclasses.fields(self.encoder_type)
                if field.name in fields
            }
            return self.encoder_type(**{**fields, "norm_epsilon": epsilon})

    def keys(self, encoder: Any) -> dict[str, Any]:
        """Returns the keys of config.json that describe our encoder.

        Raises:
          UserError: the encoder has a part that the system does not have.
        """
        keys = {theirs: getattr(encoder, ours) for ours, theirs in self.sizes.items()}
        if "embedding_size" in self.sizes:
            keys[self.sizes["embedding_size"]] = encoder.embedding_size or encoder.hidden_size
        if self.padded_positions:
            keys[self.sizes["max_positions"]] += encoder.position_offset
        if self.activation:
            keys[self.activation] = ACTIVATIONS[encoder.activation][0]
        with naming("this model"):
            more = self.more_keys(encoder) if self.more_keys else {}
        if self.epsilon:
            keys[self.epsilon] = encoder.norm_epsilon
        return {**keys, **self.also, **more}

    def takes(self, encoder: EncoderConfig) -> bool:
        """Returns whether our encoder has the type that the keys describe."""
        return isinstance(encoder, self.encoder_type)

    def check(self, encoder: Any, pad_id: int) -> None:
        """Refuses an encoder of ours that config.json cannot describe.

        Args:
          encoder: the config of the encoder.
          pad_id: the id of the padding token.

        Raises:
          UserError: the encoder has a part that the system does not have.
        """
        if not self.takes(encoder):
            raise UserError(f"encoder.type: {encoder.type} cannot be written as {self.title}")
        if encoder.adapter_size is not None:
            raise UserError(
                f"encoder.adapter_size: {encoder.adapter_size}: {self.title} of transformers has "
                "no adapters, and they cannot be merged into other weights; official.export keeps "
                "them"
            )
        form = {name: only for name, only in self.form.items() if name not in self.sizes}
        if not self.epsilon:
            form["norm_epsilon"] = EPSILON
        if self.padded_positions:
            self._check_padding(pad_id, "the padding token's id")
            form["position_offset"] = pad_id + 1
        for field, only in form.items():
            value = getattr(encoder, field)
            if value != only and (field, value) != ("embedding_size", encoder.hidden_size):
                raise UserError(f"encoder.{field}: {self.title} has {only!r}, not {value!r}")
        if (encoder.embedding_size or encoder.hidden_size) == encoder.hidden_size:
            self._check_projection(encoder.hidden_size, "encoder.")
        if "segment_types" in self.sizes and not encoder.segment_types:
            raise UserError(f"encoder.segment_types: {self.title} has 1 or more, not 0")

    def _check_padding(self, pad_id: int, place: str) -> None:
        if self.padding_id not in (None, pad_id):
            raise UserError(
                f"{place}: {pad_id}: {self.title} of transformers takes the token "
                f"{self.padding_id} for padding when it counts positions, whatever its config "
                f"says. Take a vocabulary whose padding token has the id {self.padding_id}"
            )

    def _check_projection(self, size: int, place: str) -> None:
        if self.projected:
            raise UserError(
                f"{place}embedding_size: {size} is the hidden size: {self.title} of transformers "
                "has a projection after the embeddings even then, but this encoder has none"
            )


@dataclasses.dataclass(frozen=True)
class FineTuning:
    """The published settings for fine-tuning a family of models.

    Attributes:
      config: the name of the config in `configs/finetune` for texts with labels; None = the family
        has no such config.
      small_rate: the learning rate of models that are narrower than the base models; 1e-4 for small
        BERTs (Turc et al., 2019).
      suits: returns whether a model of the system belongs to the family, by its config; None = all
        do.
    """

    config: str | None = None
    small_rate: float = 1e-4
    suits: Callable[[Any], bool] | None = None


USUAL = FineTuning()


@dataclasses.dataclass(frozen=True)
class System:
    """The names of one system, and the table of its heads.

    Systems whose files differ in more than names are subclasses.

    Attributes:
      model_type: `model_type` of config.json.
      encoder: the keys of config.json that describe the encoder.
      mark: returns whether an encoder of the right type belongs to the system; None = see
        `matches`.
      finetune: the published settings for fine-tuning.
      frames: whether its tokenizers in transformers put special tokens around texts.
      prefix: the prefix of the encoder's tensors; files of the bare encoder lack it.
      encoder_rows: makes the rows of the encoder, without those of the pooler, from its config.
      heads: the heads by their names; those of tasks come last.
      pooler: the name of the pooler's layer; None = only heads of tasks have one.
      pooler_activation: the activation of the pooler where no head of a task sets it; None = tanh.
      architectures: {names of heads: class of transformers} for no head or several. A single head
        has its class in `Head.architecture`.
      present: {field of our encoder: name of a tensor}; the field is true if a file has the tensor.
      dropout: the key of the dropout rate of heads of tasks.
      bounds: {key of config.json: attribute of the tokenizer} for the tokens that begin and end a
        sequence.
      ends: the same for the keys of the tokenizer's class.
      aliases: {copy: original} for tensors that repeat another one, such as a tied output layer.
      tied_aliases: the same, unless config.json says that the output layer is not tied.
      bare: prefixes of the tensors in a file of the bare encoder.
      tensors: converts the tensors of a file to those of the rows; None = they are the same.
      buffers: patterns of constants that old files keep among the weights.
      whole: whether a file may not have other tensors of the encoder, since they would be parts
        that our encoder does not have.
      unread: exceptions from `whole`: tensors that the encoder does not read.
      vocabulary: the file of the vocabulary.
      rounded_to: the token table may have rows without a token, up to the next multiple of this
        number.
      tokenizer_class: the class of transformers for a vocabulary of the system's kind; None = it
        depends on the file of the vocabulary.
      tokenizer_settings: settings of the tokenizer that apply if no file has them.
      unused_piece: whether the vocabulary has `<s>NOTUSED` before its pieces, as CamemBERT's has.
      typed_release: whether the releases read types of tokens, which the class of transformers 5
        does not return.
      segments: the `segments` of the config of a model with heads of pretraining.
      max_length: the largest value for `segments.max_length`.
      corruption: settings of token masks that differ from the defaults.
      tf1_row: returns a row with the names of the TF1 release; None = there is no release.
      release_gelu: the form of GELU that the release calls `gelu`.
      release: whether the names are those of the TF1 release; see `of_release`.
    """

    model_type: str
    encoder: EncoderKeys
    prefix: str
    encoder_rows: Callable[[Any], list[Row]]
    heads: Mapping[str, Head]
    mark: Callable[[Any], bool] | None = None
    finetune: FineTuning = USUAL
    frames: bool = True
    pooler: str | None = None
    pooler_activation: str | None = None
    architectures: Mapping[frozenset[str], str] = dataclasses.field(default_factory=dict)
    present: Mapping[str, str] = dataclasses.field(default_factory=dict)
    dropout: str = "classifier_dropout"
    bounds: Mapping[str, str] = dataclasses.field(default_factory=dict)
    ends: Mapping[str, str] = dataclasses.field(default_factory=dict)
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tied_aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    bare: tuple[str, ...] = BARE
    tensors: Callable[[Any, str | os.PathLike], LazyTensors] | None = None
    buffers: Sequence[str] = ()
    whole: bool = False
    unread: Collection[str] = ()
    vocabulary: str = "vocab.txt"
    rounded_to: int = 128
    tokenizer_class: str | None = None
    tokenizer_settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    unused_piece: bool = False
    typed_release: bool = False
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

    def keeps_positions(self, encoder: Any) -> bool:
        """Returns whether files of the system can store the positions of an encoder."""
        del encoder
        return "positions" in self.encoder.form

    def describes(self, config: Mapping[str, Any]) -> bool:
        """Returns whether a config.json describes a model of the system."""
        return config["model_type"] == self.model_type

    def matches(self, config: configs.ResolvedConfig, tokenizer: Tokenizer | None = None) -> bool:
        """Returns whether a model can be written as this system.

        Of several matches, the last in the table of `huggingface` counts.

        Args:
          config: the config of the model.
          tokenizer: its tokenizer; None = unknown.
        """
        del tokenizer
        encoder = config.encoder
        return self.mark is not None and self.encoder.takes(encoder) and self.mark(encoder)

    def network_config(
        self,
        config: dict[str, Any],
        source: AnyPath,
        weights: Mapping[str, np.ndarray],
        generator: AnyPath | None,
    ) -> tuple[dict[str, Any], AnyPath]:
        """Returns a config.json with values that follow from the weights, and its main source file.

        Args:
          config: the parsed config.json.
          source: the file of `config`.
          weights: the tensors of the network.
          generator: the file of the weights, if they belong to a generator in the folder of its
            discriminator; else None.

        Raises:
          UserError: the weights do not match the config.
        """
        del weights, generator
        return config, source

    def with_generator(
        self,
        converted: "Converted",
        folder: AnyPath,
        tensors: Mapping[str, np.ndarray],
        read: Callable[..., tuple["Converted", "System"]],
    ) -> "Converted":
        """Returns a discriminator with the generator in its folder; returns other models unchanged.

        Args:
          converted: the model.
          folder: its folder.
          tensors: the tensors of its file.
          read: a function that reads another model, from its folder and an optional file of
            weights.

        Raises:
          UserError: the files are not a generator for the model.
        """
        del folder, tensors, read
        return converted

    def written(
        self, encoder: Any, heads: Collection[str], variables: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Returns the tensors of a file of a model.

        Args:
          encoder: the config of the encoder.
          heads: the names of the heads.
          variables: the variables by path.
        """
        tensors = take_out(self.rows(encoder, heads), variables)
        if heads:
            return tensors
        return {name.removeprefix(self.prefix): array for name, array in tensors.items()}

    def in_one_folder(
        self, networks: dict[str, Network], variables: Mapping[str, np.ndarray]
    ) -> dict[str, dict[str, np.ndarray]]:
        """Removes the networks that are stored as further files in the folder of the model.

        Args:
          networks: {folder: network}, with the model under "". Networks that are returned are
            removed from it.
          variables: the variables of the model.

        Returns:
          {name of a file: its tensors}.

        Raises:
          UserError: one config.json cannot describe all of these networks.
        """
        del networks, variables
        return {}

    def tokenizer_defaults(self, folder: AnyPath) -> dict[str, Any]:
        """Returns the settings of the tokenizer of a folder that apply if no file has them."""
        del folder
        named = {"tokenizer_class": self.tokenizer_class} if self.tokenizer_class else {}
        return {**named, **self.tokenizer_settings}

    def ends_of(self, tokenizer: Tokenizer) -> dict[str, str]:
        """Returns `bos_token` and `eos_token` as the class of the tokenizer defines them."""
        return {key: tokenizer.pieces[getattr(tokenizer, name)] for key, name in self.ends.items()}

    def rows(self, encoder: Any, heads: Collection[str]) -> list[Row]:
        """Returns the rows of the encoder and these heads; all names have the prefix.

        Args:
          encoder: the config of the encoder.
          heads: the names of the heads.
        """
        rows = list(self.encoder_rows(encoder))
        if encoder.pooler:
            rows += self._pooler_rows(heads)
        for head in heads:
            rows += self.heads[head].rows_of(encoder)
        return self.named(rows)

    def _pooler_rows(self, heads: Collection[str]) -> list[Row]:
        rows = linear("encoder/pooler", self.prefix + self.pooler) if self.pooler else []
        task = self._task(heads)
        return task.pooler_rows(rows) if task else rows

    def _pooler_activation(self, heads: Collection[str], config: Mapping[str, Any]) -> str | None:
        task = self._task(heads)
        return (task and task.activation(config)) or self.pooler_activation

    def _head(self, name: str) -> Head:
        """Returns a head by name; a head that the system does not have gets no tensors."""
        return self.heads.get(name) or head_kinds.KINDS.get(name, Head)()

    def _task(self, heads: Iterable[str]) -> TaskHead | None:
        """Returns the head of a task among these heads; None = there is none."""
        return next((h for h in map(self._head, heads) if isinstance(h, TaskHead)), None)

    def named(self, rows: Iterable[Row]) -> list[Row]:
        """Returns rows with the names of the release, if the system has them."""
        return [self.tf1_row(row) if self.release and self.tf1_row else row for row in rows]

    def _any(self, rows: Iterable[Row], names: Collection[str]) -> bool:
        return any(name in names for row in self.named(rows) for name in row.names)

    def heads_of(self, names: Collection[str], config: Mapping[str, Any]) -> tuple[str, ...]:
        """Returns the names of the heads in a file: heads of pretraining, and one of a task.

        Args:
          names: the names of the tensors.
          config: the parsed config.json.
        """
        present = [
            head for head in self.heads.values() if head.is_in(config, self._any(head.rows, names))
        ]
        task = next((head for head in present if isinstance(head, TaskHead)), None)
        return tuple(
            head.name for head in present if head is task or not isinstance(head, TaskHead)
        )

    def heads_named(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """Returns the heads that the class in config.json may have; all if it names no class.

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
        """Returns whether a head of the system can represent our objective."""
        head = self.heads.get(head_kinds.kind_of(objective).name)
        pooling = getattr(objective, "pooling", "pooled")
        return head is not None and pooling in head.poolings

    def fields_of(self, names: Collection[str], heads: Collection[str]) -> dict[str, bool]:
        """Returns the fields of our encoder that depend on the presence of tensors in a file.

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
        **stored: bool,
    ) -> Any:
        """Returns the config of the encoder that config.json describes.

        Args:
          config: the parsed file.
          source: the name of the file for messages.
          heads: the names of the heads in the weights.
          **stored: fields that depend on the presence of tensors (see `fields_of`). Without them,
            the encoder has a pooler, and all fields of `present` are true.

        Raises:
          UserError: a key is missing or has a value that this encoder does not have.
        """
        fields = self.encoder.fields(config, source)
        with naming(source):
            if activation := self._pooler_activation(heads, config):
                fields["pooler_activation"] = activation
        fields |= dict.fromkeys(("pooler", *self.present), True) | stored
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
          UserError: an objective does not allow these labels or values, or the activation of a head
            differs from the encoder's.
        """
        fixed = [head for head in sorted(heads) if self._head(head).erf_gelu]
        activation = self.encoder.activation
        if fixed and activation and (value := config.get(activation)) not in ACTIVATIONS["gelu"]:
            raise UserError(
                f"{source}: {activation}: {value!r} is not supported with the head {fixed[0]}, "
                "which always has 'gelu'"
            )
        dropout = config.get(self.dropout)
        dropout = config.get("hidden_dropout_prob", 0.1) if dropout is None else dropout
        with naming(source):
            return tuple(self._head(head).objective(config, dropout) for head in heads)

    def huggingface_config(
        self, config: configs.ResolvedConfig, heads: Collection[str], pad_id: int = 0
    ) -> dict[str, Any]:
        """Returns the config.json of a model of ours.

        Args:
          config: the config of the model.
          heads: the names of its heads.
          pad_id: the id of the padding token.

        Raises:
          UserError: the encoder has a part that the system does not have, or no class of
            transformers has exactly these heads.
        """
        encoder = config.encoder
        self.encoder.check(encoder, pad_id)
        architecture = self._architecture(encoder, heads)
        head_objectives = [(self._head(head_kinds.kind_of(o).name), o) for o in config.objectives]
        result = {
            "architectures": [architecture],
            "model_type": self.model_type,
            **self.encoder.keys(encoder),
        }
        for head, objective in head_objectives:
            result |= head.pooler_keys(objective, encoder)
        result["pad_token_id"] = pad_id
        if encoder.pooler and self._pooler_rows(heads):
            self._check_pooler_activation(encoder, heads, result)
        for head, objective in head_objectives:
            head.check(objective, encoder, self.title)
            result |= head.keys(objective, self.dropout)
        return result

    def _architecture(self, encoder: Any, heads: Collection[str]) -> str:
        """Returns the class of transformers with the encoder and these heads.

        Raises:
          UserError: there is no such class.
        """
        task = self._task(heads)
        if encoder.pooler and not self._pooler_rows(heads) and (task is None or task.pools):
            hint = " without the head of a task"
            if task is not None and "pooled" not in task.poolings:
                hint = f": train the head with objectives.0.pooling: {' or '.join(task.poolings)}"
            raise UserError(f"encoder.pooler: {self.title} of transformers has none{hint}")
        alone = {frozenset({head.name}): head.architecture for head in self.heads.values()}
        architecture = (alone | dict(self.architectures)).get(frozenset(heads))
        if architecture is None:
            name = self.title.split()[-1]
            raise UserError(
                f"no {name} class of transformers has the heads {', '.join(sorted(heads))}. To "
                "write only the encoder, convert a copy of the model folder without `objectives` "
                "in its config.yaml"
            )
        for head in sorted(heads):
            if self._head(head).erf_gelu and encoder.activation != "gelu":
                raise UserError(
                    f"encoder.activation: the {head} head of {self.title} always has 'gelu', "
                    f"not {encoder.activation!r}"
                )
        return architecture

    def _check_pooler_activation(
        self, encoder: Any, heads: Collection[str], written: Mapping[str, Any]
    ) -> None:
        """Refuses an encoder whose pooler's activation differs from that in transformers."""
        ours = getattr(encoder, "pooler_activation", "tanh")
        theirs = self._pooler_activation(heads, written) or "tanh"
        if ours != theirs:
            task = self._task(heads)
            raise UserError(
                f"encoder.pooler_activation: {self.title} of transformers has {theirs!r}"
                f"{' with ' + task.name if task else ''}, not {ours!r}"
            )
