"""Reads and writes model folders of Hugging Face: config.json, model.safetensors, vocabulary.

Weights are only read from safetensors, because unpickling a `pytorch_model.bin` can run code.
"""

import dataclasses
import fnmatch
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from official import config as configs
from official import tokenizers
from official.convert import (
    albert,
    bert,
    converted_model,
    distilbert,
    electra,
    generation,
    gpt2,
    mapping,
    roberta,
    sentence_transformers,
    t5,
    transfo_xl,
    xlnet,
)
from official.convert.heads import name_of
from official.convert.system import System
from official.saving import model_folder
from official.serving import generation_defaults, sentence_vectors
from official.utils import atomic, files, json_files, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

# `model_type` of config.json → its table.
SYSTEMS = {
    module.SYSTEM.model_type: module.SYSTEM
    for module in (bert, roberta, albert, electra, distilbert, gpt2, xlnet, transfo_xl, t5)
}

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


def read(folder: str | os.PathLike) -> converted_model.Converted:
    """Reads a folder of `save_pretrained`, and the generator of an ELECTRA inside of it.

    The folder may be one of sentence-transformers, whose settings are read too.

    Raises:
      UserError: a file is missing or broken, or the model type is not supported.
    """
    folder = paths.path(folder)
    converted, system = _read(sentence_transformers.model_of(folder))
    lower_case = getattr(converted.tokenizer, "lower_case", False)
    embedding = sentence_transformers.read(folder, converted.config.encoder, lower_case)
    if embedding is not None:
        converted = dataclasses.replace(converted, embedding=embedding)
    small = folder / electra.GENERATOR
    if system is not electra.SYSTEM or not small.is_dir():
        return converted
    generator, system = _read(small)
    if system is not electra.SYSTEM:
        raise UserError(f"{small}: model_type {system.model_type!r} is no generator of an ELECTRA")
    return electra.join(converted, generator, str(small))


def _read(folder: AnyPath) -> tuple[converted_model.Converted, System]:
    source = folder / CONFIG
    config = json_files.read(source, "is this the folder of a Hugging Face model?")
    system = SYSTEMS.get(str(config.get("model_type")))
    if system is None:
        raise UserError(
            f"{source}: model_type {config.get('model_type')!r} cannot be converted "
            f"(known: {', '.join(SYSTEMS)})"
        )
    if system is t5.SYSTEM and not t5.has_decoder(config):
        system = t5.ENCODER
    aliases = {**system.aliases}
    if config.get("tie_word_embeddings", True):
        aliases |= system.tied_aliases
    with Tensors(folder, system, aliases) as tensors:
        named = system.tensors(tensors, tensors.source) if system.tensors else tensors
        converted = converted_model.read(folder, config, source, system, named)
    types = [objective.type for objective in converted.config.objectives]
    decoder = "seq2seq_lm" in types
    if decoder or "causal_lm" in types:
        found = generation.read(folder, config, converted.tokenizer, decoder)
        converted = dataclasses.replace(
            converted, generation=found.defaults, settings_left_out=found.left_out
        )
    return converted, system


def system_of(config: configs.Config) -> System:
    """Returns the system that a model is written as: the first one that can express it."""
    encoder = config.encoder
    if encoder.type == "transformer_xl":
        return xlnet.SYSTEM
    if encoder.type == "encoder_decoder":
        return t5.SYSTEM if encoder.decoder_layers else t5.ENCODER
    if encoder.type != "transformer":
        return bert.SYSTEM
    if encoder.causal:
        return gpt2.SYSTEM
    if encoder.layer_groups is not None:
        return albert.SYSTEM
    if encoder.position_offset:
        return roberta.SYSTEM
    projected = encoder.embedding_size not in (None, encoder.hidden_size)
    has_generator = any(o.type == electra.GENERATOR for o in config.objectives)
    only_electra = any(
        electra.SYSTEM.has_room_for(o) and not bert.SYSTEM.has_room_for(o)
        for o in config.objectives
    )
    # BERT's pooler has tanh, and the bare encoder has one.
    other_pooler = encoder.pooler_activation != "tanh" or not (config.objectives or encoder.pooler)
    if projected or has_generator or only_electra or other_pooler:
        return electra.SYSTEM
    return bert.SYSTEM


def write(model_dir: str | os.PathLike, output: str | os.PathLike, checkpoint: str) -> None:
    """Writes a model folder as a folder that `from_pretrained` reads.

    The generator of an ELECTRA is written to a folder inside of it. If the model folder has
    `embedding.json`, it is a folder of sentence-transformers too.

    Raises:
      UserError: `model_dir` is not a model folder, transformers has no class for the model, or
        `output` exists.
    """
    config, tokenizer, model = model_folder.restore(model_dir, checkpoint)
    config = without_distillation(config)
    system = system_of(config)
    variables = {path: np.asarray(variable) for path, variable in model.variables_by_path().items()}
    files = {
        name: _files(network, arrays, system, tokenizer)
        for name, (network, arrays) in electra.split(config, variables).items()
    }
    defaults = generation_defaults.read(model_dir)
    settings = None
    if defaults.settings or defaults.tasks:
        described = files[""][0]
        settings, tasks = generation.written(defaults, described)
        described |= {generation.TASKS: tasks} if tasks else {}
    embedding = sentence_vectors.read(model_dir) if model_folder.embedding(model_dir) else None
    with atomic.folder(output, CONFIG) as temporary:
        if embedding is not None:
            length = model_folder.max_length(model_dir, config)
            sentence_transformers.write(embedding, config.encoder, length, temporary)
        for name, (described, tensors) in files.items():
            folder = temporary / name
            folder.mkdir(exist_ok=True)
            tokenizer.save(folder)
            if system.tokenizer_class and isinstance(tokenizer, tokenizers.SentencePiece):
                _set_tokenizer_class(folder / "tokenizer_config.json", system.tokenizer_class)
            (folder / CONFIG).write_text(json.dumps(described, indent=2) + "\n", "utf-8")
            # transformers refuses a file without this metadata.
            safetensors.numpy.save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
        if settings is not None:
            (temporary / generation.FILE).write_text(json.dumps(settings, indent=2) + "\n", "utf-8")


def without_distillation(config: configs.Config) -> configs.Config:
    """Returns the config of a student without the objective that its teacher was needed for."""
    kept = tuple(o for o in config.objectives if o.type != "distillation")
    return dataclasses.replace(config, objectives=kept)


def _files(
    config: configs.Config,
    variables: Mapping[str, np.ndarray],
    system: System,
    tokenizer: tokenizers.Tokenizer,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Returns the config.json of a network, and its tensors."""
    heads = sorted({name_of(objective) for objective in config.objectives})
    described = system.huggingface_config(config, heads, tokenizer.pad_id)
    described |= {key: getattr(tokenizer, name) for key, name in system.bounds.items()}
    tensors = mapping.take_out(system.rows(config.encoder, heads), variables)
    if not heads:
        tensors = {name.removeprefix(system.prefix): array for name, array in tensors.items()}
    described["dtype"] = next(iter(tensors.values())).dtype.name
    return described, tensors


class Tensors(Mapping[str, np.ndarray]):
    """The tensors of a folder under their current names. Each is read when it is accessed.

    Old names (`LayerNorm.gamma`), a missing prefix `bert.` and a second copy of the tied output
    layer are corrected. Constants in old files are left out.

    Attributes:
      source: the name of the file for messages.
    """

    def __init__(self, folder: AnyPath, system: System, aliases: Mapping[str, str]):
        """Opens the file or, if `save_pretrained` has split it, the files."""
        self.source = folder / WEIGHTS
        parts = [self.source]
        if not self.source.exists():
            self.source = folder / INDEX
            if not self.source.exists():
                raise UserError(_no_weights(folder))
            parts = _split_files(self.source)
        self._handles = [_open(path) for path in parts]
        self._files = {name: handle for handle in self._handles for name in handle.keys()}
        self._names = {_current_name(name, system): name for name in self._files}
        for buffer in system.buffers:
            for name in fnmatch.filter(self._names, buffer):
                del self._names[name]
        for alias, name in aliases.items():
            if alias not in self._names:
                continue
            if name in self._names and not np.array_equal(self[alias], self[name]):
                raise UserError(
                    f"{self.source}: {alias} differs from {name}: an output layer that is not "
                    "tied to the embedding is not supported"
                )
            self._names.setdefault(name, self._names[alias])
            del self._names[alias]

    def __getitem__(self, name: str) -> np.ndarray:
        """Reads a tensor."""
        stored = self._names[name]
        try:
            return self._files[stored].get_tensor(stored)
        except (AttributeError, TypeError, ValueError, safetensors.SafetensorError) as error:
            raise UserError(f"{self.source}: tensor {stored} cannot be read: {error}") from None

    def __iter__(self) -> Iterator[str]:
        """Yields the names of the tensors."""
        return iter(self._names)

    def __len__(self) -> int:
        """Returns the number of tensors."""
        return len(self._names)

    def __enter__(self) -> "Tensors":
        """Keeps the files open until the end of the block."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Closes the files."""
        self._files.clear()
        self._handles.clear()


def _current_name(name: str, system: System) -> str:
    stem, dot, kind = name.rpartition(".")
    name = stem + dot + {"gamma": "weight", "beta": "bias"}.get(kind, kind)
    return system.prefix + name if name.startswith(system.bare) else name


def _set_tokenizer_class(path: AnyPath, name: str) -> None:
    settings = json_files.read(path)
    settings["tokenizer_class"] = name
    path.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", "utf-8")


def _split_files(index: AnyPath) -> list[AnyPath]:
    """Returns the files that an index names. They are always in the folder of the index."""
    files_by_tensor = json_files.read(index).get("weight_map")
    names = list(files_by_tensor.values()) if isinstance(files_by_tensor, dict) else [None]
    if not all(isinstance(name, str) for name in names):
        raise UserError(f"{index}: weight_map: the name of a file is wanted for each tensor")
    return [index.with_name(PurePosixPath(name).name) for name in sorted(set(names))]


def _open(path: AnyPath) -> safetensors.safe_open:
    files.check(path, max_bytes=None, advice="" if path.name == WEIGHTS else f"{INDEX} names it")
    try:
        with paths.local_copy(path) as file:  # which may be removed when it is open
            return safetensors.safe_open(file, framework="np").__enter__()
    except (OSError, MemoryError, safetensors.SafetensorError) as error:
        raise UserError(f"{path} is broken ({error}): copy or download it again") from None


def _no_weights(folder: AnyPath) -> str:
    pickles = [*folder.glob("pytorch_model*.bin"), *folder.glob("*.pt")]
    if not pickles:
        return f"{folder / WEIGHTS} is missing: is this the folder of a Hugging Face model?"
    return (
        f"{folder} has its weights in {pickles[0].name} only, and reading that can run code that "
        "somebody hid in it. If you trust the file, load it with the model's class in transformers "
        "(BertForPreTraining.from_pretrained(FOLDER), say) and write it anew with "
        "save_pretrained(NEW_FOLDER, safe_serialization=True)"
    )
