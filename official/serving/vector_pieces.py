"""A folder of vectors in pieces, for files of texts of any size.

  vectors-00000.npy       the vectors of a piece, float32 [texts of the piece, D], or with all
                          layers [texts of the piece, L + 1, D]
  ids-00000.txt           their ids, one on each line
  vectors-00000.parquet   in place of both: the columns `id` and `vector`
  _vectors.json           what the folder has; it is written last
  _plan.json              of a folder that is not complete: what its pieces belong to

Pieces are computed by this process, by several, or on Apache Beam.

Ids are those of `official.tasks.text_files`. A piece gets its name when it is whole, so a run that
is killed loses the pieces that it was computing: the same command computes these and the rest.

Shapes: D size of a vector, L layers.
"""

import contextlib
import dataclasses
import functools
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import official.tokenizers.loading  # noqa: F401  (the workers' models need it)
from official.tasks import text_files
from official.utils import atomic, json_files, parallel, paths
from official.utils.batched import batched
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from official.utils.progress import Progress

if TYPE_CHECKING:
    from official.saving.text_vectors import EmbeddingSettings
    from official.serving.vectors.embedder import Embedder

FORMATS = ("npy", "parquet")
SIZE = 16_384  # texts of a piece
FILE, _PLAN = "_vectors.json", "_plan.json"
_BEAM = ".beam"  # the folder of texts and results on Beam, which is removed at the end


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

    Raises:
      UserError: `parquet` is given for all layers.
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

    def __post_init__(self):
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
        self.layer = self.embedder.default_layer if options.layer is None else options.layer
        self.settings: EmbeddingSettings = self.embedder.settings.with_values(
            options.pooling, options.normalize, options.max_length
        )

    def __call__(self, piece: Piece) -> tuple[int, int]:
        """Writes a piece; returns the number of its texts, and of those that were cut."""
        from official.serving.vectors import embedder

        cut = self.embedder.cut
        blocks = (
            self.embedder.texts(
                texts,
                self.settings,
                self.layer,
                batch_size=self._options.batch_size,
                prompt=self._options.prompt,
            )
            for texts in embedder.chunks(piece.texts)
        )
        path = self._folder / name_of(piece.number, self._options.format)
        if self._options.format == "parquet":
            _write_parquet(path, piece.ids, blocks)
        else:
            # The vectors come last: they say that the piece is there.
            with atomic.file(path.with_name(f"ids-{piece.number:05}.txt")) as stream:
                stream.writelines(f"{identity}\n" for identity in piece.ids)
            with atomic.file(path, "wb") as stream:
                shape = self.embedder.shape(self.layer, self.settings)
                embedder.write_header(stream, (len(piece.texts), *shape))
                for block in blocks:
                    stream.write(block.astype("<f4").tobytes())
        return len(piece.texts), self.embedder.cut - cut


def name_of(number: int, format: str) -> str:
    """Returns the name of the file with the vectors of a piece."""
    return f"vectors-{number:05}.{format}"


def _write_parquet(path: AnyPath, ids: list[str], blocks: Iterator[np.ndarray]) -> None:
    """Writes the ids and vectors of a piece, a group of rows for each block."""
    import pyarrow
    from pyarrow import parquet

    start = 0
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(atomic.replacing(path))
        writer = None
        for block in blocks:
            count, size = block.shape
            vectors = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(block.ravel()), size)
            names = pyarrow.array(ids[start : start + count], pyarrow.string())
            table = pyarrow.table({"id": names, "vector": vectors})
            if writer is None:
                writer = stack.enter_context(parquet.ParquetWriter(file, table.schema))
            writer.write_table(table)
            start += count


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
    beam: Sequence[str] | None = None,
) -> None:
    """Writes the vectors of a file of texts to a folder, or goes on where an earlier run stopped.

    The memory does not depend on the number of texts.

    Args:
      options: how vectors are made and written.
      texts: a file: see `official.tasks.text_files`.
      output: the folder.
      workers: the number of processes, each with one thread; 0 = this process, with all threads.
      report: takes the lines of progress and the summary.
      beam: options of Apache Beam, as on its command lines, whose workers reach the model and the
        folder, which has the texts too until all pieces are written; None = not on Beam.

    Raises:
      UserError: the folder is complete, has something else or pieces of another command; the texts
        or the model cannot be read; or there are `workers`, or Beam, for LiteRT.
      ModuleNotFoundError: Beam or, for parquet, pyarrow is not installed.
    """
    if workers and options.runtime == "litert":
        raise UserError("--workers: one process has all threads of LiteRT: remove it")
    if beam is not None and options.runtime == "litert":
        raise UserError("--runner=beam: not supported with --runtime=litert: remove one of them")
    if options.format == "parquet":
        import pyarrow  # noqa: F401  (refused before the model is loaded)
    folder = paths.path(output)
    if (folder / FILE).exists():
        raise UserError(f"{folder} is complete: name another folder or remove it first")
    counted = text_files.Counted(texts)
    count = counted.count
    # Workers load the model while this process does: it has the settings, and their checksum.
    with contextlib.ExitStack() as stack:
        worker = _Worker(options, folder)
        map_pieces: Callable[..., Iterator[tuple[int, int]]] = map
        if workers:
            map_pieces = stack.enter_context(parallel.Pool(workers, worker)).ordered
        elif beam is not None:
            from official.utils.beam import Runner

            stack.callback(_writer.cache_clear)  # of a worker that is a thread of this process
            map_pieces = Runner(beam, worker, folder / _BEAM).ordered
        writer = Writer(options, folder)
        plan = {
            "texts": count,
            "texts_checksum": counted.checksum,
            "model_checksum": writer.embedder.checksum(writer.settings),
            "settings": dataclasses.asdict(writer.settings),
            "layer": writer.layer,
            "prompt": options.prompt,
            "precision": options.precision,
            "runtime": options.runtime,
            "format": options.format,
            "piece_size": options.size,
            "shape": writer.embedder.shape(writer.layer, writer.settings),
        }
        _begin(folder, plan)
        stack.enter_context(atomic.only_one(folder / _PLAN, folder))
        atomic.remove_leftovers(folder)
        pieces = -(-count // options.size)
        names = (name_of(number, options.format) for number in range(pieces))
        missing = {i for i, name in enumerate(names) if not (folder / name).exists()}
        if len(missing) < pieces:
            report(
                f"continuing an earlier run: {pieces - len(missing)} of {pieces} pieces are done"
            )
        left = sum(min(options.size, count - i * options.size) for i in missing)
        start, progress = time.monotonic(), Progress(left, report, unit="texts")
        written = cut = 0
        todo = _pieces(counted, options.size, missing)
        for done, cut_here in map_pieces(writer if map_pieces is map else worker.write, todo):
            progress(done)
            written += done
            cut += cut_here
        if written != left:
            raise UserError(
                f"{folder}: {written:,} of {left:,} texts were written: give the command again"
            )
        paths.remove_tree(folder / _BEAM)
        json_files.write_record(folder / FILE, {**plan, "pieces": pieces})
        atomic.remove(folder / _PLAN)
    seconds = time.monotonic() - start
    limit = writer.settings.max_length or writer.embedder.max_length
    report(
        f"{folder}: {count:,} texts in {pieces:,} pieces; {left:,} in {seconds:.1f} s "
        f"({left / seconds:,.0f} texts/s), of which {cut:,} cut at {limit} tokens"
    )


def _pieces(texts: text_files.Counted, size: int, wanted: set[int]) -> Iterator[Piece]:
    """Yields the pieces whose numbers are wanted."""
    for number, part in enumerate(batched(texts, size)):
        if number in wanted:
            texts.check()  # a piece that is there is one of the texts that were counted
            yield Piece(number, *(list(column) for column in zip(*part, strict=True)))


def _begin(folder: AnyPath, plan: dict[str, Any]) -> None:
    """Makes the folder with its plan, or compares the plan of an earlier run.

    Raises:
      UserError: the folder has something else, or pieces of another command.
    """
    path = folder / _PLAN
    if not path.exists():
        if folder.exists() and any(folder.iterdir()):
            raise UserError(f"{folder} is there already: name another folder or remove it first")
        atomic.make_folder(folder)
        json_files.write_record(path, plan)
        return
    earlier = json_files.read_record(path, {})
    new = json.loads(json.dumps(plan))
    if other := [name for name in new if earlier.get(name) != new[name]]:
        raise UserError(
            f"{folder} has vectors of another command (other {', '.join(other)}): name another "
            "folder, or remove it first"
        )
