"""Rows of token ids for single texts, as `official.tokenizers.pair_packing` packs them.

Shapes: B texts, T tokens of the longest one.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class Rows:
    """The form of a row: what stands around the tokens of a text.

    Attributes:
      before: the ids of the special tokens before a text.
      after: those after it.
      segments_before: the segment ids of the tokens before a text.
      segment: that of each token of a text.
      segments_after: those of the tokens after it.
      pad_segment: that of padding.
      pad_id: the id of padding.
      pads_left: whether padding stands before a row.
      cuts_left: whether the beginning of a long text is cut, and not its end.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    segments_before: tuple[int, ...]
    segment: int
    segments_after: tuple[int, ...]
    pad_segment: int
    pad_id: int
    pads_left: bool
    cuts_left: bool

    @property
    def specials(self) -> int:
        """The number of special tokens of a row."""
        return len(self.before) + len(self.after)

    def batch(self, sequences: Sequence[np.ndarray], max_length: int) -> dict[str, np.ndarray]:
        """Packs the ids of texts; longer rows than `max_length` are cut.

        Returns:
          token_ids and segment_ids, int32 [B, T]; padding_mask, bool [B, T].
        """
        room = max_length - self.specials
        kept = [
            ids[max(len(ids) - room, 0) :] if self.cuts_left else ids[:room] for ids in sequences
        ]
        width = self.specials + max((len(ids) for ids in kept), default=0)
        shape = len(kept), width
        token_ids = np.full(shape, self.pad_id, np.int32)
        segment_ids = np.full(shape, self.pad_segment, np.int32)
        padding_mask = np.zeros(shape, bool)
        for row, ids in enumerate(kept):
            count = len(ids) + self.specials
            place = slice(width - count, width) if self.pads_left else slice(count)
            token_ids[row, place] = np.concatenate([self.before, ids, self.after])
            own = np.full(len(ids), self.segment)
            segment_ids[row, place] = np.concatenate(
                [self.segments_before, own, self.segments_after]
            )
            padding_mask[row, place] = True
        return {
            "token_ids": token_ids,
            "segment_ids": segment_ids,
            "padding_mask": padding_mask,
        }
