"""Folders of model2vec, which sentence-transformers reads too: a table, and a tokenizer.

  model.safetensors   embeddings [R, D]; perhaps mapping [V], the row of each piece, and weights
                      [V], its factor
  tokenizer.json      the tokenizer; no special tokens stand around a text
  config.json         model_type model2vec, normalize, max_length and how the table was made
  modules.json        for sentence-transformers: StaticEmbedding, and Normalize

The vector of a text is the mean over its tokens, at most `max_length`, without the unknown token,
which sentence-transformers counts. Two rules of model2vec are not done here: before the text is
split, it is cut to `max_length` times the median length of a piece, in letters; and literal special
tokens in a text are found.

A row of a model here has special tokens, which do not count. Where the vocabulary has none of these
names, its padding token stands in their place.

Shapes: V pieces, R rows, D size of a vector.
"""

import contextlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors.numpy

from official import config as configs
from official import tokenizers
from official.config.encoders import StaticConfig
from official.config.sentence_embedding import SentenceEmbeddingConfig
from official.conversion.converted_model import Converted
from official.conversion.weight_files import SAFETENSORS, Weights
from official.saving import embedding_settings, static_vectors
from official.saving.embedding_settings import EmbeddingSettings
from official.tokenizers import tokenizer_json
from official.utils import json_files, strict
from official.utils.errors import UserError
from official.utils.paths import AnyPath

MODEL_TYPE = "model2vec"
_CONFIG = "config.json"
# Keys of config.json that say how the table was made, or repeat what other files say.
_ABOUT = (
    *("model_type", "architectures", "tokenizer_name", "apply_pca", "apply_zipf", "pooling"),
    *("sif_coefficient", "hidden_dim", "seq_length", "embedding_dtype", "token_remove_pattern"),
    *("vocabulary_quantization", "language", "base_model_name"),
)


def describes(folder: AnyPath) -> bool:
    """Returns whether a folder is of model2vec; its model_type may be missing."""
    path = folder / _CONFIG
    config = json_files.read(path) if path.is_file() else {}
    kind = MODEL_TYPE if "embedding_dtype" in config else None
    return config.get("model_type", kind) == MODEL_TYPE


def read(folder: AnyPath) -> Converted:
    """Reads a folder of model2vec.

    Raises:
      UserError: a file is missing or broken, or has something that is not supported.
    """
    source = str(folder / _CONFIG)
    config = json_files.read(folder / _CONFIG)
    if unknown := sorted(config.keys() - {*_ABOUT, "normalize", "max_length"}):
        raise UserError(
            f"{source}: {unknown[0]}: this key is not known here, and might change the vectors. If "
            "it does not change them, remove it from the file"
        )
    normalize = strict.typed(bool, config.get("normalize", False), "normalize", source)
    length = config.get("max_length", static_vectors.MAX_TOKENS)
    length = strict.typed(int | None, length, "max_length", source)
    with contextlib.closing(Weights(folder)) as weights:
        return converted(folder, weights, "embeddings", normalize, length, skips_unknown=True)


def converted(
    folder: AnyPath,
    weights: Weights,
    name: str,
    normalize: bool,
    max_tokens: int | None,
    skips_unknown: bool,
) -> Converted:
    """Makes a model of static vectors from the files of a folder.

    Args:
      folder: the folder of the tokenizer.
      weights: the tensors.
      name: the name of the table.
      normalize: whether the vectors of texts have the length 1.
      max_tokens: longer texts are cut to this number of tokens; None = they are not cut.
      skips_unknown: whether the unknown token does not count.

    Raises:
      UserError: a tensor is missing, or does not suit the tokenizer.
    """
    source, notes = weights.source, []
    if name not in weights:
        raise UserError(f"{source}: {name}: missing: is this a table of static vectors?")
    table = weights[name]
    mapping, factors = (weights[n] if n in weights else None for n in ("mapping", "weights"))
    if table.ndim != 2 or any(x is not None and x.ndim != 1 for x in (mapping, factors)):
        raise UserError(f"{source}: {name} has no rows and columns, or mapping or weights has some")
    if table.dtype == np.int8:
        notes.append(
            f"{name} is of int8, and no file has its scale: only the directions of vectors are "
            "those before the rounding"
        )
    variables = {static_vectors.TABLE: table.astype(np.float32)}
    size = len(table) if mapping is None else len(mapping)
    if factors is not None and len(factors) != size:
        raise UserError(f"{source}: weights: {len(factors)}, but there are {size} pieces")
    if mapping is not None:
        if not np.issubdtype(mapping.dtype, np.integer) or not np.all(
            (mapping >= 0) & (mapping < len(table))
        ):
            raise UserError(f"{source}: mapping: has values that are not rows of {name}")
        factors = np.ones(size) if factors is None else factors
        variables["encoder/rows"] = mapping.astype(np.int32)
        variables["encoder/weights"] = factors.astype(np.float32)[:, None]
    elif factors is not None:
        variables[static_vectors.TABLE] *= factors.astype(np.float32)[:, None]
    if not all(np.isfinite(x).all() for x in variables.values()):
        raise UserError(f"{source}: contains NaN or infinity: the file is damaged")
    tokenizer = tokenizers.load(folder, _roles(folder), foreign=True)
    if size < tokenizer.vocab_size:
        raise UserError(
            f"{source}: vectors of {size:,} pieces, but the tokenizer has "
            f"{tokenizer.vocab_size:,}: take the tokenizer.json of this table"
        )
    skipped = set(tokenizer.special_ids)
    if not skips_unknown:
        if tokenizer.unk_id in (tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id):
            raise UserError(
                f"{folder}: the vocabulary has no special token but the unknown one, which counts "
                f"in a text: give a padding token with its row, as pad_token in "
                f"{tokenizers.file_formats.SETTINGS_FILE}"
            )
        skipped.remove(tokenizer.unk_id)
    encoder = StaticConfig(
        vocab_size=size,
        hidden_size=table.shape[1],
        num_rows=None if mapping is None else len(table),
        skipped_ids=tuple(sorted(skipped)),
    )
    return Converted(
        static_vectors.config_of(folder.resolve().name, encoder, normalize),
        tokenizer,
        variables,
        sorted(set(weights) - {name, "mapping", "weights"}),
        embedding=static_vectors.settings_of(tokenizer, normalize, max_tokens),
        notes=notes,
    )


def _roles(folder: AnyPath) -> dict[str, str]:
    """Returns the special tokens of a tokenizer that are not named by its other files."""
    described = json_files.read(folder / tokenizers.JSON_FILE, "is this the file of a tokenizer?")
    model = described.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, list):
        vocabulary = [entry[0] for entry in vocabulary if isinstance(entry, list) and entry]
    known = {*(vocabulary or ())}
    listed = described.get("added_tokens")
    listed = [t.get("content") for t in listed or () if isinstance(t, dict) and t.get("special")]
    padding = described.get("padding")
    padding = padding.get("pad_token") if isinstance(padding, dict) else None
    usual = (padding, *tokenizers.file_formats.SPECIALS["pad_token"], *listed)
    pad = next((name for name in usual if name in known or name in listed), None)
    if pad is None:
        return {}
    roles = dict.fromkeys(("pad_token", "cls_token", "sep_token"), pad)
    if isinstance(model, dict) and model.get("unk_token") is None and model.get("unk_id") is None:
        roles["unk_token"] = pad
    return roles


def write(
    config: configs.ResolvedConfig,
    variables: Mapping[str, np.ndarray],
    tokenizer: tokenizers.Tokenizer,
    settings: EmbeddingSettings,
    folder: AnyPath,
) -> list[str]:
    """Writes a folder that model2vec and sentence-transformers read.

    Args:
      config: the config of a model of static vectors.
      variables: its variables by path.
      tokenizer: its tokenizer.
      settings: the settings of the vectors of texts.
      folder: the folder to write to.

    Returns:
      Sentences about texts of which one of them has other vectors.

    Raises:
      UserError: the model has a part that these folders do not have.
    """
    encoder: Any = config.encoder
    skipped = np.array(encoder.skipped_ids or (), int)
    tensors = _tensors(encoder, variables, tokenizer.vocab_size, skipped, settings.size)
    described = tokenizer_json.described(tokenizer)
    others = [o.type for o in config.objectives if not isinstance(o, SentenceEmbeddingConfig)]
    learned = embedding_settings.objective_of(config)
    refused = {
        f"objectives: {', '.join(others)}": bool(others),
        "objectives: projection": learned is not None and learned.kept_projection is not None,
        f"embedding.json: pooling: {','.join(settings.pooling)}": settings.pooling != ("pooled",),
        f"tokenizer: {type(tokenizer).__name__}": described is None,
    }
    if found := [what for what, wrong in refused.items() if wrong]:
        raise UserError(f"{found[0]}: folders of model2vec have no such part")
    cut = (settings.max_length or encoder.max_positions) - static_vectors.room(tokenizer)
    described = {
        **(described or {}),
        "truncation": {
            "direction": tokenizer.pairs.cut_side.capitalize(),
            "max_length": cut,
            "strategy": "LongestFirst",
            "stride": 0,
        },
        "post_processor": None,
    }
    table = tensors["embeddings"]
    about = {
        "model_type": MODEL_TYPE,
        "architectures": ["StaticModel"],
        "tokenizer_name": config.name,
        "hidden_dim": table.shape[1],
        "seq_length": 1_000_000,
        "normalize": settings.normalize,
        "pooling": "mean",
        "max_length": cut,
        "embedding_dtype": table.dtype.name,
    }
    if "mapping" in tensors:
        about["vocabulary_quantization"] = len(table)
    for name, content in {
        _CONFIG: about,
        tokenizer_json.FILE: described,
    }.items():
        text = json.dumps(content, indent=1, ensure_ascii=False)
        (folder / name).write_text(f"{text}\n", "utf-8")
    safetensors.numpy.save_file(tensors, folder / SAFETENSORS, metadata={"format": "pt"})
    notes = []
    if tokenizer.unk_id not in skipped:
        notes.append(
            "the unknown token counts in a text, here and in sentence-transformers; model2vec "
            "leaves it out"
        )
    elif not settings.normalize:
        notes.append(
            "the unknown token does not count in a text, here and in model2vec; "
            "sentence-transformers counts it: its vectors of texts that have one are shorter"
        )
    return notes


def _tensors(
    encoder: StaticConfig,
    variables: Mapping[str, np.ndarray],
    count: int,
    skipped: np.ndarray,
    size: int | None,
) -> dict[str, np.ndarray]:
    """Returns the tensors of a folder.

    Args:
      encoder: the config of the encoder.
      variables: the variables by path.
      count: the number of pieces; model2vec refuses rows without a piece.
      skipped: tokens that do not count. Their vectors are written as 0, so that they do not change
        the direction of a vector where they do count.
      size: the number of first dimensions that are written; None = all.
    """
    table = np.array(variables[static_vectors.TABLE][:, :size])
    if encoder.num_rows is None:
        table = table[:count]
        table[skipped] = 0
        return {"embeddings": table}
    weights = np.array(variables["encoder/weights"][:count, 0])
    weights[skipped] = 0
    mapping = variables["encoder/rows"][:count].astype(np.int64)
    return {"embeddings": table, "mapping": mapping, "weights": weights}
