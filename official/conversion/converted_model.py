"""Writes a model that was read from the files of another tool as a model folder."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from official import config as configs
from official import tokenizers
from official.config.compatibility import check_encoder
from official.conversion import mapping
from official.conversion.heads import kind_of
from official.conversion.mapping import LazyTensors
from official.conversion.system import System, naming
from official.saving import model_folder
from official.serving.text_vectors import EmbeddingSettings
from official.tokenizers import added_tokens, file_formats, sentencepiece, wordpiece
from official.tokenizers.pair_forms import SEPARATORS
from official.utils import paths, strict
from official.utils.errors import UserError
from official.utils.paths import AnyPath

# Advice about a vocabulary of another size, by its file.
_ADVICE = {
    "vocab.txt": "take the vocabulary of this model (if its table has more rows, add lines "
    "such as [unused999] for them)",
    "spiece.model": "take the SentencePiece model that was released with these weights; one that "
    "was trained again has other pieces under the same ids",
    "vocab.json": "take vocab.json and merges.txt of this model",
}


@dataclasses.dataclass(frozen=True)
class Converted:
    """A model that was read from the files of another tool.

    Attributes:
      config: the config with encoder and objectives.
      tokenizer: the tokenizer of the model.
      variables: the variables by path.
      leftover: the names of the tensors that are not converted.
      generation: the defaults of generation, as in `generation.json`; empty = there are none.
      settings_left_out: the names of the settings of generation that are not converted.
      embedding: the settings of the vectors of texts; None = there are none.
      notes: sentences about what was corrected.
    """

    config: configs.ResolvedConfig
    tokenizer: tokenizers.Tokenizer
    variables: Mapping[str, np.ndarray]
    leftover: Sequence[str]
    generation: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    settings_left_out: Sequence[str] = ()
    embedding: EmbeddingSettings | None = None
    notes: Sequence[str] = ()


def read(
    folder: AnyPath,
    described: Mapping[str, Any],
    source: str | os.PathLike,
    system: System,
    tensors: LazyTensors,
) -> Converted:
    """Makes a model from the content of a folder.

    Args:
      folder: the folder, which contains the vocabulary.
      described: the parsed config.json or a similar config.
      source: the name of the file of `described` for messages.
      system: the table of the system.
      tensors: the tensors by name.

    Raises:
      UserError: something is missing, or the parts do not belong together.
    """
    check_types(described, source)
    names = set(tensors)
    with naming(source):
        heads = system.heads_of(names, described)
    encoder = system.encoder_config(described, str(source), heads, **system.fields_of(names, heads))
    objectives = system.objectives(heads, described, str(source))
    config = config_of(folder.resolve().name, encoder, objectives, system)
    tokenizer = tokenizer_of(folder, encoder.vocab_size, source, system)
    try:
        shapes = model_folder.shapes(config)
    except UserError as error:
        raise UserError(f"{tensors.source}: {error}") from None
    variables, leftover = mapping.bring_in(
        system.rows(config.encoder, heads), tensors, shapes, str(tensors.source)
    )
    own = [name for name in leftover if name.startswith(system.prefix)]
    unknown = [name for name in own if name not in system.unread]
    if system.whole and unknown:
        raise UserError(
            f"{tensors.source} has tensors of an encoder that is not supported, such as "
            f"{unknown[0]}: are tensors and config of the same model?"
        )
    return Converted(config, tokenizer, variables, leftover)


def check_types(described: Mapping[str, Any], source: str | os.PathLike) -> None:
    """Refuses a config.json whose keys about heads are of the wrong type.

    Raises:
      UserError: one is.
    """
    for key, hint in {"architectures": tuple[Any, ...], "id2label": Mapping[Any, Any]}.items():
        strict.typed(hint | None, described.get(key), key, str(source))


def config_of(
    name: str, encoder: Any, objectives: Sequence[Any], system: System
) -> configs.ResolvedConfig:
    """Returns the config of a converted model. Heads of pretraining have settings for training."""
    kinds = [kind_of(objective) for objective in objectives]
    raw: dict[str, Any] = {"name": name}
    if any(kind.segments for kind in kinds):
        length = min(system.max_length, encoder.max_positions)
        raw["segments"] = {**system.segments, "max_length": length}
    if any(kind.corruption for kind in kinds):
        raw["corruption"] = {"type": "token_masks", **system.corruption}
    config = configs.from_dict(raw, name)
    check_encoder(objectives, encoder, name)
    return configs.ResolvedConfig.of(config, encoder=encoder, objectives=tuple(objectives))


def tokenizer_of(
    folder: AnyPath, vocab_size: int, source: str | os.PathLike, system: System
) -> tokenizers.Tokenizer:
    """Loads the tokenizer of a folder, whose files tell its kind, whatever the system has.

    Raises:
      UserError: there is none, or its size differs from `vocab_size` in the config `source`.
    """
    defaults: dict[str, Any] = {}
    if system.tokenizer_class:
        defaults["tokenizer_class"] = system.tokenizer_class
    if system.model_type == "t5":
        defaults["extra_ids"] = sentencepiece.T5["extra_ids"]
    if system.model_type == "deberta":
        # Other tokens than those of a RoBERTa, which has the same files.
        defaults |= {key: names[0] for key, names in file_formats.SPECIALS.items()} | {
            SEPARATORS: 1
        }
    if system.release:
        defaults[wordpiece.MAX_CHARACTERS] = wordpiece.RELEASE_LIMIT
    # The releases of ALBERT have other names for their SentencePiece model: 30k-clean.model.
    others: list[AnyPath] = list(folder.glob("*.model"))
    names = (*tokenizers.KINDS, tokenizers.JSON_FILE)
    present = [folder / name for name in names if (folder / name).exists()]
    for path in present:
        # A folder of this name is an error, and no reason to take another file.
        paths.check_file(path)
    vocabulary = present[0] if present else folder / system.vocabulary
    tokenizer: tokenizers.Tokenizer
    if (model := folder / sentencepiece.DEBERTA_FILE).exists():
        vocabulary = model  # a tokenizer.json beside it has the same pieces
        tokenizer = _deberta_tokenizer(vocabulary)
    elif present:
        tokenizer = tokenizers.load(folder, defaults)
    elif vocabulary.name == sentencepiece.FAIRSEQ_FILE and vocabulary.exists():
        content = paths.read_bytes(vocabulary)
        unused = system.model_type == "camembert"
        content = sentencepiece.with_fairseq_ids(content, unused, str(vocabulary))
        listed = added_tokens.read(folder, file_formats.read_settings(folder))
        settings = {**sentencepiece.FAIRSEQ, added_tokens.LISTED: listed}
        tokenizer = tokenizers.SentencePiece(content, False, settings, str(vocabulary))
    elif vocabulary.suffix == ".model" and len(others) == 1:
        vocabulary = others[0]
        paths.check_file(vocabulary)
        tokenizer = tokenizers.SentencePiece.read(vocabulary, defaults)
    else:
        raise UserError(
            f"{vocabulary} is missing: put the model's vocabulary there, or its "
            f"{tokenizers.JSON_FILE}"
        )
    if not 0 <= vocab_size - tokenizer.vocab_size < system.rounded_to:
        raise UserError(
            f"{vocabulary} has {tokenizer.vocab_size} pieces, {source} says vocab_size "
            f"{vocab_size}: {_ADVICE[tokenizer.FILE]}"
        )
    return tokenizer


def _deberta_tokenizer(vocabulary: AnyPath) -> tokenizers.SentencePiece:
    """Reads a `spm.model` and the settings beside it.

    Raises:
      UserError: it is not a SentencePiece model, or the settings want another split of words.
    """
    folder = vocabulary.parent
    settings = file_formats.read_settings(folder)
    if file_formats.switch(settings, "split_by_punct", False):
        raise UserError(f"{folder / file_formats.SETTINGS_FILE}: split_by_punct is not supported")
    settings[added_tokens.LISTED] = added_tokens.read(folder, settings)
    model = sentencepiece.with_mask(paths.read_bytes(vocabulary), str(vocabulary))
    lower_case = file_formats.switch(settings, "do_lower_case", False)
    return tokenizers.SentencePiece(model, lower_case, settings, str(vocabulary))


def spare_rows(converted: Converted) -> str | None:
    """Returns which rows of the embedding table no token has; None = each row has one."""
    size = getattr(converted.config.encoder, "vocab_size", None)
    first = converted.tokenizer.vocab_size
    if size is None or size <= first:
        return None
    return f"row {first}" if size == first + 1 else f"rows {first} to {size - 1}"


def write(converted: Converted, output: str | os.PathLike) -> None:
    """Writes config.yaml, tokenizer/, a checkpoint at step 0, and generation.json, embedding.json.

    Raises:
      UserError: `output` exists.
    """
    model_folder.write_new(
        converted.config,
        converted.tokenizer,
        converted.variables,
        output,
        converted.generation,
        strict.to_dict(converted.embedding) if converted.embedding else None,
    )
