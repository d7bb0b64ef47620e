"""Rows that go on: the text as a few streams side by side, read in step, for encoders with memory.

Documents, in an order drawn from the seed, make one text, and each row of the batch gets a part of
it. A row's sequences follow one another at a fixed stride. Sequence t of row b is record t · R + b
of the shards, and goes on where record (t - 1) · R + b left off: read in order, R records at a
time, row b of each batch continues row b of the one before. There are two layouts:

* With a `reuse_length` r: [reused text][A][SEP][B][SEP][CLS], stride r (Yang et al., 2019, section
  2.5, and the release's data). The reused text, A and B follow one another in the text, and the
  next row begins where this one's reused text ends; A ends at a sentence's end, drawn at random, or
  anywhere where no sentence ends. Where the relation is `next_sentence`, B often is from another
  document instead; memory is of the reused text alone, so it is always of the row's own context.
* Without: T tokens of text and nothing else, stride T (Dai et al., 2019, section 3.2), and
  `next_id`, the token that follows.

Where documents are joined, an <eod> stands after each (XLNet's release, `use_eod`), or a [SEP] if
the vocabulary has no <eod>. Rows over reversed text (`backward`) are cut from the reversed text in
the same way. No sequence is padded; what is left over at the end of a text is cut off, and counted.

Shapes: N tokens of the text, D documents, C contexts, R rows of the batch, E sequences, T their
tokens.
"""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from official import config, tokenizers
from official.utils import seeding
from official.utils.errors import UserError
from tfrecords_tools.pretraining import examples
from tfrecords_tools.writing import example_bytes

_BLOCK = 2048  # sequences made at once
_LOOK_BACK = 128  # tokens within which a random B finds the beginning of its sentence
TEXT = "text"  # the name of the files with the text
DOCUMENTS = "documents.npy"


@dataclasses.dataclass(frozen=True)
class Text:
    """A text that rows are cut from.

    Attributes:
      ids: int32 [N].
      begins: whether a sentence begins at each token, and True for the end; bool [N + 1].
      documents: where each document begins, and the end; int64 [D + 1].
      copies: how often the corpus stands in it, one copy after the other.
    """

    ids: np.ndarray
    begins: np.ndarray
    documents: np.ndarray
    copies: int = 1

    def reversed(self) -> "Text":
        """Returns the same text from its end to its beginning."""
        documents = self.documents[-1] - self.documents[::-1]
        return Text(self.ids[::-1], self.begins[::-1], documents, self.copies)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What decides the rows, beside the text that lies in files of `folder`.

    Attributes:
      folder: with the files, as `stream_corpus` makes them.
      segments: the settings.
      seed: of every draw.
      sep_id: of [SEP].
      cls_id: of [CLS].
      between: how many [SEP] stand between A and B.
      end_id: of what stands after a document: <eod>, or [SEP] if the vocabulary has no <eod>.
      steps: how many sequences each row has.
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
        cls, folder: Path, settings: examples.Settings, tokenizer: tokenizers.Tokenizer
    ) -> "Plan":
        """Returns the plan of a text that has not been read yet."""
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
        """How many tokens further the next sequence of a row begins."""
        return self.segments.reuse_length or self.segments.max_length

    @property
    def span(self) -> int:
        """How many tokens of text a sequence is made of; with the token after it, if that counts.

        Raises:
          UserError: A and B have no room.
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
        """How many rows share the text: all, or, with backward rows, half of them twice."""
        return self.segments.rows // (2 if self.segments.backward else 1)

    @property
    def block(self) -> int:
        """How many steps are made at once."""
        return max(1, _BLOCK // self.segments.rows)

    @property
    def blocks(self) -> range:
        """The numbers of the blocks: what `make` takes."""
        return range(-(-self.steps // self.block))


@dataclasses.dataclass(frozen=True)
class Windows:
    """The places of a text that sequences are cut from: those of each context, in order.

    Attributes:
      contexts: where each context (what a memory may run through) begins, and the end; [C + 1].
      firsts: number of each context's first window, and of all windows; int64 [C + 1].
      stride: from a window of a context to the next.
    """

    contexts: np.ndarray
    firsts: np.ndarray
    stride: int

    @classmethod
    def from_documents(cls, documents: np.ndarray, plan: Plan) -> "Windows":
        """Finds the windows of a text with these `Text.documents`."""
        contexts = documents
        if plan.segments.short_documents == "join":
            contexts = contexts[[0, -1]]
        counts = np.maximum(0, (np.diff(contexts) - plan.span) // plan.stride + 1)
        return cls(contexts, np.concatenate([[0], np.cumsum(counts)]), plan.stride)

    def __len__(self) -> int:
        """Returns how many there are."""
        return int(self.firsts[-1])

    def __getitem__(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns where windows begin, and whether each goes on from the one before it."""
        context = np.searchsorted(self.firsts, numbers, side="right") - 1
        place = numbers - self.firsts[context]
        return self.contexts[context] + place * self.stride, place > 0


def make(block: int, plan: Plan) -> list[bytes]:
    """Makes the records of a block of steps: any process gives the same."""
    texts = _texts(plan)
    first = block * plan.block
    steps = np.arange(first, min(first + plan.block, plan.steps))
    numbers = (np.arange(plan.streams) * plan.steps + steps[:, None]).ravel()  # step by step
    made = []
    for backward, (text, windows) in enumerate(texts):
        starts, continues = windows[numbers]
        columns = _cut(text, starts, plan, seeding.numpy_rng(plan.seed, block, backward))
        columns["continues"] = continues & (np.repeat(steps, plan.streams) > 0)
        if plan.segments.backward:
            columns["backward"] = np.full(len(numbers), backward)
        made.append(columns)

    def together(name: str) -> np.ndarray:
        """The rows of both directions, step by step."""
        halves = [
            np.reshape(half[name], (len(steps), plan.streams, -1)).astype(np.int64) for half in made
        ]
        both = np.concatenate(halves, axis=1)
        return both.reshape(-1, both.shape[-1])

    return example_bytes.serialize({name: example_bytes.rows(together(name)) for name in made[0]})


def _cut(
    text: Text, starts: np.ndarray, plan: Plan, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Cuts sequences that begin at `starts` [E] out of a text: features [E, ...]."""
    length, reused = plan.segments.max_length, plan.segments.reuse_length
    index = starts[:, None] + np.arange(plan.span)
    ids = text.ids[index]
    if not reused:
        lengths = np.full((len(starts), 1), length)
        return {
            "token_ids": ids[:, :length], "segment_lengths": lengths, "next_id": ids[:, length],
        }  # fmt: skip
    room = plan.span - reused
    first = 1 + _one_of(text.begins[index[:, reused + 1 :]], rng)  # [E]: tokens of A
    second = room - first
    features = {}
    if plan.segments.label:
        random = rng.random(len(starts)) < plan.segments.random_next_prob
        places = _elsewhere(text, starts + reused, second, rng)
        from_there = places[:, None] + np.arange(-reused, room) - first[:, None]
        in_second = np.arange(plan.span) >= (reused + first)[:, None]
        replaced = random[:, None] & in_second
        ids = np.where(replaced, text.ids[np.where(replaced, from_there, 0)], ids)
        features[plan.segments.label] = random
    # Where each token comes from: A, then B after its separators.
    columns = np.arange(length) - reused
    after = columns >= (first + plan.between)[:, None]
    sources = np.clip(np.arange(length) - plan.between * after, 0, plan.span - 1)
    separators = (columns >= first[:, None]) & ~after
    token_ids = np.where(separators, plan.sep_id, np.take_along_axis(ids, sources, axis=1))
    token_ids[:, -2:] = plan.sep_id, plan.cls_id
    parts = [reused + first + plan.between, second + 1, np.ones_like(first)]
    return {"token_ids": token_ids, "segment_lengths": np.stack(parts, axis=1), **features}


def _one_of(flags: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draws a column where each row's flag is true, or any column of a row without; int64 [E]."""
    draws, counts = rng.random(len(flags)), flags.sum(axis=1)
    ranks = np.cumsum(flags, axis=1) - 1
    found = np.argmax(flags & (ranks == np.floor(draws * counts)[:, None]), axis=1)
    return np.where(counts > 0, found, np.floor(draws * flags.shape[1]).astype(np.int64))


def _elsewhere(
    text: Text, here: np.ndarray, lengths: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Draws where as many tokens of other documents begin, with a sentence if one is near.

    They are of the same copy of the corpus. Where no other document is long enough, they may be of
    the same one.
    """
    document = np.searchsorted(text.documents, here, side="right") - 1
    size = (len(text.documents) - 1) // text.copies  # documents of a copy
    first = document // size * size
    start, stop, lowest, end = (
        text.documents[n] for n in (document, document + 1, first, first + size)
    )
    before = np.maximum(0, start - lengths + 1 - lowest)
    after = np.maximum(0, end - lengths + 1 - stop)
    nowhere = before + after == 0
    lowest = np.where(nowhere, 0, lowest)
    before = np.where(nowhere, len(text.ids) - lengths + 1, before)
    places = np.floor(rng.random(len(here)) * (before + after)).astype(np.int64)
    places += np.where(places < before, lowest, stop - before)
    back = np.maximum(0, places[:, None] - np.arange(_LOOK_BACK))
    begins = text.begins[back]
    nearest = np.take_along_axis(back, np.argmax(begins, axis=1)[:, None], axis=1)[:, 0]
    return np.where(begins.any(axis=1), nearest, places)


@functools.lru_cache(maxsize=1)
def _texts(plan: Plan) -> Sequence[tuple[Text, Windows]]:
    """Opens the text: as it is read forward, and backward if some rows are."""
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
    """Opens the `ids` or `begins` of a text that lies in files, to be read."""
    return np.memmap(folder / f"{name}.{kind}", np.int32 if kind == "ids" else bool, mode="r")
