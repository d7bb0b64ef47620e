"""Stores the text of a stream in files, with the documents of the corpus in random order.

The text is read once and kept in a temporary folder. `streams.make` can then cut any part of it in
any process, and the memory needed does not depend on the length of the text.

Shapes: N tokens of the text, D documents.
"""

import dataclasses
import shutil
from pathlib import Path

import numpy as np

from official.utils import seeding
from official.utils.errors import UserError
from tfrecords_tools.pretraining import examples, segments
from tfrecords_tools.pretraining.streams import DOCUMENTS, TEXT, Plan, Windows, mapped

_AS_READ = "as_read"  # The name of the files in the order of the input.
_TOKENS_AT_ONCE = 1 << 22  # that are reordered


class Corpus:
    """The tokens of a corpus in files, of which any process can read any part.

    Args:
      folder: the folder to create; `close` removes it.
    """

    def __init__(self, folder: Path):
        folder.mkdir()
        self.folder = folder
        self._lengths: list[np.ndarray] = []  # Of the documents.
        self._unfinished = False  # Whether the last document continues in the next chunk.
        self._ids = open(folder / f"{_AS_READ}.ids", "wb")
        self._begins = open(folder / f"{_AS_READ}.begins", "wb")

    def close(self) -> None:
        """Removes the files."""
        self._ids.close()
        self._begins.close()
        shutil.rmtree(self.folder)

    def add(self, text: segments.TokenizedDocuments) -> None:
        """Appends the documents of a chunk."""
        begins = np.zeros(len(text.ids), bool)
        begins[text.sentences[:-1]] = True
        text.ids.astype(np.int32).tofile(self._ids)
        begins.tofile(self._begins)
        lengths = np.diff(text.sentences[text.documents])
        if self._unfinished and text.continues:
            self._lengths[-1][-1] += lengths[0]
            lengths = lengths[1:]
        if len(lengths):
            self._lengths.append(lengths)
        self._unfinished = text.unfinished

    def arrange(self, plan: Plan) -> tuple[Plan, examples.Records]:
        """Writes the documents in random order.

        Args:
          plan: the plan without its steps.

        Returns:
          The plan with its steps, and counts: the tokens in no sequence; the documents that are
          too short for a sequence, left out or joined; and the longest memory, in tokens.

        Raises:
          UserError: the text is too short for the rows.
        """
        self._ids.close()
        self._begins.close()
        lengths = np.concatenate([*self._lengths, np.zeros(0, np.int64)])
        bounds = np.concatenate([[0], np.cumsum(lengths)])
        joined = plan.segments.short_documents == "join"
        (kept,) = np.nonzero(joined | (lengths >= plan.span))
        order = np.concatenate(
            [
                seeding.numpy_rng(plan.seed, i).permutation(kept)
                for i in range(plan.segments.duplicates)
            ]
        )
        documents = np.concatenate([[0], np.cumsum(lengths[order] + joined)])
        if documents[-1]:
            self._copy(bounds, order, documents, plan.end_id if joined else None)
        np.save(self.folder / DOCUMENTS, documents)
        windows = Windows.from_documents(documents, plan)
        steps = len(windows) // plan.streams
        short = int((lengths < plan.span).sum())
        if not steps:
            backward = ", each in both directions" if plan.segments.backward else ""
            dropped = f", without {short:,} short documents," if short and not joined else ""
            raise UserError(
                f"{documents[-1]:,} tokens of text{dropped} give {len(windows):,} sequences of "
                f"{plan.segments.max_length}, and segments.rows: {plan.segments.rows} needs "
                f"{plan.streams}{backward}: lower segments.rows or max_length, or take more text"
            )
        used = np.clip(steps * plan.streams - windows.firsts[:-1], 0, np.diff(windows.firsts))
        covered = np.where(used, plan.stride * (used - 1) + plan.span, 0).sum()
        # Runs of windows that continue one another end with their context or with their row.
        edges = np.union1d(windows.firsts, np.arange(plan.streams + 1) * steps)
        runs = np.diff(edges[edges <= steps * plan.streams])
        more = {"longest_memory": int((runs.max() - 1) * plan.stride)}
        if short and joined:
            more["short_documents_joined"] = short
        return dataclasses.replace(plan, steps=steps), examples.Records(
            cut=int(documents[-1] - covered),
            left_out={} if joined else {"documents shorter than a row": short},
            more=more,
        )

    def _copy(
        self, bounds: np.ndarray, order: np.ndarray, documents: np.ndarray, end_id: int | None
    ) -> None:
        """Writes documents in a new order.

        Args:
          bounds: the row splits of the documents in the order of the input.
          order: the numbers of the documents in the new order.
          documents: the row splits of the documents in the new order.
          end_id: the id after each document, or None.
        """
        ids, begins = (mapped(self.folder, _AS_READ, kind) for kind in ("ids", "begins"))
        cuts = np.searchsorted(documents, np.arange(0, documents[-1], _TOKENS_AT_ONCE)[1:])
        with (
            open(self.folder / f"{TEXT}.ids", "wb") as ids_out,
            open(self.folder / f"{TEXT}.begins", "wb") as begins_out,
        ):
            for part in np.split(order, np.unique(cuts)):
                index, splits = segments.taken(bounds, part)
                ids_part, begins_part = ids[index], begins[index]
                if end_id is not None:
                    ids_part = np.insert(ids_part, splits[1:], end_id)
                    begins_part = np.insert(begins_part, splits[1:], False)
                ids_part.tofile(ids_out)
                begins_part.tofile(begins_out)
            np.ones(1, bool).tofile(begins_out)
        for path in self.folder.glob(f"{_AS_READ}.*"):
            path.unlink()
