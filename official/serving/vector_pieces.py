"""A folder of vectors in pieces, for files of texts of any size.

  vectors-00000.npy       the vectors of a piece, float32 [texts of the piece, D], or with all
                          layers [texts of the piece, L + 1, D]
  ids-00000.txt           their ids, one on each line
  vectors-00000.parquet   in place of both: the columns `id` and `vector`
  _vectors.json           what the folder has; it is written last
  _plan.json              while pieces are written: what they belong to

`official.serving.vectors.stored` reads these folders for searches.

Pieces are computed by this process, by several, or on an engine.

Ids are those of `official.tasks.text_files`. A piece gets its name when it is whole, so a run that
is killed loses the pieces that it was computing: the same command computes these and the rest.

Shapes: D size of a vector, L layers.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import official.tokenizers.loading  # noqa: F401  (the workers' models need it)
from official.serving.vectors import stored, vector_files
from official.serving.vectors.indexes import KINDS, Index, dense
from official.serving.vectors.stored import FILE
from official.tasks import text_files
from official.utils import atomic, json_files, parallel, paths
from official.utils.batched import batched
from official.utils.engines import Engine
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from official.utils.progress import Progress

if TYPE_CHECKING:
    from official.saving.embedding_settings import EmbeddingSettings
    from official.serving.vectors.embedder import Embedder

FORMATS = ("npy", "parquet")
SIZE = 16_384  # texts of a piece
_PLAN = "_plan.json"
_MADE = (
    "shape", "settings", "layer", "prompt", "model_checksum", "tokenizer", "precision", "runtime",
    "format", "kind", "dtype",
)  # fmt: skip
_OTHERS = "name another folder, or remove it first"
_SCRATCH = ".runner"  # the folder of an engine, which is removed at the end


@dataclasses.dataclass(frozen=True)
class Options:
    """How vectors are made and written.

    Attributes:
      model_dir: the model folder.
      checkpoint: `best`, `last`, a step or a path.
      pooling: as for `LoadedModel.encode`.
      normalize: as there.
      max_length: as there.
      layer: as there.
      prompt: as there.
      format: one of `FORMATS`.
      size: the number of texts of a piece.
      batch_size: the number of texts in a batch.
      precision: as for `loaded_model.load`.
      runtime: as there.
      dtype: the type of the numbers, one of `dense.TYPES`.

    Raises:
      UserError: `parquet` is given for all layers, or one of both for another type than float32.
    """

    model_dir: str
    checkpoint: str = "best"
    pooling: str | None = None
    normalize: bool | None = None
    max_length: int | None = None
    layer: int | str | None = None
    prompt: str | None = None
    format: str = "npy"
    size: int = SIZE
    batch_size: int = 32
    precision: str = "float32"
    runtime: str = "tensorflow"
    dtype: str = "float32"

    def __post_init__(self):
        if self.dtype != "float32" and (self.format != "npy" or self.layer == "all"):
            raise UserError(f"dtype: {self.dtype}: is for --pieces=npy and one layer")
        if self.format == "parquet" and self.layer == "all":
            raise UserError("pieces: parquet: not supported for all layers, only npy")


class Piece(NamedTuple):
    """A part of the texts.

    Attributes:
      number: its number, from 0.
      ids: the ids of its texts.
      texts: the texts.
    """

    number: int
    ids: list[str]
    texts: list[str]


class Writer:
    """Writes pieces; each process has one."""

    def __init__(self, options: Options, folder: AnyPath):
        """Loads the model."""
        from official.serving import loaded_model

        self._options, self._folder = options, folder
        model = loaded_model.load(
            options.model_dir, options.checkpoint, options.precision, options.runtime
        )
        self.embedder: Embedder = model.embedder
        # A piece does not depend on what its process has computed before.
        self.embedder.repeatable = True
        plain = options.format == "npy" and options.pooling is None and options.layer is None
        self.kind = stored.kind_of(self.embedder) if plain else "dense"
        self.layer = self.embedder.default_layer if options.layer is None else options.layer
        self.settings: EmbeddingSettings = self.embedder.settings.with_values(
            options.pooling, options.normalize, options.max_length
        )

    def __call__(self, piece: Piece) -> tuple[int, int]:
        """Writes a piece; returns the number of its texts, and of those that were cut."""
        cut = self.embedder.cut
        chunks = zip(vector_files.chunks(piece.ids), vector_files.chunks(piece.texts), strict=True)
        blocks = ((ids, self.vectors(texts)) for ids, texts in chunks)
        if self._options.format == "parquet":
            path = self._folder / name_of(piece.number, self._options.format)
            _write_parquet(path, blocks)
        else:
            stored.write_piece(self._folder, piece.number, self._index, blocks)
        return len(piece.texts), self.embedder.cut - cut

    def identity(self) -> dict[str, Any]:
        """Returns the entries of a manifest that say how the vectors are made.

        Raises:
          UserError: vectors of this kind are not made as the options say.
        """
        if self.kind == "dense":
            return stored.identity(self.embedder, self.settings, self.layer, self._options.prompt)
        for name in ("normalize", "prompt"):
            if getattr(self._options, name) is not None:
                raise UserError(
                    f"{name}: not supported for vectors of the kind {self.kind}, which this model "
                    "makes: remove it"
                )
        self.embedder.settings = self.settings  # with another `max_length`
        if self.kind == "sparse":
            return stored.identity_of_sparse(self.embedder, self.settings)
        return stored.identity_of_tokens(self.embedder)

    def vectors(self, texts: Sequence[str]) -> Any:
        """Returns the vectors of texts, as an index of their kind packs them."""
        from official.serving.vectors import search

        if self.kind != "dense":
            return search.encoded(self.embedder, texts, "document", self._options.batch_size)
        return self.embedder.texts(
            texts,
            self.settings,
            self.layer,
            batch_size=self._options.batch_size,
            prompt=self._options.prompt,
        )

    @functools.cached_property
    def _index(self) -> Index:
        """Packs the vectors as the plan says."""
        plan = json_files.read_record(self._folder / _PLAN, {}, stored.DEFAULTS)
        return KINDS[plan["kind"]](plan)


def name_of(number: int, format: str) -> str:
    """Returns the name of the file with the vectors of a piece."""
    return stored.name_of("vectors", number, format)


def _write_parquet(path: AnyPath, blocks: Iterable[tuple[list[str], np.ndarray]]) -> None:
    """Writes the ids and vectors of a piece, a group of rows for each block."""
    import pyarrow
    from pyarrow import parquet

    with contextlib.ExitStack() as stack:
        file = stack.enter_context(atomic.replacing(path))
        writer = None
        for ids, block in blocks:
            flat = pyarrow.array(block.ravel())
            vectors = pyarrow.FixedSizeListArray.from_arrays(flat, block.shape[1])
            names = pyarrow.array(ids, pyarrow.string())
            table = pyarrow.table({"id": names, "vector": vectors})
            if writer is None:
                writer = stack.enter_context(parquet.ParquetWriter(file, table.schema))
            writer.write_table(table)


# Workers that are threads of a process share a model.
_one_at_a_time = threading.Lock()


@functools.lru_cache(maxsize=1)
def _writer(options: Options, folder: AnyPath) -> Writer:
    """Returns the writer of a worker process, which is made once."""
    return Writer(options, folder)


@dataclasses.dataclass(frozen=True)
class _Worker:
    """A process that writes pieces."""

    options: Options
    folder: AnyPath

    def __call__(self) -> None:
        """Sets up the process."""
        parallel.use_one_thread()
        with _one_at_a_time:
            _writer(self.options, self.folder)

    def write(self, piece: Piece) -> tuple[int, int]:
        """See `Writer`."""
        with _one_at_a_time:
            return _writer(self.options, self.folder)(piece)


def write(
    options: Options,
    texts: str | os.PathLike,
    output: str | os.PathLike,
    workers: int = 0,
    report: Callable[[str], None] = print,
    engine: Engine | None = None,
    append: bool = False,
) -> None:
    """Writes the vectors of a file of texts to a folder, or goes on where an earlier run stopped.

    The memory does not depend on the number of texts, but for their ids if they are appended.

    Args:
      options: how vectors are made and written.
      texts: a file: see `official.tasks.text_files`.
      output: the folder.
      workers: the number of processes, each with one thread; 0 = this process, with all threads.
      report: takes the lines of progress and the summary.
      engine: an engine whose workers reach the model and the folder, which has the texts too until
        all pieces are written; None = this machine.
      append: whether the folder is there, and gets the texts as new pieces.

    Raises:
      UserError: the folder is complete, has something else or pieces of another command; the texts
        or the model cannot be read; there are `workers`, or an engine, for LiteRT; the engine is
        not installed, or has a wrong option; or texts are appended to vectors of another model or
        other settings, or with an id that is there.
      ModuleNotFoundError: for parquet: pyarrow is not installed.
    """
    if workers and options.runtime == "litert":
        raise UserError("--workers: one process has all threads of LiteRT: remove it")
    if engine and options.runtime == "litert":
        raise UserError(
            f"--runner={engine.name}: not supported with --runtime=litert: remove one of them"
        )
    if options.format == "parquet":
        import pyarrow  # noqa: F401  (refused before the model is loaded)
    folder = paths.path(output)
    if not append and (folder / FILE).exists():
        raise UserError(
            f"{folder} is complete: name another folder or remove it first, or --append to it"
        )
    if append and options.format != "npy":
        raise UserError(f"append: not supported with pieces: {options.format}, only npy")
    with contextlib.ExitStack() as stack:
        before = stack.enter_context(_appending(folder)) if append else None
        counted = text_files.Counted(texts)
        count = counted.count
        if before:
            _check_ids(folder, before["pieces"], counted)
        # Workers load the model while this process does: it has the settings, and their checksum.
        worker = _Worker(options, folder)
        map_pieces: Callable[..., Iterator[tuple[int, int]]] = map
        if workers:
            map_pieces = stack.enter_context(parallel.Pool(workers, worker)).ordered
        elif engine:
            stack.callback(_writer.cache_clear)  # of a worker that is a thread of this process
            runner = engine.runner("official.utils", worker, folder / _SCRATCH)
            map_pieces = stack.enter_context(runner).ordered
        writer = Writer(options, folder)
        plan = {
            "texts": count,
            "texts_checksum": counted.checksum,
            **writer.identity(),
            "precision": options.precision,
            "runtime": options.runtime,
            "format": options.format,
            "piece_size": options.size,
            "kind": writer.kind,
            "dtype": options.dtype,
            "scale": before["scale"] if before else None,
            "first_piece": before["pieces"] if before else 0,
        }
        if options.dtype == "int8" and writer.kind != "sparse" and not before:
            plan["scale"] = _scale(writer, counted)
        KINDS[writer.kind](plan)  # which refuses what does not go together
        _begin(folder, plan, before)
        stack.enter_context(atomic.only_one(folder / _PLAN, folder))
        atomic.remove_leftovers(folder)
        pieces, first = -(-count // options.size), plan["first_piece"]
        names = (name_of(first + number, options.format) for number in range(pieces))
        missing = {i for i, name in enumerate(names) if not (folder / name).exists()}
        if len(missing) < pieces:
            report(
                f"continuing an earlier run: {pieces - len(missing)} of {pieces} pieces are done"
            )
        left = sum(min(options.size, count - i * options.size) for i in missing)
        start, progress = time.monotonic(), Progress(left, report, unit="texts")
        written = cut = 0
        todo = _pieces(counted, options.size, missing, first)
        for done, cut_here in map_pieces(writer if map_pieces is map else worker.write, todo):
            progress(done)
            written += done
            cut += cut_here
        if written != left:
            raise UserError(
                f"{folder}: {written:,} of {left:,} texts were written: give the command again"
            )
        paths.remove_tree(folder / _SCRATCH)
        stored.write_manifest(folder, plan, first + pieces, before)
        atomic.remove(folder / _PLAN)
    seconds = time.monotonic() - start
    limit = writer.settings.max_length or writer.embedder.max_length
    report(
        f"{folder}: {count:,} texts in {pieces:,} pieces; {left:,} in {seconds:.1f} s "
        f"({left / seconds:,.0f} texts/s), of which {cut:,} cut at {limit} tokens"
    )


@contextlib.contextmanager
def _appending(folder: AnyPath) -> Iterator[dict[str, Any]]:
    """Yields the manifest of a folder, which no other command appends to during the block.

    Raises:
      UserError: another command does, the folder has no manifest or other files, or it lacks its
        first one.
    """
    if (there := stored.read_manifest(folder)["format"]) != "npy":
        raise UserError(f"append: {folder} has pieces of {there}: only npy gets others")
    next(stored.ids_of_piece(folder, 0), None)  # there, or an error
    # The plan is another file for each command, and the manifest for each append.
    with atomic.only_one(folder / stored.name_of("ids", 0, "txt"), folder):
        yield stored.read_manifest(folder)


def _pieces(
    texts: text_files.Counted, size: int, wanted: set[int], first: int = 0
) -> Iterator[Piece]:
    """Yields the pieces that are wanted, of which the number 0 gets the number `first`."""
    for number, part in enumerate(batched(texts, size)):
        if number in wanted:
            texts.check()  # a piece that is there is one of the texts that were counted
            yield Piece(first + number, *(list(column) for column in zip(*part, strict=True)))


def _scale(writer: Writer, texts: text_files.Counted) -> float:
    """Returns the scale of int8 that suits the first texts."""
    sample = itertools.islice(texts, dense.SAMPLE)
    vectors = writer.vectors([text for _, text in sample])
    return dense.scale_of(vectors if writer.kind == "dense" else np.concatenate(vectors))


def _check_ids(folder: AnyPath, pieces: int, texts: text_files.Counted) -> None:
    """Raises UserError if the id of a new text is there already."""
    there = set(stored.read_ids(folder, pieces))
    for identity, _ in texts:
        if identity in there:
            raise UserError(
                f"{texts.path}: {folder} has a text with the id {identity!r}: append other texts, "
                "with ids of their own (.tsv or .jsonl)"
            )


def _begin(folder: AnyPath, plan: dict[str, Any], before: dict[str, Any] | None) -> None:
    """Makes the folder with its plan, or compares the plan of an earlier run.

    Args:
      folder: the folder.
      plan: the plan.
      before: the manifest, if texts are appended.

    Raises:
      UserError: the folder has something else, or pieces of another command.
    """
    path = folder / _PLAN
    new = json.loads(json.dumps(plan))
    if before:
        _compare(new, before, f"{folder} has other vectors", "append with what made them", _MADE)
        if (
            path.exists()
            and json_files.read_record(path, {}).get("first_piece") != before["pieces"]
        ):
            atomic.remove(path)  # of a command that has written its manifest
    if path.exists():
        whose = f"{folder} has vectors of another command"
        advice = f"end it by giving it again, or remove {path} and what it wrote with it"
        _compare(new, json_files.read_record(path, {}), whose, advice if before else _OTHERS, new)
        return
    if before:
        _remove_pieces(folder, before)
    elif folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is there already: name another folder or remove it first")
    atomic.make_folder(folder)
    json_files.write_record(path, plan)


def _compare(
    new: dict[str, Any], old: dict[str, Any], what: str, advice: str, names: Iterable[str]
) -> None:
    """Raises UserError if entries differ; those that are not in `old` are not compared."""
    if other := [name for name in names if old.get(name, new[name]) != new[name]]:
        raise UserError(f"{what} (other {', '.join(other)}): {advice}")


def _remove_pieces(folder: AnyPath, manifest: dict[str, Any]) -> None:
    """Removes the pieces of an append whose plan was removed."""
    for file in folder.iterdir():
        number = file.stem.rpartition("-")[2]
        if number.isdecimal() and int(number) >= manifest["pieces"]:
            atomic.remove(file)
