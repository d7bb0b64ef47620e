"""How the config.json of a system describes the encoder."""

import contextlib
import dataclasses
import os
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from official.config.encoders import TransformerConfig
from official.utils import strict
from official.utils.errors import UserError

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

# The epsilon of the norms where config.json does not say it.
EPSILON = 1e-12

# Keys of config.json that change what the network computes, and the only supported values.
ONLY = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}

# The form of most of these systems, as fields of our transformer.
FORM = {
    "norm": "post",
    "causal": False,
    "pooled_position": "first",
    "position_offset": 0,
    "layer_groups": None,
    "inner_layers": 1,
    "embedding_size": None,
    "relative_buckets": None,
}


@contextlib.contextmanager
def naming(source: str | os.PathLike) -> Iterator[None]:
    """Raises what a config refuses as a UserError that names the file `source`."""
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
      form: fields of our encoder that have one value in this system.
      sizes: fields of our encoder and their keys.
      more_fields: computes the fields that have no key of their own from config.json, or None.
      more_keys: computes the other keys from the config of our encoder, or None.
      activation: the key of the activation; None where `more_fields` sets it.
      gelu: the form of GELU that is called `gelu`.
      epsilon: the key of the epsilon of the norms; None = it is `EPSILON`.
      only: keys that change what the network computes, and the only supported values.
      also: keys with fixed values that are written.
      padded_positions: whether the first position is the padding token's id plus one.
      projected: whether a projection follows the embeddings whatever their size.
    """

    title: str
    encoder_type: type = TransformerConfig
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
            fields["activation"] = self._activation(config, source)
        with naming(source):
            if self.more_fields:
                fields |= self.more_fields(config)
            if fields.get("embedding_size") == fields["hidden_size"]:
                self._check_projection(fields["hidden_size"], f"{source}: ")
                fields["embedding_size"] = None
            if self.padded_positions:
                fields["position_offset"] = config.get("pad_token_id", 1) + 1
                fields["max_positions"] -= fields["position_offset"]
        return fields

    def _activation(self, config: Mapping[str, Any], source: str) -> str:
        names = {name: ours for ours, theirs in ACTIVATIONS.items() for name in theirs}
        names["gelu"] = self.gelu
        if config.get(self.activation) not in names:
            raise UserError(
                f"{source}: {self.activation}: {config.get(self.activation)!r} is not supported "
                f"(known: {', '.join(names)})"
            )
        return names[config[self.activation]]

    def encoder(self, fields: Mapping[str, Any], config: Mapping[str, Any], source: str) -> Any:
        """Makes the config of our encoder.

        Args:
          fields: all fields but the epsilon of the norms.
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
            # Not every encoder can have a pooler.
            fields = {
                k: strict.typed(hints[k], value, k, source)
                for k, value in fields.items()
                if k in hints
            }
            return self.encoder_type(**fields, norm_epsilon=epsilon)

    def keys(self, encoder: Any) -> dict[str, Any]:
        """Returns the keys of config.json that describe our encoder.

        Raises:
          UserError: the encoder has something that the system lacks.
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

    def check(self, encoder: Any, pad_id: int) -> None:
        """Refuses an encoder of ours that config.json cannot describe.

        Args:
          encoder: the config of the encoder.
          pad_id: the id of the padding token.

        Raises:
          UserError: the encoder has something that the system lacks.
        """
        if not isinstance(encoder, self.encoder_type):
            raise UserError(f"encoder.type: {encoder.type} cannot be written as {self.title}")
        form = {name: only for name, only in self.form.items() if name not in self.sizes}
        if not self.epsilon:
            form["norm_epsilon"] = EPSILON
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
