"""The form of a row of one or two texts: separators, types of tokens, and truncation.

A tokenizer has one `PairForm`. Everything that packs texts into rows follows it: pairs, questions,
choices, rankings, shards, Keras layers, exports, and files for other tools. The encoder decides the
position of [CLS] and the padding: see `official.tokenizers.pair_packing`.

Types are the `segment_ids` of an encoder (BERT's `token_type_ids`):

  two  0 for the first text, 1 for the second, 2 for a [CLS] at the end (BERT, ALBERT, XLNet)
  one  0 for all tokens: the tokenizer of the model gives no types, or type 0 to both texts (BERTs
       with the tokenizers of DistilBERT, MPNet or XLM-R)

In a pair that is too long, the longer text is cut. If both are cut and an odd number of their
tokens fits, one text keeps one token more:

  first   the first one, as in BERT's release and the slow tokenizers of transformers 4
  longer  the longer one, and the second if both are equally long, as in fast tokenizers

A text that is too long, alone or in a pair, loses tokens at its end (`right`) or at its beginning
(`left`). This does not apply to the windows of questions and tags, which cover a whole text.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from official.utils.errors import UserError

SEPARATORS, TYPES, ODD_TOKEN = "pair_separators", "pair_types", "pair_odd_text"  # the settings
# Its name in folders of before: transformers 5 takes a key that ends so for a special token.
_ODD_BEFORE = "pair_odd_token"
CUT_SIDE = "truncation_side"  # as in transformers
TWO, ONE = "two", "one"
FIRST, LONGER = "first", "longer"
RIGHT, LEFT = "right", "left"
_VALUES: dict[str, tuple[Any, ...]] = {
    SEPARATORS: (1, 2),
    TYPES: (TWO, ONE),
    ODD_TOKEN: (FIRST, LONGER),
    CUT_SIDE: (RIGHT, LEFT),
}


@dataclasses.dataclass(frozen=True)
class PairForm:
    """The form of the rows of a tokenizer; the docstring of the module defines the values.

    Attributes:
      separators: the number of [SEP] between the two texts.
      types: 'two' or 'one'.
      odd_token: 'first' or 'longer'.
      cut_side: the end of a long text that is cut, 'right' or 'left'.
    """

    separators: int = 1
    types: str = TWO
    odd_token: str = FIRST
    cut_side: str = RIGHT

    @classmethod
    def of(cls, settings: Mapping[str, Any], usual: Self, source: str) -> Self:
        """Reads the form from settings; values that are missing are those of `usual`.

        Args:
          settings: those of a tokenizer.
          usual: the default form of the kind of tokenizer.
          source: the file of the settings, for messages.

        Raises:
          UserError: a value is unknown.
        """
        values = {}
        for key, own in usual.settings().items():
            value = settings.get(key, settings.get(_ODD_BEFORE) if key == ODD_TOKEN else None)
            value = own if value is None else value
            if type(value) is not type(own) or value not in _VALUES[key]:
                known = " or ".join(map(str, _VALUES[key]))
                raise UserError(f"{source}: {key} is {value!r}, but must be {known}")
            values[key] = value
        return cls(*values.values())

    def settings(self) -> dict[str, Any]:
        """Returns the form as settings."""
        values = (self.separators, self.types, self.odd_token, self.cut_side)
        return dict(zip(_VALUES, values, strict=True))

    def differing(self, usual: Self) -> dict[str, Any]:
        """Returns the settings that differ from those of another form."""
        others = usual.settings()
        return {key: value for key, value in self.settings().items() if value != others[key]}

    def type_of(self, text: int) -> int:
        """Returns the type of the tokens of text 0 or 1, or of a [CLS] at the end (2)."""
        return text if self.types == TWO else 0

    def kept(self, count: int, kept: int) -> slice:
        """Returns the slice of `kept` tokens that remains of a text of `count` tokens."""
        kept = max(min(kept, count), 0)
        return slice(count - kept, count) if self.cut_side == LEFT else slice(kept)

    def words(self, layout: str = "cls_first") -> str:
        """Describes the form of a pair in words.

        Args:
          layout: the layout of the encoder, one of `pair_packing.LAYOUTS`.
        """
        between = " ".join(["[SEP]"] * self.separators)
        row = f"A {between} B [SEP]"
        row = {"cls_first": f"[CLS] {row}", "cls_last": f"{row} [CLS]"}.get(layout, row)
        types = "types 0 and 1" if self.types == TWO else "type 0 for both texts"
        if layout == "cls_last" and self.types == TWO:
            types = "types 0 and 1, 2 for [CLS]"
        odd = "the first text" if self.odd_token == FIRST else "the longer text, or else the second"
        return f"{row}, {types}; an odd token stays in {odd}"
