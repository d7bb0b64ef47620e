"""How texts stand in a row: what is between two, their types, and which end of a long one is cut.

A tokenizer has one `PairForm`, and everything that puts texts into rows reads it: heads of pairs,
questions, choices, rankings, shards, Keras layers, exports, and the files for other tools. Where
[CLS] stands, and the padding, are up to the encoder: see `official.tokenizers.pair_packing`.

Types are the `segment_ids` of an encoder (BERT's `token_type_ids`):

  two  0 for the first text, 1 for the second, 2 for a [CLS] at the end (BERT, ALBERT, XLNet)
  one  0 for all tokens: the tokenizer of the model gives no types, or type 0 to both texts (BERTs
       with the tokenizers of DistilBERT, MPNet or XLM-R)

A pair that is too long is cut at the longer text. Where both are cut and the room for their tokens
is an odd number, one text keeps a token more:

  first   the first one, as in BERT's release and the slow tokenizers of transformers 4
  longer  the longer one, and the second if both are equally long, as in fast tokenizers

A text that is too long, alone or in a pair, loses tokens at its end (`right`) or at its beginning
(`left`). The windows of questions and of tags begin at the beginning of a text in any case.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from official.utils.errors import UserError

SEPARATORS, TYPES, ODD_TOKEN = "pair_separators", "pair_types", "pair_odd_token"  # the settings
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
    """The form of a pair, which a tokenizer has; see the module.

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
        """Returns the form in settings; what they do not say is as in the form `usual`.

        Args:
          settings: those of a tokenizer.
          usual: the form of its kind.
          source: the file of the settings, for messages.

        Raises:
          UserError: a value is not one of those in the module.
        """
        values = {}
        for key, own in usual.settings().items():
            value = settings.get(key)
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
        """Returns the settings that another form does not have."""
        others = usual.settings()
        return {key: value for key, value in self.settings().items() if value != others[key]}

    def type_of(self, text: int) -> int:
        """Returns the type of the tokens of a text, 0 or 1, or of a [CLS] at the end, 2."""
        return text if self.types == TWO else 0

    def kept(self, count: int, kept: int) -> slice:
        """Returns the slice of the `kept` tokens of a text of `count` tokens."""
        kept = max(min(kept, count), 0)
        return slice(count - kept, count) if self.cut_side == LEFT else slice(kept)

    def words(self, layout: str = "cls_first") -> str:
        """Returns the form of a pair in words, for people.

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
