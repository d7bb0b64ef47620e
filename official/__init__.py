"""Encoder Garden: pretrained text encoders on TensorFlow 2 and Keras 3."""

import os
import typing

if typing.TYPE_CHECKING:
    from official.serving.loaded_model import LoadedModel


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
