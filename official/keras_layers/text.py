"""The encoder and the tokenizer of a model folder as Keras layers.

Shapes: B texts, T tokens of the longest one, C characters of a word.
"""

import base64
import dataclasses
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from official import tokenizers
from official.config.registry import module_of
from official.conversion.any_folder import open_folder
from official.modeling.layers.random import PACKAGE
from official.saving import named_arrays
from official.saving.served_model import check_max_length
from official.tokenizers import pair_packing, utf8, word_characters
from official.tokenizers.pair_packing import PAD_SEGMENT
from official.utils import keras_private
from official.utils.errors import UserError

_ENCODER = "encoder/"


def keras_encoder(
    model_dir: str | os.PathLike,
    checkpoint: str = "best",
    *,
    max_length: int | None = None,
    pad: bool = False,
    name: str = "encoder",
    dtype: "str | keras.DTypePolicy | None" = None,
    pooler: bool = True,
) -> tuple[keras.Layer, "TextPreprocessor"]:
    """Loads the encoder of a model folder as a Keras layer, with a layer that reads text for it.

    `encoder(**preprocess(texts))` gives a dict with `sequence_output` [B, T, D], and with
    `pooled_output` [B, D] if the encoder has a pooler.

    Example:
    ```python
    encoder, preprocess = official.keras_encoder("run/pretrained", max_length=64)
    states = encoder(**preprocess(["raw text"]))["sequence_output"]
    ```

    Args:
      model_dir: as for `official.load`.
      checkpoint: as for `official.load`.
      max_length: longer texts are cut to this number of tokens; None = that of the model folder.
      pad: whether all rows have `max_length` tokens; otherwise they are as long as the longest.
      name: the name of the encoder, which differs between the layers of a Keras model.
      dtype: Keras dtype policy of the encoder, such as `mixed_bfloat16`; None = the global one.
      pooler: False = the encoder is made without its pooler, for those who read `sequence_output`
        alone. Keras warns of weights that no loss depends on.

    Returns:
      The encoder and the preprocessing layer.

    Raises:
      UserError: it is not a model folder, or its parts do not fit together; `max_length` is out of
        range.
    """
    folder = open_folder(model_dir, checkpoint)
    config = folder.config
    variables, source = folder.variables()
    settings = config.encoder
    if settings.pooler and not pooler:
        settings = dataclasses.replace(settings, pooler=False)
    encoder = module_of(settings).Encoder(settings, seed=config.seed, name=name, dtype=dtype)
    with keras_private.uninitialized_variables():
        encoder.build()
    made = {_ENCODER + v.path.removeprefix(f"{name}/"): v for v in encoder.weights}
    named_arrays.initialize(made, variables, source)
    if max_length is None:
        max_length = folder.max_length
    check_max_length(max_length, config.encoder)
    return encoder, TextPreprocessor(
        folder.tokenizer, max_length=max_length, layout=config.encoder.text_layout, pad=pad
    )


@keras.saving.register_keras_serializable(PACKAGE)
class TextPreprocessor(keras.Layer):
    """Turns raw texts into the arguments of an encoder: `encoder(**preprocess(texts))`.

    In a `keras.Model` it needs the TensorFlow backend, as all that reads text does. With the other
    backends it is called outside the model, on lists of texts (the result are numpy arrays) or in
    `tf.data.Dataset.map`. A saved model contains the files of the tokenizer.

    Call arguments:
        texts: a list of texts, or strings [B].
        second: the second texts of pairs, likewise; None = there are none.

    A call returns a dict with `token_ids` int32 [B, T], `segment_ids` int32 [B, T], `padding_mask`
    bool [B, T], and with the tokenizer of ELMo `character_ids` int32 [B, T, C].
    """

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        *,
        max_length: int,
        layout: str = "cls_first",
        pad: bool = False,
        name: str = "preprocess",
    ):
        """Describes the layer.

        Args:
            tokenizer: a tokenizer of `official.tokenizers`.
            max_length: the maximum number of tokens of a row, special tokens included. Longer
                texts are cut.
            layout: the layout of rows, `text_layout` of the encoder's config.
            pad: whether all rows have `max_length` tokens; otherwise T is that of the longest row.
                JAX compiles a model again for each T.
            name: the name of the layer.
        """
        super().__init__(name=name, dtype="int32")
        self.tokenizer = tokenizer
        self.splitter = tokenizer.module()  # what an export tracks
        self.max_length = max_length
        self.layout = layout
        self.pad = pad
        self.supports_jit = False

    def __call__(self, texts: Any, second: Any = None, **options: Any) -> dict[str, Any]:
        """Turns texts into arguments: see the class; `options` are those of any Keras layer."""
        given = [text for text in (texts, second) if text is not None]
        if any(isinstance(text, str | bytes) for text in given):
            raise UserError(f"{self.name}: give a list of texts, such as [text]")
        if any(isinstance(text, keras.KerasTensor) for text in given):
            if keras.backend.backend() != "tensorflow":
                raise UserError(
                    f"{self.name}: text inside a keras.Model needs KERAS_BACKEND=tensorflow: call "
                    "this layer on the texts before the model, or in tf.data.Dataset.map"
                )
            return super().__call__(*given, **options)
        strings = [tf.convert_to_tensor(text, tf.string) for text in given]
        if keras.backend.backend() == "tensorflow":
            return super().__call__(*strings, **options)
        outputs = self.call(*strings)
        return (
            {name: x.numpy() for name, x in outputs.items()} if tf.executing_eagerly() else outputs
        )

    def call(self, texts: tf.Tensor, second: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        """Packs texts [B]: see the class."""
        given = [utf8.valid(text) for text in (texts, second) if text is not None]
        batch = pair_packing.pack_texts(given, self.tokenizer, self.max_length, self.layout)
        return self._padded(batch) if self.pad else batch

    def _padded(self, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns rows of `max_length` tokens, with padding on the side of the layout."""
        missing = self.max_length - tf.shape(batch["token_ids"])[1]
        left = self.layout == "cls_last"
        values = {"token_ids": self.tokenizer.pad_id, "segment_ids": PAD_SEGMENT if left else 0}

        def padded(name: str, x: tf.Tensor) -> tf.Tensor:
            side = [missing, 0] if left else [0, missing]
            widths = [[0, 0], side, *[[0, 0]] * (len(x.shape) - 2)]
            constant = tf.cast(values.get(name, 0), x.dtype)
            padded = tf.pad(x, widths, constant_values=constant)
            return tf.ensure_shape(padded, [None, self.max_length, *x.shape[2:]])

        return {name: padded(name, x) for name, x in batch.items()}

    def compute_output_spec(self, texts: Any, second: Any = None) -> dict[str, Any]:
        """Returns the shapes and dtypes of the outputs."""
        del second
        shape = (texts.shape[0], self.max_length if self.pad else None)
        spec = {
            "token_ids": keras.KerasTensor(shape, "int32"),
            "segment_ids": keras.KerasTensor(shape, "int32"),
            "padding_mask": keras.KerasTensor(shape, "bool"),
        }
        if self.tokenizer.reads_words:
            spec["character_ids"] = keras.KerasTensor((*shape, word_characters.WIDTH), "int32")
        return spec

    def get_config(self) -> dict[str, Any]:
        """Returns the files of the tokenizer, in base 64, and the settings."""
        with tempfile.TemporaryDirectory() as folder:
            self.tokenizer.save(folder)
            files = {
                path.name: base64.b64encode(path.read_bytes()).decode()
                for path in sorted(Path(folder).iterdir())
            }
        return {
            "files": files,
            "max_length": self.max_length,
            "layout": self.layout,
            "pad": self.pad,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "TextPreprocessor":
        """Makes a layer from the result of `get_config`.

        Raises:
          UserError: the files are not those of a tokenizer.
        """
        settings = dict(config)
        with tempfile.TemporaryDirectory() as folder:
            for name, content in settings.pop("files").items():
                if Path(name).name != name:
                    raise UserError(f"{name!r}: not the name of a file of a tokenizer")
                (Path(folder) / name).write_bytes(base64.b64decode(content))
            return cls(tokenizers.load(folder), **settings)
