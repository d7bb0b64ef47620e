"""Cuts text into rows that continue from one batch to the next, for encoders with memory.

The documents, in an order drawn from the seed, form one text, and each row of the batch gets a part
of it. The sequences of a row follow one another at a fixed stride. Sequence t of row b is record
t · R + b of the shards and continues record (t - 1) · R + b. If the records are read in order, R at
a time, row b of each batch continues row b of the batch before. There are two layouts:

* With a `reuse_length` r: [reused text][A][SEP][B][SEP][CLS], stride r (Yang et al., 2019, section
  2.5, and the data of the release). The reused text, A and B follow one another in the text, and
  the next sequence begins at the end of the reused text. A ends at the end of a random sentence, or
  at a random token if no sentence ends there. With the relation `next_sentence`, B is often from
  another document. The memory holds the reused text alone, so it is always the context of its row.
* Without: T tokens of text alone, stride T (Dai et al., 2019, section 3.2), and `next_id`, the
  token that follows.

If documents are joined, an <eod> follows each (XLNet's release, `use_eod`), or a [SEP] if the
vocabulary has no <eod>. Rows of reversed text (`backward`) are cut from the reversed text in the
same way. No sequence is padded. Tokens that are left over at the end of a text are cut off and
counted.

Shapes: N tokens of the text, D documents, C contexts, R rows of the batch, E sequences, T tokens of
a sequence, W windows.
"""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from official import config, tokenizers
from official.shards import example_bytes
from official.utils import seeding
from official.utils.errors import UserError
from tfrecords_tools.pretraining.settings import Settings

SEQUENCES_AT_ONCE = 2048
# The number of tokens in which the begin of the sentence of a random B is searched.
_LOOK_BACK = 128
TEXT = "text"  # The name of the files with the text.
DOCUMENTS = "documents.npy"


@dataclasses.dataclass(frozen=True)
class Text:
    """A text that rows are cut from.

    Attributes:
      ids: int32 [N].
      begins: whether a sentence begins at each token, and True for the end; bool [N + 1].
      documents: the row splits of the documents; int64 [D + 1].
      copies: the number of copies of the corpus in the text, one after the other.
    """

    ids: np.ndarray
    begins: np.ndarray
    documents: np.ndarray
    copies: int = 1

    def reversed(self) -> "Text":
        """Returns the text in reverse order."""
        documents = self.documents[-1] - self.documents[::-1]
        return Text(self.ids[::-1], self.begins[::-1], documents, self.copies)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything that the rows depend on, except the text in the files of `folder`.

    Attributes:
      folder: the folder with the files that `stream_corpus` writes.
      segments: the settings.
      seed: the seed of every draw.
      sep_id: the id of [SEP].
      cls_id: the id of [CLS].
      between: the number of [SEP] between A and B.
      end_id: the id after a document: <eod>, or [SEP] if the vocabulary has no <eod>.
      steps: the number of sequences of each row.
    """

    folder: str
    segments: config.Segments
    seed: int
    sep_id: int
    cls_id: int
    between: int
    end_id: int = -1
    steps: int = 0

    @classmethod
    def from_settings(
        cls, folder: Path, settings: Settings, tokenizer: tokenizers.Tokenizer
    ) -> "Plan":
        """Returns the plan of a text that is not read yet, without its steps."""
        return cls(
            str(folder),
            settings.segments,
            settings.seed,
            tokenizer.sep_id,
            tokenizer.cls_id,
            tokenizer.pair_separators,
            tokenizer.sep_id if tokenizer.eod_id is None else tokenizer.eod_id,
        )

    @property
    def stride(self) -> int:
        """The number of tokens from the begin of a sequence to the next one of the row."""
        return self.segments.reuse_length or self.segments.max_length

    @property
    def span(self) -> int:
        """The number of tokens of text that a sequence needs, with `next_id` where it has one.

        Raises:
          UserError: there is no room for A and B.
        """
        length, reused = self.segments.max_length, self.segments.reuse_length
        if not reused:
            return length + 1
        room = length - reused - self.between - 2
        if room < 2:
            raise UserError(
                f"segments.max_length: {length} tokens with segments.reuse_length: {reused} and "
                f"{self.between + 2} special tokens have no room for A and B: lower reuse_length "
                f"to {length - self.between - 4}"
            )
        return reused + room

    @property
    def streams(self) -> int:
        """The number of rows that divide the text; with backward rows, half of all rows."""
        return self.segments.rows // (2 if self.segments.backward else 1)

    @property
    def block(self) -> int:
        """The number of steps that are computed at once."""
        return max(1, SEQUENCES_AT_ONCE // self.segments.rows)

    @property
    def blocks(self) -> range:
        """The numbers of the blocks, which `make` takes."""
        return range(-(-self.steps // self.block))


@dataclasses.dataclass(frozen=True)
class Windows:
    """The windows of a text that sequences are cut from, in order.

    Attributes:
      contexts: the row splits of the contexts, which are the texts that a memory may span; [C + 1].
      firsts: the number of the first window of each context, and of all windows; int64 [C + 1].
      stride: the number of tokens from a window of a context to the next.
    """

    contexts: np.ndarray
    firsts: np.ndarray
    stride: int

    @classmethod
    def from_documents(cls, documents: np.ndarray, plan: Plan) -> "Windows":
        """Returns the windows of a text with these `Text.documents`."""
        contexts = documents
        if plan.segments.short_documents == "join":
            contexts = contexts[[0, -1]]
        counts = np.maximum(0, (np.diff(contexts) - plan.span) // plan.stride + 1)
        return cls(contexts, np.concatenate([[0], np.cumsum(counts)]), plan.stride)

    def __len__(self) -> int:
        """Returns the number of windows."""
        return int(self.firsts[-1])

    def __getitem__(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the begin of windows [W], and whether each continues the one before it [W]."""
        context = np.searchsorted(self.firsts, numbers, side="right") - 1
        index = numbers - self.firsts[context]
        return self.contexts[context] + index * self.stride, index > 0


def make(block: int, plan: Plan) -> list[bytes]:
    """Returns the records of a block of steps; they are the same in any process."""
    texts = _texts(plan)
    first = block * plan.block
    steps = np.arange(first, min(first + plan.block, plan.steps))
    numbers = (np.arange(plan.streams) * plan.steps + steps[:, None]).ravel()  # Step by step.
    directions = []
    for backward, (text, windows) in enumerate(texts):
        starts, continues = windows[numbers]
        columns = cut_sequences(text, starts, plan, seeding.numpy_rng(plan.seed, block, backward))
        columns["continues"] = continues & (np.repeat(steps, plan.streams) > 0)
        if plan.segments.backward:
            columns["backward"] = np.full(len(numbers), backward)
        directions.append(columns)

    def together(name: str) -> np.ndarray:
        """Returns the rows of all directions, step by step."""
        halves = [
            np.reshape(columns[name], (len(steps), plan.streams, -1)).astype(np.int64)
            for columns in directions
        ]
        both = np.concatenate(halves, axis=1)
        return both.reshape(-1, both.shape[-1])

    return example_bytes.serialize(
        {name: example_bytes.rows(together(name)) for name in directions[0]}
    )


def cut_sequences(
    text: Text, starts: np.ndarray, plan: Plan, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Cuts the sequences that begin at `starts` [E] from a text; returns features [E, ...]."""
    length, reused = plan.segments.max_length, plan.segments.reuse_length
    index = starts[:, None] + np.arange(plan.span)
    ids = text.ids[index]
    if not reused:
        lengths = np.full((len(starts), 1), length)
        return {
            "token_ids": ids[:, :length], "segment_lengths": lengths, "next_id": ids[:, length],
        }  # fmt: skip
    room = plan.span - reused
    first = 1 + draw_flagged(
        text.begins[index[:, reused + 1 :]], rng
    )  # [E]: the number of tokens of A.
    second = room - first
    features = {}
    if plan.segments.label:
        random = rng.random(len(starts)) < plan.segments.random_next_prob
        elsewhere = draw_elsewhere(text, starts + reused, second, rng)
        from_there = elsewhere[:, None] + np.arange(-reused, room) - first[:, None]
        in_second = np.arange(plan.span) >= (reused + first)[:, None]
        replaced = random[:, None] & in_second
        ids = np.where(replaced, text.ids[np.where(replaced, from_there, 0)], ids)
        features[plan.segments.label] = random
    # The source of each token: the separators before B move it to the right.
    columns = np.arange(length) - reused
    after = columns >= (first + plan.between)[:, None]
    sources = np.clip(np.arange(length) - plan.between * after, 0, plan.span - 1)
    separators = (columns >= first[:, None]) & ~after
    token_ids = np.where(separators, plan.sep_id, np.take_along_axis(ids, sources, axis=1))
    token_ids[:, -2:] = plan.sep_id, plan.cls_id
    parts = [reused + first + plan.between, second + 1, np.ones_like(first)]
    return {"token_ids": token_ids, "segment_lengths": np.stack(parts, axis=1), **features}


def draw_flagged(flags: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draws one of the true columns of each row, or any column if none is true; int64 [E]."""
    draws, counts = rng.random(len(flags)), flags.sum(axis=1)
    ranks = np.cumsum(flags, axis=1) - 1
    chosen = np.argmax(flags & (ranks == np.floor(draws * counts)[:, None]), axis=1)
    return np.where(counts > 0, chosen, np.floor(draws * flags.shape[1]).astype(np.int64))


def draw_elsewhere(
    text: Text, here: np.ndarray, lengths: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Draws positions from which `lengths` tokens belong to other documents than at `here`, [E].

    The other documents are in the same copy of the corpus. If none is long enough, a position in
    the same document may be drawn. A position is moved back to the begin of its sentence if it is
    near.
    """
    document = np.searchsorted(text.documents, here, side="right") - 1
    size = (len(text.documents) - 1) // text.copies  # The number of documents of a copy.
    first = document // size * size
    start, stop, lowest, end = (
        text.documents[n] for n in (document, document + 1, first, first + size)
    )
    before = np.maximum(0, start - lengths + 1 - lowest)
    after = np.maximum(0, end - lengths + 1 - stop)
    nowhere = before + after == 0
    lowest = np.where(nowhere, 0, lowest)
    before = np.where(nowhere, len(text.ids) - lengths + 1, before)
    positions = np.floor(rng.random(len(here)) * (before + after)).astype(np.int64)
    positions += np.where(positions < before, lowest, stop - before)
    back = np.maximum(0, positions[:, None] - np.arange(_LOOK_BACK))
    begins = text.begins[back]
    nearest = np.take_along_axis(back, np.argmax(begins, axis=1)[:, None], axis=1)[:, 0]
    return np.where(begins.any(axis=1), nearest, positions)


@functools.lru_cache(maxsize=1)
def _texts(plan: Plan) -> Sequence[tuple[Text, Windows]]:
    """Opens the text, forward and, if some rows are backward, in reverse order."""
    folder = Path(plan.folder)
    forward = Text(
        mapped(folder, TEXT, "ids"),
        mapped(folder, TEXT, "begins"),
        np.load(folder / DOCUMENTS),
        plan.segments.duplicates,
    )
    texts = [forward, forward.reversed()] if plan.segments.backward else [forward]
    return [(text, Windows.from_documents(text.documents, plan)) for text in texts]


def mapped(folder: Path, name: str, kind: str) -> np.ndarray:
    """Opens the `ids` or `begins` of a text in files, read-only."""
    return np.memmap(folder / f"{name}.{kind}", np.int32 if kind == "ids" else bool, mode="r")
