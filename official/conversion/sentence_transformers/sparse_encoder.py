"""Folders of sparse vectors: a Transformer with a masked LM, and a SpladePooling of its scores.

The model gets the objective `sparse_embedding`, whose head is this masked LM. With a table of
queries there is a Router: these two read documents, and a SparseStaticEmbedding is the table.

Shapes: V rows of the token table.
"""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import safetensors.numpy
from typing_extensions import override

from official import config as configs
from official.config.objectives import MaskedLMConfig
from official.config.sparse_embedding import SparseEmbeddingConfig
from official.conversion.converted_model import Converted
from official.conversion.sentence_transformers import folder as folders
from official.conversion.sentence_transformers.folder import Folder
from official.conversion.sentence_transformers.kind import Kind, ReadModel
from official.conversion.weight_files import SAFETENSORS, Weights
from official.saving.embedding_settings import EmbeddingSettings
from official.saving.model_folder import ModelFolder
from official.tokenizers import Tokenizer
from official.utils import json_files, strict
from official.utils.errors import UserError
from official.utils.paths import AnyPath

_TRANSFORMER = "sentence_transformers.base.modules.transformer.Transformer"
_POOLING = "sentence_transformers.sparse_encoder.modules.splade_pooling.SpladePooling"
_TABLE = (
    "sentence_transformers.sparse_encoder.modules.sparse_static_embedding.SparseStaticEmbedding"
)
_TAGS, _PIPELINE = ("sparse-encoder", "sparse", "splade"), "feature-extraction"
# `activation_function` by the number of logarithms: log(1 + x) always follows it.
_ACTIVATIONS = {1: "relu", 2: "log1p_relu"}
_OURS, _THEIRS = f"{SparseEmbeddingConfig.type}/", f"{MaskedLMConfig.type}/"
_WEIGHTS = f"{_OURS}query_weights"
_USE = """# {name}

A sparse encoder (SPLADE): the vector of a text has a weight for each word of the vocabulary. Texts
of more than {length} tokens are cut.

```python
from sentence_transformers import SparseEncoder

model = SparseEncoder("{name}")
model.decode(model.encode_document(["a text"]))
```
"""


class SparseEncoder(Kind):
    """A model with sparse vectors of texts."""

    model_type = "SparseEncoder"
    chains = (("Transformer", "SpladePooling"), ("MLMTransformer", "SpladePooling"), ())
    query_chains = ((), ("SparseStaticEmbedding",))
    modules = "a Transformer and SpladePooling"
    task = "fill-mask"

    @override
    def describes(self, folder: Folder) -> bool:
        return folder.model_type == self.model_type

    @override
    def read(self, folder: Folder, read_model: ReadModel) -> Converted:
        # Without modules, a masked LM has the pooling of the defaults.
        pooling = folder.place("SpladePooling") / "config.json" if folder.modules else None
        converted = read_model(folder.place(folder.chain[0]) if folder.modules else folder.path)
        heads = [o for o in converted.config.objectives if isinstance(o, MaskedLMConfig)]
        if not heads or heads[0].enhanced_mask_decoder:
            raise UserError(
                f"{folder.path}: SpladePooling reads the scores of a masked LM over the last "
                "layer, and the Transformer has none: save it again with its class ...ForMaskedLM"
            )
        objective = _objective(pooling, heads[0].form, "table" if folder.queries else "encoder")
        variables = {
            path.replace(_THEIRS, _OURS, 1) if path.startswith(_THEIRS) else path: array
            for path, array in converted.variables.items()
        }
        notes = list(converted.notes)
        if folder.queries:
            size = converted.config.encoder.known_vocab_size
            weights = _query_weights(folder.queries[0].path, size)
            unknown = converted.tokenizer.unk_id
            if weights[unknown]:
                notes.append(
                    f"the weight of unknown text in queries, {weights[unknown]:g}, is left out: it "
                    "does not count here"
                )
            variables[_WEIGHTS] = weights
        config = dataclasses.replace(
            converted.config, objectives=(objective,), segments=None, corruption=None
        )
        embedding = _settings(folder, converted)
        return dataclasses.replace(
            converted, config=config, variables=variables, embedding=embedding, notes=tuple(notes)
        )

    @override
    def is_of(self, source: ModelFolder) -> bool:
        return bool(source.config.of_types(SparseEmbeddingConfig.type))

    @override
    def network(self, config: configs.ResolvedConfig) -> configs.ResolvedConfig:
        masked = MaskedLMConfig(form=_sparse(config).form)
        return dataclasses.replace(config, objectives=(masked,))

    @override
    def variables(self, variables: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {
            path.replace(_OURS, _THEIRS, 1) if path.startswith(_OURS) else path: array
            for path, array in variables.items()
            if path != _WEIGHTS
        }

    @override
    def max_length(self, source: ModelFolder) -> int:
        return source.embedding.max_length or source.max_length

    @override
    def places(self, source: ModelFolder) -> Sequence[str]:
        if not _sparse(source.config).has_table:
            return ("",)
        return "document_0_Transformer", "query_0_SparseStaticEmbedding"

    @override
    def write(
        self,
        source: ModelFolder,
        variables: Mapping[str, np.ndarray],
        max_length: int,
        folder: AnyPath,
    ) -> None:
        sparse = _sparse(source.config)
        embedding = source.embedding
        limit = embedding.max_active_dims
        settings = {
            "default_prompt_name": embedding.default_prompt,
            "model_type": self.model_type,
            "prompts": {"query": "", "document": "", **embedding.prompts},
            "similarity_fn_name": "dot",
            **({} if limit is None else {"max_active_dims": limit}),
        }
        place, *tables = self.places(source)
        pooling_place = "document_1_SpladePooling" if tables else "1_SpladePooling"
        modules = [(_TRANSFORMER, place), (_POOLING, pooling_place)]
        if tables:
            routes = {"query": [(_TABLE, tables[0])], "document": modules}
            folders.write_router(folder, routes, settings)
            _write_table(folder / tables[0], variables[_WEIGHTS], source.tokenizer)
        else:
            folders.write(folder, modules, settings)
        folders.write_json(folder / place / folders.TRANSFORMER, folders.transformer(self.task))
        pooling = {
            "pooling_strategy": sparse.pooling,
            "activation_function": _ACTIVATIONS[sparse.logarithms],
            "embedding_dimension": source.config.encoder.known_vocab_size,
        }
        folders.write_json(folder / pooling_place / "config.json", pooling)
        use = _USE.format(name=source.config.name, length=max_length)
        folders.write_card(folder, _TAGS, _PIPELINE, use)


def _query_weights(path: AnyPath, size: int) -> np.ndarray:
    """Reads the weights of a SparseStaticEmbedding: float32 [V].

    Args:
      path: its folder.
      size: V, which may be more than the pieces of the vocabulary.
    """
    if folders.optional(path / "config.json").get("path"):
        raise UserError(
            f"{path / 'config.json'}: path: weights in JSON are not supported: load and save the "
            "folder with sentence-transformers"
        )
    with contextlib.closing(Weights(path)) as weights:
        given = weights["weight"].astype(np.float32) if "weight" in weights else np.zeros(0)
        if given.ndim != 1 or not 0 < len(given) <= size:
            raise UserError(
                f"{weights.source}: weight: expected at most {size} weights, one for each piece, "
                f"got the shape {list(given.shape)}"
            )
    return np.pad(given, (0, size - len(given)))


def _write_table(path: AnyPath, weights: np.ndarray, tokenizer: Tokenizer) -> None:
    """Writes a SparseStaticEmbedding; special and unknown tokens get the weight 0."""
    if len(weights) != len(tokenizer.pieces):
        raise UserError(
            f"objectives: sparse_embedding.queries: table: the token table has {len(weights)} "
            f"rows and the vocabulary {len(tokenizer.pieces)} pieces: sentence-transformers "
            "cannot multiply vectors of these sizes"
        )
    weights = np.array(weights)
    weights[list(tokenizer.special_ids)] = 0
    folders.write_json(path / "config.json", {"frozen": False})
    tensors = {"weight": weights}
    safetensors.numpy.save_file(tensors, path / SAFETENSORS, metadata={"format": "pt"})


def _sparse(config: configs.Config) -> SparseEmbeddingConfig:
    """Returns the objective of a model of this kind."""
    return next(o for o in config.objectives if isinstance(o, SparseEmbeddingConfig))


def _objective(path: AnyPath | None, form: str, queries: str) -> SparseEmbeddingConfig:
    """Returns the objective of a SpladePooling, whose settings a file has; None = the defaults."""
    given = {} if path is None else json_files.read(path)
    ours = {theirs: count for count, theirs in _ACTIVATIONS.items()}
    activation = given.get("activation_function", _ACTIVATIONS[1])
    if activation not in ours:
        raise UserError(
            f"{path}: activation_function: {activation!r} is not one of {', '.join(ours)}"
        )
    values = {
        "pooling": given.get("pooling_strategy", "max"),
        "form": form,
        "queries": queries,
    }
    return strict.build(
        SparseEmbeddingConfig, {**values, "logarithms": ours[activation]}, str(path)
    )


def _settings(folder: Folder, converted: Converted) -> EmbeddingSettings:
    """Returns the settings of a folder."""
    given, source = folder.settings, folder.source
    if given.get("similarity_fn_name") not in (None, "dot"):
        raise UserError(
            f"{source}: similarity_fn_name: {given['similarity_fn_name']!r}: sparse vectors are "
            "compared by their product here: set it to dot"
        )
    prompts = folder.prompts()
    prompts = prompts if any(prompts.values()) else {}
    default = given.get("default_prompt_name")
    values = {
        "max_length": folders.max_length(folder, converted),
        "prompts": prompts,
        "default_prompt": default if default in prompts else None,
        "similarity": "dot",
        "max_active_dims": given.get("max_active_dims"),
    }
    return strict.build(EmbeddingSettings, values, source)
