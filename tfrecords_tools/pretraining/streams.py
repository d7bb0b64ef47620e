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
import itertools
from collections.abc import Sequence

import numpy as np

from official import config
from official.utils.errors import UserError

# The number of tokens in which the begin of the sentence of a random B is searched.
_LOOK_BACK = 128


@dataclasses.dataclass(frozen=True)
class Text:
    """A text, or a range of it, that rows are cut from.

    Attributes:
      ids: int32 [N].
      begins: whether a sentence begins at each token, and behind the last one; bool [N + 1].
      documents: the row splits of the documents; int64 [D + 1].
      identities: a number that parts and copies of the same document share; uint64 [D].
    """

    ids: np.ndarray
    begins: np.ndarray
    documents: np.ndarray
    identities: np.ndarray

    def reversed(self) -> "Text":
        """Returns the text in reverse order."""
        documents = self.documents[-1] - self.documents[::-1]
        return Text(self.ids[::-1], self.begins[::-1], documents, self.identities[::-1])


def too_short(plan: "Plan", text: str, sequences: int) -> UserError:
    """Returns the error of a text that does not fill the rows.

    Args:
      plan: the plan.
      text: what there is of text, in words.
      sequences: the number of sequences that it gives.
    """
    segments = plan.segments
    backward = ", each in both directions" if segments.backward else ""
    return UserError(
        f"{text} give {sequences:,} sequences of {segments.max_length}, and segments.rows: "
        f"{segments.rows} needs {plan.streams}{backward}: lower segments.rows or max_length, or "
        "take more text"
    )


def join(texts: Sequence[Text]) -> Text:
    """Returns texts as one; each begins with a sentence, which goes on only to its end."""
    starts = np.cumsum([0, *(len(text.ids) for text in texts)])
    documents = [
        text.documents[:-1] + start for text, start in zip(texts, starts[:-1], strict=True)
    ]
    begins = np.concatenate([*(text.begins[:-1] for text in texts), texts[-1].begins[-1:]])
    begins[starts[:-1]] = True
    return Text(
        np.concatenate([text.ids for text in texts]),
        begins,
        np.concatenate([*documents, starts[-1:]]),
        np.concatenate([text.identities for text in texts]),
    )


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything that the rows depend on, except the text in the files of `folder`.

    Attributes:
      segments: the settings.
      seed: the seed of every draw.
      sep_id: the id of [SEP].
      cls_id: the id of [CLS].
      between: the number of [SEP] between A and B.
      end_id: the id after a document: <eod>, or [SEP] if the vocabulary has no <eod>.
      steps: the number of sequences of each row.
    """

    segments: config.Segments
    seed: int
    sep_id: int
    cls_id: int
    between: int
    end_id: int = -1
    steps: int = 0

    @property
    def joins(self) -> bool:
        """Whether rows go on from one document to the next."""
        return self.segments.short_documents == "join"

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

    def check(self) -> None:
        """Raises UserError if there is no room for A and B."""
        _ = self.span

    @property
    def streams(self) -> int:
        """The number of rows that divide the text; with backward rows, half of all rows."""
        return self.segments.rows // (2 if self.segments.backward else 1)


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

    If no other document is long enough, a position in the same document may be drawn. A position is
    moved back to the begin of its sentence if it is near.
    """
    document = np.searchsorted(text.documents, here, side="right") - 1
    draws = rng.random(len(here))
    own = _places(text)
    positions = np.array(
        [
            _outside(own[identity], int(length), len(text.ids), draw)
            for identity, length, draw in zip(
                text.identities[document].tolist(), lengths, draws.tolist(), strict=True
            )
        ],
        np.int64,
    )
    back = np.maximum(0, positions[:, None] - np.arange(_LOOK_BACK))
    begins = text.begins[back]
    nearest = np.take_along_axis(back, np.argmax(begins, axis=1)[:, None], axis=1)[:, 0]
    return np.where(begins.any(axis=1), nearest, positions)


def _places(text: Text) -> dict[int, list[tuple[int, int]]]:
    """Returns the begin and end of all parts and copies of each document, by its identity."""
    places: dict[int, list[tuple[int, int]]] = {}
    bounds = itertools.pairwise(text.documents.tolist())
    for identity, place in zip(text.identities.tolist(), bounds, strict=True):
        places.setdefault(identity, []).append(place)
    return places


def _outside(places: Sequence[tuple[int, int]], length: int, size: int, draw: float) -> int:
    """Returns a position in a text of `size` tokens from which `length` tokens are in no place.

    Args:
      places: begin and end of each place, ascending.
      length: the number of tokens.
      size: the number of tokens of the text.
      draw: a number in [0, 1) that decides which; each position is as likely as any other.
    """
    begins = [0, *(end for _, end in places)]
    ends = [*(begin for begin, _ in places), size]
    counts = [max(0, end - length + 1 - begin) for begin, end in zip(begins, ends, strict=True)]
    total = sum(counts)
    if not total:
        return int(draw * (size - length + 1))
    number = int(draw * total)
    for begin, count in zip(begins, counts, strict=True):
        if number < count:
            return begin + number
        number -= count
    raise AssertionError("the draw is in [0, 1)")
