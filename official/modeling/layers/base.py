"""The base class of layers, which can be used and saved like Keras' own layers.

They are serialized by the arguments of their constructors, and have seeds for dropout.
"""

import contextlib
import contextvars
import dataclasses
import functools
import inspect
from collections.abc import Iterator
from typing import Any

import keras

from official.config import blocks
from official.config.registry import ENCODERS
from official.modeling.layers.random import PACKAGE, Draws, Initializers
from official.utils import keras_private, strict
from official.utils.errors import UserError

_PARTS = contextvars.ContextVar("layers_are_parts", default=False)
# the key in a layer's config for the indices of the sublayers that are not trained
_FROZEN = "frozen"


@contextlib.contextmanager
def parts() -> Iterator[None]:
    """Marks layers that are made inside the `with` block as parts of another layer.

    The other layer draws dropout for them.

    Parts have no seeds, and so no variables except their weights.
    """
    token = _PARTS.set(True)
    try:
        yield
    finally:
        _PARTS.reset(token)


class Layer(keras.Layer):
    """A Keras layer that is saved with the arguments of its constructor.

    The name of a subclass in saved models is the class name or the class argument `saved_as`. Its
    constructor takes a `name`, a `dtype`, and values that Keras can save: numbers, text, layers,
    initializers, the configs of encoders and the parts of blocks. Without a name, Keras makes one.

    The dropout of a layer is drawn from the `Draws` that its argument `rng` gives. Without it,
    dropout is drawn from the seeds of the layer if Keras trains (`training=True`, also of the layer
    or model around it). A layer that is made inside the constructor of another one is a part of it,
    and gets its draws from there.

    Attributes:
        seeds: `keras.random.SeedGenerator` of dropout; None if the layer has no dropout, or is a
            part of another one.
    """

    seeds: Any = None
    _recorded: "_Recorded"

    def __init_subclass__(cls, saved_as=None, **options):
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = _recording(cls.__init__)  # type: ignore[method-assign]
        if cls.__module__.partition(".")[0] == __name__.partition(".")[0]:
            keras.saving.register_keras_serializable(PACKAGE, saved_as or cls.__name__)(cls)

    def draws(self, rng: Draws | None, training: bool | None) -> Draws | None:
        """Returns the draws of a call: `Draws`, or None without dropout.

        Args:
            rng: the `Draws` that the call has got, or None.
            training: whether Keras trains; None = no.

        Raises:
            UserError: the layer is a part of another layer and got no draws in training.
        """
        if rng is not None or not training:
            return rng
        if self.seeds is None:
            raise UserError(
                f"{self.name}: a part of another layer has no seeds for its dropout: call the "
                "whole layer, or give rng=Draws(...) or training=False"
            )
        return Draws(self.seeds.next()).shared()

    def get_config(self):
        """Returns the arguments of the constructor, and which sublayers are not trained."""
        values = {**self._recorded.arguments, "name": self.name, "dtype": self.dtype_policy}
        config = {name: _plain(value) for name, value in values.items()}
        config["trainable"] = self.trainable
        inside = keras_private.sublayers(self, include_self=False)
        frozen = [number for number, layer in enumerate(inside) if not layer.trainable]
        return {**config, _FROZEN: frozen} if frozen and self.trainable else config

    @classmethod
    def from_config(cls, config):
        """Makes a layer from the result of `get_config`."""
        config = dict(config)
        trainable, frozen = config.pop("trainable", True), config.pop(_FROZEN, [])
        layer = cls(**{name: _value(plain) for name, plain in config.items()})
        layer.trainable = trainable
        inside = keras_private.sublayers(layer, include_self=False)
        for number in frozen:
            inside[number].trainable = False
        return layer


@dataclasses.dataclass
class _Recorded:
    """The arguments of a constructor, hidden from Keras' tracking of layers and variables."""

    arguments: dict[str, Any]


def _recording(init):
    """Returns a constructor that records its arguments and makes the seeds of dropout."""
    signature = inspect.signature(init)

    @functools.wraps(init)
    def wrapped(self, *args, **kwargs):
        if "_recorded" in vars(self):  # the call of a base class's constructor
            init(self, *args, **kwargs)
            return
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        _, *named = bound.arguments.items()
        arguments: dict[str, Any] = {}
        for name, value in named:
            options = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
            arguments |= value if options else {name: value}
        object.__setattr__(self, "_recorded", _Recorded(arguments))
        is_part = _PARTS.get()
        with parts():
            init(self, *args, **kwargs)
        if not is_part and "rng" in inspect.signature(self.call).parameters:
            self.seeds = keras.random.SeedGenerator(arguments.get("seed"))
        self.supports_masking = True

    wrapped.__signature__ = signature  # type: ignore[attr-defined]  # Keras reads the signature
    return wrapped


def _parts() -> dict[str, type]:
    """Returns {name: class} of configs and parts that describe layers."""
    of_blocks = *blocks.Part.__subclasses__(), *blocks.Positions.__subclasses__()
    kinds: tuple[type, ...] = (Initializers, *of_blocks)
    return {kind.__name__: kind for kind in kinds}


def _plain(value):
    """Converts an argument to JSON values."""
    if isinstance(value, strict.Tagged):
        return {"encoder_config": strict.to_dict(value)}
    if isinstance(value, blocks.Part | Initializers):
        fields = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"part": type(value).__name__, "fields": fields}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return {"tuple": [_plain(item) for item in value]}
    return keras.saving.serialize_keras_object(value)


def _value(plain):
    """Converts the JSON values of `_plain` back."""
    if isinstance(plain, dict) and plain.keys() == {"encoder_config"}:
        return strict.build_tagged(ENCODERS, plain["encoder_config"], "config", "encoder")
    if isinstance(plain, dict) and plain.keys() == {"part", "fields"}:
        return _parts()[plain["part"]](**_value(plain["fields"]))
    if isinstance(plain, dict) and plain.keys() == {"tuple"}:
        return tuple(_value(item) for item in plain["tuple"])
    if isinstance(plain, dict) and "class_name" not in plain:
        return {key: _value(item) for key, item in plain.items()}
    return keras.saving.deserialize_keras_object(plain)
