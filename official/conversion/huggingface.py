"""Reads and writes model folders of Hugging Face: config.json, weights, vocabulary.

Weights are read in any format of transformers (`official.conversion.weight_files`), and written as
safetensors.
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import safetensors.numpy

from official import config as configs
from official import tokenizers
from official.config.distillation import DistillationConfig
from official.config.objectives import CausalLMConfig
from official.conversion import (
    albert,
    bert,
    converted_model,
    deberta,
    electra,
    eurobert,
    generation,
    generators,
    gpt2,
    hub_card,
    model2vec,
    modernbert,
    peft,
    t5,
    tokenizer_files,
    transfo_xl,
    xlnet,
)
from official.conversion.heads import name_of
from official.conversion.sentence_transformers import kinds, static_embedding
from official.conversion.sentence_transformers.folder import MODULES
from official.conversion.sentence_transformers.kind import Kind, without
from official.conversion.sentence_transformers.static_embedding import StaticEmbedding
from official.conversion.system import USUAL, FineTuning, Network, System
from official.conversion.weight_files import SAFETENSORS, Tensors, Weights
from official.modeling.layers import embeddings
from official.saving import derived_models, generation_settings, model_card, named_arrays
from official.saving.model_folder import ModelFolder
from official.tokenizers import file_formats
from official.tokenizers.pair_packing import num_specials
from official.utils import atomic, json_files, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

# The tables. A model is written as the last system that it matches, so special systems come later.
_TABLES = (
    bert.BERT,
    bert.ERNIE,
    electra.SYSTEM,
    bert.DISTILBERT,
    bert.ROBERTA,
    bert.XLM,
    bert.CAMEMBERT,
    bert.MPNET,
    albert.SYSTEM,
    deberta.SYSTEM,
    deberta.V1,
    gpt2.SYSTEM,
    xlnet.SYSTEM,
    transfo_xl.SYSTEM,
    t5.ENCODER,
    t5.SYSTEM,
    modernbert.SYSTEM,
    eurobert.SYSTEM,
)
# `model_type` of config.json → its table.
SYSTEMS = {system.model_type: system for system in _TABLES}

CONFIG = "config.json"


def read(
    folder: str | os.PathLike,
    adapter: str | os.PathLike | None = None,
    keep_adapter: bool = False,
) -> converted_model.Converted:
    """Reads a folder of `save_pretrained`, with the generator of an ELECTRA or a DeBERTa in it.

    The folder may be one of sentence-transformers, whose settings are read too, or of model2vec.

    Args:
      folder: the folder.
      adapter: a folder of PEFT with an adapter for the model; None = there is none.
      keep_adapter: whether it stays beside the weights, as low-rank updates; False = it is merged.

    Raises:
      UserError: a file is missing or broken, the model type is not supported, or the adapter is not
        supported or belongs to another model.
    """
    folder = paths.path(folder)
    form = peft.Kept if keep_adapter else peft.Merged
    added = None if adapter is None else peft.Adapter(paths.path(adapter), form)
    static = model2vec.describes(folder)
    found = None if static else kinds.find(folder)
    if added is not None and (static or (found and isinstance(found[1], StaticEmbedding))):
        raise UserError(f"{added.source}: {folder} has static vectors, which have no adapters")
    if static:
        converted = model2vec.read(folder)
    elif found is None:
        converted = _read(folder, adapter=added)[0]
    else:
        described, kind = found
        converted = kind.read(
            described, lambda path, keys=None: _read(path, keys=keys, adapter=added)[0]
        )
    origin = model_card.origin_of(folder / model_card.FILE)
    if added is not None and peft.HUB_NAME.fullmatch(added.base):
        origin["base_model"] = added.base
    return dataclasses.replace(converted, origin=origin)


def _read(
    folder: AnyPath,
    generator: AnyPath | None = None,
    keys: Mapping[str, Any] | None = None,
    adapter: peft.Adapter | None = None,
) -> tuple[converted_model.Converted, System]:
    """Reads a model with its generator, or only a generator.

    Args:
      folder: its folder.
      generator: the file of the weights of a DeBERTa's generator, to read only the generator; None
        = read the model.
      keys: are added to what config.json has; None = there are none.
      adapter: is added to the weights; None = there is none.
    """
    source = folder / CONFIG
    if (folder / peft.CONFIG).exists() and not source.exists():
        raise peft.alone(folder)
    config = json_files.read(source, "is this the folder of a Hugging Face model?")
    config |= keys or {}
    converted_model.check_types(config, source)
    if config.get("model_type") is not None:
        _known(config, source)
    with contextlib.closing(Weights(folder, generator)) as weights:
        notes = []
        if config.get("model_type") is None:
            config["model_type"] = _model_type(weights, folder, source)
            notes.append(f"no model_type in {CONFIG}; its tensors are of {config['model_type']}")
        system = _known(config, source)
        config, source = system.network_config(config, source, weights, generator)
        if adapter is not None:
            config = adapter.described(config, system)
        aliases = {**system.aliases}
        if config.get("tie_word_embeddings", True):
            aliases |= system.tied_aliases
        encoder, heads = _table(system, config, str(source))
        stored = Tensors(weights, system, aliases, encoder, heads)
        tensors: Tensors | peft.Merged = stored
        if adapter is not None:
            tensors = adapter.form(stored, adapter, system, config, aliases)
        named = system.tensors(tensors, tensors.source) if system.tensors else tensors
        converted = converted_model.read(folder, config, source, system, named)
        if isinstance(tensors, peft.Merged):
            converted = tensors.completed(converted)
        notes += [*tensors.notes, *_without_types(folder, system)]
        converted = dataclasses.replace(converted, notes=tuple(notes))
        if generator is None:
            converted = system.with_generator(converted, folder, named, _read)
    types = [objective.type for objective in converted.config.objectives]
    decoder = "seq2seq_lm" in types
    if decoder or "causal_lm" in types:
        settings = generation.read(folder, config, converted.tokenizer, decoder)
        converted = dataclasses.replace(
            converted, generation=settings.defaults, settings_left_out=settings.left_out
        )
    return converted, system


def _without_types(folder: AnyPath, system: System) -> list[str]:
    """Returns a note if a model of transformers 5 may have been trained with types of tokens.

    For these systems, tokenizers of version 5 return no types, while those of version 4 and of the
    releases do. The saved files do not show whether the model was fine-tuned in version 5 or only
    saved by it.
    """
    settings = file_formats.read_settings(folder)
    if not system.typed_release or settings.get("backend") != "tokenizers":
        return []
    if settings.get("model_input_names") is not None:
        return []
    return [
        f"{file_formats.SETTINGS_FILE} is of transformers 5, whose tokenizer of {system.title} "
        "asks for no types of tokens: both texts of a pair have type 0 here too, as for a model "
        "that was fine-tuned there. For one that was trained with types, as the releases were, "
        'write "model_input_names": ["input_ids", "token_type_ids", "attention_mask"] into that '
        "file and convert again"
    ]


def _known(config: Mapping[str, Any], source: AnyPath) -> System:
    """Returns the system of a config.json."""
    system = next((system for system in _TABLES if system.describes(config)), None)
    if system is None:
        raise UserError(
            f"{source}: model_type {config['model_type']!r} cannot be converted (known: "
            f"{', '.join(SYSTEMS)})"
        )
    return system


def _model_type(names: Collection[str], folder: AnyPath, source: AnyPath) -> str:
    """Returns the model type of a folder whose config.json does not have the key."""
    for system in SYSTEMS.values():
        bare = [name for name in names if name.startswith(system.bare)] if system.bare else []
        own = [name for name in names if system.prefix and name.startswith(system.prefix)]
        if own or (bare and (folder / system.vocabulary).exists()):
            return system.model_type
    raise UserError(f"{source}: model_type is missing: write it (known: {', '.join(SYSTEMS)})")


def _table(system: System, config: Mapping[str, Any], source: str) -> tuple[list[str], list[str]]:
    """Returns the names of the encoder's tensors, and those of the heads in config.json."""
    heads = system.heads_named(config)
    encoder = system.encoder_config(config, source, heads)
    own = [name for row in system.rows(encoder, ()) for name in row.names]
    every = [name for head in heads for row in system.rows(encoder, (head,)) for name in row.names]
    return own, [name for name in dict.fromkeys(every) if name not in set(own)]


def system_of(
    config: configs.ResolvedConfig, tokenizer: tokenizers.Tokenizer | None = None
) -> System:
    """Returns the system that a model is written as: the last match, or else BERT."""
    every = (system for system in reversed(_TABLES) if system.matches(config, tokenizer))
    return next(every, bert.BERT)


def fine_tuning_of(config: configs.ResolvedConfig) -> FineTuning:
    """Returns the settings that the family of a model was fine-tuned with."""
    found = system_of(config).finetune
    return found if found.suits is None or found.suits(config) else USUAL


def write(
    model_dir: str | os.PathLike, output: str | os.PathLike, checkpoint: str
) -> Sequence[str]:
    """Writes a model folder as a folder that `from_pretrained` reads.

    The generator of an ELECTRA is written to a folder inside `output`, and the weights of a
    DeBERTa's generator to a file. If the model is of a kind of sentence-transformers, such as one
    with `embedding.json`, `output` is also a folder of sentence-transformers. Static vectors become
    a folder of model2vec, which sentence-transformers reads too.

    Returns:
      Sentences about what is different there.

    Raises:
      UserError: `model_dir` is not a model folder, transformers has no class for the model, or
        `output` exists.
    """
    source = ModelFolder.open(model_dir, checkpoint)
    model = source.model()
    if source.config.encoder.pools_texts:
        arrays = named_arrays.values(model.variables_by_path())
        with atomic.folder(output, CONFIG) as temporary:
            notes = static_embedding.write(source, arrays, temporary)
            hub_card.write(temporary, model_dir, source, checkpoint)
            return notes
    variables = {path: np.asarray(variable) for path, variable in model.variables_by_path().items()}
    described = Described.of(source, variables)
    weights = described.system.in_one_folder(described.networks, variables)
    for name, (_, tensors) in described.networks.items():
        weights[f"{name}/{SAFETENSORS}" if name else SAFETENSORS] = tensors
    with atomic.folder(output, MODULES if described.places[0] else CONFIG) as temporary:
        root = described.save(temporary)
        for name, tensors in weights.items():
            # transformers refuses a file without this metadata.
            safetensors.numpy.save_file(tensors, root / name, metadata={"format": "pt"})
        hub_card.write(temporary, model_dir, source, checkpoint)
    return ()


@dataclasses.dataclass(frozen=True)
class Described:
    """A model as a folder of `from_pretrained` describes it.

    Attributes:
      source: the model folder.
      variables: all its variables by path.
      kind: its kind in sentence-transformers; None = files of transformers alone.
      system: the system that it is written as.
      networks: the content of config.json and the tensors of the model (""), and of each of its
        generators by the name of the folder inside.
      generation: the content of generation_config.json; None = there is none.
    """

    source: ModelFolder
    variables: Mapping[str, np.ndarray]
    kind: Kind | None
    system: System
    networks: dict[str, Network]
    generation: dict[str, Any] | None

    @classmethod
    def of(cls, source: ModelFolder, variables: Mapping[str, np.ndarray]) -> "Described":
        """Describes a model.

        Args:
          source: the model folder. Its config says which heads are written.
          variables: the variables of the model by path.

        Raises:
          UserError: transformers has no class for the model.
        """
        kind = kinds.kind_of(source)
        config = without_distillation(source.config)
        config = config if kind is None else kind.network(config)
        system = system_of(config, source.tokenizer)
        own = variables if kind is None else kind.variables(variables)
        networks = {
            name: _files(*_with_positions(*network, system), system, source.tokenizer)
            for name, network in generators.split(config, embeddings.finished(own)).items()
        }
        defaults = source.generation
        settings = None
        if defaults.settings or defaults.tasks:
            described = networks[""][0]
            settings, tasks = generation.written(defaults, described)
            described |= {generation.TASKS: tasks} if tasks else {}
        return cls(source, variables, kind, system, networks, settings)

    @property
    def places(self) -> Sequence[str]:
        """The folder of the files of transformers, and folders of the tokenizer alone."""
        return ("",) if self.kind is None else self.kind.places(self.source)

    @property
    def max_length(self) -> int:
        """The number of tokens to which texts are cut."""
        return self.source.max_length if self.kind is None else self.kind.max_length(self.source)

    def save(self, folder: AnyPath) -> AnyPath:
        """Writes all files but those of weights; returns the folder of those of transformers.

        Raises:
          UserError: sentence-transformers has no such model, or the disk is full.
        """
        config, tokenizer, length = self.source.config, self.source.tokenizer, self.max_length
        place, *others = self.places
        if self.kind is not None:
            self.kind.write(self.source, self.variables, length, folder)
        for other in others:  # which adds no special tokens
            most = length - num_specials(1, tokenizer, config.encoder.text_layout)
            tokenizer_files.save(tokenizer, folder / other, self.system, config.encoder, most)
        continues = any(isinstance(o, CausalLMConfig) for o in config.objectives)
        start_id = generation_settings.ends(config, tokenizer)[0] if continues else None
        root = folder / place
        for name, (described, _) in self.networks.items():
            inside = root / name
            inside.mkdir(exist_ok=True)
            tokenizer_files.save(tokenizer, inside, self.system, config.encoder, length, start_id)
            (inside / CONFIG).write_text(json.dumps(described, indent=2) + "\n", "utf-8")
        if self.generation is not None:
            (root / generation.FILE).write_text(
                json.dumps(self.generation, indent=2) + "\n", "utf-8"
            )
        return root


def without_distillation(config: configs.ResolvedConfig) -> configs.ResolvedConfig:
    """Returns the config of a student without the distillation objective."""
    return without(config, DistillationConfig)


def _with_positions(
    config: configs.ResolvedConfig, variables: dict[str, np.ndarray], system: System
) -> tuple[configs.ResolvedConfig, dict[str, np.ndarray]]:
    """Returns a model with computed positions as a table, if the system has position tables."""
    if system.keeps_positions(config.encoder):
        return config, variables
    return derived_models.with_position_table(config, variables)


def _files(
    config: configs.ResolvedConfig,
    variables: Mapping[str, np.ndarray],
    system: System,
    tokenizer: tokenizers.Tokenizer,
) -> Network:
    """Returns the config.json of a network, and its tensors."""
    heads = sorted({name_of(objective) for objective in config.objectives})
    described = system.huggingface_config(config, heads, tokenizer.pad_id)
    described |= {key: getattr(tokenizer, name) for key, name in system.bounds.items()}
    tensors = system.written(config.encoder, heads, variables)
    described["dtype"] = next(iter(tensors.values())).dtype.name
    return described, tensors
