"""The files of a model that LiteRT runs without TensorFlow.

  model.tflite    the graph, from rows of ids to vectors of texts
  tokenizer.json  the tokenizer, as the package `tokenizers` reads it
  texts.json      the form of rows, the settings of vectors, and the SHA-256 of both files

`writing` makes such a folder.
"""

import dataclasses
import importlib.util
from collections.abc import Mapping
from typing import Any

from official.saving.embedding_settings import EmbeddingSettings
from official.serving.light.rows import Rows
from official.utils import atomic, checksums, json_files, strict
from official.utils.errors import UserError
from official.utils.paths import AnyPath

MODEL = "model.tflite"
TOKENIZER = "tokenizer.json"
TEXTS = "texts.json"
PRECISIONS = ("float32", "int8")
PACKAGES = {"ai_edge_litert": "ai-edge-litert", "tokenizers": "tokenizers"}
_FORM = 1  # of a cached folder; with another number, all models are converted again
INSTALL = f"pip install {' '.join(PACKAGES.values())}"


@dataclasses.dataclass(frozen=True)
class Description:
    """What `texts.json` has.

    Attributes:
      signature: the name of the graph's signature.
      inputs: the names of its inputs, by the fields of a batch.
      output: the name of its output, the vectors of texts.
      size: the size of a vector.
      max_length: longer texts are cut to this number of tokens, special tokens included.
      rows: the form of a row.
      embedding: the settings of the vectors.
      examples: the ids of some texts, without special tokens; the package `tokenizers` has to give
        the same ones.
      sha256: the checksums of the other files, by their names.
    """

    signature: str
    inputs: Mapping[str, str]
    output: str
    size: int
    max_length: int
    rows: Rows
    embedding: EmbeddingSettings
    examples: Mapping[str, tuple[int, ...]]
    sha256: Mapping[str, str]


def is_light(folder: AnyPath) -> bool:
    """Whether a folder has the files of this module."""
    return (folder / TEXTS).exists() and (folder / MODEL).exists()


def no_whole_model(folder: AnyPath) -> UserError:
    """Returns the error of what needs a whole model where there are only the files for LiteRT."""
    return UserError(
        f"{folder}: an export for LiteRT has the vectors of texts by its own settings alone: load "
        "the model folder for anything else"
    )


def missing_packages() -> list[str]:
    """Returns the names of the packages that are needed and not installed."""
    return [name for module, name in PACKAGES.items() if importlib.util.find_spec(module) is None]


def write(folder: AnyPath, description: Description) -> None:
    """Writes `texts.json` beside the other files, whose checksums it gets."""
    sha256 = {name: checksums.hash_file(folder / name) for name in (MODEL, TOKENIZER)}
    values = strict.to_dict(dataclasses.replace(description, sha256=sha256))
    with atomic.file(folder / TEXTS) as stream:
        json_files.dump(values, stream)


def read(folder: AnyPath) -> Description:
    """Reads a folder, and checks that its files are whole.

    Raises:
      UserError: a file is missing or damaged.
    """
    file = folder / TEXTS
    values: dict[str, Any] = json_files.checked(json_files.read(file), file)
    description = strict.build(Description, values, str(file))
    for name in (MODEL, TOKENIZER):
        path = folder / name
        if not path.exists():
            raise UserError(f"{path}: missing: write the folder again")
        if checksums.hash_file(path) != description.sha256.get(name):
            raise UserError(f"{path}: damaged (its SHA-256 is not the one in {file})")
    return description


def cached(model_dir: AnyPath, weights: str, precision: str) -> AnyPath:
    """Returns the folder in which a model folder keeps what was converted from a checkpoint.

    Its name changes with everything that the conversion reads.

    Args:
      model_dir: the model folder.
      weights: the SHA-256 of the weights of the checkpoint.
      precision: the precision of the graph.
    """
    files = [path for path in model_dir.iterdir() if path.suffix in (".json", ".yaml")]
    files += [path for path in model_dir.glob("tokenizer/*") if path.is_file()]
    settings = sorted((path.name, checksums.hash_file(path)) for path in files)
    key = checksums.hash_bytes(repr([_FORM, weights, settings]).encode())
    return model_dir / "litert" / f"{precision}-{key[:16]}"
