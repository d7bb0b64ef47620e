"""The table of the kinds of folders of sentence-transformers, and what is looked up in it.

A kind is a module beside this one, with a subclass of `kind.Kind`.
"""

from official.conversion.sentence_transformers import folder as folders
from official.conversion.sentence_transformers.cross_encoder import CrossEncoder
from official.conversion.sentence_transformers.folder import Folder
from official.conversion.sentence_transformers.kind import Kind
from official.conversion.sentence_transformers.multi_vector_encoder import (
    MultiVectorEncoder,
    PyLate,
    Stanford,
)
from official.conversion.sentence_transformers.sentence_transformer import SentenceTransformer
from official.conversion.sentence_transformers.sparse_encoder import SparseEncoder
from official.conversion.sentence_transformers.static_embedding import StaticEmbedding
from official.saving.model_folder import ModelFolder
from official.utils.errors import UserError
from official.utils.paths import AnyPath

# The first kind that describes a folder, or that a model is of, is its kind.
KINDS: tuple[Kind, ...] = (
    CrossEncoder(),
    Stanford(),
    PyLate(),
    MultiVectorEncoder(),
    StaticEmbedding(),
    SparseEncoder(),
    SentenceTransformer(),
)


def find(path: AnyPath) -> tuple[Folder, Kind] | None:
    """Returns a folder of sentence-transformers and its kind; None = it is no such folder.

    Raises:
      UserError: the kind or the chain of modules is not supported, or a file is damaged.
    """
    folder = folders.read(path)
    for kind in KINDS:
        if kind.describes(folder):
            kind.check(folder)
            return folder, kind
    if not folder.modules:
        return None
    known = ", ".join(dict.fromkeys(kind.model_type for kind in KINDS))
    raise UserError(f"{folder.source}: model_type: {folder.model_type!r}: known are {known}")


def kind_of(source: ModelFolder) -> Kind | None:
    """Returns the kind that a model folder is written as; None = files of transformers alone."""
    return next((kind for kind in KINDS if kind.is_of(source)), None)
