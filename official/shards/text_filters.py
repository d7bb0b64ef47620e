"""The filters of text that the documents of a shard folder have passed."""

import dataclasses

from official.utils.strict import omitted, one_of

DEDUPLICATE = ("exact", "near")


@dataclasses.dataclass(frozen=True)
class TextFilters:
    """Which documents are left out; a filter that is None leaves none out.

    Attributes:
      min_words: the least number of words of a document.
      max_symbol_share: the largest share of its characters that are neither letters nor digits.
      deduplicate: 'exact' leaves out documents with the text of an earlier one, 'near' also those
        with nearly the text of an earlier one.
    """

    min_words: int | None = omitted()
    max_symbol_share: float | None = omitted()
    deduplicate: str | None = omitted()

    def __post_init__(self):
        if self.min_words is not None and self.min_words < 1:
            raise ValueError(f"min_words: {self.min_words} is less than 1")
        if self.max_symbol_share is not None and not 0 <= self.max_symbol_share <= 1:
            raise ValueError(f"max_symbol_share: {self.max_symbol_share} is not from 0 to 1")
        if self.deduplicate is not None:
            one_of("deduplicate", self.deduplicate, DEDUPLICATE)
