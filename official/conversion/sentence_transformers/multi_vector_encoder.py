"""Folders of late interaction: vectors of tokens, by the objective `late_interaction`.

The modules are a Transformer, a Dense for each token, a MultiVectorMask with the skipped words of
documents, and a Normalize. PyLate's folders have the first two, and the rest in the settings.
sentence-transformers 6 reads these too, so a model is written as one of them where PyLate has its
settings. Checkpoints of Stanford's ColBERT are read. A model that is read has the weight 0: it is
searched with, and trained further with a config of its own.

Shapes: I input and O output of the Dense.
"""

import contextlib
import dataclasses
import string
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from official import config as configs
from official import tokenizers
from official.config.late_interaction import Expansion, LateInteractionConfig
from official.conversion.converted_model import Converted
from official.conversion.sentence_transformers import dense
from official.conversion.sentence_transformers import folder as folders
from official.conversion.sentence_transformers.folder import Folder
from official.conversion.sentence_transformers.kind import Kind, ReadModel, with_objective, without
from official.conversion.weight_files import Weights
from official.saving.embedding_settings import PROMPTS
from official.saving.model_folder import ModelFolder
from official.tokenizers import Tokenizer, file_formats
from official.utils import json_files, paths, strict
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
_PYLATE = {
    "Transformer": "sentence_transformers.models.Transformer",
    "Dense": "pylate.models.Dense.Dense",
}
_PAD = "pad_token_id"
_STANFORD, _METADATA = "HF_ColBERT", "artifact.metadata"
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
_ALSO = "\nPyLate reads it too, by `pylate.models.ColBERT`.\n"


class MultiVectorEncoder(Kind):
    """A model with vectors of tokens.

    Attributes:
      whole_prefixes: whether a prefix is a token of the vocabulary, not a text; see `with_ids`.
    """

    whole_prefixes: ClassVar[bool] = False
    model_type = "MultiVectorEncoder"
    chains: ClassVar[Sequence[tuple[str, ...]]] = tuple(
        ("Transformer", *middle, "MultiVectorMask", "Normalize") for middle in (("Dense",), ())
    )
    modules = "Transformer, perhaps Dense, MultiVectorMask and Normalize, in this order,"
    reads = ("query_length", "document_length", "query_expansion")

    @override
    def read(self, folder: Folder, read_model: ReadModel) -> Converted:
        converted = self._network(folder.place("Transformer"), read_model)
        converted.tokenizer.max_tokens = self._max_length(folder, converted)
        values = self._settings(folder, converted.tokenizer)
        kernel = self._kernel(folder)
        values["size"] = None if kernel is None else kernel.shape[1]
        variables = {} if kernel is None else {_KERNEL: kernel}
        if values["expansion"] is not None and _pads_left(folder.place("Transformer")):
            raise UserError(
                f"{folder.source}: query_expansion: not supported with padding_side: left, which "
                "puts the added tokens before the query"
            )
        objective = strict.build(LateInteractionConfig, {**values, "weight": 0.0}, folder.source)
        objective = objective.with_ids(converted.tokenizer, whole=self.whole_prefixes)
        return with_objective(converted, objective, variables)

    def _network(self, path: AnyPath, read_model: ReadModel) -> Converted:
        """Reads the files of transformers."""
        return read_model(path)

    def _kernel(self, folder: Folder) -> np.ndarray | None:
        """Returns the kernel of the projection, [I, O]; None = there is none."""
        if "Dense" not in folder.chain:
            return None
        projection, arrays = dense.read(folder.place("Dense"))
        if projection.bias or projection.activation is not None:
            raise UserError(
                f"{folder.place('Dense')}: a projection of tokens has no bias and no activation "
                "here"
            )
        return arrays["kernel"]

    def _max_length(self, folder: Folder, converted: Converted) -> int:
        """Returns the number of tokens to which texts of all kinds are cut."""
        return folders.max_length(folder, converted)

    def _settings(self, folder: Folder, tokenizer: Tokenizer) -> dict[str, Any]:
        """Returns the settings of the objective that are not those of the Dense."""
        del tokenizer
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
        learned = _learned(source)
        if learned.with_ids(source.tokenizer, whole=False).ids != learned.ids:
            raise UserError(
                f"{learned.type}: query_prefix, document_prefix: each is a token here, which "
                "sentence-transformers would split: such a model is written in the form of PyLate "
                "alone, which has no settings for size: null, mean, form: min and another "
                "expansion.token"
            )
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
        _write_card(folder, source, max_length)


class PyLate(MultiVectorEncoder):
    """A folder of PyLate."""

    whole_prefixes = True
    model_type = "ColBERT"
    chains: ClassVar[Sequence[tuple[str, ...]]] = (("Transformer", "Dense"),)
    modules = "Transformer and Dense"

    @override
    def _network(self, path: AnyPath, read_model: ReadModel) -> Converted:
        converted = read_model(path)
        tokenizer, pad_id = converted.tokenizer, json_files.read(path / "config.json").get(_PAD)
        if tokenizer.pad_id != tokenizer.mask_id or not isinstance(pad_id, int):
            return converted
        # PyLate pads with the mask token, and saves its tokenizer so.
        with tempfile.TemporaryDirectory() as name:
            place = paths.path(name)
            tokenizer.save(place)
            settings = json_files.read(place / file_formats.SETTINGS_FILE)
            settings["pad_token"] = tokenizer.pieces[pad_id]
            del settings[file_formats.FINGERPRINT]  # of the files before
            folders.write_json(place / file_formats.SETTINGS_FILE, settings)
            return dataclasses.replace(converted, tokenizer=tokenizers.load(place))

    @override
    def _max_length(self, folder: Folder, converted: Converted) -> int:
        # PyLate leaves the length of the last text that it has cut in the folder's max_seq_length.
        return converted.config.encoder.max_positions

    @override
    def _settings(self, folder: Folder, tokenizer: Tokenizer) -> dict[str, Any]:
        given = folder.settings
        length = strict.typed(int, given.get("query_length"), "query_length", folder.source)
        expansion = None
        if given.get("do_query_expansion", True):
            attend = bool(given.get("attend_to_expansion_tokens"))
            expansion = dataclasses.asdict(Expansion(length, attend=attend))
            del expansion["token"]
        skipped = strict.typed(
            tuple[str, ...], given.get("skiplist_words") or [], "skiplist_words", folder.source
        )
        pieces = set(tokenizer.pieces)
        if not pieces.issuperset(skipped):
            # The id of such a word is that of unknown text, which PyLate skips with it.
            unknown = tokenizer.pieces[tokenizer.unk_id]
            skipped = (*(word for word in skipped if word in pieces), unknown)
        return {
            "query_prefix": given.get("query_prefix") or "",
            "document_prefix": given.get("document_prefix") or "",
            "query_length": length,
            "document_length": given.get("document_length"),
            "expansion": expansion,
            "skipped_words": skipped,
        }

    @override
    def is_of(self, source: ModelFolder) -> bool:
        if not super().is_of(source):
            return False
        learned, tokenizer = _learned(source), source.tokenizer
        ids, expansion = learned.ids, learned.expansion
        tokens = ids.query_prefix, ids.document_prefix
        return (
            learned.size is not None
            and not learned.mean
            # Each prefix is one token, or there is none.
            and all(
                [tokenizer.pieces[number] for number in numbers] == ([text] if text else [])
                for text, numbers in zip(learned.prefixes.values(), tokens, strict=True)
            )
            and (
                expansion is None
                or (expansion.form == "fixed" and ids.expansion == tokenizer.mask_id)
            )
        )

    @override
    def write(
        self,
        source: ModelFolder,
        variables: Mapping[str, np.ndarray],
        max_length: int,
        folder: AnyPath,
    ) -> None:
        learned, pieces = _learned(source), set(source.tokenizer.pieces)
        if (expansion := learned.expansion) is not None:
            query_length = expansion.length
        else:
            query_length = min(learned.query_length or max_length, max_length)
        settings = {
            "default_prompt_name": None,
            "model_type": self.model_type,
            "prompts": dict.fromkeys(learned.prefixes, ""),
            "similarity_fn_name": "MaxSim",
            **{f"{kind}_prefix": text for kind, text in learned.prefixes.items()},
            "query_length": query_length,
            "document_length": _document_length(source, max_length),
            "do_query_expansion": expansion is not None,
            "attend_to_expansion_tokens": expansion is not None and expansion.attend,
            # Other words would be taken for unknown text.
            "skiplist_words": [word for word in learned.skipped_words if word in pieces],
        }
        places = {"Transformer": "", "Dense": "1_Dense"}
        modules = [(_PYLATE[name], place) for name, place in places.items()]
        transformer = {"max_seq_length": max_length, "do_lower_case": False}
        folders.write(folder, modules, settings, transformer)
        kernel = {"kernel": variables[_KERNEL]}
        dense.write(folder / places["Dense"], None, kernel, {"use_residual": False})
        _write_card(folder, source, max_length, _ALSO)


class Stanford(PyLate):
    """A checkpoint of Stanford's ColBERT: a BERT and its projection in one file, without modules.

    `artifact.metadata` has the settings.
    """

    chains = ((),)
    modules = "no modules"

    @override
    def describes(self, folder: Folder) -> bool:
        given = folders.optional(folder.path / "config.json").get("architectures")
        return not folder.modules and isinstance(given, list) and _STANFORD in given

    @override
    def is_of(self, source: ModelFolder) -> bool:
        return False

    @override
    def _kernel(self, folder: Folder) -> np.ndarray:
        with contextlib.closing(Weights(folder.path)) as weights:
            if "linear.weight" not in weights:
                raise UserError(f"{weights.source}: linear.weight: missing")
            return weights["linear.weight"].astype(np.float32).T

    @override
    def _settings(self, folder: Folder, tokenizer: Tokenizer) -> dict[str, Any]:
        given = folders.optional(folder.path / _METADATA)
        settings = {
            "query_prefix": given.get("query_token_id", "[unused0]"),
            "document_prefix": given.get("doc_token_id", "[unused1]"),
            "query_length": given.get("query_maxlen", 32),
            "document_length": given.get("doc_maxlen", 180),
            "attend_to_expansion_tokens": given.get("attend_to_mask_tokens"),
            "skiplist_words": list(string.punctuation)
            if given.get("mask_punctuation", True)
            else [],
        }
        return super()._settings(dataclasses.replace(folder, settings=settings), tokenizer)


def _learned(source: ModelFolder) -> Any:
    """Returns the LateInteractionConfig of a model folder."""
    (learned,) = source.config.of_types(LateInteractionConfig.type)
    return learned


def _document_length(source: ModelFolder, max_length: int) -> int:
    """Returns the number of tokens to which documents are cut."""
    return min(_learned(source).document_length or max_length, max_length)


def _write_card(folder: AnyPath, source: ModelFolder, max_length: int, more: str = "") -> None:
    """Writes the model card, with `more` at its end."""
    length = _document_length(source, max_length)
    use = _USE.format(name=source.config.name, length=length)
    folders.write_card(folder, _TAGS, _PIPELINE, use + more)


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
