"""Finds the configs of `configs/` from any working directory."""

import difflib
import os
from collections.abc import Iterator
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


def names() -> list[str]:
    """Returns the names of the published configs, such as `configs/pretrain/bert_mini.yaml`."""
    return sorted({name for parent in _PARENTS for name in _names(parent)})


def nearest(path: str | os.PathLike) -> list[str]:
    """Returns the published configs, at most three, whose names are like that of a missing one."""
    by_stem: dict[str, list[str]] = {}
    for name in names():
        by_stem.setdefault(Path(name).stem, []).append(name)
    stem = paths.path(path).stem
    return [name for like in difflib.get_close_matches(stem, by_stem) for name in by_stem[like]][:3]


def _names(parent: Path) -> Iterator[str]:
    for path in parent.glob(f"{_FOLDER}/*/*.yaml"):
        yield path.relative_to(parent).as_posix()
