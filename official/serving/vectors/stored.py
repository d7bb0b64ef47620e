"""Folders of vectors that are computed once, and searched as often as needed.

  vectors-00000.npy   the arrays of the first piece: of dense vectors, a row for each of its texts
  ids-00000.txt       the ids of its texts, one on each line
  _vectors.json       the manifest, which is written last: the kind of the vectors, the model and
                      the settings that made them, the number of pieces, and the checksums of all
                      files

`official.serving.vector_pieces` writes a folder. Its files never change: new documents are new
pieces, and a new manifest replaces the old one when they are whole. What a manifest does not name
is not part of the folder.

What is in the arrays of a piece, and how it is searched, is the matter of a kind: see
`official.serving.vectors.indexes`. A kind is added there.
"""

import collections
import contextlib
import dataclasses
import functools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from official.saving import embedding_settings
from official.serving.vectors.indexes import KINDS, Index
from official.utils import atomic, checksums, json_files, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

if TYPE_CHECKING:
    from official.saving.embedding_settings import EmbeddingSettings
    from official.serving.vectors.embedder import Embedder
    from official.serving.vectors.vector_files import AnyEmbedder

FILE = "_vectors.json"
_TYPES = {"texts": int, "pieces": int, "shape": list, "settings": dict, "format": str}
# The entries of folders that were written before there were kinds.
DEFAULTS: dict[str, Any] = {
    "kind": "dense", "dtype": "float32", "scale": None, "checksums": {}, "tokenizer": None,
}  # fmt: skip
_AGAIN = "copy the folder again, or embed the texts again"
_OTHER = "search with what made them, or embed the texts again"
_ADVICE = {
    "normalize": "embed the texts again, with --normalize or --nonormalize",
    "prompt": "embed the texts again with the --prompt_name of documents",
}


def name_of(array: str, number: int, suffix: str = "npy") -> str:
    """Returns the name of the file of an array of a piece."""
    return f"{array}-{number:05}.{suffix}"


def kind_of(embedder: "AnyEmbedder", sparse: bool | None = None) -> str:
    """Returns the kind of the vectors by which a model searches.

    Args:
      embedder: computes them.
      sparse: whether they are sparse; None = as the embedder has it.
    """
    if embedder.is_sparse if sparse is None else sparse:
        return "sparse"
    return "tokens" if getattr(embedder, "has_late", False) else "dense"


def identity(
    embedder: "Embedder", settings: "EmbeddingSettings", layer: int | str, prompt: str | None
) -> dict[str, Any]:
    """Returns the entries of a manifest that say how dense vectors are made.

    Args:
      embedder: computes them.
      settings: their settings.
      layer: the layer that they are made of.
      prompt: the name of the prompt before each text; None = the default.
    """
    return {
        "model_checksum": embedder.checksum(settings),
        "tokenizer": embedder.tokenizer.fingerprint,
        "settings": dataclasses.asdict(settings),
        "layer": layer,
        "prompt": prompt,
        "shape": embedder.shape(layer, settings),
    }


def identity_of_sparse(embedder: "Embedder", settings: "EmbeddingSettings") -> dict[str, Any]:
    """Returns the entries of a manifest that say how sparse vectors are made."""
    return {
        "model_checksum": embedder.checksum(settings),
        "tokenizer": embedder.tokenizer.fingerprint,
        "settings": {**dataclasses.asdict(settings), "similarity": "dot", "normalize": False},
        "layer": -1,
        "prompt": embedding_settings.prompt_of("document", settings),
        "shape": [embedder.sparse_size],
    }


def identity_of_tokens(embedder: "Embedder") -> dict[str, Any]:
    """Returns the entries of a manifest that say how the vectors of tokens are made."""
    config, settings = embedder.late.config, embedder.settings
    return {
        "model_checksum": embedder.checksum(settings),
        "tokenizer": embedder.tokenizer.fingerprint,
        "settings": {
            **dataclasses.asdict(config),
            "similarity": config.similarity,
            "normalize": True,
            "max_length": settings.max_length,
        },
        "layer": -1,
        "prompt": None,
        "shape": [config.size or embedder.config.encoder.hidden_size],
    }


class Stored:
    """A folder of vectors that can be searched.

    Attributes:
      folder: the folder.
      manifest: what `_vectors.json` has.
      index: compares its documents with queries.
      finer: the same documents in larger numbers, by which the best ones are compared again; None =
        once is enough.
    """

    finer: "Stored | None" = None

    def __init__(self, folder: str | os.PathLike):
        """Maps the files.

        Raises:
          UserError: it is no such folder, is not complete or not local, or has vectors that are
            not searched, or a file is missing, damaged, or of another size.
        """
        self.folder = paths.path(folder)
        self.manifest = read_manifest(self.folder)
        kind, shape = self.manifest["kind"], self.manifest["shape"]
        if paths.is_remote(self.folder):
            raise UserError(f"{self.folder}: files are mapped: copy the folder to a local disk")
        if kind not in KINDS:
            raise UserError(f"{self.folder}: kind: {kind!r} is not one of {', '.join(KINDS)}")
        if self.manifest["format"] != "npy" or len(shape) != 1:
            raise UserError(
                f"{self.folder}: only one vector of a text in .npy files is searched: write the "
                "folder with --pieces=npy and one layer"
            )
        self.index: Index = KINDS[kind](self.manifest)
        for number in range(self.manifest["pieces"]):
            self.index.add({name: self._mapped(name, number) for name in self.index.arrays})
        if self.index.count != self.manifest["texts"]:
            raise UserError(
                f"{self.folder}: the files have {self.index.count:,} vectors, and {FILE} says "
                f"{self.manifest['texts']:,}: {_AGAIN}"
            )

    def _mapped(self, name: str, number: int) -> np.ndarray:
        """Returns an array of a piece."""
        path = self.folder / name_of(name, number)
        try:
            return np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise UserError(f"{json_files.unreadable(path, error)}: {_AGAIN}") from None

    def check(self) -> None:
        """Compares all files with their checksums.

        Raises:
          UserError: a file has changed.
        """
        recorded = self.manifest["checksums"]
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            found = threads.map(checksums.problem, map(self._path, recorded), recorded.values())
            for sentence in filter(None, found):
                raise UserError(f"{sentence}: {_AGAIN}")

    def _path(self, name: str) -> AnyPath:
        return self.folder / name

    @functools.cached_property
    def ids(self) -> list[str]:
        """The ids of the documents.

        Raises:
          UserError: there are not as many as vectors, or one occurs twice.
        """
        ids = list(read_ids(self.folder, self.manifest["pieces"]))
        if len(ids) != self.index.count:
            raise UserError(
                f"{self.folder}: {len(ids):,} ids of {self.index.count:,} vectors: {_AGAIN}"
            )
        if len(set(ids)) < len(ids):
            twice = next(i for i, count in collections.Counter(ids).items() if count > 1)
            raise UserError(f"{self.folder}: the id {twice!r} occurs twice: embed texts with ids")
        return ids

    def check_texts(self, other: "Stored") -> None:
        """Compares the ids of the documents with those of another folder, piece by piece.

        Raises:
          UserError: they are others.
        """
        mine, theirs = (
            {name: x for name, x in each.manifest["checksums"].items() if name.endswith(".txt")}
            for each in (self, other)
        )
        if mine != theirs or self.index.count != other.index.count:
            raise UserError(
                f"{other.folder}: its texts or its pieces are not those of {self.folder}: make one "
                "of the other (official.commands.smaller_vectors)"
            )

    def check_model(self, embedder: "Embedder", settings: "EmbeddingSettings") -> None:
        """Compares the vectors with those that a search would compute of documents.

        Args:
          embedder: computes those of the search.
          settings: their settings.

        Raises:
          UserError: the folder is of another model, or of other settings.
        """
        kind = kind_of(embedder)
        if kind == "tokens":
            given = identity_of_tokens(embedder)
        elif kind == "sparse":
            given = identity_of_sparse(embedder, embedder.settings)
        else:
            prompt = embedding_settings.prompt_of("document", settings)
            given = identity(embedder, settings, embedder.default_layer, prompt)
        wanted = json.loads(json.dumps(given))
        there = self.manifest
        if there["shape"] != wanted["shape"]:
            raise UserError(
                f"{self.folder}: its vectors have {there['shape'][0]:,} numbers, and those of this "
                f"model have {wanted['shape'][0]:,}: {_OTHER}"
            )
        pairs = {key: (there["settings"].get(key), x) for key, x in wanted["settings"].items()}
        pairs["layer"] = there["layer"], wanted["layer"]
        pairs["prompt"] = _prompt(there), _prompt(wanted)
        for key, (old, new) in pairs.items():
            if old != new:
                raise UserError(
                    f"{self.folder}: {key} of its vectors is {old!r}, and {new!r} in this search: "
                    f"{_ADVICE.get(key, _OTHER)}"
                )
        if any(there[key] not in (None, wanted[key]) for key in ("model_checksum", "tokenizer")):
            raise UserError(
                f"{self.folder}: its vectors are of another model, checkpoint, precision or "
                f"runtime than this one: {_OTHER}"
            )


def _prompt(made: Mapping[str, Any]) -> str:
    """Returns what stood before each text."""
    settings = made["settings"]
    name = settings.get("default_prompt") if made["prompt"] is None else made["prompt"]
    return "" if name is None else settings["prompts"][name]


def read_manifest(folder: AnyPath) -> dict[str, Any]:
    """Reads the manifest of a folder.

    Raises:
      UserError: there is none, or it is damaged.
    """
    if not (folder / FILE).exists():
        raise UserError(
            f"{folder} has no {FILE}: name a folder that --mode=embed --pieces=npy has written; if "
            "that was stopped, give the command again"
        )
    return json_files.read_record(folder / FILE, _TYPES, DEFAULTS)


def write_manifest(
    folder: AnyPath, plan: Mapping[str, Any], pieces: int, before: Mapping[str, Any] | None
) -> None:
    """Writes the manifest of a folder whose pieces are there; they belong to it from then on.

    Args:
      folder: the folder.
      plan: the entries for the new pieces, with the number of their `texts` and `first_piece`.
      pieces: the number of all pieces.
      before: the manifest that is replaced; None = there is none.
    """
    entries, suffix = dict(plan), plan["format"]
    before = before or {"texts": 0, "checksums": {}}
    named = [(array, suffix) for array in KINDS[plan["kind"]].arrays]
    if suffix == "npy":
        named.append(("ids", "txt"))
    names = [
        name_of(array, number, end)
        for number in range(entries.pop("first_piece"), pieces)
        for array, end in named
    ]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        sums = threads.map(checksums.hash_file, (folder / name for name in names))
        new = dict(zip(names, sums, strict=True))
    entries["texts"] += before["texts"]
    entries |= {"pieces": pieces, "checksums": before["checksums"] | new}
    json_files.write_record(folder / FILE, entries)


def read_ids(folder: AnyPath, pieces: int) -> Iterator[str]:
    """Yields the ids of the texts of a number of pieces.

    Raises:
      UserError: a file is missing or damaged.
    """
    for number in range(pieces):
        yield from ids_of_piece(folder, number)


def ids_of_piece(folder: AnyPath, number: int) -> Iterator[str]:
    """Yields the ids of the texts of a piece; errors are those of `read_ids`."""
    path = folder / name_of("ids", number, "txt")
    try:
        with path.open(encoding="utf-8") as stream:
            yield from (line.removesuffix("\n") for line in stream)
    except (OSError, ValueError) as error:
        raise UserError(f"{json_files.unreadable(path, error)}: {_AGAIN}") from None


def write_piece(
    folder: AnyPath, number: int, index: Index, blocks: Iterable[tuple[Sequence[str], Any]]
) -> None:
    """Writes the files of a piece. Each appears when it is whole, and the first array last.

    Args:
      folder: the folder.
      number: the number of the piece.
      index: packs the vectors.
      blocks: the ids of some texts, and what the encoder gives for them. One block is in memory.

    Raises:
      UserError: a text has no such vector.
    """
    with contextlib.ExitStack() as stack:
        files = {
            name: stack.enter_context(_array_file(folder / name_of(name, number)))
            for name in index.arrays
        }
        stream = stack.enter_context(atomic.file(folder / name_of("ids", number, "txt")))
        for ids, vectors in blocks:
            stream.writelines(f"{identity}\n" for identity in ids)
            for name, rows in index.pack(vectors, ids).items():
                files[name](rows)


@contextlib.contextmanager
def _array_file(path: AnyPath) -> Iterator[Callable[[np.ndarray], None]]:
    """Yields a function that appends rows to a new `.npy` file, which appears when it is whole."""
    with atomic.file(path, "wb") as stream:
        count, header = 0, {}

        def write(rows: np.ndarray) -> None:
            nonlocal count
            if not count:
                header.update(np.lib.format.header_data_from_array_1_0(rows))
                np.lib.format.write_array_header_1_0(stream, header)
            count += len(rows)
            stream.write(np.ascontiguousarray(rows).data)

        yield write
        # numpy leaves room for any number of rows, so that the header has the same length.
        stream.seek(0)
        np.lib.format.write_array_header_1_0(
            stream, {**header, "shape": (count, *header["shape"][1:])}
        )
