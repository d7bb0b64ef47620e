"""Makes the records of rows of text that continue from batch to batch.

Any process makes the rows of any range of steps, and reads the text of these rows alone. A second
segment that is of another document comes from the text of the rows and steps that are made at once.

Shapes: E sequences, W steps of a row.
"""

import dataclasses
import functools

import numpy as np

from official.shards import example_bytes
from official.utils import host_seeding
from official.utils.paths import AnyPath
from tfrecords_tools.pretraining import streams
from tfrecords_tools.pretraining.counts import Counts
from tfrecords_tools.pretraining.stream_text import StoredPart, StoredText
from tfrecords_tools.pretraining.streams import Plan, too_short

SEQUENCES_AT_ONCE = 2048


@dataclasses.dataclass(frozen=True)
class StreamRows:
    """The rows of a stored text.

    Attributes:
      folder: the folder of the text.
      parts: its parts.
      plan: the plan of the rows.
    """

    folder: AnyPath
    parts: tuple[StoredPart, ...]
    plan: Plan

    @functools.cached_property
    def _texts(self) -> list[StoredText]:
        """The text, forward and, if some rows are backward, in reverse."""
        directions = (False, True) if self.plan.segments.backward else (False,)
        return [StoredText(self.folder, self.parts, self.plan, each) for each in directions]

    def arranged(self) -> tuple["StreamRows", Counts]:
        """Returns the rows with their number of steps, and the counts of what is in no row.

        Raises:
          UserError: the text is too short for the rows.
        """
        plan, text = self.plan, self._texts[0]
        steps = text.num_windows // plan.streams
        lengths = [np.diff(text.documents(i)) - plan.joins for i in range(len(self.parts))]
        short = sum(int((each < plan.span).sum()) for each in lengths) // plan.segments.duplicates
        if not steps:
            dropped = f", without {short:,} short documents," if short and not plan.joins else ""
            kept = len(text) if plan.joins else sum(int(n[n >= plan.span].sum()) for n in lengths)
            raise too_short(plan, f"{kept:,} tokens of text{dropped}", text.num_windows)
        counts = Counts()
        longest = text.longest_run(steps, plan.streams)
        counts.totals["longest_memory"] = (longest - 1) * plan.stride
        counts.totals["cut_tokens"] = text.uncovered(steps * plan.streams)
        if short and plan.joins:
            counts.totals["short_documents_joined"] = short
        elif short:
            counts.skipped["documents shorter than a row"] = short
        return dataclasses.replace(self, plan=dataclasses.replace(plan, steps=steps)), counts

    def records(self, rows: range, steps: range) -> list[bytes]:
        """Returns the records of some rows, step by step."""
        at_once = max(1, SEQUENCES_AT_ONCE // len(rows))
        records: list[bytes] = []
        for first in range(steps.start, steps.stop, at_once):
            records += self._block(rows, range(first, min(first + at_once, steps.stop)))
        return records

    def _block(self, rows: range, steps: range) -> list[bytes]:
        count = self.plan.streams
        directions = []
        for backward, text in enumerate(self._texts):
            own = [row - backward * count for row in rows if row // count == backward]
            if own:
                counters = (rows.start, steps.start, backward)
                rng = host_seeding.numpy_rng(self.plan.seed, *counters)
                directions.append(self._features(text, own, steps, rng, backward))

        def together(name: str) -> np.ndarray:
            """Returns the rows of all directions, step by step."""
            parts = [columns[name] for columns in directions]  # [rows, W, ...]
            return np.concatenate(parts).swapaxes(0, 1).reshape(len(steps) * len(rows), -1)

        return example_bytes.serialize(
            {name: example_bytes.rows(together(name)) for name in directions[0]}
        )

    def _features(
        self,
        text: StoredText,
        rows: list[int],
        steps: range,
        rng: np.random.Generator,
        backward: int,
    ) -> dict[str, np.ndarray]:
        """Returns the features of rows of one direction, int64 [rows, W, ...]."""
        texts, positions, continues = [], [], []
        size = 0
        for row in rows:
            starts, goes_on = text.windows(row * self.plan.steps + np.array(steps))
            low, high = int(starts.min()), int(starts.max()) + self.plan.span
            texts.append(text.read(low, high))
            positions.append(starts - low + size)
            continues.append(goes_on & (np.array(steps) > 0))
            size += high - low
        columns = streams.cut_sequences(
            streams.join(texts), np.concatenate(positions), self.plan, rng
        )
        columns["continues"] = np.concatenate(continues)
        if self.plan.segments.backward:
            columns["backward"] = np.full(len(columns["continues"]), backward)
        shape = len(rows), len(steps), -1
        return {name: x.reshape(shape).astype(np.int64) for name, x in columns.items()}
