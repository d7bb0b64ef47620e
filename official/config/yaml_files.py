"""Reads the YAML of configs: strict, with `base:`, and from `configs/` in any working directory.

A file is safe YAML without duplicate keys and with a bounded number of values. It may name another
config as its base and have only the lines that differ:

  base: t5_base.yaml      # relative to this file, or a published name (configs/...)
  name: t5_large
  encoder:
    hidden_size: 1024

Mappings are merged key by key, at all depths; lists and values replace those of the base. `null`
removes a key of the base, so that it has its default. A mapping whose `type` differs from that of
the base (or is missing there) is not merged: it replaces the mapping of the base.
"""

import dataclasses
import difflib
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from official.utils import checksums, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

_MAX_VALUES = 100_000
_MAX_BYTES = 1 << 20
_BASE = "base"
_MAX_FILES = 10  # the largest number of files of a config and its bases
# The beginning of the first line of a saved config, before the checksum of the rest.
_SEAL = "# SHA-256 of the text below: "


@dataclasses.dataclass
class Document:
    """The plain values of a config, and their lines in files.

    Attributes:
      path: the file.
      values: the values, with those of its bases.
      lines: `FILE:LINE` of each dotted key.
    """

    path: AnyPath
    values: dict[str, Any]
    lines: dict[str, str]

    def override(self, key: str) -> None:
        """Records that the value of a key comes from an override, not from a line of a file."""
        self.lines = {k: v for k, v in self.lines.items() if not f"{k}.".startswith(f"{key}.")}
        self.lines[key] = str(self.path)

    def located(self, message: str) -> str:
        """Returns a message `PATH: KEY: ...` with the file and line of the key, if it has one."""
        begin = f"{self.path}: "
        if not message.startswith(begin):
            return message
        rest = message.removeprefix(begin)
        key = rest.split(": ")[0]
        while key and key not in self.lines:
            key = key.rpartition(".")[0]
        return f"{self.lines[key]}: {rest}" if key else message


def read(path: str | os.PathLike) -> Document:
    """Reads a config file, and those that it is based on.

    Args:
      path: a YAML file, a folder with a `config.yaml`, or the name of a published config.

    Raises:
      UserError: a file is missing, is not YAML, was changed since it was saved, or is its own base.
    """
    path = find(path)
    if path.is_dir():
        path = path / "config.yaml"
    return _read(path, ())


def _read(path: AnyPath, above: tuple[AnyPath, ...], named: str = "") -> Document:
    """Reads a config.

    Args:
      path: the file.
      above: the files that have it as a base, the outermost first.
      named: the place where the last of these files names it, for messages.
    """
    named = f"{named}: base: " if named else ""
    if not path.exists():
        like = similar(path)
        hint = f"; is it {' or '.join(like)}?" if like else "; --list_configs prints the published"
        raise UserError(f"{named}{path}: no such config file{hint}")
    if any(_same(path, each) for each in above):
        chain = " → ".join(map(str, [*above, path]))
        raise UserError(f"{named}a config may not be its own base: {chain}")
    if len(above) >= _MAX_FILES:
        raise UserError(f"{named}{path}: a config and its bases may be at most {_MAX_FILES} files")
    try:
        text = paths.read_bytes(path, _MAX_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 ({error})") from None
    _check_seal(text, path)
    try:
        node = _node(text)
        values = None if node is None else _construct(node)
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not YAML: {error}") from None
    if node is None or not isinstance(values, dict):
        raise UserError(f"{path}: a config is a mapping, such as `name: my_run`")
    lines = {key: f"{path}:{line}" for key, line in _lines(node)}
    if _BASE not in values:
        return Document(path, values, lines)
    base = values.pop(_BASE)
    if not isinstance(base, str) or not base:
        raise UserError(f"{lines[_BASE]}: base: {base!r}: expected the name of a config file")
    beside = path.parent / base
    found = beside if beside.exists() or not base.startswith(f"{_FOLDER}/") else find(base)
    under = _read(found, (*above, path), lines.pop(_BASE))
    document = Document(path, under.values, under.lines)
    _merge(document, document.values, values, lines, "")
    return document


def _merge(
    document: Document, base: dict, values: dict, lines: dict[str, str], prefix: str
) -> None:
    """Merges the values of a config, and their lines, into those of its base."""
    for name, value in values.items():
        key = f"{prefix}{name}"
        under = base.get(name)
        if isinstance(under, dict) and isinstance(value, dict):
            if "type" not in value or value["type"] == under.get("type"):
                document.lines[key] = lines.get(key, str(document.path))
                base[name] = dict(under)  # a copy, since an alias may share the mapping
                _merge(document, base[name], value, lines, f"{key}.")
                continue
        document.override(key)
        document.lines |= {k: v for k, v in lines.items() if f"{k}.".startswith(f"{key}.")}
        if value is None and name in base:
            del base[name]
        else:
            base[name] = value


def _same(a: AnyPath, b: AnyPath) -> bool:
    """Returns whether two paths name one file; links and `..` of local paths are resolved."""
    return a.resolve() == b.resolve() if isinstance(a, Path) else str(a) == str(b)


def _lines(node: yaml.Node, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Yields each dotted key of a document with its line, from 1."""
    if isinstance(node, yaml.MappingNode):
        items = [(key.value, key, value) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        items = [(str(i), value, value) for i, value in enumerate(node.value)]
    else:
        return
    for name, key, value in items:
        yield f"{prefix}{name}", key.start_mark.line + 1
        yield from _lines(value, f"{prefix}{name}.")


def seal(text: str) -> str:
    """Returns the first line of a saved config, with the checksum of the text below it."""
    return f"{_SEAL}{checksums.hash_bytes(text.encode())}"


def _check_seal(text: str, path: AnyPath) -> None:
    """Refuses a file that was saved with a checksum and has changed since."""
    first, _, rest = text.partition("\n")
    if first.startswith(_SEAL) and first != seal(rest):
        raise UserError(
            f"{path}: the text below its first line does not match the checksum: copy the file "
            "again; if it was changed on purpose, remove the first line"
        )


_FOLDER = "configs"
_PACKAGE = Path(__file__).resolve().parents[1]
# The parent of `configs/` in an installation and in a checkout.
_PARENTS = (_PACKAGE, _PACKAGE.parent)


def find(path: str | os.PathLike) -> AnyPath:
    """Returns the file of a config.

    A path that exists is returned. A relative one that starts with `configs/`, such as
    `configs/pretrain/bert_mini.yaml`, may also be a published config, in the installed package or
    in the checkout that this module belongs to.
    """
    path = paths.path(path)
    if path.exists() or path.is_absolute() or not str(path).startswith(f"{_FOLDER}/"):
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
        if path.parent.name != "studies":  # files of `experiments.study`, not configs
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
      yaml.YAMLError: the text is not one YAML document, or its aliases expand to too many values.
    """
    node = _node(text)
    return None if node is None else _construct(node)


def _node(text: str) -> yaml.Node | None:
    """Returns the node of the only document of a text, without constructing values."""
    return _guarded(lambda loader: loader.get_single_node(), text)


def _construct(node: yaml.Node) -> Any:
    """Returns the value of a document."""
    if _guarded(lambda loader: _expanded_size(node, {})) > _MAX_VALUES:
        raise yaml.YAMLError(f"its aliases expand to more than {_MAX_VALUES:,} values")
    return _guarded(lambda loader: loader.construct_document(node))


def _guarded(function: Callable[[_Loader], Any], text: str = "") -> Any:
    """Calls a function with a loader of `text`; turns all errors into YAML errors."""
    loader = _Loader(text)
    try:
        return function(loader)
    except yaml.YAMLError:
        raise
    except RecursionError:
        raise yaml.YAMLError("it is nested too deep") from None
    except Exception as error:  # PyYAML's constructors raise exceptions of many kinds
        raise yaml.YAMLError(f"a value cannot be read ({error})") from None
    finally:
        loader.dispose()


def _expanded_size(node: yaml.Node, sizes: dict[yaml.Node, float]) -> float:
    """Returns the number of values of a node after expansion of its aliases."""
    if node not in sizes:
        sizes[node] = math.inf  # an alias to a node within itself expands without end
        children = () if isinstance(node, yaml.ScalarNode) else node.value
        pairs = (child if isinstance(child, tuple) else (child,) for child in children)
        sizes[node] = 1 + sum(_expanded_size(item, sizes) for pair in pairs for item in pair)
    return sizes[node]
