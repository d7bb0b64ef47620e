"""What all folders of sentence-transformers have, read and written.

`modules.json` names a chain of modules, such as Transformer, Pooling and Normalize, each by the
path of its class. Version 6 has other packages than versions before it, so the name of the class
counts. `config_sentence_transformers.json` has the settings of the whole model. Its `model_type`
tells the kinds of models apart, and `sentence_bert_config.json` belongs to the Transformer.

A Router sends queries and documents through two chains, which `router_config.json` has.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from official.conversion.converted_model import Converted
from official.saving.embedding_settings import PROMPTS
from official.utils import json_files, strict
from official.utils.errors import UserError
from official.utils.paths import AnyPath

MODULES = "modules.json"
SETTINGS = "config_sentence_transformers.json"
TRANSFORMER = "sentence_bert_config.json"
CARD = "README.md"
ROUTER = "router_config.json"
ROUTER_TYPE = "sentence_transformers.base.modules.router.Router"
# Versions before 1 write the name of the model's family into the name of the last file.
_LENGTHS = "sentence_*_config.json"
_TOKENIZER = "tokenizer_config.json"
# What the network returns, and what the modules call it, by the task of the Transformer.
_OUTPUTS = {
    "feature-extraction": ("last_hidden_state", "token_embeddings"),
    "sequence-classification": ("logits", "scores"),
    "fill-mask": ("logits", "token_embeddings"),
}
DEFAULT_TYPE = "SentenceTransformer"  # folders of versions before 5 do not name the kind


@dataclasses.dataclass(frozen=True)
class Module:
    """A module of a folder.

    Attributes:
      type: the path of its class.
      path: the folder of its files.
    """

    type: str
    path: AnyPath

    @property
    def name(self) -> str:
        """The name of its class, such as Pooling."""
        return self.type.rpartition(".")[2]


@dataclasses.dataclass(frozen=True)
class Folder:
    """A folder of sentence-transformers.

    Attributes:
      path: the folder.
      modules: its modules, in their order; empty = it has no `modules.json`. Those of a Router are
        those of documents.
      settings: the settings of the whole model; empty if there are none.
      queries: the modules of queries, if a Router sends these to others.
    """

    path: AnyPath
    modules: Sequence[Module]
    settings: Mapping[str, Any]
    queries: Sequence[Module] = ()

    @property
    def model_type(self) -> str:
        """The kind of the model, as its settings have it."""
        return self.settings.get("model_type") or DEFAULT_TYPE

    @property
    def chain(self) -> tuple[str, ...]:
        """The names of the classes of the modules."""
        return tuple(module.name for module in self.modules)

    @property
    def source(self) -> str:
        """The file of the settings, for messages."""
        return str(self.path / SETTINGS)

    def place(self, name: str) -> AnyPath:
        """Returns the folder of the first module of a class; without one, that of all files."""
        every = (*self.modules, *self.queries)
        return next((module.path for module in every if module.name == name), self.path)

    def prompts(self) -> dict[str, str]:
        """Returns the prompts by name.

        Raises:
          UserError: they are no texts.
        """
        given = self.settings.get("prompts")
        return {**(strict.typed(Mapping[str, str] | None, given, "prompts", self.source) or {})}

    def transformer(self) -> tuple[Mapping[str, Any], str]:
        """Reads the settings of the Transformer, if there is one; returns them and their file."""
        place = self.place("Transformer")
        files: list[AnyPath] = sorted(place.glob(_LENGTHS))
        return (optional(files[0]), str(files[0])) if files else ({}, str(place / TRANSFORMER))


def read(path: AnyPath) -> Folder:
    """Reads what a folder says of its modules, if it says anything.

    Raises:
      UserError: a file is damaged.
    """
    source = path / MODULES
    listed = json_files.read(source, kind=list) if source.is_file() else []
    if source.is_file() and not listed:
        raise UserError(f"{source}: there are no modules in it")
    modules = []
    for module in strict.typed(tuple[Mapping[str, Any], ...], listed, "modules", str(source)):
        kind, place = (
            strict.typed(str, module.get(name), name, str(source)) for name in ("type", "path")
        )
        modules.append(Module(kind, path / PurePosixPath(place).name))
    settings = optional(path / SETTINGS)
    if [module.name for module in modules] != ["Router"]:
        return Folder(path, modules, settings)
    queries, documents = _routes(modules[0].path)
    return Folder(path, documents, settings, queries)


def _routes(path: AnyPath) -> tuple[Sequence[Module], Sequence[Module]]:
    """Reads the modules of queries and of documents of a Router, whose folder is `path`."""
    source = str(path / ROUTER)
    config = json_files.read(path / ROUTER)
    types = strict.typed(Mapping[str, str], config.get("types"), "types", source)
    hint = Mapping[str, tuple[str, ...]]
    routes = strict.typed(hint, config.get("structure"), "structure", source)
    mappings = (config.get("parameters") or {}).get("route_mappings")
    if routes.keys() != {*PROMPTS} or mappings:
        raise UserError(
            f"{source}: the routes are {', '.join(routes)}"
            f"{' with route_mappings' if mappings else ''}: those of query and document are "
            "supported"
        )
    if missing := [place for each in routes.values() for place in each if place not in types]:
        raise UserError(f"{source}: types: {missing[0]}: missing")
    queries, documents = (
        [Module(types[place], path / PurePosixPath(place).name) for place in routes[kind]]
        for kind in PROMPTS
    )
    return queries, documents


def optional(path: AnyPath) -> Mapping[str, Any]:
    """Reads a file of settings; empty if there is none."""
    return json_files.read(path) if path.is_file() else {}


def write(
    path: AnyPath,
    modules: Sequence[tuple[str, str]],
    settings: Mapping[str, Any],
    transformer: Mapping[str, Any] | None = None,
) -> None:
    """Writes the files that all kinds have, and the folders of the modules.

    Args:
      path: the folder, which exists.
      modules: the class of each module with its packages, and its folder; "" = `path`.
      settings: the content of `config_sentence_transformers.json`.
      transformer: the content of `sentence_bert_config.json`; None = there is no Transformer.
    """
    listed = [
        {"idx": i, "name": str(i), "path": place, "type": kind}
        for i, (kind, place) in enumerate(modules)
    ]
    for _, place in modules:
        (path / place).mkdir(exist_ok=True)
    for name, value in {MODULES: listed, TRANSFORMER: transformer, SETTINGS: settings}.items():
        if value is not None:
            write_json(path / name, value)


def write_router(
    path: AnyPath, routes: Mapping[str, Sequence[tuple[str, str]]], settings: Mapping[str, Any]
) -> None:
    """Writes the files of a folder whose one module is a Router, and the folders of its modules.

    Args:
      path: the folder, which exists.
      routes: the modules of `query` and `document`, each its class and its folder.
      settings: as of `write`.
    """
    write(path, [(ROUTER_TYPE, "")], settings)
    for place in (place for each in routes.values() for _, place in each):
        (path / place).mkdir()
    config = {
        "types": {place: kind for each in routes.values() for kind, place in each},
        "structure": {name: [place for _, place in each] for name, each in routes.items()},
        "parameters": {"default_route": "document", "allow_empty_key": True, "route_mappings": {}},
    }
    write_json(path / ROUTER, config)


def transformer(task: str) -> dict[str, Any]:
    """Returns the settings of a Transformer as version 6 writes them, by its `transformer_task`."""
    output, name = _OUTPUTS[task]
    form = {"method": "forward", "method_output_name": output}
    return {
        "transformer_task": task,
        "modality_config": {"text": form},
        "module_output_name": name,
    }


def write_card(path: AnyPath, tags: Sequence[str], pipeline: str, text: str) -> None:
    """Writes `README.md`.

    Args:
      path: the folder.
      tags: its tags, beside that of the library.
      pipeline: the task of the model in the words of Hugging Face.
      text: what follows its front matter.
    """
    listed = "".join(f"- {tag}\n" for tag in ("sentence-transformers", *tags))
    front = f"tags:\n{listed}pipeline_tag: {pipeline}\nlibrary_name: sentence-transformers\n"
    (path / CARD).write_text(f"---\n{front}---\n\n{text}", "utf-8")


def write_json(path: AnyPath, value: Any) -> None:
    """Writes a file of settings."""
    path.write_text(json.dumps(value, indent=2) + "\n", "utf-8")


def max_length(folder: Folder, converted: Converted) -> int:
    """Returns the number of tokens to which the Transformer of a folder cuts texts.

    Args:
      folder: the folder.
      converted: the model of its Transformer.

    Raises:
      UserError: a setting is not supported.
    """
    config, source = folder.transformer()
    if config.get("do_lower_case") and not getattr(converted.tokenizer, "lower_case", False):
        raise UserError(
            f"{source}: do_lower_case is true, but the tokenizer keeps capitals: set do_lower_case "
            f"in {_TOKENIZER} to true, or this to false and lower-case the texts"
        )
    positions = converted.config.encoder.max_positions
    length = config.get("max_seq_length")
    if length is None:
        settings = optional(folder.place("Transformer") / _TOKENIZER)
        length, source = settings.get("model_max_length"), _TOKENIZER
        length = positions if length is None else int(length)
    return min(strict.typed(int, length, "max_seq_length", source), positions)
