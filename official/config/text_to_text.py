"""Configs of the corruptions that make inputs and targets of one text, for an encoder-decoder.

They are those of T5 (Raffel et al. 2020, sections 3.1.4 and 3.3). A row on disk has the tokens of a
text without special tokens. The corruption makes the input of the encoder and the targets of the
decoder, each of which ends with the end token.

The number of raw tokens of a row is the largest one whose input fits `segments.max_length`.

Shapes: n raw tokens of a row, L tokens of the encoder, U targets.
"""

import dataclasses
import math
import struct
from typing import TYPE_CHECKING, NamedTuple

from official.config.part import CorruptionConfig
from official.config.segments import TEXT_FORMATS
from official.utils.strict import at_least, one_of

if TYPE_CHECKING:
    from official.config.segments import Segments

TARGET_FIELDS = frozenset({"target_ids", "target_mask"})
MASKS = ("spans", "tokens")
FORMS = ("released", "intended")
METHODS = ("bert_style", "mass_style", "deshuffle", "prefix_lm", "lm")


class Lengths(NamedTuple):
    """The numbers of tokens of a row.

    Attributes:
        raw: n.
        inputs: L, with the end token.
        targets: U, with the end token.
    """

    raw: int
    inputs: int
    targets: int


class TextToTextConfig(CorruptionConfig):
    """What these corruptions share."""

    static = False  # drawn each time a row is read

    def gives(self) -> frozenset[str]:
        """Returns the batch fields that `corrupt` adds."""
        return TARGET_FIELDS

    def lengths(self, max_length: int) -> Lengths:
        """Returns the lengths for an input of at most `max_length` tokens.

        Raises:
            ValueError: there are not enough sentinels for such a row.
        """
        raise NotImplementedError

    def lengths_of_row(self, raw: int) -> Lengths:
        """Returns the lengths of a row of `raw` tokens."""
        raise NotImplementedError

    def row_length(self, max_length: int) -> int:
        """Returns the number of raw tokens of a row on disk."""
        return self.lengths(max_length).raw

    def reads_rows_of(self, raw: int, max_length: int) -> bool:
        """Returns whether rows of `raw` tokens on disk suit; earlier versions added one to some."""
        return raw - self.row_length(max_length) in (0, 1)

    def check(self, segments: "Segments") -> None:
        """Raises ValueError if the rows of `segments` are not text alone, or are too long."""
        if segments.format not in TEXT_FORMATS:
            raise ValueError(
                f"type: {self.type} takes rows of text alone, and segments.format is "
                f"{segments.format}: take {' or '.join(TEXT_FORMATS)}"
            )
        self.lengths(segments.max_length)


@dataclasses.dataclass(frozen=True)
class SentinelsConfig(TextToTextConfig):
    """Span corruption: runs of tokens are replaced by sentinels (T5).

    Attributes:
        noise_density: the share of tokens that are removed from the input.
        mean_span_length: the mean length of a removed span, if `masks` is 'spans'.
        masks: 'spans' = spans of random lengths with a fixed number of tokens and of spans; the
            input begins with text and ends with a sentinel. 'tokens' = each token is removed
            independently, and neighbours are one span.
        replace: whether a sentinel stands for each span. If not, spans are dropped, and the targets
            are the dropped tokens alone (section 3.3.2, drop corrupted tokens).
        targets: the sentinels of the targets. 'intended' = one before each removed span, and one
            at the end if the text ends with a token that is kept. 'released' = one for each run of
            tokens that are kept, as the release computes it. The two differ where a text begins
            with a removed token.
        sentinels: the number of sentinels of the vocabulary.
    """

    type = "sentinels"

    noise_density: float = 0.15
    mean_span_length: float = 3.0
    masks: str = "spans"
    replace: bool = True
    targets: str = "released"
    sentinels: int = 100

    def __post_init__(self):
        one_of("masks", self.masks, MASKS)
        one_of("targets", self.targets, FORMS)
        at_least(self, 1, "mean_span_length", "sentinels")
        if not 0 < self.noise_density < 1:
            raise ValueError(f"noise_density: {self.noise_density} is not between 0 and 1")

    def counts(self, raw: int) -> tuple[int, int]:
        """Returns the numbers of removed tokens and of spans of `raw` tokens.

        Both are rounded in float32, halves to even, as in the release.
        """
        noise = round(_float32(raw * _float32(self.noise_density)))
        noise = min(max(noise, 1), raw - 1)
        spans = max(1, round(_float32(noise / _float32(self.mean_span_length))))
        return noise, min(spans, noise, raw - noise)

    def lengths(self, max_length: int) -> Lengths:
        """See `TextToTextConfig`."""
        if self.masks == "tokens":
            return self._lengths_of_tokens(max_length)
        raw = max_length - 1
        while max(self._released(raw + 1).inputs, self._spans(raw + 1).inputs) <= max_length:
            raw += 1
        released = self._released(raw)
        if self.noise_density == 0.5 and released.targets > released.inputs:
            raw -= 1  # as in the release: both sides have equal lengths
        lengths = self._spans(raw)
        _, spans = self.counts(lengths.raw)
        needed = spans + 1 if self.targets == "intended" else spans
        if self.replace and needed > self.sentinels:
            raise ValueError(
                f"sentinels: {lengths.raw} tokens × noise_density {self.noise_density:g} / "
                f"mean_span_length {self.mean_span_length:g} = {spans} spans need {needed} "
                f"sentinels, and there are {self.sentinels}: lower segments.max_length "
                f"{max_length}, or raise mean_span_length"
            )
        return lengths

    def lengths_of_row(self, raw: int) -> Lengths:
        """See `TextToTextConfig`."""
        return self._spans(raw) if self.masks == "spans" else self._lengths_of_tokens(raw + 1)

    def _released(self, raw: int) -> Lengths:
        """Returns the lengths by which the release chooses n.

        It rounds in float64 here and may find no span, unlike `counts`, by which it draws.
        """
        noise = round(raw * self.noise_density)
        return self._lengths(raw, noise, round(noise / self.mean_span_length))

    def _spans(self, raw: int) -> Lengths:
        return self._lengths(raw, *self.counts(raw))

    def _lengths(self, raw: int, noise: int, spans: int) -> Lengths:
        if not self.replace:
            return Lengths(raw, raw - noise + 1, noise + 1)
        return Lengths(raw, raw - noise + spans + 1, noise + spans + 1)

    def _lengths_of_tokens(self, max_length: int) -> Lengths:
        """Returns lengths that rows exceed with a probability of about 0.1%.

        A removed token has one target, and the first of a span also a sentinel. Three standard
        deviations are added to the mean, and the sum is rounded up to a multiple of 8.
        """
        raw, p = max_length - 1, self.noise_density
        mean, variance = raw * p, raw * p * (1 - p)
        if self.replace:
            mean = raw * p * (2 - p)
            variance = raw * p * (4 - 3 * p) - raw * (p * (2 - p)) ** 2
            variance -= 2 * raw * p**2 * (2 - p) * (1 - p)
            runs = raw * p * (1 - p)
            most = math.ceil(runs + 3 * math.sqrt(runs * (1 - 3 * p * (1 - p)))) + 1
            if most > self.sentinels:
                raise ValueError(
                    f"sentinels: {raw} tokens × {p:g} × {1 - p:g} = {runs:.0f} spans on average, "
                    f"and up to {most}, need more than {self.sentinels} sentinels: lower "
                    "segments.max_length or noise_density, or take masks: spans"
                )
        targets = math.ceil(mean + 3 * math.sqrt(variance)) + 1
        return Lengths(raw, max_length, min(8 * math.ceil(targets / 8), 2 * raw + 2))


@dataclasses.dataclass(frozen=True)
class DenoisingConfig(TextToTextConfig):
    """The other objectives of T5's study, with an encoder-decoder (section 3.3).

    Attributes:
        method: 'bert_style' = a share of the tokens is masked, or replaced by a random one, and the
            target is the whole text; 'mass_style' = the same with masks only; 'deshuffle' = the
            input is the text in random order; 'prefix_lm' = the text is cut at a random place, and
            the target is the second part; 'lm' = the input is empty.
        noise_density: the share of tokens of the first two methods.
        random_prob: of 'bert_style', the share of these that become a random token, of all but the
            special ones (sentinels are drawn as well, as in the release). The others become the
            mask, which is the first sentinel.
    """

    type = "denoising"

    method: str = "bert_style"
    noise_density: float = 0.15
    random_prob: float = 0.1

    def __post_init__(self):
        one_of("method", self.method, METHODS)
        for name in ("noise_density", "random_prob"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is not between 0 and 1")

    @property
    def sentinels(self) -> int:
        """The number of sentinels of the vocabulary that are used."""
        return 1 if self.method.endswith("_style") else 0

    def lengths(self, max_length: int) -> Lengths:
        """See `TextToTextConfig`."""
        return self.lengths_of_row(max_length - 1)

    def lengths_of_row(self, raw: int) -> Lengths:
        """See `TextToTextConfig`."""
        if self.method == "prefix_lm":
            return Lengths(raw, raw, raw)
        return Lengths(raw, 1 if self.method == "lm" else raw + 1, raw + 1)


def _float32(x: float) -> float:
    """Returns the nearest float32."""
    return struct.unpack("f", struct.pack("f", x))[0]


PARTS = (SentinelsConfig, DenoisingConfig)
