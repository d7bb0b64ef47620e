"""Encoder Garden: pretrained text encoders on TensorFlow 2 and Keras 3."""

import os
import typing

if typing.TYPE_CHECKING:
    import keras

    from official.fine_tuning import finetune, finetune_pairs, finetune_questions, finetune_tags
    from official.serving.keras_text import TextPreprocessor
    from official.serving.loaded_model import LoadedModel

__all__ = [
    "finetune",
    "finetune_pairs",
    "finetune_questions",
    "finetune_tags",
    "keras_encoder",
    "load",
]


def load(model_dir: str | os.PathLike, checkpoint: str = "best") -> "LoadedModel":
    """Loads a model folder: `official.load(DIR).encode(["some text"])` gives its vectors.

    Args:
      model_dir: made by training or by `official.convert`.
      checkpoint: `best` (the last, where no evaluation named one), `last`, a step or a path.

    Raises:
      UserError: it is not a model folder, or its parts do not fit together.
    """
    # Imported here: `import official` stays light.
    from official.utils import quiet_import

    quiet_import.install(log_level=None)
    from official.serving import loaded_model

    return loaded_model.load(model_dir, checkpoint)


def keras_encoder(
    model_dir: str | os.PathLike,
    checkpoint: str = "best",
    *,
    max_length: int | None = None,
    pad: bool = False,
    name: str = "encoder",
    dtype: "str | keras.DTypePolicy | None" = None,
) -> "tuple[keras.Layer, TextPreprocessor]":
    """Loads the encoder of a model folder as a Keras layer, with a layer that reads text for it.

    `encoder(**preprocess(texts))` gives a dict with `sequence_output` [B, T, D], and with
    `pooled_output` [B, D] if the encoder has a pooler.

    Args:
      model_dir: as for `load`.
      checkpoint: as for `load`.
      max_length: longer texts are cut to this number of tokens; None = that of the model folder.
      pad: whether all rows have `max_length` tokens; otherwise they are as long as the longest.
      name: the name of the encoder, which differs between the layers of a Keras model.
      dtype: Keras dtype policy of the encoder, such as `mixed_bfloat16`; None = the global one.

    Returns:
      The encoder and the preprocessing layer.

    Raises:
      UserError: it is not a model folder, or its parts do not fit together; `max_length` is out of
        range.
    """
    from official.utils import quiet_import

    quiet_import.install(log_level=None)
    from official.serving import keras_text

    return keras_text.keras_encoder(
        model_dir, checkpoint, max_length=max_length, pad=pad, name=name, dtype=dtype
    )


def __getattr__(name: str) -> typing.Any:
    """Imports `finetune` and its twins when they are used: `import official` stays light."""
    if name in __all__:  # and not defined above
        from official.utils import quiet_import

        # Training prints what it does, as the commands do: TensorFlow's notices, a thousand of them
        # in a short run, are left out unless the user has set a level.
        quiet_import.install()
        from official import fine_tuning

        return getattr(fine_tuning, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
