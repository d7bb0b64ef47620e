"""Writes a model that was read from the files of another tool as a model folder."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from official import config as configs
from official import tokenizers
from official.config.compatibility import check_encoder
from official.conversion import mapping, pair_rules
from official.conversion.heads import kind_of
from official.conversion.mapping import LazyTensors
from official.conversion.system import System, naming
from official.saving import model_folder
from official.saving.embedding_settings import EmbeddingSettings
from official.tokenizers import (
    added_tokens,
    file_formats,
    folders,
    loading,
    sentencepiece,
    wordpiece,
)
from official.tokenizers.folders import Look
from official.utils import paths, strict
from official.utils.errors import UserError
from official.utils.paths import AnyPath

# Advice about a vocabulary of another size, by its file.
_ADVICE = {
    "vocab.txt": "take the vocabulary of this model (if its table has more rows, add lines "
    "such as [unused999] for them)",
    "spiece.model": (
        "take the SentencePiece model that was released with these weights; a newly trained "
        "model has other pieces under the same ids"
    ),
    "vocab.json": "take vocab.json and merges.txt of this model",
    "bpe.codes": "take vocab.txt and bpe.codes of this model",
    "tokenizer.json": "take tokenizer.json of this model",
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
      settings_left_out: the names of generation settings that are not converted.
      embedding: the settings of the vectors of texts; None = there are none.
      notes: sentences about corrections.
      origin: the license and the base of the weights, as `official.saving.model_card` has them.
    """

    config: configs.ResolvedConfig
    tokenizer: tokenizers.Tokenizer
    variables: Mapping[str, np.ndarray]
    leftover: Sequence[str]
    generation: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    settings_left_out: Sequence[str] = ()
    embedding: EmbeddingSettings | None = None
    notes: Sequence[str] = ()
    origin: Mapping[str, str] = dataclasses.field(default_factory=dict)


def read(
    folder: AnyPath,
    described: Mapping[str, Any],
    source: str | os.PathLike,
    system: System,
    tensors: LazyTensors,
) -> Converted:
    """Makes a `Converted` from the content of a folder.

    Args:
      folder: the folder, which contains the vocabulary.
      described: the parsed config.json or a similar config.
      source: the file of `described`, for messages.
      system: the table of the system.
      tensors: the tensors by name.

    Raises:
      UserError: a file, key or tensor is missing, or the parts belong to different models.
    """
    check_types(described, source)
    names = set(tensors)
    with naming(source):
        heads = system.heads_of(names, described)
    encoder = system.encoder_config(described, str(source), heads, **system.fields_of(names, heads))
    objectives = system.objectives(heads, described, str(source))
    tokenizer = tokenizer_of(folder, encoder.vocab_size, source, system)
    if not system.release:
        tokenizer = pair_rules.with_form(tokenizer, folder, encoder, system.frames)
    name = folder.resolve().name
    config = config_of(name, encoder, objectives, system, tokenizer.max_tokens)
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
      UserError: a key has the wrong type.
    """
    for key, hint in {"architectures": tuple[Any, ...], "id2label": Mapping[Any, Any]}.items():
        strict.typed(hint | None, described.get(key), key, str(source))


def config_of(
    name: str,
    encoder: Any,
    objectives: Sequence[Any],
    system: System,
    max_tokens: int | None = None,
) -> configs.ResolvedConfig:
    """Returns the config of a converted model.

    If it has heads of pretraining, the config has `segments` and `corruption` for training.

    Args:
      name: the name of the model.
      encoder: the config of the encoder.
      objectives: the configs of its objectives.
      system: the table of the system.
      max_tokens: the length in tokens to which the tokenizer cuts texts; None = no limit.
    """
    kinds = [kind_of(objective) for objective in objectives]
    raw: dict[str, Any] = {"name": name}
    if any(kind.segments for kind in kinds):
        length = min(system.max_length, encoder.max_positions, max_tokens or system.max_length)
        raw["segments"] = {**system.segments, "max_length": length}
    if any(kind.corruption for kind in kinds):
        raw["corruption"] = {"type": "token_masks", **system.corruption}
    config = configs.from_dict(raw, name)
    check_encoder(objectives, encoder, name)
    return configs.ResolvedConfig.of(config, encoder=encoder, objectives=tuple(objectives))


def tokenizer_of(
    folder: AnyPath, vocab_size: int, source: str | os.PathLike, system: System
) -> tokenizers.Tokenizer:
    """Loads the tokenizer of a folder; its files determine the kind, not the system.

    Raises:
      UserError: there is no tokenizer, or its size differs from `vocab_size` in the config
        `source`.
    """
    defaults = system.tokenizer_defaults(folder)
    if system.release:
        defaults[wordpiece.MAX_CHARACTERS] = wordpiece.RELEASE_LIMIT
    # The releases of ALBERT have other names for their SentencePiece model: 30k-clean.model.
    others: list[AnyPath] = list(folder.glob("*.model"))
    names = (*tokenizers.KINDS, tokenizers.JSON_FILE)
    present = [folder / name for name in names if (folder / name).exists()]
    for path in present:
        # A folder with the name of the vocabulary is an error; no other file is tried.
        paths.check_file(path)
    vocabulary = present[0] if present else folder / system.vocabulary
    tokenizer: tokenizers.Tokenizer
    if (model := folder / sentencepiece.DEBERTA_FILE).exists():
        vocabulary = model
        tokenizer = _of_model(vocabulary, defaults, _deberta_tokenizer)
    elif present:
        tokenizer = tokenizers.load(folder, defaults, foreign=True)
    elif vocabulary.name == sentencepiece.FAIRSEQ_FILE and vocabulary.exists():
        tokenizer = _of_model(
            vocabulary,
            defaults,
            lambda path, seen: _fairseq_tokenizer(path, seen, system.unused_piece),
        )
    elif vocabulary.suffix == ".model" and len(others) == 1:
        vocabulary = others[0]
        paths.check_file(vocabulary)
        tokenizer = _of_model(vocabulary, defaults, loading.read_vocabulary)
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


def _of_model(
    vocabulary: AnyPath,
    defaults: Mapping[str, Any],
    read_model: Callable[[AnyPath, Look], tokenizers.Tokenizer],
) -> tokenizers.Tokenizer:
    """Reads a SentencePiece model with an unusual file name, and the files beside it.

    Args:
      vocabulary: the model.
      defaults: settings that apply if no file has them.
      read_model: reads the tokenizer of the model.

    Raises:
      UserError: a file is not valid, or has a setting that is refused.
    """
    folder = vocabulary.parent
    seen = folders.look(folder, file_formats.read_settings(folder), defaults)

    def tokenizer() -> tokenizers.Tokenizer:
        made = read_model(vocabulary, seen)
        made.about = made.about or {"class": seen.title}
        return made

    # In folders of this project the model counts; tokenizer.json describes the same for other
    # tools.
    if seen.described is None or file_formats.FINGERPRINT in seen.settings:
        return tokenizer()
    return loading.described_or(tokenizer, folder, seen)


def _fairseq_tokenizer(vocabulary: AnyPath, seen: Look, unused: bool) -> tokenizers.SentencePiece:
    """Reads a `sentencepiece.bpe.model`, whose ids differ from those of the tokenizer."""
    content = sentencepiece.with_fairseq_ids(paths.read_bytes(vocabulary), unused, str(vocabulary))
    settings = {
        **sentencepiece.FAIRSEQ, added_tokens.LISTED: seen.settings[added_tokens.LISTED]
    }  # fmt: skip
    return tokenizers.SentencePiece(content, False, settings, str(vocabulary))


def _deberta_tokenizer(vocabulary: AnyPath, seen: Look) -> tokenizers.SentencePiece:
    """Reads a `spm.model` and the settings beside it.

    Raises:
      UserError: it is not a SentencePiece model.
    """
    model = sentencepiece.with_mask(paths.read_bytes(vocabulary), str(vocabulary))
    lower_case = file_formats.switch(seen.settings, "do_lower_case", False)
    return tokenizers.SentencePiece(model, lower_case, seen.settings, str(vocabulary))


def understood(converted: Converted) -> list[str]:
    """Returns lines that describe how the model reads texts, and its notes."""
    tokenizer, config = converted.tokenizer, converted.config
    about = dict(tokenizer.about) or {"class": "none"}
    layout = config.encoder.text_layout
    cls, sep = tokenizer.pieces[tokenizer.cls_id], tokenizer.pieces[tokenizer.sep_id]
    row = {"cls_first": "[CLS] A [SEP]", "cls_last": "A [SEP] [CLS]"}.get(layout, "A [SEP]")
    form, _, types = tokenizer.pairs.words(layout).partition(", ")
    row, form = (text.replace("[CLS]", cls).replace("[SEP]", sep) for text in (row, form))
    length = tokenizer.max_tokens
    positions = config.encoder.max_positions
    says = f"{length}, as model_max_length" if length else "that of the encoder"
    if length and length > positions:
        says = f"{positions}, the positions of the encoder"
    lines = {
        **about,
        "one text": row,
        "a pair": form,
        "types": types,
        "cut": f"long texts lose tokens at the {tokenizer.pairs.cut_side}",
        "length": says,
    }
    if (embedding := converted.embedding) is not None:
        if embedding.max_length is not None:
            lines["length"] = f"{embedding.max_length}, as in sentence-transformers"
        prompts = [f"{name} {text!r}" for name, text in embedding.prompts.items() if text]
        lines["prompts"] = ", ".join(prompts) or "none"
    case = about.get("case")
    notes = [note for note in tokenizer.notes if not (case and note.endswith(case))]
    block = ["how texts are read:", *(f"  {what}: {text}" for what, text in lines.items())]
    return ["\n".join(block), *notes]


def spare_rows(converted: Converted) -> str | None:
    """Describes the rows of the embedding table without a token; None = there are none."""
    size = converted.config.encoder.vocab_size
    first = converted.tokenizer.vocab_size
    if size is None or size <= first:
        return None
    return f"row {first}" if size == first + 1 else f"rows {first} to {size - 1}"


def write(converted: Converted, output: str | os.PathLike) -> None:
    """Writes a model folder.

    It has config.yaml, tokenizer/, a checkpoint at step 0 and, if the model has these settings,
    generation.json and embedding.json.

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
        origin=converted.origin,
    )
