"""Searches in stored vectors, a module for each kind of vectors.

A kind is a class with the members of `base.Index`, in a module of its own, and a row of `KINDS`.
`official.serving.vectors.stored` has the folder: its files, ids, checksums, and new pieces.
"""

from official.serving.vectors.indexes.base import Index
from official.serving.vectors.indexes.dense import Dense, Tokens
from official.serving.vectors.indexes.sparse import Sparse

KINDS: dict[str, type[Index]] = {"dense": Dense, "tokens": Tokens, "sparse": Sparse}
