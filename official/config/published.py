"""Finds the configs of `configs/` from any working directory."""

import os
from pathlib import Path

from official.utils import paths
from official.utils.paths import AnyPath

_FOLDER = "configs"
_PACKAGE = Path(__file__).resolve().parents[1]
# Where an installation has the folder, and where a checkout has it.
_PARENTS = (_PACKAGE, _PACKAGE.parent)


def find(path: str | os.PathLike) -> AnyPath:
    """Returns the file of a config.

    A path that exists is itself. A relative one that starts with `configs/`, such as
    `configs/pretrain/bert_mini.yaml`, may also be a published config, in the installed package or
    in the checkout that this module belongs to.
    """
    path = paths.path(path)
    if path.exists() or path.is_absolute() or path.parts[:1] != (_FOLDER,):
        return path
    return next((p for parent in _PARENTS if (p := parent / path).is_file()), path)
