"""Folders of late interaction: vectors of tokens, by the objective `late_interaction`.

The modules are a Transformer, a Dense for each token, a MultiVectorMask with the skipped words of
documents, and a Normalize. PyLate's folders have the first two, and the rest in the settings; they
are read, and written as those of sentence-transformers 6. A model that is read has the weight 0: it
is searched with, and trained further with a config of its own.

Shapes: I input and O output of the Dense.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from typing_extensions import override

from official import config as configs
from official.config.late_interaction import Expansion, LateInteractionConfig
from official.conversion.converted_model import Converted
from official.conversion.sentence_transformers import dense
from official.conversion.sentence_transformers import folder as folders
from official.conversion.sentence_transformers.folder import Folder
from official.conversion.sentence_transformers.kind import Kind, ReadModel, with_objective, without
from official.saving.model_folder import ModelFolder
from official.saving.text_vectors import PROMPTS
from official.utils import strict
from official.utils.errors import UserError
from official.utils.paths import AnyPath

_BASE, _OWN = "sentence_transformers.base.modules.", "sentence_transformers.multi_vector_encoder."
_MODULES = {
    "Transformer": f"{_BASE}transformer.Transformer",
    "Dense": f"{_BASE}dense.Dense",
    "MultiVectorMask": f"{_OWN}modules.multi_vector_mask.MultiVectorMask",
    "Normalize": f"{_BASE}normalize.Normalize",
}
_TOKENS = "token_embeddings"
_SIMILARITIES = {False: "maxsim", True: "meanmaxsim"}
_KERNEL = f"{LateInteractionConfig.type}/projection/kernel"
_TAGS, _PIPELINE = ("multi-vector", "colbert", "late-interaction"), "feature-extraction"
_USE = """# {name}

A model of late interaction: a vector for each token, compared by MaxSim. Documents of more than
{length} tokens are cut.

```python
from sentence_transformers import MultiVectorEncoder

model = MultiVectorEncoder("{name}")
queries = model.encode_query(["a query"])
documents = model.encode_document(["one document", "another"])
model.similarity(queries, documents)
```
"""


class MultiVectorEncoder(Kind):
    """A model with vectors of tokens."""

    model_type = "MultiVectorEncoder"
    chains = tuple(
        ("Transformer", *middle, "MultiVectorMask", "Normalize") for middle in (("Dense",), ())
    )
    modules = "Transformer, perhaps Dense, MultiVectorMask and Normalize, in this order,"
    reads = ("query_length", "document_length", "query_expansion")

    @override
    def read(self, folder: Folder, read_model: ReadModel) -> Converted:
        converted = read_model(folder.place("Transformer"))
        length = folders.max_length(folder, converted)
        converted.tokenizer.max_tokens = length
        values = self._settings(folder)
        variables: dict[str, np.ndarray] = {}
        if "Dense" in folder.chain:
            projection, arrays = dense.read(folder.place("Dense"))
            if projection.bias or projection.activation is not None:
                raise UserError(
                    f"{folder.place('Dense')}: a projection of tokens has no bias and no "
                    "activation here"
                )
            variables[_KERNEL] = arrays["kernel"]
            values["size"] = projection.size
        else:
            values["size"] = None
        if values["expansion"] is not None and _pads_left(folder.place("Transformer")):
            raise UserError(
                f"{folder.source}: query_expansion: not supported with padding_side: left, which "
                "puts the added tokens before the query"
            )
        objective = strict.build(LateInteractionConfig, {**values, "weight": 0.0}, folder.source)
        return with_objective(converted, objective.with_ids(converted.tokenizer), variables)

    def _settings(self, folder: Folder) -> dict[str, Any]:
        """Returns the settings of the objective that are not those of the Dense."""
        prompts, (settings, source) = folder.prompts(), folder.transformer()
        for name, module in (("MultiVectorMask", _mask), ("Normalize", _normalize)):
            path = folder.place(name) / "config.json"
            module(folders.optional(path), str(path))
        mask = folders.optional(folder.place("MultiVectorMask") / "config.json")
        similarity = folder.settings.get("similarity_fn_name") or _SIMILARITIES[False]
        if similarity not in _SIMILARITIES.values():
            raise UserError(
                f"{folder.source}: similarity_fn_name: {similarity!r} is not one of "
                f"{', '.join(_SIMILARITIES.values())}"
            )
        return {
            **{f"{kind}_prefix": _prompt(prompts, kind) for kind in PROMPTS},
            "query_length": settings.get("query_length"),
            "document_length": settings.get("document_length"),
            "expansion": _expansion(settings.get("query_expansion"), source),
            "skipped_words": mask.get("skiplist_words") or [],
            "mean": similarity == _SIMILARITIES[True],
        }

    @override
    def is_of(self, source: ModelFolder) -> bool:
        return bool(source.config.of_types(LateInteractionConfig.type))

    @override
    def network(self, config: configs.ResolvedConfig) -> configs.ResolvedConfig:
        return without(config, LateInteractionConfig)

    @override
    def write(
        self,
        source: ModelFolder,
        variables: Mapping[str, np.ndarray],
        max_length: int,
        folder: AnyPath,
    ) -> None:
        learned: Any  # a LateInteractionConfig
        (learned,) = source.config.of_types(LateInteractionConfig.type)
        names = [name for name in _MODULES if name != "Dense" or learned.size is not None]
        places = {name: f"{i}_{name}" if i else "" for i, name in enumerate(names)}
        settings = {
            "default_prompt_name": None,
            "model_type": self.model_type,
            "prompts": dict(learned.prefixes),
            "similarity_fn_name": _SIMILARITIES[learned.mean],
        }
        transformer = folders.transformer(self.task)
        if (expansion := learned.expansion) is not None:
            transformer["query_expansion"] = {
                "strategy": expansion.form,
                "attend": expansion.attend,
                "token": expansion.token,
                "length": expansion.length,
            }
        for key in ("query_length", "document_length"):
            if (length := getattr(learned, key)) is not None:
                transformer[key] = length
        modules = [(_MODULES[name], place) for name, place in places.items()]
        folders.write(folder, modules, settings, transformer)
        tokens = {"module_input_name": _TOKENS, "module_output_name": _TOKENS}
        if learned.size is not None:
            arrays = {"kernel": variables[_KERNEL]}
            dense.write(folder / places["Dense"], None, arrays, tokens)
        mask = {
            "skiplist_words": list(learned.skipped_words),
            "skiplist_tasks": ["document"],
            "keep_only_token_ids": None,
        }
        folders.write_json(folder / places["MultiVectorMask"] / "config.json", mask)
        folders.write_json(folder / places["Normalize"] / "config.json", tokens)
        length = min(learned.document_length or max_length, max_length)
        use = _USE.format(name=source.config.name, length=length)
        folders.write_card(folder, _TAGS, _PIPELINE, use)


class PyLate(MultiVectorEncoder):
    """A folder of PyLate, which is not written."""

    model_type = "ColBERT"
    chains = (("Transformer", "Dense"),)
    modules = "Transformer and Dense"

    @override
    def _settings(self, folder: Folder) -> dict[str, Any]:
        given = folder.settings
        length = strict.typed(int, given.get("query_length"), "query_length", folder.source)
        expansion = None
        if given.get("do_query_expansion", True):
            attend = bool(given.get("attend_to_expansion_tokens"))
            expansion = dataclasses.asdict(Expansion(length, attend=attend))
            del expansion["token"]
        return {
            "query_prefix": given.get("query_prefix") or "",
            "document_prefix": given.get("document_prefix") or "",
            "query_length": length,
            "document_length": given.get("document_length"),
            "expansion": expansion,
            "skipped_words": given.get("skiplist_words") or [],
        }

    @override
    def is_of(self, source: ModelFolder) -> bool:
        return False


def _prompt(prompts: Mapping[str, str], kind: str) -> str:
    """Returns what stands before a kind of text."""
    return next((prompts[name] for name in PROMPTS[kind] if prompts.get(name)), "")


def _expansion(given: Mapping[str, Any] | None, source: str) -> dict[str, Any] | None:
    """Returns the settings of the expansion of queries; None = there is none."""
    if given is None:
        return None
    values = {**strict.typed(Mapping[str, Any], given, "query_expansion", source)}
    form = values.pop("strategy", None)
    return {"form": form, **{key: value for key, value in values.items() if value is not None}}


def _mask(config: Mapping[str, Any], source: str) -> None:
    """Refuses settings of a MultiVectorMask that are not supported."""
    tasks = config.get("skiplist_tasks")
    if tasks not in (None, "document", ["document"]):
        raise UserError(f"{source}: skiplist_tasks: {tasks}: only those of documents are supported")
    if config.get("keep_only_token_ids"):
        raise UserError(f"{source}: keep_only_token_ids: not supported: it is for images")


def _normalize(config: Mapping[str, Any], source: str) -> None:
    """Refuses settings of a Normalize that are not supported."""
    for key in ("module_input_name", "module_output_name"):
        if config.get(key) not in (None, _TOKENS):
            raise UserError(f"{source}: {key}: {config[key]!r}: expected {_TOKENS!r}")


def _pads_left(folder: AnyPath) -> bool:
    """Returns whether the tokenizer of a folder pads on the left."""
    return folders.optional(folder / "tokenizer_config.json").get("padding_side") == "left"
