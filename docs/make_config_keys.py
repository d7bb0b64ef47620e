"""Writes docs/config-keys.md from the dataclasses of configs and of the files of model folders.

python -m docs.make_config_keys            # writes the page
python -m docs.make_config_keys --check    # the status is 1 if the page is out of date
"""

import dataclasses
import inspect
import json
import re
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from docs import generated_pages
from official.config import encoders, heads, parts, recipe, registry, segments, trainable
from official.config.late_interaction import Expansion, TokenIds
from official.config.sentence_embedding import Projection
from official.saving.embedding_settings import EmbeddingSettings
from official.saving.generation_settings import GenerationDefaults, Settings, Task
from official.tasks import Description, MixtureDescription
from official.utils import strict

PAGE = Path(__file__).with_name("config-keys.md")
_HEAD = """\
# Config keys

`python -m docs.make_config_keys` writes this page from docstrings.

All keys of [configs](configs.md), and those of the files of model folders. They change with a new
major version only. A key that is missing has its default; a value of another type is refused.
Capitals such as B, D and T stand for sizes. [Papers](papers.md) lists the papers.
"""
# What stands before a section.
_BEFORE = {
    "task.json": """\
## Files of model folders

`task.json` describes the task of the training data, as the manifests of shards do, and has the
`max_length` of its examples. `generation.json` has the defaults of [generation](generation.md).
`embedding.json` says how a text becomes a [vector](embeddings.md).
""",
}


def _types(key: str, table: Mapping[str, type]) -> dict[str, type]:
    return {f"{key}: {name}": part for name, part in table.items()}


# The parts that their `type` names: the key of a run, and the classes.
_TABLES: dict[type, tuple[str, Mapping[str, type]]] = {
    parts.CorruptionConfig: ("corruption", registry.CORRUPTIONS),
    parts.EncoderConfig: ("encoder", registry.ENCODERS),
    parts.ObjectiveConfig: ("objectives", registry.OBJECTIVES),
}
# The sections of the page: their headings, and what has the keys. Those with a colon or a point in
# the heading are below the one before them that has none.
SECTIONS: dict[str, type] = {
    "A run": parts.Config,
    "segments": segments.Segments,
    "corruption": parts.CorruptionConfig,
    **_types("corruption", registry.CORRUPTIONS),
    "encoder": parts.EncoderConfig,
    **_types("encoder", registry.ENCODERS),
    "encoder.disentangled": encoders.Disentangled,
    "encoder.convolution": encoders.Convolution,
    "encoder.local_attention": encoders.LocalAttention,
    "objectives": parts.ObjectiveConfig,
    **_types("objectives", registry.OBJECTIVES),
    "objectives.mix and output_mix": heads.Mix,
    "objectives.projection": Projection,
    "objectives.expansion": Expansion,
    "objectives.ids": TokenIds,
    "recipe": recipe.Recipe,
    "recipe.optimizer": recipe.Optimizer,
    "recipe.schedule": recipe.Schedule,
    "recipe.trainable": trainable.Trainable,
    "recipe.trainable.lora": trainable.LoRA,
    "phases": parts.Phase,
    "task.json": Description,
    "task.json of several tasks": MixtureDescription,
    "generation.json": GenerationDefaults,
    "generation.json: a task": Task,
    "generation.json: settings": Settings,
    "embedding.json": EmbeddingSettings,
}
_TITLES = {cls: title for title, cls in SECTIONS.items()}
_WORDS = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "text",
    types.NoneType: "null",
    Any: "any value",
}
_YAML = {"None": "`null`", "True": "`true`", "False": "`false`"}


def page() -> str:
    """Returns the text of the page."""
    return "\n".join([_HEAD, *("\n".join(_section(title)) for title in SECTIONS)])


def keys(cls: type) -> dict[str, dataclasses.Field]:
    """Returns the keys that files have of a dataclass."""
    return {field.name: field for field in dataclasses.fields(cls)}


def meaning(cls: type, key: str) -> str:
    """Returns what the docstring of a dataclass, or of one that it inherits from, says of a key.

    Raises:
      ValueError: none says anything.
    """
    for base in cls.__mro__:
        _, _, listed = (inspect.cleandoc(base.__doc__ or "")).partition("\nAttributes:\n")
        items = re.findall(r"^  (\w+): ((?:.*\n?)(?:    .*\n?)*)", listed, re.MULTILINE)
        if text := dict(items).get(key):
            return " ".join(text.split())
    raise ValueError(f"{cls.__name__}.{key} is in no docstring")


def _section(title: str) -> Iterator[str]:
    """Yields the lines of a section."""
    cls = SECTIONS[title]
    yield from filter(None, [_BEFORE.get(title)])
    yield f"{'###' if set(title) & set('.:') else '##'} {title}\n"
    if cls in _TABLES:
        key, table = _TABLES[cls]
        links = [f"[`{name}`]({_anchor(f'{key}: {name}')})" for name in table]
        yield f"The `type` is {', '.join(links[:-1])} or {links[-1]}.\n"
        return
    yield inspect.cleandoc(cls.__doc__ or "").partition("\nAttributes:\n")[0].strip() + "\n"
    yield "| key | type | default | meaning |\n|---|---|---|---|"
    hints = typing.get_type_hints(cls)
    for key, field in keys(cls).items():
        text = re.sub("|".join(_YAML), lambda word: _YAML[word[0]], meaning(cls, key))
        text = text.replace("|", r"\|").replace("<", "&lt;")
        yield f"| `{key}` | {_kind(hints[key])} | {_default(field)} | {text} |"
    yield ""


def _kind(hint: Any) -> str:
    """Returns the type of a key in words, with a link if it has keys of its own."""
    arguments = typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        return " or ".join(map(_kind, arguments))
    if typing.get_origin(hint) is tuple:
        return f"list of {_kind(arguments[0])}"
    if arguments:
        return f"mapping of names to {_kind(arguments[1])}"
    return f"[keys]({_anchor(_TITLES[hint])})" if hint in _TITLES else _WORDS[hint]


def _default(field: dataclasses.Field) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return f"`{json.dumps(field.default_factory())}`"
    if dataclasses.is_dataclass(field.default):
        return "see there"
    if field.default is dataclasses.MISSING:
        return "required"
    return f"`{json.dumps(strict.to_dict(field.default))}`"


def _anchor(title: str) -> str:
    """Returns the link to a heading."""
    return "#" + re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", title.lower()))


def main(arguments: list[str]) -> int:
    """Writes or checks the page; returns the status of the process."""
    return generated_pages.update(
        {PAGE: page()}, "docs.make_config_keys", check="--check" in arguments
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
