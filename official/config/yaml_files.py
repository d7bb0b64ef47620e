"""Reads YAML that a user wrote, and finds the configs of `configs/` from any working directory.

A file is safe YAML in which no key is given twice, and has a bounded number of values.
"""

import difflib
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from official.utils import paths
from official.utils.paths import AnyPath

_MAX_VALUES = 100_000
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


def published() -> list[str]:
    """Returns the names of the published configs, such as `configs/pretrain/bert_mini.yaml`."""
    return sorted({name for parent in _PARENTS for name in _names(parent)})


def similar(path: str | os.PathLike) -> list[str]:
    """Returns the published configs, at most three, whose names are like that of a missing one."""
    by_stem: dict[str, list[str]] = {}
    for name in published():
        by_stem.setdefault(Path(name).stem, []).append(name)
    stem = paths.path(path).stem
    return [name for like in difflib.get_close_matches(stem, by_stem) for name in by_stem[like]][:3]


def _names(parent: Path) -> Iterator[str]:
    for path in parent.glob(f"{_FOLDER}/*/*.yaml"):
        yield path.relative_to(parent).as_posix()


class _Loader(yaml.SafeLoader):
    """Safe YAML that refuses a key given twice."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=deep)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} is given twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def parse(text: str) -> Any:
    """Returns the value of a YAML document; None for an empty one.

    Raises:
      yaml.YAMLError: the text is not one YAML document, or its aliases stand for too many values.
    """
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is not None and _expanded_size(node, {}) > _MAX_VALUES:
            raise yaml.YAMLError(f"its aliases stand for more than {_MAX_VALUES:,} values")
        return None if node is None else loader.construct_document(node)
    except yaml.YAMLError:
        raise
    except RecursionError:
        raise yaml.YAMLError("it is nested too deep") from None
    except Exception as error:  # PyYAML's constructors let many kinds through
        raise yaml.YAMLError(f"a value cannot be read ({error})") from None
    finally:
        loader.dispose()


def _expanded_size(node: yaml.Node, sizes: dict[yaml.Node, float]) -> float:
    """Returns how many values a node stands for when its aliases are written out."""
    if node not in sizes:
        sizes[node] = math.inf  # an alias to a node within itself has no end
        children = () if isinstance(node, yaml.ScalarNode) else node.value
        pairs = (child if isinstance(child, tuple) else (child,) for child in children)
        sizes[node] = 1 + sum(_expanded_size(item, sizes) for pair in pairs for item in pair)
    return sizes[node]
