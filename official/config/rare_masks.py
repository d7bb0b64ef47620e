"""Config of the corruption `rare_token_masks`, which hides rare tokens more often."""

import dataclasses
import math
from typing import TYPE_CHECKING, ClassVar

from official.config.corruption import RANDOM_TOKENS, TARGET_FIELDS
from official.config.part import CorruptionConfig
from official.utils.strict import at_least, fraction, one_of, positive_fraction

if TYPE_CHECKING:
    from official.config.segments import Segments


@dataclasses.dataclass(frozen=True)
class RareTokenMasksConfig(CorruptionConfig):
    """Masked tokens that are drawn from a whole batch, rare ones more often (DistilBERT's release).

    Attributes:
      mask_rate: the share of the tokens of a batch, special tokens counted, that are predicted; the
        number is rounded up.
      exponent: a token that the corpus has n times is drawn with a weight of max(n, 1)^-exponent.
      max_predictions: P, the largest number of predicted tokens in a row. Tokens beyond it are not
        predicted.
      mask_prob: the share of the predicted tokens that become [MASK].
      random_prob: the share of the predicted tokens that become a random token; the rest stay.
      random_tokens: the distribution of random tokens, as in `token_masks`.
    """

    type = "rare_token_masks"
    static = False  # a draw is from the rows of a batch

    # What `token_masks.replaced` reads of every config.
    action: ClassVar[str] = "token"
    replacement: ClassVar[bool] = False

    mask_rate: float = 0.15
    exponent: float = 0.7
    max_predictions: int = 128
    mask_prob: float = 0.8
    random_prob: float = 0.1
    random_tokens: str = "uniform"

    def __post_init__(self):
        one_of("random_tokens", self.random_tokens, RANDOM_TOKENS)
        positive_fraction(self, "mask_rate")
        at_least(self, 0, "exponent")
        at_least(self, 1, "max_predictions")
        fraction(self, "mask_prob", "random_prob")
        if self.mask_prob + self.random_prob > 1 + 1e-9:
            raise ValueError(
                f"mask_prob: {self.mask_prob} and random_prob {self.random_prob} exceed 1 together"
            )

    def gives(self) -> frozenset[str]:
        """Returns the batch fields that `corrupt` adds."""
        return TARGET_FIELDS

    def check(self, segments: "Segments") -> None:
        """Raises ValueError if P is less than the mean number of predictions of a full row."""
        number = math.ceil(self.mask_rate * segments.max_length)
        if self.max_predictions < number:
            raise ValueError(
                f"max_predictions: {self.max_predictions} is less than {self.mask_rate:g} × "
                f"max_length {segments.max_length} = {number}, and a row of rare tokens has more "
                f"than the mean: take about {number + number // 2}"
            )


PARTS = (RareTokenMasksConfig,)
