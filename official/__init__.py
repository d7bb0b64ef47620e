"""Encoder Garden: pretrained text encoders on TensorFlow 2 and Keras 3.

The names of `__all__` are stable: they change with a new major version only. They are imported
when they are used, so `import official` is light.
"""

import importlib
import os
import sys
import types
import typing

from official.utils import callbacks

if typing.TYPE_CHECKING:
    from official import config
    from official.conversion.run import convert
    from official.evaluation.run import evaluate, predict
    from official.fine_tuning import finetune, finetune_pairs, finetune_questions, finetune_tags
    from official.keras_layers.text import keras_encoder
    from official.serving.export.exports import export
    from official.serving.loading import load
    from official.training.run import train
    from official.utils.errors import UserError

__all__ = [
    "UserError",
    "config",
    "convert",
    "evaluate",
    "export",
    "finetune",
    "finetune_pairs",
    "finetune_questions",
    "finetune_tags",
    "keras_encoder",
    "load",
    "predict",
    "train",
]

# The module of each name that is not a module itself.
_MODULES = {
    "UserError": "official.utils.errors",
    "convert": "official.conversion.run",
    "evaluate": "official.evaluation.run",
    "export": "official.serving.export.exports",
    "finetune": "official.fine_tuning",
    "finetune_pairs": "official.fine_tuning",
    "finetune_questions": "official.fine_tuning",
    "finetune_tags": "official.fine_tuning",
    "keras_encoder": "official.keras_layers.text",
    "load": "official.serving.loading",
    "predict": "official.evaluation.run",
    "train": "official.training.run",
}
# TensorFlow's notices, a thousand of them in a short run, are left out unless the user has set a
# level. TensorFlow reads it when it is imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def __getattr__(name: str) -> typing.Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name not in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    from official.utils import quiet_import

    quiet_import.install()
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def _convert(*arguments: typing.Any, **options: typing.Any) -> str:
    return __getattr__("convert")(*arguments, **options)


callbacks.convert = _convert


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(types.ModuleType):
    """Keeps functions when the modules of commands with the same names are imported."""

    def __setattr__(self, name: str, value: typing.Any) -> None:
        if not (name in _MODULES and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
