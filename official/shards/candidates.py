"""The candidates of a ranking and their grades, which are files beside the shards.

The shard folder of a ranking has these files for each split but `train`:
  SPLIT.run    the candidates of each query; the example with row r is on line r + 1
  SPLIT.qrels  the grades of the documents of these queries, if any are known
The manifest has their checksums under `candidates` of its config.
"""

import dataclasses

import numpy as np

from official.shards.manifest import ADVICE, Manifest
from official.tasks import trec
from official.utils import checksums
from official.utils.errors import UserError
from official.utils.paths import AnyPath


@dataclasses.dataclass(frozen=True)
class Candidates:
    """The candidates of a split.

    Attributes:
      pairs: the (query, document) of each example, by its `row`.
      qrels: the grades of the documents of these queries; empty if none are known.
    """

    pairs: tuple[tuple[str, str], ...]
    qrels: trec.Qrels

    def run(self, rows: np.ndarray, scores: np.ndarray) -> trec.Run:
        """Returns the scores [B] of some rows [B] as a run, with the queries in order."""
        run: dict[str, dict[str, float]] = {}
        for row, score in sorted(zip(rows.tolist(), scores, strict=True), key=lambda pair: pair[0]):
            query, document = self.pairs[row]
            run.setdefault(query, {})[document] = score
        return run


def write(
    folder: AnyPath, split: str, run: trec.Run, qrels: trec.Qrels
) -> tuple[tuple[tuple[str, str], ...], dict[str, str]]:
    """Writes the files of a split.

    Returns:
      The pairs in the order of their rows, and the SHA-256 of each file by name.
    """
    with (folder / f"{split}.run").open("w", encoding="utf-8") as stream:
        trec.write_run(stream, run, "candidates")
    names = [f"{split}.run"]
    judged = {query: qrels[query] for query in run if qrels.get(query)}
    if judged:
        names.append(f"{split}.qrels")
        with (folder / names[-1]).open("w", encoding="utf-8") as stream:
            trec.write_qrels(stream, judged)
    return _pairs(folder / names[0]), {name: checksums.hash_file(folder / name) for name in names}


def read(folder: AnyPath, manifest: Manifest, split: str) -> Candidates:
    """Reads the files of a split.

    Raises:
      UserError: the split has no candidates, or a file is missing or has changed.
    """
    digests = manifest.candidates
    if f"{split}.run" not in digests:
        others = sorted({name.partition(".")[0] for name in digests})
        raise UserError(
            f"{folder}: the {split} split has no candidates to rank"
            + (f": name --split={' or '.join(others)}" if others else "")
        )
    for name, expected in digests.items():
        if name.startswith(f"{split}."):
            checksums.check(folder / name, expected, ADVICE)
    known = f"{split}.qrels" in digests
    return Candidates(
        _pairs(folder / f"{split}.run"),
        trec.read_qrels(folder / f"{split}.qrels") if known else {},
    )


def _pairs(path: AnyPath) -> tuple[tuple[str, str], ...]:
    try:
        with path.open(encoding="utf-8") as stream:
            return tuple((cells[0], cells[2]) for cells in map(str.split, stream))
    except (IndexError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is no run of TREC's format ({error}): {ADVICE}") from None
